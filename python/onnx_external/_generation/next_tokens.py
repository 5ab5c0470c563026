"""Chooses the next token as `generate(do_sample=False)` of transformers does.

The settings of `generate()` that change scores are applied in the same order as in transformers.
`NextTokens.notes` names settings that would not choose the likeliest token, such as beams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._base.errors import FormatError

_Scores = NDArray[np.float32]
_Ids = NDArray[np.int64]
_Step = Callable[[_Scores, _Ids], _Scores]
_WORST = np.float32(-np.inf)

_LEFT_OUT: dict[str, Any] = {
    "num_beams": 1,
    "num_beam_groups": 1,
    "penalty_alpha": 0,
    "guidance_scale": 1,
    "dola_layers": None,
    "constraints": None,
    "force_words_ids": None,
    "stop_strings": None,
    "max_time": None,
    "watermarking_config": None,
}
"""Settings that are not applied, with the value that disables each setting."""


@dataclass
class Prompts:
    """The prompts to continue, and the maximum length."""

    ids: _Ids
    """The token ids of the prompts, padded on the left."""
    padding: NDArray[np.int64]
    """The number of padding ids in each prompt."""
    count: int
    """The maximum number of tokens to add."""
    ends: Sequence[int]
    """The ids of the tokens that end a text."""
    read: _Ids | None = None
    """The encoder's input ids, if they differ from the prompts; empty if the encoder takes no
    text."""


class NextTokens:
    """Chooses the next tokens.

    Args:
        settings: the settings of `generate()`, from generation_config.json.
        file: the name of the file with the settings, for messages.

    Raises:
        FormatError: the value of a setting is invalid.
    """

    def __init__(self, settings: Mapping[str, Any], file: str) -> None:
        self._file = file
        self._given = {name: each for name, each in settings.items() if each is not None}
        self.notes = [
            f"{file}: {name}={self._given[name]!r} is ignored: the likeliest token is always chosen"
            for name, nothing in _LEFT_OUT.items()
            if self._given.get(name) not in (None, nothing, False, [])
        ]

    def begin(self, prompts: Prompts) -> Callable[[_Scores, _Ids], list[int]]:
        """Return a function that chooses each prompt's next token, given the scores and all ids."""
        made = _Processors(prompts, self._setting, self._asks("forced_bos_token_id"))
        steps = [make(made) for name, make in _MAKERS.items() if self._asks(name)]

        def choose(scores: _Scores, ids: _Ids) -> list[int]:
            scores = scores.astype(np.float32)
            with np.errstate(all="ignore"):
                for step in steps:
                    scores = step(scores, ids)
            return [int(each) for each in scores.argmax(-1)]

        return choose

    def _asks(self, name: str) -> bool:
        value = self._given.get(name)
        is_token = name.startswith("forced_")  # 0 is one
        return value is not None and value is not False and (bool(value) or is_token)

    def _setting(self, name: str, kind: Callable[[Any], Any]) -> Any:
        value = self._given[name]
        try:
            return kind(value)
        except (TypeError, ValueError, IndexError) as error:
            raise FormatError(f"{self._file}: {name}: {value!r} is not a valid value") from error


@dataclass
class _Processors:
    """Makes the functions that change scores, one for each setting, with the setting's name."""

    prompts: Prompts
    setting: Callable[[str, Callable[[Any], Any]], Any]
    forces_first: bool
    """True if the token after a prompt of one token is forced."""
    width: int = field(init=False)
    """The number of ids in a prompt, including padding."""

    def __post_init__(self) -> None:
        self.width = self.prompts.ids.shape[1]
        self._read = self.prompts.ids if self.prompts.read is None else self.prompts.read

    def sequence_bias(self) -> _Step:
        return _biased(self.setting("sequence_bias", _biases))

    def bad_words_ids(self) -> _Step:
        words = self.setting("bad_words_ids", _rows)
        kept = [word for word in words if not (len(word) == 1 and word[0] in self.prompts.ends)]
        return _biased([(word, float("-inf")) for word in kept])

    def encoder_repetition_penalty(self) -> _Step:
        factor = 1 / self.setting("encoder_repetition_penalty", _positive)
        return lambda scores, _: _penalized(scores, self._read, np.float32(factor))

    def repetition_penalty(self) -> _Step:
        factor = np.float32(self.setting("repetition_penalty", _positive))
        padding = self.prompts.padding[:, None]

        def step(scores: _Scores, ids: _Ids) -> _Scores:
            beyond = scores.shape[1]
            return _penalized(
                scores, np.where(np.arange(ids.shape[1]) < padding, beyond, ids), factor
            )

        return step

    def no_repeat_ngram_size(self) -> _Step:
        size = self.setting("no_repeat_ngram_size", _count)
        return lambda scores, ids: _without_repeats(scores, ids, ids, size)

    def encoder_no_repeat_ngram_size(self) -> _Step:
        size = self.setting("encoder_no_repeat_ngram_size", _count)
        return lambda scores, ids: _without_repeats(scores, ids, self._read, size)

    def min_length(self) -> _Step:
        least = self.setting("min_length", _count)
        return self._not_before(lambda ids: ids.shape[1] < least)

    def min_new_tokens(self) -> _Step:
        least = self.setting("min_new_tokens", _count) + self.width
        return self._not_before(lambda ids: ids.shape[1] < least)

    def _not_before(self, is_early: Callable[[_Ids], bool]) -> _Step:
        ends = self.prompts.ends
        return lambda scores, ids: _without(scores, ends) if is_early(ids) else scores

    def forced_bos_token_id(self) -> _Step:
        return self._forced("forced_bos_token_id", 1)

    def forced_eos_token_id(self) -> _Step:
        return self._forced("forced_eos_token_id", self.width + self.prompts.count - 1)

    def _forced(self, name: str, width: int) -> _Step:
        ids_of = self.setting(name, _ids)

        def step(scores: _Scores, ids: _Ids) -> _Scores:
            if ids.shape[1] != width:
                return scores
            forced = np.full_like(scores, _WORST)
            forced[:, _known(ids_of, scores)] = 0
            return forced

        return step

    def remove_invalid_values(self) -> _Step:
        return lambda scores, _: np.nan_to_num(scores, nan=0.0)

    def exponential_decay_length_penalty(self) -> _Step:
        begin, factor = self.setting("exponential_decay_length_penalty", _decay)
        begin += self.width

        def step(scores: _Scores, ids: _Ids) -> _Scores:
            if ids.shape[1] <= begin:
                return scores
            scores, ends = scores.copy(), _known(self.prompts.ends, scores)
            old = scores[:, ends]
            more = np.abs(old) * np.float32(factor ** (ids.shape[1] - begin) - 1)
            scores[:, ends] = np.where(np.isfinite(old), old + more, old)
            return scores

        return step

    def suppress_tokens(self) -> _Step:
        ids_of = self.setting("suppress_tokens", _ids)
        return lambda scores, _: _without(scores, ids_of)

    def begin_suppress_tokens(self) -> _Step:
        ids_of = self.setting("begin_suppress_tokens", _ids)
        begin = self.width + (self.width == 1 and self.forces_first)
        return lambda scores, ids: _without(scores, ids_of) if ids.shape[1] == begin else scores


_MAKERS: dict[str, Callable[[_Processors], _Step]] = {
    "sequence_bias": _Processors.sequence_bias,
    "encoder_repetition_penalty": _Processors.encoder_repetition_penalty,
    "repetition_penalty": _Processors.repetition_penalty,
    "no_repeat_ngram_size": _Processors.no_repeat_ngram_size,
    "encoder_no_repeat_ngram_size": _Processors.encoder_no_repeat_ngram_size,
    "bad_words_ids": _Processors.bad_words_ids,
    "min_length": _Processors.min_length,
    "min_new_tokens": _Processors.min_new_tokens,
    "forced_bos_token_id": _Processors.forced_bos_token_id,
    "forced_eos_token_id": _Processors.forced_eos_token_id,
    "remove_invalid_values": _Processors.remove_invalid_values,
    "exponential_decay_length_penalty": _Processors.exponential_decay_length_penalty,
    "suppress_tokens": _Processors.suppress_tokens,
    "begin_suppress_tokens": _Processors.begin_suppress_tokens,
}
"""The methods that make the steps, by setting, in the order in which transformers applies them."""


def _known(ids: Sequence[int], scores: _Scores) -> list[int]:
    return [each for each in ids if 0 <= each < scores.shape[1]]


def _without(scores: _Scores, ids: Sequence[int]) -> _Scores:
    scores = scores.copy()
    scores[:, _known(ids, scores)] = _WORST
    return scores


def _penalized(scores: _Scores, seen: _Ids, factor: np.float32) -> _Scores:
    """Make tokens that occurred less likely; ids without a score are ignored."""
    scores = scores.copy()
    for row, ids in zip(scores, seen, strict=True):
        each = np.unique(ids[ids < row.size])
        row[each] = np.where(row[each] < 0, row[each] * factor, row[each] / factor)
    return scores


def _without_repeats(scores: _Scores, ids: _Ids, seen: _Ids, size: int) -> _Scores:
    """Exclude tokens that would repeat a sequence of `size` ids in `seen`."""
    if ids.shape[1] < size or seen.shape[1] < size:
        return scores
    scores = scores.copy()
    windows = np.lib.stride_tricks.sliding_window_view(seen, size, axis=1)
    last = ids[:, ids.shape[1] + 1 - size :]
    for row, has_begun in enumerate((windows[..., :-1] == last[:, None]).all(-1)):
        scores[row, _known(windows[row, has_begun, -1].tolist(), scores)] = _WORST
    return scores


def _biased(words: Sequence[tuple[list[int], float]]) -> _Step:
    def step(scores: _Scores, ids: _Ids) -> _Scores:
        added = np.zeros_like(scores)
        for word, bias in words:
            if len(word) > ids.shape[1] + 1 or not _known(word[-1:], scores):
                continue
            begun = (ids[:, ids.shape[1] + 1 - len(word) :] == np.array(word[:-1])).all(-1)
            added[begun, word[-1]] += np.float32(bias)
        return scores + added

    return step


def _positive(value: Any) -> float:
    if not float(value) > 0:
        raise ValueError(value)
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, float) or int(value) < 1:
        raise ValueError(value)
    return int(value)


def _ids(value: Any) -> list[int]:
    return [int(each) for each in (value if isinstance(value, list) else [value])]


def _rows(value: Any) -> list[list[int]]:
    found = [[int(each) for each in row] for row in value]
    if not all(found):
        raise ValueError(value)
    return found


def _biases(value: Any) -> list[tuple[list[int], float]]:
    return [(_rows([row])[0], float(bias)) for row, bias in value]


def _decay(value: Any) -> tuple[int, float]:
    begin, factor = value
    return int(begin), float(factor)
