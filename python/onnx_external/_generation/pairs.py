"""Generates text with an exported encoder and decoder, for oe.generate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._base.errors import InvalidArgumentError, MismatchError, NotFoundError
from .._comparing.branches import Branch, branches
from .._comparing.chaining import handed_on
from .._comparing.running import Session, provider_names
from .._folders.config import document_of
from .._folders.models import ENCODER, MERGED, PROMPT, STEP, place_of_graphs
from .._folders.preconditions import warn
from .._folders.variants import suffix_in
from .decoder import Decoder, settings_of, token_ids
from .next_tokens import NextTokens, Prompts

_GRAPHS = (ENCODER, PROMPT, STEP)
_WORDS = "input_ids"
_PROMPTS = "decoder_input_ids"
"""The name in transformers of the tokens that start a decoder's text."""


def is_pair(folder: Path) -> bool:
    """Return whether a folder contains the graphs of an encoder and a decoder."""
    place = place_of_graphs(folder)
    return (place / f"{ENCODER}{suffix_in(place, ENCODER)}.onnx").is_file()


class Pair(Decoder):
    """The graphs of an encoder and a decoder; the decoder is two graphs, or one with two branches.

    Args:
        folder: the folder with the graphs.
        providers: the execution providers for ONNX Runtime.
    """

    def __init__(self, folder: Path, providers: str | Sequence[Any] | None = None) -> None:
        self._folder = folder
        given = provider_names(providers)
        place = place_of_graphs(folder)
        suffix = suffix_in(place, ENCODER)
        is_merged = (place / f"{MERGED}{suffix}.onnx").is_file()
        names = (ENCODER, MERGED) if is_merged else _GRAPHS
        files = {name: f"{name}{suffix}.onnx" for name in names}
        lacking = [file for file in files.values() if not (place / file).is_file()]
        if lacking:
            raise NotFoundError(
                f"{folder}: contains {files[ENCODER]}, but not {lacking[0]}; onnx-external export "
                "MODEL -o FOLDER writes all graphs"
            )
        opened = {name: Session(place / file, given, file) for name, file in files.items()}
        self._sessions: dict[str, Session | Branch] = dict(opened)
        if is_merged:
            whole = opened[MERGED]
            self._sessions |= branches(whole, PROMPT, STEP)
        for name in (PROMPT, STEP):
            session = self._sessions[name]
            if _WORDS not in _taken(session) or "logits" not in session.output_names:
                raise MismatchError(
                    f"{folder / session.name}: is not a decoder for an encoder, which has an input "
                    f"{_WORDS} and an output logits; the inputs of this graph are "
                    f"{', '.join(sorted(_taken(session)))}"
                )
        self.ends, self._pad = token_ids(folder)
        self._next_tokens = NextTokens(*settings_of(folder))
        warn(self._next_tokens.notes)
        self._given: dict[str, Any] = {}

    @property
    def reads_text(self) -> bool:
        """True if the encoder takes token ids."""
        return _WORDS in _taken(self._sessions[ENCODER])

    @property
    def continues(self) -> bool:
        """False, because the decoder's text does not continue the prompt."""
        return False

    def decoder_rows(
        self, rows: Sequence[Sequence[int]], inputs: Mapping[str, Any]
    ) -> list[list[int]]:
        """Store the encoder's inputs, and return the prompts of the decoder.

        Args:
            rows: the token ids of the prompts, which are the encoder's input if it takes text, and
                the decoder's input otherwise.
            inputs: the encoder's inputs by name, such as audio features, and `decoder_input_ids`.

        Raises:
            InvalidArgumentError: an input is unknown or missing, or the numbers of prompts do not
                fit.
        """
        self._given = {name: np.asarray(value) for name, value in inputs.items()}
        unknown = self._given.keys() - _taken(self._sessions[ENCODER]) - {_PROMPTS}
        if unknown:
            raise InvalidArgumentError(
                f"generate: {', '.join(sorted(unknown))}: the inputs of the encoder are "
                f"{', '.join(sorted(_taken(self._sessions[ENCODER])))}"
            )
        prompts = self._given.pop(_PROMPTS, None)
        if self.reads_text and any(map(len, rows)):
            self._given = {**_padded(rows, self._pad), **self._given}
        elif prompts is None and any(map(len, rows)):
            prompts = rows
        missing = _taken(self._sessions[ENCODER]) - self._given.keys()
        if missing:
            name = min(missing)
            raise InvalidArgumentError(
                f'generate: the encoder needs the input {name}; pass inputs={{"{name}": array}} or '
                f"--input {name}=FILE.npy"
            )
        count = len(next(iter(self._given.values())))
        found = [[self._start()]] if prompts is None else [list(map(int, row)) for row in prompts]
        found = found * count if len(found) == 1 else found
        if len(found) != count or len({*map(len, found)}) > 1:
            raise InvalidArgumentError(
                f"generate: {len(found)} prompts of {', '.join(map(str, map(len, found)))} tokens: "
                f"expected {count} prompts of the same length, as the encoder's batch size is "
                f"{count}"
            )
        return found

    def _start(self) -> int:
        """Return the token that starts the decoder's text."""
        for name in ("generation_config.json", "config.json"):
            found = document_of(self._folder, name) if (self._folder / name).is_file() else {}
            for key in ("decoder_start_token_id", "bos_token_id"):
                if isinstance(found.get(key), int):
                    return int(found[key])
        raise InvalidArgumentError(
            f"generate: {self._folder} states no decoder_start_token_id; pass the decoder's first "
            f"tokens: {_PROMPTS}=[[ID]]"
        )

    def _steps(self, rows: Sequence[Sequence[int]], count: int) -> Iterator[list[int]]:
        """Yield, step by step, the next token of each text."""
        encoder = self._sessions[ENCODER]
        results = encoder.run(encoder.feed(self._given, "generate"), "generate")
        carried = handed_on(ENCODER, results)
        if "attention_mask" in self._given:
            carried["encoder_attention_mask"] = self._given["attention_mask"]
        words = np.array(rows, np.int64)
        padding = np.zeros(len(rows), np.int64)
        read = self._given.get(_WORDS, words[:, :0])
        choose = self._next_tokens.begin(Prompts(words, padding, count, sorted(self.ends), read))
        place, name = 0, PROMPT
        for _ in range(count):
            while place < words.shape[1]:  # at once, unless the graph takes one at a time
                session = self._sessions[name]
                end = place + 1 if _length(session) == 1 else words.shape[1]
                feed = {**carried, _WORDS: words[:, place:end], **_places(words, place, end)}
                results = session.run(session.feed(feed, "generate"), "generate")
                carried |= handed_on(name, results)
                place, name = end, STEP
            chosen = choose(results["logits"][:, -1], words)
            words = np.concatenate([words, np.array(chosen, np.int64)[:, None]], 1)
            yield chosen


def _taken(session: Session | Branch) -> set[str]:
    return {form.name for form in session.inputs}


def _length(session: Session | Branch) -> Any:
    return next(form.shape[1] for form in session.inputs if form.name == _WORDS)


def _places(words: Any, start: int, end: int) -> dict[str, Any]:
    """Return the inputs that some decoders take in addition to the tokens."""
    places = np.arange(start, end)[None].repeat(len(words), 0)
    return {
        "attention_mask": np.ones((len(words), end), np.int64),
        "position_ids": places,
    }


def _padded(rows: Sequence[Sequence[int]], pad: int) -> dict[str, Any]:
    """Return the encoder's texts, padded on the right, with their mask."""
    longest = max(map(len, rows))
    ids = np.full((len(rows), longest), pad, np.int64)
    mask = np.zeros((len(rows), longest), np.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
        mask[number, : len(row)] = 1
    return {"input_ids": ids, "attention_mask": mask}
