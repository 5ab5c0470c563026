"""Tests conversions of element types: bit for bit as torch's .to(), and on ONNX Runtime.

usage: casts_test.py --bin-dir DIR --work-dir DIR [--node-modules DIR] [--only NAME] [-v]
"""

import sys
import warnings
from collections import OrderedDict

import numpy as np
import torch
from onnx import TensorProto, helper

import runtime
import support
import zoo
from save_cases import SaveTest

CAST = ("--dtype", "slot")
TYPES = {
    "float64": TensorProto.DOUBLE,
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
}
INTEGERS = {"float64": np.int64, "float32": np.int32, "float16": np.int16, "bfloat16": np.int16}
RANDOM_VALUES = 1 << 20


def from_bits(bits: np.ndarray, dtype: str) -> torch.Tensor:
    return torch.from_numpy(bits).view(getattr(torch, dtype))


def hard_values(dtype: str) -> torch.Tensor:
    """Return all values of a 16-bit type; of a wider one random bits, the values of the others, and what lies
    beside and half-way between those."""
    if dtype in ("float16", "bfloat16"):
        return from_bits(np.arange(1 << 16).astype(np.uint16).view(np.int16), dtype)
    wide = getattr(np, dtype)
    near = []
    for narrow in ("float16", "bfloat16", *(["float32"] if dtype == "float64" else [])):
        values = hard_values(narrow).to(getattr(torch, dtype)).numpy()
        values = np.sort(values[np.isfinite(values)])
        with np.errstate(over="ignore"):
            middles = (values[:-1] / 2 + values[1:] / 2).astype(wide)
        near += [values, middles, np.nextafter(middles, wide(np.inf)), np.nextafter(middles, -wide(np.inf))]
    info = np.iinfo(INTEGERS[dtype])
    random = np.random.default_rng(7).integers(info.min, info.max, RANDOM_VALUES, INTEGERS[dtype])
    return from_bits(np.concatenate([random, *(v.view(INTEGERS[dtype]) for v in near)]), dtype)


def same_values(found: bytes, expected: torch.Tensor) -> bool:
    """Return whether values are equal bit for bit, where any NaN equals any other."""
    dtype = support.short_dtype(expected)
    values = from_bits(np.frombuffer(found, INTEGERS[dtype]).copy(), dtype)
    nans = values.isnan()
    if values.shape != expected.shape or not torch.equal(nans, expected.isnan()):
        return False
    bits = [t[~nans].view(getattr(torch, np.dtype(INTEGERS[dtype]).name)) for t in (values, expected)]
    return torch.equal(*bits)


class CastsTest(SaveTest):
    folder_name = "casts"

    def test_values(self) -> None:
        state, wanted, inputs = OrderedDict(), {}, []
        for source in TYPES:
            values = hard_values(source)
            for target, number in TYPES.items():
                name = f"{source}_to_{target}"
                state[name] = values
                wanted[name] = values.to(getattr(torch, target))
                inputs.append(helper.make_tensor_value_info(name, number, list(values.shape)))
        node = helper.make_node("Use", [value.name for value in inputs], ["y"])
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
        graph = helper.make_model(helper.make_graph([node], "main", inputs, [output]))
        folder, graph_path, checkpoint = self.write("values", graph, state)
        self.refuse("values, not asked for", graph, checkpoint, ["--dtype slot"])
        process = self.tools.save(graph_path, checkpoint, "-o", folder / "out", "--dtype", "slot")
        if not self.report.check(process.returncode == 0, "values: are converted", support.last_line(process)):
            return
        entries = support.external_entries(folder / "out" / "model.onnx")
        for name, expected in wanted.items():
            found = (folder / "out" / entries[name]["location"]).read_bytes()
            self.report.check(same_values(found, expected), f"{name}: is what torch makes of it")
        for options in ((), ("--dtype", "slot")):
            verified = self.tools.verify(folder / "out" / "model.onnx", "--against", checkpoint, *options)
            self.report.check(
                verified.returncode == 0, f"values: verified {options}", support.last_line(verified)
            )
            document = support.parse_json(verified.stdout)
            self.report.check(document["converted"] == 12, "values: says how many", verified.stdout[-300:])

    def test_models(self) -> None:
        """Test weights in one type for a graph that computes in another."""
        for stored in (torch.float16, torch.bfloat16, torch.float64):
            label = f"weights of {str(stored)[6:]}"
            state = OrderedDict(
                (name, value.to(stored) if value.is_floating_point() else value)
                for name, value in self.small.state_dict.items()
            )
            truth = {
                name: value.float() if value.is_floating_point() else value for name, value in state.items()
            }
            module = zoo.build("vgg").module
            module.load_state_dict(truth)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outputs = zoo.run_module(module, self.small.inputs)
            case = zoo.Case(label, module, self.small.inputs, outputs)
            self.refuse(f"{label}, not asked for", self.graph, state, ["--dtype slot"])
            self.accept(label, self.graph, state, case, *CAST, "--layout", "single", against=CAST)
            self.refuse(
                f"{label}, asked for in float16", self.graph, state, ["the graph states FLOAT"], "--dtype", "float16"
            )


if __name__ == "__main__":
    parsed = support.parse_arguments(__doc__.splitlines()[0], runtime.NODE_MODULES)
    sys.exit(CastsTest(parsed).run())
