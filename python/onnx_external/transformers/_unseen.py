"""Detects models that take images, videos or sound but whose graphs would not."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

from .._base.errors import ExportError
from .._saving.reports import SaveReport

_MEDIA = re.compile(r"pixel|image|video|vision|visual|audio|speech|sound|spectrogram")
"""A pattern for the names of inputs and modules that process media."""
_SOUNDS = ("input_features", "input_values")
_KINDS = {"image": "images", "video": "videos", "audio": "sound"}
_SHOWN = 4
"""The maximum number of modules and keys that a message lists."""


def refuse_unseen(model: Any, given: Iterable[Mapping[str, Any]]) -> None:
    """Raise an error if a model takes media but none of its graphs does.

    A part of the model would be missing.

    Args:
        model: a transformers model.
        given: the inputs of each graph.

    Raises:
        ExportError: no graph takes the media of the model.
    """
    taken = _media_of(model)
    fed = {name for each in given for name, value in each.items() if value is not None}
    if not taken or any(map(_is_medium, fed)):
        return
    raise ExportError(
        f"{type(model).__name__} takes {taken}, but no graph would: a text-only example does "
        f"not run the part that reads them{_parts_in_brackets(model)}, whose "
        "weights would be left out; give inputs={name: tensor} with everything that the model "
        "takes, as its processor makes it from a text and an image, or export a part with "
        "oe.torch.export"
    )


def with_media(model: Any, way_out: str) -> str:
    """Return advice for a failing generate(), such as to export only parts of the model."""
    taken = _media_of(model)
    if not taken:
        return way_out
    return (
        f"it takes {taken}: oe.torch.export exports the part that reads them"
        f"{_parts_in_brackets(model)}, and those after it; {way_out}"
    )


def _media_of(model: Any) -> str:
    """Return the media that a model takes, with its inputs for them; "" if it takes none."""
    declared = model.input_modalities
    kinds = [declared] if isinstance(declared, str) else list(declared)
    media = [text for kind, text in _KINDS.items() if kind in kinds]
    parameters = inspect.signature(model.forward).parameters.values()
    takes = [each.name for each in parameters if _is_medium(each.name) and _may_be_tensor(each)]
    return f"{' and '.join(media)} ({_listed(takes)})" if media and takes else ""


def _parts_in_brackets(model: Any) -> str:
    parts = [name for name, _ in _parts(model)]
    return f" ({_listed(parts)})" if parts else ""


def _may_be_tensor(parameter: inspect.Parameter) -> bool:
    said = parameter.annotation
    return said is inspect.Parameter.empty or "Tensor" in str(said)


def _is_medium(name: str) -> bool:
    return bool(_MEDIA.search(name)) or name in _SOUNDS


def _parts(model: Any) -> Iterable[tuple[str, Any]]:
    """Yield the modules directly in the model, or in its base, that are named after media."""
    for prefix, module in (("", model), (f"{model.base_model_prefix}.", model.base_model)):
        for name, each in module.named_children():
            if _is_medium(name) or "projector" in name or "connector" in name:
                yield (name if module is model else prefix + name), each
        if model.base_model is model:
            return


def left_keys(report: SaveReport, unused: Iterable[str]) -> list[str]:
    """Return keys that a model loads but no graph has, except keys computed into graphs.

    Args:
        report: the report on the save.
        unused: keys that the model does not load.
    """
    return sorted({*report.unmatched_keys} - {*report.baked_keys, *unused})


def note_on_keys(report: SaveReport, left: Iterable[str], class_name: str) -> list[str]:
    """Return a note on tensors that a model loads but no graph has.

    Training counters and mask tokens are not included.

    Args:
        report: the report on the save.
        left: the result of left_keys().
        class_name: the name of the model's class.
    """
    names = sorted({*report.skipped_keys}.intersection(left))
    if not names:
        return []
    what = "a tensor" if len(names) == 1 else f"{len(names)} tensors"
    return [f"no graph uses {what} that {class_name} loads: {_listed(names)}"]


def _listed(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
