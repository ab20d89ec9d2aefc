"""From logits to a token: penalties, filters, temperature, draw.

The order is llama.cpp's default chain: logit bias, penalties, top-k, top-p, min-p, temperature,
draw. Top-p and min-p therefore see the distribution before the temperature. Letters: V vocab.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml.errors import SamplingError

_Ids = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SamplingParams:
    """How to choose the next token. Values are checked when the object is made.

    Attributes:
        temperature: divides the logits; 0 takes the most likely token (lowest id on ties).
        top_k: keep the k most likely tokens; 0 is off.
        top_p: keep the fewest most likely tokens whose probabilities reach p, at least one;
            1 is off.
        min_p: keep tokens at least this fraction as likely as the most likely one; 0 is off.
        repeat_penalty: divides positive and multiplies negative logits of recent tokens; 1 is off.
        presence_penalty: subtracted once from the logits of recent tokens.
        frequency_penalty: subtracted from them for each occurrence.
        penalty_last_n: how many last tokens are recent; 0 is none, -1 is all.
        logit_bias: added to the logits of these ids; -inf bans a token.
        seed: of the draws, >= 0; None takes one from the system.

    Raises:
        SamplingError: a value that is not a number or out of its range.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = 64
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        """Check every value and store it as a plain Python number."""
        checked: dict[str, Any] = {
            "temperature": _real("temperature", self.temperature, low=0.0),
            "top_k": _integer("top_k", self.top_k, low=0),
            "top_p": _real("top_p", self.top_p, low=0.0, high=1.0),
            "min_p": _real("min_p", self.min_p, low=0.0, high=1.0),
            "repeat_penalty": _real("repeat_penalty", self.repeat_penalty, low=0.0),
            "presence_penalty": _real("presence_penalty", self.presence_penalty),
            "frequency_penalty": _real("frequency_penalty", self.frequency_penalty),
            "penalty_last_n": _integer("penalty_last_n", self.penalty_last_n, low=-1),
            "logit_bias": _bias(self.logit_bias),
            "seed": None if self.seed is None else _integer("seed", self.seed, low=0),
        }
        if checked["repeat_penalty"] == 0.0:
            raise SamplingError("sampling: repeat_penalty is 0, expected a number > 0")
        for name, value in checked.items():
            object.__setattr__(self, name, value)


class Sampler:
    """Draws tokens; one object for one sequence, not for several threads at once."""

    def __init__(self, params: SamplingParams, n_vocab: int) -> None:
        """Prepare to draw.

        Args:
            params: the choice of filters.
            n_vocab: number of logits V.

        Raises:
            SamplingError: V is not positive, or logit_bias names an id outside 0 .. V-1.
        """
        self.params = params
        self.n_vocab = _integer("n_vocab", n_vocab, low=1)
        bias = params.logit_bias or {}
        for token in bias:
            if not 0 <= token < self.n_vocab:
                raise SamplingError(
                    f"sampling: logit_bias id {token} is outside 0 .. {self.n_vocab - 1}"
                )
        self._bias_ids = np.fromiter(bias.keys(), np.int64, len(bias))
        self._bias = np.fromiter(bias.values(), np.float64, len(bias))
        self._penalises = params.penalty_last_n != 0 and (
            params.repeat_penalty != 1.0
            or params.presence_penalty != 0.0
            or params.frequency_penalty != 0.0
        )
        self.reset()

    def reset(self, seed: int | None = None) -> None:
        """Start the draws again.

        Args:
            seed: a new seed; None takes that of the parameters (or a fresh one if it has none).

        Raises:
            SamplingError: the seed is not an integer >= 0.
        """
        seed = self.params.seed if seed is None else _integer("seed", seed, low=0)
        self._bits = np.random.PCG64(seed)
        self._rng = np.random.Generator(self._bits)

    def skip(self, n: int) -> None:
        """Leave out the next n draws.

        Raises:
            SamplingError: n is not an integer >= 0.
        """
        self._bits.advance(_integer("skip", n, low=0))

    def sample(self, logits: npt.ArrayLike, history: Sequence[int] = ()) -> int:
        """Return the next token. Equal seeds and inputs give equal tokens.

        Args:
            logits: (V,), not changed. +inf wins over everything finite; several share alike.
            history: the tokens so far, for the penalties.

        Raises:
            SamplingError: logits of another shape, with a NaN, or all -inf.
        """
        if self.params.temperature == 0.0:
            return self._best(self._adjusted(logits, history))
        ids, probs = self.probabilities(logits, history)
        edges = np.cumsum(probs)
        # Scaled by the last edge, so that rounding in the sum leaves no gap at the end.
        drawn = int(np.searchsorted(edges, self._rng.random() * edges[-1], side="right"))
        return int(ids[min(drawn, len(ids) - 1)])

    def probabilities(
        self, logits: npt.ArrayLike, history: Sequence[int] = ()
    ) -> tuple[_Ids, _Floats]:
        """Return the distribution that `sample` draws from.

        Args:
            logits: (V,), not changed.
            history: the tokens so far.

        Returns:
            The ids that are left and their probabilities (F64, sum 1), most likely first, lower
            id first on ties.

        Raises:
            SamplingError: as `sample`.
        """
        adjusted = self._adjusted(logits, history)
        best = self._best(adjusted)
        params = self.params
        if params.temperature == 0.0:
            return np.array([best], np.int64), np.ones(1)
        if adjusted[best] == np.inf:
            adjusted = np.where(adjusted == np.inf, 0.0, -np.inf)
        ids = _top_k(adjusted, params.top_k)
        values = adjusted[ids].astype(np.float64)
        kept = _count_top_p(values, params.top_p)
        kept = min(kept, _count_min_p(values, params.min_p))
        # An infinite gap (tiny temperature, huge logits) is probability 0.
        with np.errstate(over="ignore", under="ignore"):
            probs = _softmax((values[:kept] - values[0]) / params.temperature)
        return ids[:kept], probs

    def _adjusted(
        self, logits: npt.ArrayLike, history: Sequence[int]
    ) -> npt.NDArray[np.floating[Any]]:
        """Return the logits after bias and penalties; the caller's own array if there are none."""
        array = np.asarray(logits)
        if array.shape != (self.n_vocab,):
            raise SamplingError(
                f"sampling: logits have shape {array.shape}, expected ({self.n_vocab},)"
            )
        if array.dtype not in (np.float32, np.float64):
            try:
                array = array.astype(np.float64)
            except (TypeError, ValueError) as error:
                raise SamplingError(f"sampling: logits are {array.dtype}") from error
        if not self._penalises and not self._bias_ids.size:
            return array
        raw_best = int(np.argmax(array))
        if np.isnan(array[raw_best]):  # a ban must not hide it
            raise _nan_error(raw_best)
        array = array.astype(np.float64)
        # An infinite bias replaces the logit: -inf bans even +inf, and inf - inf is no number.
        biased = array[self._bias_ids]
        finite = np.isfinite(self._bias)
        with np.errstate(over="ignore", invalid="ignore"):
            array[self._bias_ids] = np.where(finite, biased + self._bias, self._bias)
        if self._penalises:
            self._penalise(array, history)
        return array

    def _penalise(self, array: _Floats, history: Sequence[int]) -> None:
        last_n, params = self.params.penalty_last_n, self.params
        recent = np.asarray(history if last_n < 0 else history[-last_n:])
        if recent.size == 0:
            return
        if recent.dtype.kind not in "iu" or recent.min() < 0 or recent.max() >= self.n_vocab:
            raise SamplingError(
                f"sampling: history has something that is no id in 0 .. {self.n_vocab - 1}"
            )
        ids, counts = np.unique(recent, return_counts=True)
        values = array[ids]
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.where(
                values > 0, values / params.repeat_penalty, values * params.repeat_penalty
            )
            change = counts * params.frequency_penalty + params.presence_penalty
            # Only finite logits move: a ban stays a ban whatever the penalty.
            array[ids] = np.where(np.isfinite(values), values - change, values)

    def _best(self, array: npt.NDArray[np.floating[Any]]) -> int:
        best = int(np.argmax(array))  # the first NaN, if there is one
        if np.isnan(array[best]):
            raise _nan_error(best)
        if array[best] == -np.inf:
            raise SamplingError("sampling: every logit is -inf, no token can be chosen")
        return best


def _top_k(values: npt.NDArray[np.floating[Any]], k: int) -> _Ids:
    """Return the ids of the k largest values above -inf, largest first, lower id on ties."""
    if 0 < k < len(values):
        threshold = np.partition(values, len(values) - k)[len(values) - k]
        ids = np.flatnonzero(values >= threshold)
        if len(ids) > k:  # ties at the border: the lowest ids fill what is left
            ties = np.flatnonzero(values[ids] == threshold)
            ids = np.delete(ids, ties[k - len(ids) :])
    else:
        ids = np.arange(len(values))
    ids = ids[values[ids] > -np.inf]
    return ids[np.argsort(-values[ids], kind="stable")]


def _count_top_p(values: _Floats, p: float) -> int:
    """Return how many of the descending values top-p keeps."""
    if p >= 1.0:
        return len(values)
    reached = np.cumsum(_softmax(values - values[0])) >= p
    first = int(np.argmax(reached))
    return first + 1 if reached[first] else len(values)


def _count_min_p(values: _Floats, p: float) -> int:
    """Return how many of the descending values min-p keeps."""
    if p <= 0.0:
        return len(values)
    return int(np.count_nonzero(values >= values[0] + math.log(p)))


def _softmax(gaps: _Floats) -> _Floats:
    """Return the softmax of values whose largest is 0."""
    weights: _Floats = np.exp(gaps)
    weights /= weights.sum()
    return weights


def _nan_error(token: int) -> SamplingError:
    return SamplingError(f"sampling: the logit of token {token} is NaN")


def _real(name: str, value: Any, low: float = -math.inf, high: float = math.inf) -> float:
    try:
        number = math.nan if isinstance(value, (str, bytes, bool)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isfinite(number) and low <= number <= high:
        return number
    if high < math.inf:
        rule = f"a number in {low:g} .. {high:g}"
    else:
        rule = f"a finite number >= {low:g}" if low > -math.inf else "a finite number"
    raise SamplingError(f"sampling: {name} is {value!r}, expected {rule}")


def _integer(name: str, value: Any, low: int) -> int:
    try:
        number = low - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = low - 1
    if number < low:
        raise SamplingError(f"sampling: {name} is {value!r}, expected an integer >= {low}")
    return number


def _bias(bias: Any) -> dict[int, float] | None:
    """Return a copy with plain numbers, so that later changes by the caller do not reach us."""
    if bias is None:
        return None
    if not isinstance(bias, Mapping):
        raise SamplingError(f"sampling: logit_bias is a {type(bias).__name__}, expected a mapping")
    copy: dict[int, float] = {}
    for token, value in bias.items():
        key = _integer("logit_bias id", token, low=0)
        infinite = isinstance(value, (float, np.floating)) and math.isinf(value)
        copy[key] = float(value) if infinite else _real(f"logit_bias[{key}]", value)
    return copy
