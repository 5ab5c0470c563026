"""Tests modules that were saved as a whole: TorchScript and mobile archives, torch.save(model), exported programs.

Each case twice. inspect-external must list the tensors of torch's state_dict() with their digests, and what
else the file holds. save-external must find exactly the names of the state_dict(): each is an input of a
small graph, none may be missing, none may be left over, and python onnx must load torch's bytes.

usage: modules_test.py --bin-dir DIR --work-dir DIR [--only NAME] [-v]
"""

import sys
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Dict, List

import onnx
import torch
import torchvision
from onnx import TensorProto, helper
from torch import nn

import exported_pt2
import support
import zoo

ONNX_TYPES = {
    "float64": TensorProto.DOUBLE,
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "int64": TensorProto.INT64,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "bool": TensorProto.BOOL,
    "complex64": TensorProto.COMPLEX64,
}


class Everything(nn.Module):
    """A module with everything that a Python module can hold: lists, dicts, ties, absent and temporary things."""

    def __init__(self):
        super().__init__()
        self.parameters_ = nn.ParameterList([nn.Parameter(torch.randn(2)), nn.Parameter(torch.randn(3))])
        self.named = nn.ParameterDict({"x": nn.Parameter(torch.randn(1)), "y": nn.Parameter(torch.randn(2))})
        self.layers = nn.ModuleList([nn.Linear(1, 2), nn.Sequential(nn.BatchNorm1d(2), nn.ReLU())])
        self.heads = nn.ModuleDict({"left": nn.Linear(2, 1), "right": nn.Conv2d(1, 2, 3)})
        self.tied = self.layers[0]
        self.embedding, self.output = nn.Embedding(5, 3), nn.Linear(3, 5)
        self.output.weight = self.embedding.weight
        self.normed = nn.utils.weight_norm(nn.Linear(2, 2))
        self.register_parameter("no_parameter", None)
        self.register_buffer("no_buffer", None)
        self.register_buffer("temporary", torch.randn(3), persistent=False)
        self.register_buffer("table", torch.arange(6).reshape(2, 3).t())
        self.plain = torch.randn(5)
        self.kept = [torch.randn(2), {"deep": torch.randn(1)}]


class Scripted(nn.Module):
    """A module with everything that a TorchScript module can hold."""

    pieces: List[torch.Tensor]
    table: Dict[str, torch.Tensor]

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(3, 4)
        self.b.weight = self.a.weight
        self.norm = nn.BatchNorm1d(4)
        self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.register_buffer("temporary", torch.arange(4.0), persistent=False)
        self.halves, self.phases = nn.Parameter(torch.randn(4).half()), nn.Parameter(torch.randn(2).cfloat())
        self.plain, self.pair = torch.randn(2), (torch.ones(1), torch.full((2,), 7.0))
        self.pieces, self.table = [torch.randn(2), torch.randn(3)], {"k": torch.randn(1)}

    def forward(self, x):
        y = self.norm(self.a(x) + self.b(x))
        for block in self.blocks:
            y = block(y)
        y = y + self.temporary + self.plain.sum() + self.pieces[0].sum() + self.table["k"] + self.pair[0]
        return y + torch.tensor([1.0, 2.0]).sum() + self.halves


class Quantized(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.conv = nn.Linear(3, 4), nn.Conv2d(1, 2, 3)

    def forward(self, x):
        return self.linear(x)


def small_model() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).eval()


def graph_of(state: dict) -> onnx.ModelProto:
    """Return a graph that reads each tensor of a state dict, and nothing else of use."""
    data = helper.make_tensor_value_info("data", TensorProto.FLOAT, ["n"])
    inputs, outputs, nodes = [data], [helper.make_tensor_value_info("same", TensorProto.FLOAT, ["n"])], []
    nodes.append(helper.make_node("Identity", ["data"], ["same"]))
    # Floats first: an integer input before any weight may be the caller's.
    for index, (name, value) in enumerate(sorted(state.items(), key=lambda item: not item[1].is_floating_point())):
        kind = ONNX_TYPES[support.short_dtype(value)]
        inputs.append(helper.make_tensor_value_info(name, kind, list(value.shape)))
        outputs.append(helper.make_tensor_value_info(f"out_{index}", kind, list(value.shape)))
        nodes.append(helper.make_node("Shape", [name], [f"out_{index}"]))
        outputs[-1].type.tensor_type.elem_type = TensorProto.INT64
        outputs[-1].type.tensor_type.shape.Clear()
    graph = helper.make_graph(nodes, "weights", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


class ModulesTest:
    def __init__(self, arguments):
        self.report = support.Report(arguments.verbose)
        self.tools = support.Tools(arguments.bin_dir)
        self.only = arguments.only
        self.folder = support.fresh_folder(arguments.work_dir / "modules")

    # --- checks ---

    def expect(self, label: str, path: Path, kind: str, state: dict, others=(), key: str = "") -> None:
        """state: what state_dict() gives; others: names that only the listing has."""
        self.expect_listing(label, path, kind, state, others, key)
        self.expect_save(label, path, state, key)

    def expect_listing(self, label, path, kind, state, others, key="") -> dict:
        process = self.tools.inspect(path, "--sha256")
        document = support.parse_json(process.stdout)
        if not self.report.check(document, f"{label}: is listed", support.last_line(process)):
            return {}
        self.report.check(document["format"] == kind, f"{label}: its format", document["format"])
        prefix = f"{key}." if key else ""
        found = {e["name"]: (e["dtype"], tuple(e["shape"]), e["sha256"]) for e in document["tensors"]}
        wrong = []
        for name, value in state.items():
            digest = support.digest(support.tensor_bytes(value))
            if found.pop(prefix + name, None) != (support.short_dtype(value), tuple(value.shape), digest):
                wrong.append(name)
        self.report.check(not wrong, f"{label}: types, shapes and digests are torch's", str(wrong[:4]))
        rest = sorted(name for name in found if name.startswith(prefix))
        self.report.check(rest == sorted(others), f"{label}: lists the rest", f"{rest}, not {sorted(others)}")
        return document

    def expect_save(self, label: str, path: Path, state: dict, key: str = "") -> None:
        graph = self.folder / "graph.onnx"
        onnx.save(graph_of(state), str(graph))
        out = support.fresh_folder(self.folder / "out")
        options = ["--prefix", "", "-o", out] + (["--key", key] if key else [])
        process = self.tools.save(graph, path, *options)
        document = support.parse_json(process.stdout)
        if not self.report.check(document, f"{label}: is saved", support.last_line(process)):
            return
        keys = {entry["key"] for entry in document["tensors"]}
        self.report.check(keys == set(state), f"{label}: every name is found", str(set(state) - keys))
        self.report.check(
            not document["unmatched_keys"], f"{label}: no other name", str(document["unmatched_keys"])
        )
        wrong = support.wrong_initializers(out / "model.onnx", state)
        self.report.check(not wrong, f"{label}: the saved bytes are torch's", str(wrong[:4]))

    def expect_refusal(self, label: str, path: Path, *words: str) -> None:
        graph = self.folder / "graph.onnx"
        onnx.save(graph_of({"w": torch.ones(1)}), str(graph))
        process = self.tools.save(graph, path, "-o", support.fresh_folder(self.folder / "out"))
        text = process.stderr
        self.report.check(process.returncode == 1, f"{label}: is refused", support.last_line(process))
        for word in (path.name, *words):
            self.report.check(word in text, f"{label}: the error says {word!r}", text[:300])

    # --- torch.save(model) ---

    def test_whole_modules(self) -> None:
        models = {
            "linear": nn.Linear(3, 4),
            "lstm": nn.LSTM(3, 4, 2),
            "transformer": nn.TransformerEncoderLayer(8, 2, 16),
            "resnet18": torchvision.models.resnet18(),
            "parallel": nn.DataParallel(small_model()),
        }
        for name, model in models.items():
            path = self.folder / f"{name}.pt"
            torch.save(model, path)
            others = [f"_flat_weights.{i}" for i in range(8)] if name == "lstm" else []
            self.expect(f"whole/{name}", path, "torch-zip", model.state_dict(), others)

    def test_whole_module_with_everything(self) -> None:
        model = Everything()
        others = ["temporary", "plain", "kept.0", "kept.1.deep", "normed.weight"]
        for protocol in (2, 4):
            path = self.folder / f"everything{protocol}.pt"
            torch.save(model, path, pickle_protocol=protocol)
            self.expect(f"whole/protocol {protocol}", path, "torch-zip", model.state_dict(), others)

    def test_module_in_a_checkpoint(self) -> None:
        model = small_model()
        optimizer = torch.optim.Adam(model.parameters())
        path = self.folder / "training.pt"
        torch.save({"epoch": 3, "model": model, "loss": nn.MSELoss(), "best": {}}, path)
        self.expect_save("in a dict", path, model.state_dict())
        torch.save({"model": model, "ema": small_model(), "optimizer": optimizer.state_dict()}, path)
        self.expect("by --key", path, "torch-zip", model.state_dict(), key="model")
        self.expect_refusal("two modules", path, "'model'", "'ema'", "--key")

    # --- TorchScript ---

    def archives(self, model: nn.Module, name: str, traced=None) -> dict:
        """Return the module as torch.jit.save and as the mobile interpreter's writer write it."""
        scripted = torch.jit.script(model) if traced is None else torch.jit.trace(model, traced)
        paths = {
            "torchscript": self.folder / f"{name}.pt",
            "torchscript-mobile": self.folder / f"{name}.ptl",
        }
        scripted.save(str(paths["torchscript"]))
        scripted._save_for_lite_interpreter(str(paths["torchscript-mobile"]))
        return paths

    def test_scripted(self) -> None:
        others = ["plain", "pair.0", "pair.1", "pieces.0", "pieces.1", "table.k"]
        for kind, path in self.archives(Scripted().eval(), "scripted").items():
            state = torch.jit.load(str(path)).state_dict()
            self.expect(f"scripted/{kind}", path, kind, state, others)

    def test_traced(self) -> None:
        for kind, path in self.archives(Scripted().eval(), "traced", traced=torch.ones(2, 3)).items():
            state = torch.jit.load(str(path)).state_dict()
            names = [f"CONSTANTS.c{i}" for i in range(len(self.constants(path)))]
            self.report.check(names, f"traced/{kind}: the code has constants")
            self.expect(f"traced/{kind}", path, kind, state, names)

    def test_resnet(self) -> None:
        model = torchvision.models.resnet18().eval()
        for kind, path in self.archives(model, "resnet").items():
            self.expect(f"resnet18/{kind}", path, kind, model.state_dict())

    @staticmethod
    def constants(path: Path) -> list:
        """c0, c1, ... as the code of the loaded module uses them."""
        found = torch.jit.load(str(path)).code_with_constants[1].const_mapping
        return [found[f"c{index}"] for index in range(len(found))]

    def test_frozen(self) -> None:
        frozen = torch.jit.freeze(torch.jit.script(small_model()))
        for kind in ("torchscript", "torchscript-mobile"):
            path = self.folder / f"frozen_{kind}.pt"
            frozen.save(str(path)) if kind == "torchscript" else frozen._save_for_lite_interpreter(str(path))
            values = self.constants(self.folder / "frozen_torchscript.pt")
            state = {f"CONSTANTS.c{i}": value for i, value in enumerate(values)}
            self.report.check(
                len(state) >= 4, f"frozen/{kind}: has its weights as constants", str(len(state))
            )
            self.expect(f"frozen/{kind}", path, kind, state)

    def test_quantized(self) -> None:
        """Test that packed weights are listed, although the state_dict() omits them."""
        model = torch.quantization.quantize_dynamic(Quantized(), dtype=torch.qint8)
        path = self.folder / "quantized.pt"
        torch.jit.script(model).save(str(path))
        state = torch.jit.load(str(path)).state_dict()
        self.report.check(
            set(state) == {"conv.weight", "conv.bias"}, "quantized: torch's names", str(set(state))
        )
        self.expect_save("quantized", path, state)
        document = support.parse_json(self.tools.inspect(path).stdout)
        if self.report.check(document, "quantized: is listed"):
            packed = [o for o in document["opaque_objects"] if "PackedParams" in o["type"]]
            self.report.check(
                [o["path"] for o in packed] == ["linear._packed_params._packed_params"],
                "quantized: packed weights are named",
                str(packed),
            )

    # --- onto an exported graph ---

    def test_attach(self) -> None:
        """Names come from the exporter, bytes from torch; the checkpoint is a module, not a state dict."""
        case = zoo.build("resnet18")
        graph = self.folder / "resnet18.onnx"
        exported = zoo.export(case.module, case.inputs)
        onnx.save(exported, str(graph))
        paths = {"whole": self.folder / "attach.pt", **self.archives(case.module, "attached")}
        torch.save(case.module, paths["whole"])
        truth = support.expected_initializers(exported, case.state_dict)
        for kind, path in paths.items():
            out = support.fresh_folder(self.folder / "attached")
            process = self.tools.save(graph, path, "-o", out)
            self.report.check(process.returncode == 0, f"attach/{kind}", support.last_line(process))
            wrong = support.wrong_initializers(out / "model.onnx", truth)
            self.report.check(len(truth) > 50 and not wrong, f"attach/{kind}: every weight", str(wrong[:4]))
            process = self.tools.verify(out / "model.onnx", "--against", path)
            self.report.check(process.returncode == 0, f"attach/{kind}: verifies", support.last_line(process))

    # --- exported programs ---

    def test_exported(self) -> None:
        model = small_model()
        state = model.state_dict()
        state["tied"] = state["0.weight"]
        state["view"] = state["3.weight"].t()[1:]
        constants = OrderedDict((("frequencies", torch.randn(4)), ("flags", torch.tensor([True, False]))))
        path = self.folder / "program.pt2"
        exported_pt2.write_flat(path, state, constants)
        self.expect("exported/flat", path, "torch-export", {**state, **constants})
        exported_pt2.write_flat(path, state, constants, suffix=".json")
        self.expect("exported/torch 2.1", path, "torch-export", {**state, **constants})
        for old in (True, False):
            exported_pt2.write_archive(path, {"model": (state, constants)}, old=old)
            self.expect(f"exported/archive, old: {old}", path, "torch-export", {**state, **constants})
        second = {"w": torch.randn(3).bfloat16()}
        exported_pt2.write_archive(path, {"first": (state, constants), "second": (second, {})})
        self.expect("exported/by key", path, "torch-export", second, key="second")
        self.expect_refusal("exported/two programs", path, "'first', 'second'", "--key")

    def run(self) -> int:
        tests = [getattr(self, name) for name in sorted(vars(ModulesTest)) if name.startswith("test_")]
        for test in tests:
            if self.only not in test.__name__:
                continue
            try:
                test()
            except Exception as error:
                self.report.check(False, f"{test.__name__} runs to its end", repr(error))
            print(f"done  {test.__name__[5:]}", flush=True)
        return self.report.close()


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.manual_seed(5)
    sys.exit(ModulesTest(support.parse_arguments(__doc__.splitlines()[0])).run())
