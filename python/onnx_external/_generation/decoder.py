"""Runs the graphs of a decoder to add tokens to a batch of prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._base.errors import (
    InvalidArgumentError,
    MismatchError,
    NotFoundError,
    RunError,
)
from .._comparing.branches import Branch, branches, is_merged
from .._comparing.chaining import handed_on, is_past, is_present, present_of
from .._comparing.running import Session, provider_names
from .._folders.config import document_of
from .._folders.models import DECODE, PREFILL, place_of_graphs
from .._folders.preconditions import warn
from .._folders.variants import suffix_in
from .next_tokens import NextTokens, Prompts

_INPUTS = ("input_ids", "attention_mask", "position_ids")
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_ATTENTION = "onnx_external.attention"
_LARGEST = np.iinfo(np.int64).max
_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx")
_FULL = -1
"""A placeholder for the next token of a text whose model has no further positions."""


@dataclass
class _State:
    """The state that is passed from one step to the next."""

    cache: dict[str, Any]
    mask: Any
    places: Any
    is_shared: bool = False
    """True if the cache is one buffer that each step writes into."""


class Decoder:
    """The one or two graphs of a decoder.

    Args:
        folder: the folder with model.onnx, or prefill.onnx and decode.onnx.
        providers: the execution providers for ONNX Runtime.
    """

    _by_lengths = False
    """True if the graph uses sequence lengths, so that prompts must not be padded on the left."""

    def __init__(self, folder: Path, providers: str | Sequence[Any] | None = None) -> None:
        self._folder = folder
        given = provider_names(providers)
        names = _graph_name(folder), f"{PREFILL}.onnx", f"{DECODE}.onnx"
        place = place_of_graphs(folder)
        found = [place / name for name in names if (place / name).is_file()]
        if not found:
            raise NotFoundError(
                f"{folder}: contains neither model.onnx, nor {PREFILL}.onnx and {DECODE}.onnx; "
                "onnx-external export MODEL -o FOLDER writes them"
            )
        whole = Session(found[0], given, found[0].name)
        self._first: Session | Branch = whole
        self._next: Session | Branch = whole
        if found[1:]:
            self._next = Session(found[-1], given, found[-1].name)
        elif is_merged(whole):
            both = branches(whole, PREFILL, DECODE)
            self._first, self._next = both[PREFILL], both[DECODE]
        for session in (self._first, self._next):
            self._check(session)
        self.ends, self._pad = token_ids(folder)
        self._positions = _positions(folder)
        self._shares = self._next is self._first and _shares_buffers(folder)
        self._by_lengths = whole.metadata().get(_ATTENTION) == "lengths"
        self._next_tokens = NextTokens(*settings_of(folder))
        warn(self._next_tokens.notes)

    def _check(self, session: Session | Branch) -> None:
        taken = {form.name for form in session.inputs}
        caches = [form for form in session.outputs if is_present(form.name)]
        others = [name for name in taken if name not in _INPUTS and not is_past(name)]
        if others or "input_ids" not in taken or not caches or session.output_names[0] != "logits":
            raise MismatchError(
                f"{self._folder / session.name}: is not a decoder, whose inputs are input_ids and "
                "a cache, and whose outputs are logits and a longer cache; the inputs of this "
                f"graph are {', '.join(sorted(taken))}"
            )
        for form in session.inputs:
            if is_past(form.name) and form.type not in _TYPES:
                raise MismatchError(
                    f"{self._folder / session.name}: {form.name} is {form.type}, which numpy does "
                    "not support; export the model with --dtype float32"
                )

    @property
    def reads_text(self) -> bool:
        """True, because a prompt is a whole text, not the start of a separate decoder's text."""
        return True

    @property
    def continues(self) -> bool:
        """True if the generated tokens continue the prompt."""
        return True

    def decoder_rows(
        self, rows: Sequence[Sequence[int]], inputs: Mapping[str, Any]
    ) -> Sequence[Sequence[int]]:
        """Return the prompts for the decoder, unchanged, because there is no encoder."""
        return rows

    def generate(self, rows: Sequence[Sequence[int]], count: int) -> list[list[int]]:
        """Return the tokens that follow each prompt, without the end token."""
        if self._by_lengths and len(set(map(len, rows))) > 1:  # its rows are not padded on the left
            return [each for row in rows for each in self.generate([row], count)]
        found: list[list[int]] = [[] for _ in rows]
        running = [True] * len(rows)
        for tokens in self._steps(rows, count):
            for row, token in enumerate(tokens):
                running[row] = running[row] and token not in self.ends and token != _FULL
                if running[row]:
                    found[row].append(token)
            if not any(running):
                break
        return found

    def _steps(self, rows: Sequence[Sequence[int]], count: int) -> Iterator[list[int]]:
        """Yield, step by step, the next token of each prompt.

        Prompts are padded on the left.
        """
        longest = max(map(len, rows))
        ids = np.full((len(rows), longest), self._pad, np.int64)
        mask = np.zeros((len(rows), longest), np.int64)
        for number, row in enumerate(rows):
            ids[number, longest - len(row) :] = row
            mask[number, longest - len(row) :] = 1
        cache = _empty(self._first, len(rows), longest + count if self._shares else 0)
        places = np.maximum(mask.cumsum(1) - 1, 0)
        state = _State(cache, mask, places, self._shares)
        prompts = Prompts(ids, longest - mask.sum(1), count, sorted(self.ends))
        choose = self._next_tokens.begin(prompts)
        session, whole, full = self._first, ids, np.zeros(len(rows), bool)
        for step in range(count):
            try:
                logits, state = self._run(session, ids, state)
            except RunError as error:
                full = self._rows_at_the_end(state, error, is_prompt=step == 0)
                if full.all() or not _takes_positions(session):
                    return
                state.places = np.minimum(state.places, (self._positions or _LARGEST) - 1)
                logits, state = self._run(session, ids, state)
            session = self._next
            ids = np.array(choose(logits[:, -1], whole), np.int64)[:, None]
            whole = np.concatenate([whole, ids], 1)
            yield np.where(full, _FULL, ids[:, 0]).tolist()

    def _rows_at_the_end(self, state: _State, error: RunError, *, is_prompt: bool) -> Any:
        """Return which prompts have used all positions of the model; raise `error` if none has."""
        full = state.places.max(1) >= (self._positions or _LARGEST)
        if not full.any():
            raise error
        what = f"the model has {self._positions} positions"
        if is_prompt:
            longest = int(state.places.max()) + 1
            raise InvalidArgumentError(
                f"generate: a prompt has {longest} tokens, but {what}; shorten the prompt"
            ) from error
        warn([f"generate: a text was ended early, because {what}"])
        return full

    def _run(self, session: Session | Branch, ids: Any, state: _State) -> tuple[Any, _State]:
        feed = {
            "input_ids": ids,
            "attention_mask": state.mask,
            "position_ids": state.places,
        }
        try:
            results = _results(session, feed, state)
        except RunError as error:
            _refuse_unknown(session, ids, error)
            raise
        more = np.ones((len(ids), 1), np.int64)
        longer = handed_on(session.name, results)
        mask = np.concatenate([state.mask, more], 1)
        cache = state.cache if state.is_shared else longer
        return results["logits"], _State(cache, mask, state.places[:, -1:] + 1, state.is_shared)


def _results(
    session: Session | Branch, feed: Mapping[str, Any], state: _State
) -> Mapping[str, Any]:
    if not state.is_shared or isinstance(session, Branch):
        return session.run(session.feed({**feed, **state.cache}, "generate"), "generate")
    taken = {form.name for form in session.inputs}
    arrays = {name: np.ascontiguousarray(each) for name, each in feed.items() if name in taken}
    buffers = {(name, present_of(name)): buffer for name, buffer in state.cache.items()}
    return session.run_in_place(arrays, buffers, "generate")


def _takes_positions(session: Session | Branch) -> bool:
    return any(form.name == "position_ids" for form in session.inputs)


def _refuse_unknown(session: Session | Branch, ids: Any, error: RunError) -> None:
    """Raise an error if the model has no token for one of the ids."""
    size = next(form.shape[-1] for form in session.outputs if form.name == "logits")
    if isinstance(size, int) and ids.max() >= size:
        raise InvalidArgumentError(
            f"generate: {ids.max()} is not a token id; the ids of this model are 0 to {size - 1}"
        ) from error


def _empty(session: Session | Branch, rows: int, room: int) -> dict[str, Any]:
    """Return an empty cache; unless `room` is 0, buffers with space for that many tokens."""
    found = {}
    for form in session.inputs:
        if is_past(form.name):
            shape = [rows, *(size if isinstance(size, int) else room for size in form.shape[1:])]
            dtype = _TYPES[form.type]
            if room and isinstance(session, Session):
                found[form.name] = session.buffer(shape, dtype)
            else:
                found[form.name] = np.zeros(shape, dtype)
    return found


def token_ids(folder: Path) -> tuple[set[int], int]:
    """Return the ids of the tokens that end a text, and the id of the padding token."""
    files = (_document(folder, name) for name in ("generation_config.json", "config.json"))
    for found in (_genai_model(folder), *files):
        ends = found.get("eos_token_id")
        if isinstance(ends, (int, list)):
            numbers = [ends] if isinstance(ends, int) else [e for e in ends if isinstance(e, int)]
            pad = found.get("pad_token_id")
            return set(numbers), pad if isinstance(pad, int) else (numbers or [0])[0]
    return set(), 0


def settings_of(folder: Path) -> tuple[Mapping[str, Any], str]:
    """Return the settings of generate(), merged as in transformers, and the name of their file."""
    name = "generation_config.json"
    if (folder / name).is_file():
        return _document(folder, name), name
    config = _document(folder, "config.json")
    text = config.get("text_config")
    return {**(text if isinstance(text, dict) else {}), **config}, "config.json"


def _positions(folder: Path) -> int | None:
    """Return the number of positions in config.json; a model without a table may exceed it."""
    config = _document(folder, "config.json")
    text = config.get("text_config")
    for each in (config, text if isinstance(text, dict) else {}):
        for name in _POSITIONS:
            if isinstance(each.get(name), int):
                return int(each[name])
    return None


def _graph_name(folder: Path) -> str:
    """Return the file name of the only graph, which may differ from model.onnx."""
    decoder = _genai_model(folder).get("decoder")
    name = decoder.get("filename") if isinstance(decoder, dict) else None
    parts = Path(name).parts if isinstance(name, str) else ()
    if parts in ((name,), ("onnx", *parts[1:2])):
        return parts[-1]
    return f"model{suffix_in(place_of_graphs(folder), 'model')}.onnx"


def _shares_buffers(folder: Path) -> bool:
    """Return whether the graph can write the longer cache into the buffer of the input cache."""
    search = _document(folder, "genai_config.json").get("search")
    return isinstance(search, dict) and search.get("past_present_share_buffer") is True


def _genai_model(folder: Path) -> Mapping[str, Any]:
    found = _document(folder, "genai_config.json").get("model")
    return found if isinstance(found, dict) else {}


def _document(folder: Path, name: str) -> Mapping[str, Any]:
    return document_of(folder, name) if (folder / name).is_file() else {}
