"""Names the inputs, outputs and dimensions of a graph.

transformers.exporters name inputs and outputs by the paths of Python objects
(`input.cache.layers.0.keys`), and torch names dimensions by its symbols (`s44`). Runtimes that
generate text expect `past_key_values.0.key`, and `present.0.key` for the extended cache.
Dimensions, and the decoder's inputs from the encoder, get the names that optimum uses and that
transformers.js and other runtimes expect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import sympy  # type: ignore[import-untyped]

from .._comparing.chaining import (
    ENCODED,
    USES_CACHE,
    encoded_name,
    is_past,
    is_present,
    present_of,
)
from ..torch._dimension_names import SYMBOL, give_names, name_of_place, text_of

if TYPE_CHECKING:
    import onnx_ir

_CACHE = re.compile(
    r"(?:cache|past_key_values|cache_params)\."
    r"(?:(self|cross)_attention_cache\.)?layers\.(\d+)\.(\w+(?:\.\d+)?)"
)
_SIDES = {"self": "decoder.", "cross": "encoder.", None: ""}
_PARTS = {"keys": "key", "values": "value"}
_CONVOLVED, _RECURRENT = "conv_states", "recurrent_states"
_TYPES = {"float": "float32", "double": "float64"}

BATCH, SEQUENCE, PAST = "batch_size", "sequence_length", "past_sequence_length"
TOTAL, ENCODER_SEQUENCE = "total_sequence_length", "encoder_sequence_length"
_BEHIND_AN_ENCODER = {
    "attention_mask": "encoder_attention_mask",
    "decoder_attention_mask": "attention_mask",
    "decoder_input_ids": "input_ids",
    "decoder_inputs_embeds": "inputs_embeds",
    "decoder_position_ids": "position_ids",
}
"""The names of a decoder's inputs, by parameter of forward(), if the encoder is another graph."""


def state_name(config: Any) -> str:
    """Return the name for a model's recurrent state: "ssm" for state spaces, or "recurrent"."""
    text = getattr(config, "get_text_config", lambda **_: config)(decoder=True)
    is_linear = any(name.startswith("linear_") for name in vars(text)) if text else False
    return "recurrent" if is_linear else "ssm"


def input_names(paths: Iterable[str], state: str = "ssm") -> dict[str, str]:
    """Return the names of a graph's inputs, by their paths in forward()'s arguments.

    Args:
        paths: the paths.
        state: the name of a recurrent state.
    """
    found = {path: _named(path, "past", state, "input.") for path in paths}
    if not any(name.startswith(_OF_ENCODER) for name in found.values()):
        return found
    for path, name in found.items():
        plain = name.removeprefix(_OF_ENCODER)
        found[path] = _BEHIND_AN_ENCODER.get(name, encoded_name(plain) if plain != name else name)
    return found


def parameters(inputs: Iterable[str]) -> set[str]:
    """Return the parameters of forward() that correspond to the inputs of a graph."""
    names = {name.removeprefix("input.") for name in inputs}
    if not any(_is_of_encoder(name) for name in names):
        return names
    paths = {name: path for path, name in _BEHIND_AN_ENCODER.items()}
    return {paths.get(name, name) for name in names}


def _is_of_encoder(name: str) -> bool:
    return name == ENCODED or name.startswith(_OF_ENCODER) or ".encoder." in name


def order(name: str) -> tuple[int, int, bool]:
    """Return a sort key that moves caches to the end, layer by layer, as optimum expects."""
    found = re.match(r"(?:past|present)(?:_\w+)?\.(\d+)\b", name)
    return (1, int(found[1]), ".encoder." in name) if found else (0, 0, False)


def is_carried(name: str) -> bool:
    """Return whether an input comes from another run, such as a cache or its flag."""
    return "." in name or name in (ENCODED, USES_CACHE)


def output_name(path: str, state: str = "ssm") -> str:
    """Return the name of an output, given its path in the outputs of forward().

    Args:
        path: the path.
        state: the name of a recurrent state.
    """
    return _named(path, "present", state, "output.")


def output_of(name: str) -> str:
    """Return the output that becomes a given input in the next run, such as the extended cache."""
    if name.startswith("input."):
        return f"output.{name.removeprefix('input.')}"
    return present_of(name)


def _named(path: str, cache: str, state: str, prefix: str) -> str:
    """Return the name of an input or output.

    Args:
        path: the path of the input or output.
        cache: the prefix of the names of caches and states: "past" or "present".
        state: the name of a recurrent state.
        prefix: the prefix of the paths of inputs or outputs.
    """
    found = _CACHE.fullmatch(path.removeprefix(prefix))
    if found is None:
        return path
    side, layer, part = found.groups()
    part = part.removesuffix(".0")  # the first of a list, which has most often no other
    kind, _, number = part.partition(".")
    if kind in (_CONVOLVED, _RECURRENT):
        kind = "conv" if kind == _CONVOLVED else state
        return f"{cache}_{kind}.{layer}{number and '.'}{number}"
    whole = "past_key_values" if cache == "past" else cache
    return f"{whole}.{layer}.{_SIDES[side]}{_PARTS.get(part, part)}"


def name_inputs_and_outputs(model: onnx_ir.Model, state: str) -> None:
    """Give inputs and outputs the names that runtimes expect, and remove unused inputs.

    Args:
        model: the graph.
        state: the name of a recurrent state.
    """
    names = input_names([value.name or "" for value in model.graph.inputs], state)
    for value in list(model.graph.inputs):
        _remove_without_effect(model.graph, value)
    for value in model.graph.inputs:
        value.name = names[value.name or ""]
    for value in model.graph.outputs:
        value.name = output_name(value.name or "", state)
    for values in (model.graph.inputs, model.graph.outputs):
        values[:] = sorted(values, key=lambda value: order(value.name or ""))


def _remove_without_effect(graph: onnx_ir.Graph, value: onnx_ir.Value) -> None:
    """Remove an input that no node uses, or that the graph only returns as an output."""
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


def is_size(name: str, place: int, shape: Sequence[Any]) -> bool:
    """Return whether a dimension of an input is a batch size, a length, or an image side."""
    roles = _media(name, shape)
    if roles:
        return roles[place] not in ("channels", "bins")
    return place == 0 or (place == 1 and (len(shape) == 2 or name in _TEXTS))


def _media(name: str, shape: Sequence[Any]) -> tuple[str, ...]:
    """Return the roles of the dimensions of image or sound inputs; empty for other inputs."""
    roles = _MEDIA.get(name, {}).get(len(shape), ())
    if name == "input_features" and roles and isinstance(shape[2], int):
        if not isinstance(shape[1], int):  # the size of a frame is fixed: the frames come first
            return (BATCH, "frames", "bins")
    return roles


def forms(values: Iterable[onnx_ir.Value]) -> dict[str, str]:
    """Return the types and shapes of inputs or outputs, such as "int64[batch, sequence]"."""
    found = {}
    for value in values:
        dtype = "?" if value.dtype is None else value.dtype.name.lower()
        dims = [text_of(dim) or str(dim) for dim in value.shape or ()]
        found[value.name or ""] = f"{_TYPES.get(dtype, dtype)}[{', '.join(dims)}]"
    return found


def listed(given: Mapping[str, str]) -> str:
    """Return inputs or outputs with their forms as one line, with only the first cache."""
    caches = [name for name in given if is_past(name) or is_present(name)]
    shown = [f"{name} {form}" for name, form in given.items() if name not in caches[1:]]
    more = f" and {len(caches) - 1} more of the cache" if len(caches) > 1 else ""
    return ", ".join(shown) + more


def name_dimensions(
    model: onnx_ir.Model, example: Mapping[str, Sequence[int]], is_encoder: bool = False
) -> None:
    """Name dynamic sizes by their role, with one name for each size.

    torch uses different symbols for sizes that it does not know to be equal, such as the batch
    sizes of a text and of its mask. Two such sizes get one name if their roles and their sizes in
    the example are equal.

    Args:
        model: the graph, whose inputs and outputs already have their names.
        example: the shapes with which the graph was traced, by input name.
        is_encoder: True for an encoder, whose text is not that of the decoder.
    """
    roles = _Roles(model, is_encoder)
    names = dict(_names(model, example, roles))
    symbols = {name: sympy.Symbol(name, integer=True) for name in {*names.values(), TOTAL}}
    give_names(model, names, partial(_simplified, symbols=symbols, words=roles.words))


def _names(
    model: onnx_ir.Model, example: Mapping[str, Sequence[int]], roles: _Roles
) -> Iterator[tuple[str, str]]:
    """Yield the symbols of inputs and outputs, with their names."""
    given: dict[str, str] = {}
    sizes: dict[str, int] = {}
    taken: set[str] = set()
    # Values of a text determine the batch size first.
    values = sorted(model.graph.inputs, key=lambda value: value.name in _MEDIA)
    for value in [*values, *model.graph.outputs]:
        shape = example.get(value.name or "", ())
        for place, dim in enumerate(value.shape or ()):
            symbol = text_of(dim)
            if symbol is None or symbol in given or not SYMBOL.fullmatch(symbol):
                continue
            name = roles.of(value.name or "", place, value.shape or ())
            size = shape[place] if place < len(shape) else None
            if name is None or (name in taken and (size is None or sizes.get(name) != size)):
                name = name_of_place(value.name or "", place)
            given[symbol] = name
            taken.add(name)
            if size is not None:
                sizes[name] = size
            yield symbol, name


def _simplified(text: str, symbols: Mapping[str, Any], words: int | None = None) -> str:
    """Return the text of a dimension with one name for the sum of cache and text lengths.

    Args:
        text: the text of a dimension.
        symbols: the symbols by name.
        words: the number of tokens that the graph takes, if it is fixed.
    """
    if words is not None and text == f"{PAST} + {words}":
        return TOTAL
    if text in symbols or not {PAST, SEQUENCE} <= symbols.keys() or PAST not in text:
        return text
    try:
        expression = sympy.sympify(text, locals=dict(symbols))
        shorter = expression.subs(symbols[PAST], symbols[TOTAL] - symbols[SEQUENCE])
    except Exception:  # whatever torch writes is a name
        return text
    return str(shorter) if len(shorter.free_symbols) < len(expression.free_symbols) else text


class _Roles:
    """The roles of input and output dimensions, determined by name and position."""

    def __init__(self, model: onnx_ir.Model, is_encoder: bool) -> None:
        names = {value.name or "" for value in model.graph.inputs}
        self._decodes = any(map(is_past, names))
        self._has_encoder = any(_is_of_encoder(name) for name in names)
        self._has_text = any(name in _WORDS for name in names)
        self._chooses = any(
            value.name == "input_ids" and len(value.shape or ()) == len(_OF_CHOICES)
            for value in model.graph.inputs
        )
        self._text = ENCODER_SEQUENCE if is_encoder else SEQUENCE
        self.words = next(iter(_numbers_of_words(model)), None)
        """The number of tokens that the graph takes, if it is fixed."""

    def of(self, name: str, place: int, shape: Sequence[Any]) -> str | None:
        """Return the name of a dimension; None if its role is unknown."""
        rank = len(shape)
        if is_past(name) or is_present(name):
            return self._of_cache(name, place, rank)
        if ".state." in f".{name}" and place == 2:  # of RWKV, for all layers in one tensor
            return "layers"
        if place == 0:
            if name in _PIECES and rank == 2:
                return _PIECES[name]
            return _ROWS.get(name, BATCH) if self._has_text else BATCH
        if name == ENCODED or name.startswith((_OF_ENCODER, "encoder_last_hidden_state")):
            return ENCODER_SEQUENCE if place == 1 else None
        if name in _MEDIA:
            return dict(enumerate(_media(name, shape))).get(place)
        if self._chooses and rank == len(_OF_CHOICES):
            return _OF_CHOICES[place]
        if place == 1 and (rank == 2 or name in _TEXTS):
            return self._of_text(name)
        return None

    def _of_text(self, name: str) -> str:
        if name == "encoder_attention_mask" and self._has_encoder:
            return ENCODER_SEQUENCE
        masks = ("attention_mask", "decoder_attention_mask")
        return TOTAL if name in masks and self._decodes else self._text

    def _of_cache(self, name: str, place: int, rank: int) -> str | None:
        if place == 0:
            return BATCH
        if re.match(r"(past|present)_conv\.", name) and place == 2:
            return "conv_kernel"
        if not name.endswith((".key", ".value")) or place != rank - 2:
            return None
        if ".encoder." in name:
            return ENCODER_SEQUENCE
        return PAST if name.startswith("past") else TOTAL if self._decodes else SEQUENCE


_WORDS = ("input_ids", "decoder_input_ids", "inputs_embeds")
_TEXTS = ("inputs_embeds", "decoder_inputs_embeds", "bbox", "logits", "last_hidden_state")
_OF_CHOICES = (BATCH, "choices", SEQUENCE)
_PIECES = {
    "pixel_values": "patches",  # of all images in one row
    "image_grid_thw": "images",
    "pixel_values_videos": "video_patches",
    "video_grid_thw": "videos",
}
_OF_ENCODER = "encoder_outputs."
_ROWS = {"pixel_values": "images", "input_features": "sounds", "input_values": "sounds"}
"""Inputs whose batch size may differ from that of the texts to which they belong."""
_MEDIA: dict[str, dict[int, tuple[str, ...]]] = {
    "pixel_values": {
        4: (BATCH, "channels", "height", "width"),
        5: (BATCH, "images", "channels", "height", "width"),
    },
    "pixel_mask": {3: (BATCH, "height", "width")},
    "input_features": {3: (BATCH, "bins", "frames")},
    "input_values": {2: (BATCH, "samples"), 3: (BATCH, "frames", "bins")},
}


def _numbers_of_words(model: onnx_ir.Model) -> Iterator[int]:
    for value in model.graph.inputs:
        if value.name in _WORDS and value.shape is not None and len(value.shape) > 1:
            if isinstance(value.shape[1], int):
                yield value.shape[1]
