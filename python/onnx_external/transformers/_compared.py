"""Pairs the graphs of a transformers folder with transformers' own model and weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .._base.errors import Error, InvalidArgumentError
from .._comparing.inputs import InputSet, given_by_name
from .._comparing.precision import graph_at
from .._comparing.references import ModuleReference
from .._folders.models import ENCODER, PROMPTS, STEPS, pair_names
from .._folders.variants import base_name
from ._batches import attention_of, by_lengths, by_rows
from ._crossing import reference_of
from ._decoders import Graphs
from ._inputs import Inputs, inputs_of
from ._quantizers_own import note_on_own_model
from ._reference import TransformersReference, loaded
from ._stepping import calls_of_several, forward_calls, with_prompt
from ._tracing import Part, encoder_of, examples_of, graph_modules

_MORE = 5
"""The number of additional tokens in the second input set, whose batch size is also larger by 1."""
_FEW = 2
"""The sequence length of a short text."""

_STEPS = 3
"""The number of tokens to generate after the prompt; 1 for graphs without dynamic sizes."""

Graph = tuple[ModuleReference, list[InputSet], list[str]]
"""The reference of a graph, its input sets, and notes on what was left out."""


class Pass(NamedTuple):
    """One run of a graph."""

    graph: str
    """The name of the graph, such as "encoder_model", "decoder_with_past_model" or "decode"."""
    given: dict[str, Any]
    """The inputs of transformers' module in the run."""


def passes(
    model: Any, given: Mapping[str, Any], graphs: Iterable[str], dynamic: bool
) -> list[Pass]:
    """Return the runs of graphs that generate a text, with the inputs of transformers' modules.

    Args:
        model: a transformers model.
        given: inputs of generate().
        graphs: the names of the graphs, in order.
        dynamic: True if the sizes of the graphs vary.

    Raises:
        ExportError: generate() does not run.
    """
    several = dynamic and model.config.is_encoder_decoder and not model._is_stateful
    prompted = several and calls_of_several(model, given) is not None
    words = with_prompt(model, given) if prompted else given
    calls = forward_calls(model, words, 1 + (_STEPS if dynamic else 1))
    found = [Pass(ENCODER, encoder_of(model, given)[1])] if ENCODER in graphs else []
    prompt, step = pair_names(model.config.is_encoder_decoder)
    return [*found, Pass(prompt, calls[0]), *(Pass(step, call) for call in calls[1:])]


def _longer(given: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """Return examples with a larger batch, and longer texts or more images."""
    pictures = _one_picture_more(given, model)
    if pictures is not None:
        return pictures
    most = getattr(model.config, "max_position_embeddings", None) or 1 << 30
    tensors = {name: each for name, each in given.items() if isinstance(each, torch.Tensor)}
    words = tensors.get("input_ids", tensors.get("inputs_embeds"))
    text = None if words is None else words.shape[:2]
    # The mask of a sound has the length of the sound, which stays.
    kept = {each.shape[:2] for each in tensors.values() if each.is_floating_point()} - {text}
    found = {}
    for name, value in given.items():
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            found[name] = value
            continue
        form = value.shape[:2]
        longer = form == text and "pixel" not in name
        longer |= value.dim() == 2 and not value.is_floating_point() and form not in kept
        value = torch.cat([value, value[:1]])
        if longer:
            more = max(0, min(_MORE, most - 4 - value.shape[1]))
            places = torch.arange(value.shape[1] + more)
            # What a mask says of the last word holds for those behind it; words begin again.
            last = value.shape[1] - 1
            value = value[:, places.clamp(max=last) if "mask" in name else places % (last + 1)]
        found[name] = value
    return found


def _shorter(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return examples with batch size 1 and two tokens, which may be too few for a state."""
    found = {}
    for name, value in given.items():
        if isinstance(value, torch.Tensor) and value.dim() > 0:
            value = value[-1:]
            if value.dim() == 2 and not value.is_floating_point():
                value = value[:, :_FEW]  # a mask that begins with a zero still does
        found[name] = value
    return found


def _one_picture_more(given: Mapping[str, Any], model: Any) -> dict[str, Any] | None:
    """Return examples with one more image, for vision towers that take all patches as one sequence.

    A text that belongs to the images gets as many more positions. If the inputs do not have this
    form, the result is None.
    """
    name = next((each for each in given if each.endswith("grid_thw")), None)
    if name is None:
        return None
    grid, config = given[name], model.config
    side = getattr(getattr(config, "vision_config", config), "spatial_merge_size", 2)
    high = grid[-1:] + torch.tensor([[0, side, 0]])
    before, more = (int(each.prod(-1).sum()) for each in (grid, high))
    words = given.get("input_ids")
    longer = None if words is None else _with_places(words, config, more // side**2)
    if words is not None and longer is None:
        return None
    found = dict(given)
    for other, value in given.items():
        if other == name or not isinstance(value, torch.Tensor):
            continue
        if words is not None and value.shape[:2] == words.shape:
            found[other] = value[:, longer]
        elif value.shape[:1] == (before,):
            found[other] = value[torch.arange(before + more) % before]
    return {**found, name: torch.cat([grid, high])}


def _with_places(words: Any, config: Any, count: int) -> Any:
    """Return the positions of a text, followed by those of another image and its special tokens.

    If the batch has several texts, or the text no image, the result is None.
    """
    token = getattr(config, "image_token_id", None)
    places = [] if token is None else (words[0] == token).nonzero().flatten().tolist()
    if len(words) != 1 or not places:
        return None
    around = [[place] for place in (places[0] - 1, places[-1] + 1) if 0 <= place < words.shape[1]]
    start, end = around if len(around) == 2 else ([], [])
    return torch.tensor([*range(words.shape[1]), *start, *places[:1] * count, *end])


def example_graphs(
    model: Any,
    inputs: Inputs,
    dynamic: bool,
    graphs: Graphs | None = None,
) -> tuple[dict[str, dict[str, Part]], list[str]]:
    """Return the graphs of a model for each input set, and notes on sets that were left out.

    The sets are "example" and "longer"; for models with a state also "shorter"; for the single
    graph of a decoder also "prompt" and "longer prompt".
    """
    first = examples_of(model, inputs, dynamic)
    parts, notes = {"example": graph_modules(model, first, dynamic, graphs)}, []
    others = {"longer": _longer(first, model)}
    if getattr(model, "_is_stateful", False):
        others["shorter"] = _shorter(first)
    for name, each in others.items():
        try:
            parts[name] = graph_modules(model, each, dynamic, graphs)
        except Error as error:
            notes.append(f"{name} is left out: {error}")
    for title, name in (("prompt", "example"), ("longer prompt", "longer")):
        part = parts.get(name, {}).get("model")
        if part is not None and part.prompt is not None:
            parts[title] = {"model": part._replace(given=part.prompt, prompt=None)}
    return parts, notes


def input_sets(given: Mapping[str, Any], graph: Any) -> list[InputSet]:
    """Return the input sets for an ONNX graph.

    Args:
        given: the titles of input sets, and the inputs of transformers' module for each title.
        graph: the graph, whose attention operators determine the form of the inputs.
    """
    attention = attention_of(graph)
    found = [
        (title, name, inputs)
        for title, each in given.items()
        for name, inputs in (by_lengths if attention.by_lengths else _same)(title, each)
    ]
    return [
        InputSet(name, partial(given_by_name, inputs), title != "example")
        for title, whole, each in found
        for name, inputs in (by_rows if attention.takes_one_row else _same)(whole, each)
    ]


def _same(title: str, given: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield title, dict(given)


@dataclass
class Folder:
    """The exported graphs of a model, and the location of the transformers model."""

    models: dict[str, Path]
    source: Path
    task: str | None
    dtype: str | None
    inputs: Inputs | None
    dynamic: bool = True
    exported: str | None = None
    variant: str | None = None
    computes: str | None = None
    """The type of the graphs' weights, to which the reference is converted if `dtype` is None."""

    @cached_property
    def model(self) -> Any:
        """The transformers model with its weights.

        Raises:
            ExportError: transformers cannot load the model.
        """
        return loaded(self.source, self.task, self.dtype or self.computes, self.variant)

    def passes(self) -> list[Pass]:
        """Return the graph runs that generate text with several graphs, in the order of the runs.

        Raises:
            ExportError: transformers' model does not run.
        """
        given = examples_of(self.model, self._chosen(), self.dynamic)
        return passes(self.model, given, self.models, self.dynamic)

    def notes_on_weights(self) -> list[str]:
        """Compare quantized weights with the quantization library's own model; return notes."""
        given = examples_of(self.model, self._chosen(), self.dynamic)
        return note_on_own_model(self.source, self.model, given)

    def _chosen(self) -> Inputs:
        return inputs_of(self.model, self.source, self.inputs)

    def graphs(self) -> dict[str, Graph]:
        """Load transformers' model, and return the reference of each graph.

        Raises:
            ExportError: transformers cannot load or run the model.
            InvalidArgumentError: the model has no part with the name of a graph.
        """
        model, inputs = self.model, self._chosen()
        graphs: Graphs = "two" if {*PROMPTS, *STEPS} & {*map(base_name, self.models)} else "one"
        parts, notes = example_graphs(model, inputs, self.dynamic, graphs)
        found: dict[str, Graph] = {}
        for name, path in self.models.items():
            graph = graph_at(path)
            part = self._part_of(base_name(name), graph, parts["example"])
            if part is None:
                raise InvalidArgumentError(
                    f"{path}: {type(model).__name__} has no part with this name; its parts are "
                    f"{', '.join(parts['example'])}"
                )
            given = {title: each[part].given for title, each in parts.items()}
            sets = input_sets(given, graph)
            kept = [value.name for value in graph.output]
            module = parts["example"][part].module
            if part == ENCODER and any(each.startswith("present.") for each in kept):
                module = reference_of(model)
            reference = TransformersReference(module, kept, graph)
            found[name] = (reference, sets, notes)
        return found

    @staticmethod
    def _part_of(name: str, graph: Any, parts: Mapping[str, Part]) -> str | None:
        """Return the part that a graph represents, judging by name or inputs; None if unclear."""
        if name in parts or len(parts) == 1:
            return name if name in parts else next(iter(parts))
        taken = {each.name for each in graph.input}
        fits = []
        for other, part in parts.items():
            reference = TransformersReference(part.module, [])
            if {path for path, _ in reference.named_inputs(part.given)} == taken:
                fits.append(other)
        return fits[0] if len(fits) == 1 else None
