"""What the inputs and outputs of a graph, and their dimensions, are called.

transformers.exporters name them by the paths of Python's objects (`input.cache.layers.0.keys`), and
torch names dimensions by its symbols (`s44`). Runtimes that generate text expect
`past_key_values.0.key`, and `present.0.key` for the longer cache; people expect `batch`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sympy  # type: ignore[import-untyped]

if TYPE_CHECKING:
    import onnx_ir

__all__ = [
    "forms",
    "input_name",
    "name_dimensions",
    "name_inputs_and_outputs",
    "output_name",
    "output_of",
]

_CACHE = re.compile(
    r"(?:cache|past_key_values|cache_params)\."
    r"(?:(self|cross)_attention_cache\.)?layers\.(\d+)\.(\w+)"
)
_SIDES = {"self": "decoder.", "cross": "encoder.", None: ""}
_PARTS = {"keys": "key", "values": "value"}
_TYPES = {"float": "float32", "double": "float64"}
_SYMBOL = re.compile(r"\b[a-z]+\d+\b")
"""What torch calls a size that varies: "s44", "u0"."""


def input_name(path: str) -> str:
    """Return what an input is called that is at a path of the arguments of forward()."""
    return _named(path, "past_key_values", "input.")


def output_name(path: str) -> str:
    """Return what an output is called that is at a path of the outputs of forward()."""
    return _named(path, "present", "output.")


def output_of(name: str) -> str:
    """Return what the output is called that an input becomes, such as a longer cache."""
    for before, after in (("past_key_values.", "present."), ("input.", "output.")):
        if name.startswith(before):
            return after + name.removeprefix(before)
    return name


def _named(path: str, cache: str, prefix: str) -> str:
    found = _CACHE.fullmatch(path.removeprefix(prefix))
    if found is None:
        return path
    side, layer, part = found.groups()
    return f"{cache}.{layer}.{_SIDES[side]}{_PARTS.get(part, part)}"


def name_inputs_and_outputs(model: onnx_ir.Model) -> None:
    """Name them as runtimes do, and take out the inputs that have no effect."""
    for value in list(model.graph.inputs):
        _remove_without_effect(model.graph, value)
    for value in model.graph.inputs:
        value.name = input_name(value.name or "")
    for value in model.graph.outputs:
        value.name = output_name(value.name or "")


def _remove_without_effect(graph: onnx_ir.Graph, value: onnx_ir.Value) -> None:
    """Take out an input that nothing uses, or that is only handed on as an output."""
    nodes = [node for node, _ in value.uses()]
    handed_on = [node.outputs[0] for node in nodes if node.op_type == "Identity"]
    if value.is_graph_output() or len(handed_on) != len(nodes) or len(graph.inputs) == 1:
        return
    if any(each.uses() or not each.is_graph_output() for each in handed_on):
        return
    if len(handed_on) == len(graph.outputs):
        return
    for each in handed_on:
        graph.outputs.remove(each)
    graph.remove(nodes, safe=True)
    graph.inputs.remove(value)


def forms(values: Iterable[onnx_ir.Value]) -> dict[str, str]:
    """Return the types and dimensions of inputs or outputs, such as "int64[batch, sequence]"."""
    found = {}
    for value in values:
        dtype = "?" if value.dtype is None else value.dtype.name.lower()
        dims = [_text(dim) or str(dim) for dim in value.shape or ()]
        found[value.name or ""] = f"{_TYPES.get(dtype, dtype)}[{', '.join(dims)}]"
    return found


def name_dimensions(
    model: onnx_ir.Model, example: Mapping[str, Sequence[int]], is_encoder: bool = False
) -> None:
    """Give sizes that vary names by what they are: one name for one size.

    torch gives sizes that it does not know to be equal, such as the rows of a text and of its mask,
    two symbols. They get one name if they are the same by their place, and in the example.

    Args:
        model: its inputs and outputs have their names.
        example: the shapes that the graph was traced with, by the name of the input.
        is_encoder: its text is not that of the decoder beside it.
    """
    names = dict(_names(model, example, _Roles(model, is_encoder)))
    if not names:
        return
    renamed = _renaming(names)
    import onnx_ir

    for value in _values(model):
        if value.shape is not None and any(not isinstance(dim, int) for dim in value.shape):
            value.shape = onnx_ir.Shape(renamed(dim) for dim in value.shape)


def _values(model: onnx_ir.Model) -> Iterator[onnx_ir.Value]:
    import onnx_ir

    yield from model.graph.inputs
    yield from model.graph.outputs
    for graph in (model.graph, *model.functions.values()):
        for node in onnx_ir.traversal.RecursiveGraphIterator(graph):
            yield from node.outputs


def _text(dim: Any) -> str | None:
    value = getattr(dim, "value", dim)
    return None if value is None or isinstance(value, int) else str(value)


def _names(
    model: onnx_ir.Model, example: Mapping[str, Sequence[int]], roles: _Roles
) -> Iterator[tuple[str, str]]:
    """The symbols of inputs and outputs, and their names."""
    given: dict[str, str] = {}
    sizes: dict[str, int] = {}
    taken: set[str] = set()
    values = [*model.graph.inputs, *model.graph.outputs]
    for value in values:
        shape = example.get(value.name or "", ())
        for place, dim in enumerate(value.shape or ()):
            symbol = _text(dim)
            if symbol is None or symbol in given or not _SYMBOL.fullmatch(symbol):
                continue
            name = roles.of(value.name or "", place, len(value.shape or ()))
            size = shape[place] if place < len(shape) else None
            if name is None or (name in taken and (size is None or sizes.get(name) != size)):
                name = _other(value.name or "", place)
            given[symbol] = name
            taken.add(name)
            if size is not None:
                sizes[name] = size
            yield symbol, name


def _other(name: str, place: int) -> str:
    """A name for a size of which nothing is known."""
    return f"{re.sub(r'[^A-Za-z0-9]+', '_', name)}_dim_{place}"


def _renaming(names: Mapping[str, str]) -> Callable[[Any], Any]:
    """A function that gives a dimension its name; expressions are simplified."""
    symbols = {name: sympy.Symbol(name, integer=True) for name in {*names.values(), "total"}}
    found: dict[str, str] = {}

    def renamed(dim: Any) -> Any:
        text = _text(dim)
        if text is None:
            return dim
        if text not in found:
            found[text] = _simplified(
                _SYMBOL.sub(lambda match: names.get(match[0], match[0]), text), symbols
            )
        return found[text]

    return renamed


def _simplified(text: str, symbols: Mapping[str, Any]) -> str:
    """The same with `total` for `past + sequence`, and the factors of a product in one order."""
    if re.fullmatch(r"\w+(\*\w+)+", text):  # torch's order is that of its symbols' numbers
        text = "*".join(sorted(text.split("*")))
    if text in symbols or not {"past", "sequence"} <= symbols.keys() or "past" not in text:
        return text
    try:
        expression = sympy.sympify(text, locals=dict(symbols))
        shorter = expression.subs(symbols["past"], symbols["total"] - symbols["sequence"])
    except Exception:  # whatever torch writes, it is a name
        return text
    return str(shorter) if len(shorter.free_symbols) < len(expression.free_symbols) else text


class _Roles:
    """What the dimensions of inputs and outputs are, by their names and places."""

    def __init__(self, model: onnx_ir.Model, is_encoder: bool) -> None:
        names = {value.name or "" for value in model.graph.inputs}
        self._decodes = any(name.startswith("past_key_values.") for name in names)
        self._has_encoder = any(
            name.startswith("encoder_outputs") or ".encoder." in name for name in names
        )
        self._text = "encoder_sequence" if is_encoder else "sequence"

    def of(self, name: str, place: int, rank: int) -> str | None:
        """Return the name of a dimension; None if it is not known."""
        if name.startswith(("past_key_values.", "present.")):
            return self._of_cache(name, place, rank)
        if place == 0:
            return None if name.endswith("grid_thw") or _is_patches(name, rank) else "batch"
        if name.startswith(("encoder_outputs", "encoder_last_hidden_state")):
            return "encoder_sequence" if place == 1 else None
        if name in _MEDIA:
            return dict(zip(range(rank), _MEDIA[name].get(rank, ()), strict=False)).get(place)
        if place == 1 and (rank == 2 or name in _TEXTS):
            return self._of_text(name)
        return None

    def _of_text(self, name: str) -> str:
        if name == "attention_mask":
            if self._has_encoder:
                return "encoder_sequence"
            return "total" if self._decodes else self._text
        if name == "decoder_attention_mask" and self._decodes:
            return "total"
        return self._text

    def _of_cache(self, name: str, place: int, rank: int) -> str | None:
        if place == 0:
            return "batch"
        if not name.endswith((".key", ".value")) or place != rank - 2:
            return None
        if ".encoder." in name:
            return "encoder_sequence"
        return "past" if name.startswith("past") else "total" if self._decodes else "sequence"


_TEXTS = ("inputs_embeds", "decoder_inputs_embeds", "bbox", "logits", "last_hidden_state")
_MEDIA: dict[str, dict[int, tuple[str, ...]]] = {
    "pixel_values": {
        4: ("batch", "channels", "height", "width"),
        5: ("batch", "images", "channels", "height", "width"),
    },
    "input_features": {3: ("batch", "bins", "frames")},
    "input_values": {2: ("batch", "samples"), 3: ("batch", "frames", "bins")},
}


def _is_patches(name: str, rank: int) -> bool:
    """Whether it has the patches of all images in one row."""
    return name.startswith("pixel_values") and rank == 2
