"""A conversation on the terminal: what `pyggml chat` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyggml.errors import ContextError
from pyggml.tools.run import SamplingOptions, collect

if TYPE_CHECKING:
    from pyggml.llm.model import Llama

HELP = "/reset starts over, /exit (or Ctrl-D) ends, Ctrl-C stops an answer"


class Conversation:
    """The messages so far, and the loop that adds to them.

    Args:
        llm: the model.
        sampling: how its answers are chosen.
        system: the system message, if any; stays when the conversation is reset.
        write: takes the pieces of an answer.
        note: takes remarks about the conversation, a line each.
    """

    def __init__(
        self,
        llm: Llama,
        sampling: SamplingOptions,
        system: str | None,
        write: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        self._llm, self._sampling, self._system = llm, sampling, system
        self._write, self._note = write, note
        self.messages: list[dict[str, str]] = []
        self.reset()

    def reset(self) -> None:
        """Forget everything but the system message."""
        self.messages = []
        if self._system is not None:
            self.messages.append({"role": "system", "content": self._system})

    def loop(self, read: Callable[[], str]) -> None:
        """Read and answer until `read` raises EOFError or says /exit."""
        while True:
            try:
                line = read().strip()
            except EOFError:
                return
            if line == "/exit":
                return
            if line == "/reset":
                self.reset()
                self._note("(starting over)")
            elif line.startswith("/"):
                self._note(HELP)
            elif line:
                self.turn(line)

    def turn(self, question: str) -> None:
        """Answer one message; Ctrl-C keeps what was said until then."""
        self.messages.append({"role": "user", "content": question})
        pieces: list[str] = []

        def write(piece: str) -> None:
            pieces.append(piece)
            self._write(piece)

        try:
            stream: Any = self._llm.create_chat_completion(
                self.messages, stream=True, **self._sampling.as_dict()
            )
            _, reason = collect(stream, write)
        except KeyboardInterrupt:
            self._end(pieces, "(stopped)")
        except ContextError as error:
            self.messages.pop()
            self._note(f"{error}; /reset starts over")
        else:
            self._end(pieces, "(cut short: -n or the context is used up)" * (reason == "length"))

    def _end(self, pieces: list[str], remark: str) -> None:
        self._write("\n")
        if pieces:
            self.messages.append({"role": "assistant", "content": "".join(pieces)})
        else:
            self.messages.pop()
        if remark:
            self._note(remark)
