"""Exports with torch's two exporters in all modes, and reads what the graphs state about weights."""

import contextlib
import functools
import io
import itertools
import logging
import os
import tempfile
import warnings
from dataclasses import dataclass

import onnx
import onnx.numpy_helper
import torch

FLOATS = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.DOUBLE,
    onnx.TensorProto.BFLOAT16,
)
FOLDED = "pkg.onnxscript.optimizer.folded_from"
KIND = "pkg.torch.export.graph_signature.InputSpec.kind"


@contextlib.contextmanager
def _quiet():
    logging.disable(logging.WARNING)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


# --- TorchScript: torch 1.13's, and still there in 2.13 --------------------------------------------


@dataclass(frozen=True)
class LegacyMode:
    params: bool
    as_inputs: bool
    fold: bool
    training: bool  # PRESERVE instead of EVAL

    @property
    def name(self) -> str:
        words = ["script", "params" if self.params else "bare", "inputs" if self.as_inputs else "no-inputs"]
        return " ".join([*words, "fold" if self.fold else "plain", "PRESERVE" if self.training else "EVAL"])


LEGACY_MODES = [LegacyMode(*flags) for flags in itertools.product((True, False), repeat=4)]


class LegacyExporter:
    """The graphs of one module. `full` is the graph of a mode with all weights."""

    modes = LEGACY_MODES

    def __init__(self, spec, module, inputs, opset):
        self._spec, self._module, self._inputs, self._opset = spec, module, inputs, opset

    def graph(self, mode) -> onnx.ModelProto:
        return self._export(mode, mode.params)

    def full(self, mode) -> onnx.ModelProto:
        return self._export(mode, True)

    def _export(self, mode, params: bool) -> onnx.ModelProto:
        training = torch.onnx.TrainingMode
        settings = dict(
            opset_version=self._opset, export_params=params, keep_initializers_as_inputs=mode.as_inputs
        )
        settings.update(do_constant_folding=mode.fold)
        settings.update(training=training.PRESERVE if mode.training else training.EVAL)
        if self._spec.input_names:
            settings.update(input_names=list(self._spec.input_names))
            if self._spec.dynamic:
                settings.update(dynamic_axes={name: {0: "batch"} for name in self._spec.input_names})
        if int(torch.__version__.split(".")[0]) > 1:
            settings.update(dynamo=False)
        buffer = io.BytesIO()
        with _quiet():
            torch.onnx.export(self._module, self._inputs, buffer, **settings)
        return onnx.load_from_string(buffer.getvalue())


# --- torch 2.x: torch.export ---------------------------------------------------------------------


@dataclass(frozen=True)
class ModernMode:
    optimize: bool
    weights: bool
    as_inputs: bool

    @property
    def name(self) -> str:
        words = ["optimized" if self.optimize else "plain", "weights" if self.weights else "bare"]
        return " ".join(words + (["inputs"] if self.as_inputs else []))


MODERN_MODES = [ModernMode(*flags) for flags in itertools.product((True, False), repeat=3)]
SCRIPT_MODES = [mode for mode in LEGACY_MODES if mode.training != mode.fold and not mode.as_inputs]


@functools.cache
def _read_conversions_once() -> None:
    """Make torch.onnx read its conversion functions once, not for each of hundreds of graphs."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    ONNXRegistry.from_torchlib = staticmethod(functools.cache(ONNXRegistry.from_torchlib))


class ModernExporter:
    """One module's graphs, by torch.export; a program is made once for optimize on and off. Some by TorchScript."""

    modes = MODERN_MODES + SCRIPT_MODES

    def __init__(self, spec, module, inputs, opset):
        """opset: TorchScript's; torch.export takes the newest that it knows."""
        self._script = LegacyExporter(spec, module, inputs, opset)
        self._spec, self._module, self._inputs = spec, module, inputs
        self._programs = {}

    def graph(self, mode) -> onnx.ModelProto:
        if mode in SCRIPT_MODES:
            return self._script.graph(mode)
        return self._save(mode, include_initializers=mode.weights)

    def full(self, mode) -> onnx.ModelProto:
        if mode in SCRIPT_MODES:
            return self._script.full(mode)
        return self._save(mode, include_initializers=True)

    def _save(self, mode, **settings) -> onnx.ModelProto:
        if mode.optimize not in self._programs:
            self._programs[mode.optimize] = self._export(mode.optimize)
        with _quiet(), tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            program = self._programs[mode.optimize]
            program.save(path, keep_initializers_as_inputs=mode.as_inputs, **settings)
            return onnx.load(path)

    def _export(self, optimize: bool):
        settings = {}
        if self._spec.input_names:
            settings.update(input_names=list(self._spec.input_names))
        if self._spec.dynamic:
            shapes = tuple({0: torch.export.Dim.DYNAMIC} for _ in self._inputs)
            settings.update(dynamic_shapes=shapes)
        _read_conversions_once()
        with _quiet():
            return torch.onnx.export(
                self._module, self._inputs, dynamo=True, optimize=optimize, verbose=False, **settings
            )


# --- what a graph says ---------------------------------------------------------------------------


def tensor_bytes(tensor: onnx.TensorProto) -> bytes:
    return tensor.raw_data or onnx.numpy_helper.to_array(tensor).tobytes()


class GraphFacts:
    """Names and data of a graph.

    names: of inputs, initializers, undefined uses and outputs of Identity nodes; data: name -> bytes of
    initializers; loose: (name, bytes, shape) of float tensors in nodes' attributes; scopes: what the nodes
    that use a name say of the modules that they come from; uses: how many use it; shaped: whose shape is
    stated; folded_from: what the newer exporter says that a value was computed from.
    """

    def __init__(self, model: onnx.ModelProto):
        graph = model.graph
        self.inputs = [value.name for value in graph.input]
        self.tensors = {tensor.name: tensor for tensor in graph.initializer}
        self.data = {name: tensor_bytes(tensor) for name, tensor in self.tensors.items()}
        self.identities, self.loose, self.scopes, self.uses, used, defined = set(), [], {}, {}, set(), set()
        self._walk(graph, used, defined)
        self.names = set(self.inputs) | set(self.tensors) | self.identities | (used - defined - {""})
        values = [*graph.value_info, *graph.input]
        self.marked = {value.name for value in values if self._is_constant(value)}
        self.shaped = {value.name for value in values if value.type.tensor_type.HasField("shape")}
        self.shaped |= set(self.tensors)
        self.folded_from = {value.name: self._marks(value).get(FOLDED, "") for value in values}

    def _walk(self, graph, used, defined) -> None:
        for node in graph.node:
            used.update(node.input)
            defined.update(node.output)
            scope = " ".join([node.name, *(entry.value for entry in getattr(node, "metadata_props", ()))])
            for name in node.input:
                self.uses[name] = self.uses.get(name, 0) + 1
                self.scopes[name] = f"{self.scopes.get(name, '')} {scope}"
            if node.op_type == "Identity":
                self.identities.update(node.output)
            for attribute in node.attribute:
                if attribute.HasField("t") and attribute.t.data_type in FLOATS:
                    self.loose.append((node.output[0], tensor_bytes(attribute.t), tuple(attribute.t.dims)))
                if attribute.HasField("g"):
                    self._walk(attribute.g, used, defined)

    def provided_weights(self, names: set) -> bool:
        """Return those of the names that are data in attributes of nodes."""
        return any(name in names for name, _, _ in self.loose)

    @staticmethod
    def _marks(value) -> dict:
        return {entry.key: entry.value for entry in getattr(value, "metadata_props", ())}

    def _is_constant(self, value) -> bool:
        """Return whether the newer exporter marks a value as a constant or a non-persistent buffer."""
        marks = self._marks(value)
        kind, persistent = marks.get(KIND, ""), marks.get(KIND.replace("kind", "persistent"), "")
        return "CONSTANT_TENSOR" in kind or ("BUFFER" in kind and persistent == "False")


def count(tensor: onnx.TensorProto) -> int:
    total = 1
    for dim in tensor.dims:
        total *= dim
    return total
