"""Determines the graphs of a model, traces them and converts them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import torch

from .._attention.fusing import Fusing
from .._attention.translating import ATTENTION
from .._base.errors import ExportError
from .._base.meter import Meter
from .._base.notes import Note
from .._folders.models import DECODE, ENCODER, PREFILL, pair_names
from ..torch._converting import one_subgraph_version, operators_found_once
from ..torch._guards import Sizes
from ..torch._mending import mend
from ..torch._opsets import OWN
from ..torch._optimizing import FUSED_OPSET, fused, optimized
from ..torch._skeleton import Skeleton, for_opset, make_skeleton
from ..torch._tracing import without_cache_of_results
from ..torch._untouched import ZeroProducts, tensors_of
from ._decoders import Graphs, prompt_of
from ._dimensions import fix_bound_dimensions
from ._exporter import Run, exporter, silently
from ._inputs import Inputs, sample_inputs, varied
from ._loading import Loaded, told
from ._naming import (
    input_names,
    is_carried,
    is_size,
    name_dimensions,
    name_inputs_and_outputs,
    output_of,
    state_name,
)
from ._saving import Graph
from ._states import refusing_hidden_states
from ._stepping import WAY_OUT, generate_inputs, pair_of_calls
from ._unseen import with_media
from ._widening import widened


class Part(NamedTuple):
    """A module that becomes one graph (the model or part of it), and its inputs."""

    module: Any
    given: dict[str, Any]
    prompt: dict[str, Any] | None = None
    """For the single graph of a decoder: the inputs of a prompt, with an empty cache."""


def graph_modules(
    model: Any,
    inputs: Inputs,
    dynamic: bool,
    graphs: Graphs | None = None,
) -> dict[str, Part]:
    """Return the graphs of a model, each as a module and its inputs.

    Args:
        model: a transformers model.
        inputs: examples, or the names of inputs for which examples are made from the config.
        dynamic: True if sizes may vary.
        graphs: "two": a decoder has one graph for the prompt and one for the steps after it;
            otherwise it has one graph for both, if possible.
    """
    generates = model.can_generate()
    given = examples_of(model, inputs, dynamic)
    if not generates:
        return {"model": Part(model, given)}
    for settings in (model.config, model.generation_config):
        settings.use_cache = True  # else every step would compute the whole text again
    several = dynamic and not model._is_stateful  # a state moves on by one token at a time
    with refusing_hidden_states(model, given):
        found = _generating(model, given, several)
    if model.config.is_encoder_decoder:
        found = {ENCODER: encoder_of(model, given), **found}
    if several and graphs != "two" and list(found) == [PREFILL, DECODE]:
        prompt = prompt_of(found[PREFILL][1], found[DECODE][1])
        if prompt is not None:
            module, steps = found[DECODE]
            return {"model": Part(module, steps, prompt)}
    return {name: Part(*each) for name, each in found.items()}


def encoder_of(model: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the encoder of a model, and the inputs of generate() that the encoder takes."""
    names = (model.main_input_name, "attention_mask")
    return model.get_encoder(), {name: given[name] for name in names if name in given}


def _generating(
    model: Any, given: Mapping[str, Any], several: bool
) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return the graphs that generate() runs, except an encoder, as modules with inputs."""
    from transformers.exporters.utils import decompose_for_generation

    if model.config.is_encoder_decoder:
        with contextlib.suppress(
            ExportError
        ):  # the generate() of some classes is not the usual one
            return pair_of_calls(model, given, several)
    running = silently(
        f"{type(model).__name__}.generate() does not run", with_media(model, WAY_OUT)
    )
    with running, ZeroProducts():
        words = generate_inputs(model, given)
        found = decompose_for_generation(model, words, multi_token_decode=several)
    names = dict(zip(pair_names(False), pair_names(model.config.is_encoder_decoder), strict=True))
    return {names.get(name, name): each for name, each in found.items()}


def examples_of(model: Any, inputs: Inputs, dynamic: bool) -> dict[str, Any]:
    """Return the given examples, or make examples of the named inputs."""
    if isinstance(inputs, Mapping):
        return varied(model, inputs) if dynamic else dict(inputs)
    what = f"{type(model).__name__}: no example inputs can be made from its config"
    with told(what, "give inputs={name: tensor}"):
        return dict(sample_inputs(model, inputs))


class Converted(NamedTuple):
    """The graph of a part as torch.onnx made it."""

    graph: Any
    """The graph as an onnx_ir model."""
    sizes: Sizes
    """The assumptions of the trace about sizes."""
    program: Any
    """The program whose nodes were converted to the nodes of the graph."""


Change: TypeAlias = Callable[[Any], Any]
"""A function that changes an onnx_ir model and returns the result."""


def _plainly(trace: Any) -> Any:
    return trace()


def _as_it_is(model: Any) -> Any:
    return model


@dataclass
class Tracing:
    """Traces the parts of a model whose weights are in files."""

    loaded: Loaded
    dynamic: bool
    optimize: bool
    meter: Meter
    lengths: set[str] = field(default_factory=set)
    """The graphs, among those of models with a state, in which the length of the text may vary."""
    opset_version: int | None = None
    """The graphs' opset version; None: torch.onnx's, or a newer one that makes a graph smaller."""
    fusing: Fusing = field(default_factory=Fusing)

    def graph(self, name: str, part: Part, run: Run = _plainly) -> Graph:
        """Trace a part, and convert and optimize it.

        Args:
            name: the name of the graph.
            part: the module and its inputs.
            run: a function that calls the trace.

        Raises:
            ExportError: torch or transformers cannot export the part.
        """
        what = _what(name, part)
        recipes = made_of(self.loaded, part.module)
        keep = [each for each, _ in tensors_of(part.module) if each not in recipes]
        with self.meter.step(f"trace {name}"):
            program, sizes, _ = self.converted(name, part, self.loaded.model, run)
        made = self.skeleton(name, part, program, keep)
        self.name_graph(made.model, name, part)
        if self.dynamic:
            refuse_one_step(what, made)
        found = Graph(made, {slot: recipes[slot] for slot in made.slots}, sizes)
        return self.finished(found)

    def finished(self, graph: Graph) -> Graph:
        """Let weights keep their types in files, and give the graph the requested opset version.

        Raises:
            InvalidArgumentError: the version cannot express the graph.
        """
        made = widened(graph, self.loaded.narrow)
        if self.opset_version is None or not self.is_older:
            return made
        return made._replace(skeleton=for_opset(made.skeleton, self.opset_version))

    @property
    def is_older(self) -> bool:
        """True if the requested opset is older than those of torch.onnx."""
        return self.opset_version is not None and self.opset_version < OWN

    @property
    def _traced_opset(self) -> int | None:
        """The opset version for torch.onnx, which has no older ones than its own."""
        return None if self.opset_version is None else max(self.opset_version, OWN)

    def converted(self, name: str, part: Part, model: Any, run: Run = _plainly) -> Converted:
        """Return the unoptimized graph of a part.

        Args:
            name: the name of the graph.
            part: the module and its inputs.
            model: the model to which the module belongs.
            run: a function that calls the trace.
        """
        exporting = exporter(run, self.fusing.translations(name))
        from transformers.exporters import OnnxConfig

        way_out = "dynamic=False or other inputs may help, and oe.torch.export takes any module"
        told_by = silently(f"transformers cannot export {_what(name, part)}", way_out)
        with told_by, torch.no_grad(), self.fusing.tracing(name):
            shapes = _shapes(model, part.given, name in self.lengths) if self.dynamic else None
            config = OnnxConfig(
                dynamic=self.dynamic,
                optimize=False,
                dynamic_shapes=shapes,
                opset_version=max(self._traced_opset or 0, self.fusing.opset(name)) or None,
            )
            cached = without_cache_of_results(self.dynamic)
            with one_subgraph_version(), operators_found_once(), cached:
                program = exporting.export(part.module, part.given, config).program
            mend(program)
            fix_bound_dimensions(program, exporting.exported)
        return Converted(program, exporting.sizes, exporting.decomposed)

    def skeleton(
        self, name: str, part: Part, program: Any, keep: Sequence[str], then: Change = _as_it_is
    ) -> Skeleton:
        """Make the optimized skeleton of a graph; `ties` is empty, because the map fills all slots.

        Args:
            name: the name of the graph.
            part: the module and its inputs.
            program: the graph.
            keep: tensors of the module that the checkpoint does not fill.
            then: a function that changes the optimized graph.
        """

        def change(model: Any) -> Any:
            if not self.optimize:
                return then(model)
            return fused(then(optimized(model)), self._traced_opset, self._positions(name))

        from transformers.exporters.utils import apply_patches

        what = f"torch cannot optimize {_what(name, part)}"
        optimized_by = silently(what, "optimize=False skips this")
        with self.meter.step(f"optimize {name}"), optimized_by, apply_patches("onnx"):
            return make_skeleton(program, {}, keep, change)

    def _positions(self, name: str) -> int:
        """Return the number of positions in the rotary tables of attention by sequence lengths."""
        if self.fusing.form != "lengths" or not self.fusing.has_fused(name):
            return 0
        config = self.loaded.model.config.get_text_config(decoder=True)
        return int(getattr(config, "max_position_embeddings", None) or 0)

    def name_graph(self, model: Any, name: str, part: Part) -> None:
        """Name inputs, outputs and dimensions, and allow caches to share buffers."""
        name_graph(model, name, part)
        if self.optimize and self.fusing.has_fused(name):
            from .._attention.buffers import let_buffers_be_shared  # which needs onnx_ir

            let_buffers_be_shared(model)
        if self.fusing.has_fused(name):
            model.metadata_props[ATTENTION] = self.fusing.form


def name_graph(model: Any, name: str, part: Part) -> None:
    """Name the inputs, outputs and dimensions of a graph.

    Args:
        model: the graph, as an onnx_ir model.
        name: the name of the graph.
        part: the part that was traced.
    """
    from transformers.exporters.utils import get_leaf_tensors

    leaves = get_leaf_tensors(part.given)
    state = state_name(getattr(part.module, "config", None))
    name_inputs_and_outputs(model, state)
    names = input_names(leaves, state)
    example = {names[path]: tuple(tensor.shape) for path, tensor in leaves.items()}
    name_dimensions(model, example, is_encoder=name == ENCODER)


def _what(name: str, part: Part) -> str:
    return f"{type(part.module).__name__} ({name})"


def made_of(loaded: Loaded, module: Any) -> dict[str, Any]:
    """Return how the tensors of a module in the model are made, by their names in the module."""
    if module is loaded.model:
        return loaded.made
    by_tensor = {
        id(tensor): loaded.made[name]
        for name, tensor in tensors_of(loaded.model)
        if name in loaded.made
    }
    return {
        name: by_tensor[id(tensor)]
        for name, tensor in tensors_of(module)
        if id(tensor) in by_tensor
    }


def _shapes(model: Any, given: Mapping[str, Any], lengths: bool) -> dict[str, Any] | None:
    """Return dynamic dimensions for models in which transformers.exporters would get them wrong.

    The code of models with a state loops over the text, or cuts it into chunks of a fixed length. A
    trace is only right for one length, and does not always say so.

    Args:
        model: the model to export.
        given: the inputs of the model.
        lengths: True if the loops are rewritten, so that the length of a text may also vary.
    """
    if not getattr(model, "_is_stateful", False):
        return None
    from transformers.exporters import exporter_dynamo, utils

    exporter_dynamo.register_cache_pytrees_for_model(model)
    traced = {name: value for name, value in given.items() if name not in utils._OUTPUT_FLAGS}
    shapes = dict(exporter_dynamo.get_auto_dynamic_shapes(traced))
    rows: dict[int, Any] = {0: torch.export.Dim.AUTO}
    texts = {**rows, 1: torch.export.Dim.DYNAMIC}
    steps = {**rows, 1: torch.export.Dim.AUTO}  # a mask grows by one word with each step
    one_word = _words(traced) == 1
    for name, each in traced.items():
        if isinstance(each, torch.Tensor):
            flat = each.dim() == 2
            shapes[name] = steps if one_word and flat and "mask" in name else rows
            if lengths and flat:
                shapes[name] = texts
    return shapes


def _words(given: Mapping[str, Any]) -> int:
    words = given.get("input_ids")
    return int(words.shape[1]) if isinstance(words, torch.Tensor) and words.dim() == 2 else 0


def has_length(model: Any, part: Part) -> bool:
    """Return whether a part's code loops over a text; a plain trace would fix the text's length."""
    return bool(getattr(model, "_is_stateful", False)) and _words(part.given) > 1


def refuse_one_step(what: str, made: Skeleton) -> None:
    """Raise an error for a graph that can only run once, because its cache has a fixed length."""
    outputs = {value.name: value for value in made.model.graph.outputs}
    for value in made.model.graph.inputs:
        longer = outputs.get(output_of(value.name or ""))
        if longer is None or value.shape is None or longer.shape is None:
            continue
        for place, (before, after) in enumerate(zip(value.shape, longer.shape, strict=True)):
            if isinstance(before, int) and isinstance(after, int) and before != after:
                raise ExportError(
                    f"{what}: the trace fixes {value.name}[{place}] to {before}, and a cache "
                    "grows with each token, so the graph would run once; export the module "
                    "without a "
                    "cache by oe.torch.export, or all of it for one size with dynamic=False"
                )


def fixed_dimensions(made: Skeleton) -> list[str]:
    """Return the fixed dimensions of inputs from the caller, which do not include caches."""
    return [f"{name}[{place}] = {dim}" for name, place, dim, _ in _fixed(made)]


def _fixed(made: Skeleton) -> Iterator[tuple[str, int, int, Sequence[Any]]]:
    """Yield fixed dimensions of inputs: the name, the dimension, its size, and the shape."""
    for value in made.model.graph.inputs:
        if value.name and not is_carried(value.name) and value.shape is not None:
            for place, dim in enumerate(value.shape):
                if isinstance(dim, int):
                    yield value.name, place, dim, value.shape


def notes_on_runtimes(graphs: Iterable[Skeleton], opset_version: int | None = None) -> list[str]:
    """Return a note on the consequences of the graphs' opset version.

    Args:
        graphs: the graphs to save.
        opset_version: the version that the caller requested.
    """
    newest = max((each.model.opset_imports.get("", 0) for each in graphs), default=0)
    if opset_version is not None and newest < FUSED_OPSET:
        return [
            f"ONNX opset {newest} lacks RMSNormalization and RotaryEmbedding, which opset "
            f"{FUSED_OPSET} has: each such norm and rotation takes several nodes"
        ]
    if newest > FUSED_OPSET:
        return [f"runtimes that are older than ONNX opset {newest} cannot load the graphs"]
    told = (
        f"the graphs use ONNX opset {newest}, which ONNX Runtime supports since 1.23; "
        "opset_version=20 avoids this"
    )
    return [told] if newest == FUSED_OPSET else []


FIXED_SIZES = "fixed-sizes"
"""The kind of the note on fixed sizes."""
FIXED = "sizes that do not vary"
"""The title of lists of fixed sizes."""


def notes_of_fixed(graphs: Mapping[str, Skeleton]) -> list[Note]:
    """Return a note on batch sizes, lengths and image sides that the traces have fixed.

    Lengths of 1 are not reported, because decoders usually take one token at a time.
    """
    told = [
        f"{name}[{place}] = {dim}" + (f" of {graph}" if len(graphs) > 1 else "")
        for graph, made in graphs.items()
        for name, place, dim, shape in _fixed(made)
        if is_size(name, place, shape) and (dim > 1 or not place)
    ]
    return [Note(f"{FIXED}: {', '.join(told)}", FIXED_SIZES)] if told else []
