"""Reads, changes and runs a graph with its data for the campaign. No code of onnx_external is used here, so only ONNX
Runtime determines the effect of a fault.
"""

import ast
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

SCOPES = "pkg.torch.onnx.name_scopes"
FLOAT = onnx.TensorProto.FLOAT

Values = dict[str, np.ndarray]


def scopes(node: onnx.NodeProto) -> list[str]:
    """Return the modules for which a node was made, outermost first, without the model itself."""
    for entry in node.metadata_props:
        if entry.key == SCOPES:
            return [name for name in ast.literal_eval(entry.value)[:-1] if name]
    return []


def module_of(node: onnx.NodeProto) -> str:
    """Return the innermost module. An empty name stands for the model itself, or for an unknown module."""
    return (scopes(node) or [""])[-1]


def place_of(tensor: onnx.TensorProto) -> tuple[str, int, int] | None:
    """Return the file, offset and length of external data."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return None
    found = {entry.key: entry.value for entry in tensor.external_data}
    return found["location"], int(found.get("offset", 0)), int(found["length"])


@dataclass
class Module:
    """The nodes of a module, including those of its submodules."""

    name: str
    last: int = -1  # the position of its last node, where the module returns
    outputs: list[str] = field(default_factory=list)  # values that other modules use


class Graph:
    """A model file. Data is changed in its data files; changed nodes are saved by `write`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.model = onnx.load(path, load_external_data=False)
        self.nodes = self.model.graph.node
        self.tensors = {tensor.name: tensor for tensor in self.model.graph.initializer}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        self._modules: dict[str, Module] = {}

    # ---- data

    def weight(self, name: str) -> onnx.TensorProto | None:
        """Return a weight by its name in the module. The weight may be stored transposed."""
        return self.tensors.get(name) or self.tensors.get(f"{name}.transposed")

    def read(self, tensor: onnx.TensorProto) -> np.ndarray:
        place = place_of(tensor)
        if place is None:
            return numpy_helper.to_array(tensor)
        location, offset, length = place
        with open(self.path.parent / location, "rb") as stream:
            stream.seek(offset)
            data = stream.read(length)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        return np.frombuffer(data, dtype).reshape(tuple(tensor.dims))

    def change(self, tensor: onnx.TensorProto, value: np.ndarray) -> None:
        place = place_of(tensor)
        if place is None:
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value), tensor.name))
            return
        location, offset, _ = place
        with open(self.path.parent / location, "r+b") as stream:
            stream.seek(offset)
            stream.write(np.ascontiguousarray(value).tobytes())

    def write(self) -> None:
        self.path.write_bytes(self.model.SerializeToString())

    def sharing(self, tensor: onnx.TensorProto) -> list[str]:
        """Return the names of all tensors with the same bytes, because tied tensors share them."""
        place = place_of(tensor)
        if place is None:
            return [tensor.name]
        return [name for name, each in self.tensors.items() if place_of(each) == place]

    # ---- modules

    @property
    def modules(self) -> dict[str, Module]:
        """Return the modules by name."""
        if not self._modules:
            self._find_modules()
        return self._modules

    def _find_modules(self) -> None:
        inside = {id(node): set(scopes(node)) for node in self.nodes}
        results = {value.name for value in self.model.graph.output}
        for number, node in enumerate(self.nodes):
            for name in inside[id(node)]:
                module = self._modules.setdefault(name, Module(name))
                module.last = number
                for value in node.output:
                    users = self.readers.get(value, [])
                    if value in results or any(name not in inside[id(each)] for each in users):
                        module.outputs.append(value)

    def modules_that_read(self, names: list[str]) -> list[Module]:
        """Return the innermost modules of the nodes that read these values, in the order in which they return."""
        nodes = [node for name in names for node in self.readers.get(name, [])]
        found = {module_of(node) for node in nodes} - {""}
        return sorted((self.modules[name] for name in found), key=lambda module: module.last)

    # ---- values

    def run(self, feed: Values) -> Values:
        """Return every float value that the model computes, node by node."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        known = {value.name for value in model.graph.output}
        for node in model.graph.node:
            for name in node.output:
                if name and name not in known:
                    model.graph.output.add().name = name
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        folder = "session.model_external_initializers_file_folder_path"
        options.add_session_config_entry(folder, str(self.path.parent.resolve()))
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        names = [each.name for each in session.get_outputs() if each.type == "tensor(float)"]
        return dict(zip(names, session.run(names, feed), strict=True))


def beyond(value: np.ndarray, sound: np.ndarray) -> float:
    """Return the largest difference, as a multiple of oe.diagnose's tolerance for float32."""
    if value.shape != sound.shape:
        return float("inf")
    with np.errstate(all="ignore"):
        # Masks exclude values with -3e38 as well as with an infinity.
        one, other = (each.astype(np.float64).clip(-1e30, 1e30) for each in (value, sound))
        if (np.isnan(one) != np.isnan(other)).any():
            return float("inf")
        number = ~np.isnan(one)
        one, other = one[number], other[number]
        sizes = np.abs(other)
        ordinary = sizes[(sizes > 0) & (sizes < 1e30)]
        allowed = 1e-4 * (np.quantile(ordinary, 0.75) if ordinary.size else 1e-2) + 2e-4 * sizes
        return float(np.max(np.abs(one - other) / allowed, initial=0.0))
