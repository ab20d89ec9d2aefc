"""Text while it is being generated: whole characters only, and nothing of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence

from pyggml.errors import ParameterError


class TextStream:
    r"""Joins the bytes of tokens to text that is safe to show.

    Everything returned, joined, is `bytes.decode(errors="replace")` of the whole, cut before the
    first stop string. First is the one that begins first; of those that begin together, the
    longest. So a stop string that is complete waits while one that began earlier, or a longer one
    that began with it, may still come. The result does not depend on how the bytes were divided.

    Stop strings are looked for in the bytes of the generated text, never in the prompt. Empty
    ones are ignored.

    Attributes:
        stopped: the stop string that was hit, or None. Look after `finish`, too: a stop string
            that had to wait may be decided only there.
    """

    def __init__(
        self,
        token_bytes: Callable[[int], bytes],
        stop: str | bytes | Sequence[str | bytes] = (),
    ) -> None:
        """Start an empty text.

        Args:
            token_bytes: gives the bytes of a token; its errors pass through `push`.
            stop: strings that end the text; one alone may be given as it is.

        Raises:
            ParameterError: a stop string of another type, or one without a UTF-8 form.
        """
        if isinstance(stop, (str, bytes)):
            stop = (stop,)
        # dict: no duplicates, order kept
        self._stops = tuple(s for s in dict.fromkeys(map(_stop_bytes, stop)) if s)
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = b""
        self._closed = False
        self.stopped: str | None = None

    def push(self, token_id: int) -> str:
        """Add a token; return the text that can be shown now. Nothing after the end."""
        return "" if self._closed else self.push_bytes(self._token_bytes(token_id))

    def push_bytes(self, data: bytes) -> str:
        """Add bytes; return the text that can be shown now. Nothing after the end."""
        if self._closed:
            return ""
        self._held += data
        found = self._first_stop()
        waiting = self._first_partial(found)
        if found is not None and waiting is None:
            return self._close(found)
        limits = [len(self._held) if waiting is None else waiting]
        if found is not None:
            limits.append(found[0])
        safe = min(limits)
        shown, self._held = self._held[:safe], self._held[safe:]
        return self._decoder.decode(shown)

    def finish(self) -> str:
        """End the text; return what was held back. A second call returns nothing.

        An incomplete character at the end becomes U+FFFD.
        """
        return "" if self._closed else self._close(self._first_stop())

    def _close(self, found: tuple[int, bytes] | None) -> str:
        self._closed = True
        shown = self._held
        if found is not None:
            shown = shown[: found[0]]
            self.stopped = found[1].decode(errors="replace")
        self._held = b""
        return self._decoder.decode(shown, final=True)

    def _first_stop(self) -> tuple[int, bytes] | None:
        """Return (place, stop string) of the earliest in the held bytes, the longest there."""
        hits = ((self._held.find(stop), stop) for stop in self._stops)
        return min(
            (hit for hit in hits if hit[0] >= 0), key=lambda h: (h[0], -len(h[1])), default=None
        )

    def _first_partial(self, found: tuple[int, bytes] | None) -> int | None:
        """Return the earliest place where a stop string may have begun and could beat `found`."""
        held, best = self._held, None
        for stop in self._stops:
            for start in range(max(0, len(held) - len(stop) + 1), len(held)):
                if best is not None and start >= best:
                    break
                if found is not None and start > found[0]:
                    break  # one that begins with `found` and is not complete is longer
                if stop.startswith(held[start:]):
                    best = start
        return best


def _stop_bytes(stop: str | bytes) -> bytes:
    if isinstance(stop, bytes):
        return stop
    if not isinstance(stop, str):
        raise ParameterError(
            f"stream: a stop string is a {type(stop).__name__}, expected str or bytes"
        )
    try:
        return stop.encode()
    except UnicodeEncodeError:
        raise ParameterError(f"stream: stop string {stop!r} has no UTF-8 form") from None
