"""Determines which weights share their data from the arguments of a save, without a plan.

A plan by the extension module knows this for all weights. But if the caller's arguments say for
each weight which tensor fills it, that is, by a map or by equal names, no plan is needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .. import _core
from .._sources.tensors import Loose, Memory
from .._sources.weights import Source

if TYPE_CHECKING:
    import onnx_ir

_Key = TypeVar("_Key", int, str)


class Filling(NamedTuple):
    """A weight that a save will fill, in the form of the tensors that a plan lists."""

    slot: str
    key: str
    rule: str
    recipe: list[Any]
    offset: int
    """A number that equals that of another weight if both have the same data."""
    file: str = ""
    length: int = 1


class _UncertainError(Exception):
    """Only a plan can tell which weights share their data."""


def fillings(
    models: Mapping[str, onnx_ir.Model],
    candidates: Sequence[Set[str]],
    source: Source,
    document: Mapping[str, Mapping[str, Any]] | None,
    inside: bool,
) -> list[list[Filling]] | None:
    """Return the weights of each model that a source will fill; None if this is not certain.

    Args:
        models: the models by name.
        candidates: for each model, the weights that may be stored transposed.
        source: the source of the weights.
        document: the sections of a map; None: each tensor fills the weight of its name and shape.
        inside: True if data may be stored in the model file, where weights share nothing.
    """
    try:
        data = _data_of(source, document["derived"] if document else {})
        found = [
            list(_filled(model, name, data, source, document)) for name, model in models.items()
        ]
        _refuse_mixed(found, list(models.values()), candidates, inside)
    except _UncertainError:
        return None
    return found


def _data_of(source: Source, derived: Mapping[str, Any]) -> dict[str, int]:
    """Return a number for each tensor; it is at least 0 if others may have some of its bytes."""
    shared: Mapping[int, int] = {}
    if isinstance(source, list):
        names = [tensor.name for tensor in source]
    elif isinstance(source, _core.Checkpoint):
        names, shared = source.names(), _shared(source)
    else:
        raise _UncertainError
    names += [name for name, parts in derived.items() if "key" not in parts]
    return {name: shared.get(index, -1 - index) for index, name in enumerate(names)}


def _shared(checkpoint: _core.Checkpoint) -> dict[int, int]:
    """Return the number of the bytes of each tensor, by index, that may not be alone in them."""
    numbers = {index: number for index, (number, _) in checkpoint.shared_tensors().items()}
    ranges = []
    for index in numbers:
        *_, size, file, offset = checkpoint.describe(index)
        if file is not None and offset is not None:
            ranges.append(((file, offset), (file, offset + size), index))
    plain, overlapping = {index for *_, index in ranges}, _overlapping(ranges)
    return {i: number for i, number in numbers.items() if i not in plain or i in overlapping}


def _filled(
    model: onnx_ir.Model,
    name: str,
    data: Mapping[str, int],
    source: Source,
    document: Mapping[str, Mapping[str, Any]] | None,
) -> Iterator[Filling]:
    shapes = {tensor.name: tensor.shape for tensor in source} if isinstance(source, list) else {}
    entries: Mapping[str, Any] = dict(zip(shapes, shapes, strict=True))
    if document is not None:
        entries = {**document["map"], **document["models"].get(name, {})}
    for slot, value in model.graph.initializers.items():
        entry = entries.get(slot)
        if entry is None:
            if value.const_value is None or slot in data:
                raise _UncertainError
            continue
        given: Mapping[str, Any] = entry if isinstance(entry, Mapping) else {"key": entry}
        key, recipe = given.get("key", ""), given.get("recipe", [])
        if key not in data or (recipe and data[key] >= 0):
            raise _UncertainError
        if document is None and (value.shape is None or value.shape != shapes[key]):
            raise _UncertainError
        yield Filling(slot, key, "map" if document else "name", recipe, data[key])


def _refuse_mixed(
    found: Sequence[Sequence[Filling]],
    models: Sequence[onnx_ir.Model],
    candidates: Sequence[Set[str]],
    inside: bool,
) -> None:
    """Require that a tensor that is also needed untransposed fills all weights in one form."""
    forms: dict[int, set[tuple[str, Any]]] = defaultdict(set)
    roles: dict[int, set[bool]] = defaultdict(set)
    for filled, model, names in zip(found, models, candidates, strict=True):
        for each in filled:
            form = str(each.recipe), model.graph.initializers[each.slot].dtype
            forms[each.offset].add(form)
            roles[each.offset].add(each.slot in names)
    if any(len(roles[number]) > 1 and (inside or len(forms[number]) > 1) for number in forms):
        raise _UncertainError


def sharing(tensors: Sequence[Loose]) -> set[str]:
    """Return the names of tensors that are not, or perhaps not, alone in a range of memory."""
    ranges = [
        ((0, each.place.address), (0, each.place.address + each.place.size), each.name)
        for each in tensors
        if isinstance(each.place, Memory) and each.place.size
    ]
    return {e.name for e in tensors if not isinstance(e.place, Memory)} | _overlapping(ranges)


def _overlapping(ranges: Sequence[tuple[tuple[int, int], tuple[int, int], _Key]]) -> set[_Key]:
    """Return the keys of ranges, from a start to a stop, that overlap others."""
    found: set[_Key] = set()
    furthest: tuple[tuple[int, int], _Key] | None = None
    for start, stop, key in sorted(ranges):
        if furthest is not None and start < furthest[0]:
            found |= {furthest[1], key}
        furthest = (stop, key) if furthest is None else max(furthest, (stop, key))
    return found
