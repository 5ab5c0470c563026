"""Measures the loss of a transformers model's graph on a text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base.errors import InvalidArgumentError
from .._comparing.inputs import InputSet, given_by_name
from .._comparing.quality import Limits, Quality, QualitySums
from .._comparing.references import ModuleReference, pairs_of
from .._comparing.running import Session

if TYPE_CHECKING:
    from ..transformers._compared import Folder

_WITH_TEXT = ("prompt", "example")
"""The input sets that contain text, in order of preference: a prompt has an empty cache."""


def quality_on_text(
    session: Session,
    reference: ModuleReference,
    folder: Folder,
    sets: Sequence[InputSet],
    text: Path,
    limits: Limits,
) -> Quality | None:
    """Run the graph and the reference on a whole text; return None if the graph has no logits.

    Raises:
        InvalidArgumentError: the text has too few tokens for one run.
    """
    given = _example(sets)
    names = [form.name for form in session.inputs]
    logits = [each for each in session.output_names if each.rpartition(".")[2] == "logits"]
    if not logits or "input_ids" not in names or getattr(given.get("input_ids"), "ndim", 0) != 2:
        return None
    if folder.model.config.is_encoder_decoder:
        return None
    from ..transformers._texts import chunks, tokens_of

    sums, follows = QualitySums(text.name, limits), folder.model.can_generate()
    for chunk in chunks(folder.model, given, tokens_of(folder.source, text), folder.dynamic):
        one = given_by_name(chunk.given)
        one.feed = dict(reference.feed(one.call, names))
        got = session.run(session.feed(one.feed, text.name), text.name)
        want = reference.outputs(one, text.name)
        following = chunk.ids[:, 1:].numpy() if follows else None
        for name, left, right in pairs_of(session.output_names, got, want):
            if name in logits:
                sums.add(name, left, right, following)
        sums.add_tokens(chunk.ids.numel())
    found = sums.found()
    if not found.tokens:
        raise InvalidArgumentError(f"text: {text} has too few tokens for one run of {session.name}")
    return found


def _example(sets: Sequence[InputSet]) -> dict[str, Any]:
    for name in _WITH_TEXT:
        for each in sets:
            if each.name == name:
                call = each.load().call
                return dict(call[1]) if call is not None else {}
    return {}
