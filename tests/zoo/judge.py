"""Judge whether a written model is right, as read by python onnx and run by ONNX Runtime."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnxruntime

from programs import Initializer

TOLERANCE = 1e-4  # of the largest value of an output

TRANSPOSED = ".transposed"  # how a weight is called that is stored without its Transpose node


@dataclass(frozen=True)
class Truth:
    """The expected contents of a model. tied: groups of initializers that are one tensor in torch."""

    held: dict
    tied: list


class Judge:
    def __init__(self, inputs: dict, expected: list):
        """Store the inputs and torch's results for them."""
        self._inputs, self._expected = inputs, expected

    def faults(self, path: Path, truth: Truth, old: dict, once: bool) -> str:
        """Return what is wrong with a written model; empty if nothing is.

        old: what the graph held before; once: tied tensors must lie in one place.
        """
        found, places = initializers_of(path)
        if found.keys() != truth.held.keys():
            return f"other initializers: {sorted(found.keys() ^ truth.held.keys())[:4]}"
        for name, wanted in truth.held.items():
            if (found[name].dims, found[name].data) != (wanted.dims, wanted.data):
                stale = old and found[name].data == old[name].data
                return f"{name} has {'its old' if stale else 'other'} bytes"
        for names in truth.tied if once else ():
            if len({places[name] for name in names if name in places}) > 1:
                return f"{', '.join(names)} are tied, but lie in several places"
        return self.difference(path)

    def difference(self, path: Path) -> str:
        """Return the difference between ONNX Runtime and torch in words, or "" if there is none."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
            named = [value.name for value in session.get_inputs()]
            given = session.run(None, {name: self._inputs[name].numpy() for name in named})
        except Exception as error:  # the runtime's own classes, which it does not document
            return f"ONNX Runtime: {error}"
        for place, (got, tensor) in enumerate(zip(given, self._expected, strict=True)):
            want = tensor.numpy()
            far = np.abs(got.astype(np.float64) - want).max() / max(np.abs(want).max(), 1e-6)
            if got.shape != want.shape or not far <= TOLERANCE:
                return f"output {place} is off by {far:.3g}"
        return ""


def initializers_of(path: Path) -> tuple:
    """Return the initializers of a written model, and where those outside of it lie.

    Weights that are stored transposed are given as the checkpoint has them.
    """
    places = {}
    for tensor in onnx.load(str(path), load_external_data=False).graph.initializer:
        if tensor.external_data:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            name = tensor.name.removesuffix(TRANSPOSED)
            places[name] = (entries["location"], int(entries.get("offset", 0)))
    found = {}
    for tensor in onnx.load(str(path)).graph.initializer:
        data, dims = (
            tensor.raw_data or onnx.numpy_helper.to_array(tensor).tobytes(),
            tuple(tensor.dims),
        )
        if tensor.name.endswith(TRANSPOSED):
            width = len(data) // (dims[0] * dims[1])
            data, dims = np.frombuffer(data, f"V{width}").reshape(dims).T.tobytes(), dims[::-1]
        found[tensor.name.removesuffix(TRANSPOSED)] = Initializer(dims, data)
    return found, places
