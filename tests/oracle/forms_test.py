"""Tests the forms in which real exports leave weights open, and prefixes of names.

Each accepted case: ONNX Runtime computes what torch computes, every initializer holds the bytes of the
state-dict tensor that the exporter named, verify-external agrees. Each refused case: exit code 1, an error
that names the thing and the way out, nothing left in the output folder.

usage: forms_test.py --bin-dir DIR --work-dir DIR [--node-modules DIR] [--only NAME] [-v]
"""

import sys
from collections import OrderedDict

import onnx
import torch
from torch import nn

import runtime
import support
import zoo
from save_cases import SaveTest, prefixed


class Gated(nn.Module):
    """Weights that only the bodies of If and Loop use."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.step = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        if bool(x.sum() > 0):
            y = self.left(x)
        else:
            y = self.right(x)
        for _ in range(x.size(0)):
            y = torch.tanh(self.step(y))
        return y


class Wrapper(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)


def without_inputs(model: onnx.ModelProto, state: dict, keep_value_info: bool) -> onnx.ModelProto:
    """Make the graph of include_initializers=False: the weights are used and nothing defines them."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    weights = [value for value in graph.input if value.name in state]
    others = [value for value in graph.input if value.name not in state]
    del graph.input[:]
    graph.input.extend(others)
    if keep_value_info:
        graph.value_info.extend(weights)
    return copy


class FormsTest(SaveTest):
    folder_name = "forms"

    def test_inputs(self) -> None:
        model, document = self.accept("inputs", self.graph, self.small.state_dict, self.small)
        left = [value.name for value in onnx.load(str(model), load_external_data=False).graph.input]
        users = zoo.user_inputs(self.graph, self.small)
        self.report.check(left == users, "inputs: filled slots leave the inputs", str(left))
        self.report.check(
            document["inputs_left"] == users,
            "inputs: the caller's input is reported",
            str(document["inputs_left"]),
        )
        unused = [key for key in self.small.state_dict if key.endswith("num_batches_tracked")]
        self.report.check(
            document["unmatched_keys"] == unused,
            "inputs: unused keys are reported",
            str(document["unmatched_keys"]),
        )

    def test_undefined_names(self) -> None:
        for keep in (True, False):
            graph = without_inputs(self.graph, self.small.state_dict, keep)
            label = f"undefined names {'with' if keep else 'without'} value_info"
            self.accept(label, graph, self.small.state_dict, self.small)
        state = self.small.state_dict
        missing = {key: value for key, value in state.items() if key != "classifier.3.weight"}
        graph = without_inputs(self.graph, state, False)
        self.refuse("an undefined name that nothing fills", graph, missing, ["classifier.3.weight"])

    def test_undefined_names_of_a_transformer(self) -> None:
        """Test that types and shapes are found from MatMul, Gather and Add."""
        case = zoo.build("gpt_tied")
        graph = without_inputs(zoo.export(case.module, case.inputs), case.state_dict, False)
        self.accept("undefined names of a transformer", graph, case.state_dict, case)

    def test_initializers(self) -> None:
        state = self.small.state_dict
        self.accept("initializers replaced", self.full, state, self.small)
        as_inputs = zoo.export(
            self.other.module, self.other.inputs, with_weights=True, keep_initializers_as_inputs=True
        )
        self.accept("initializers that are inputs too", as_inputs, state, self.small)

    def test_merged_behind_identity(self) -> None:
        trained = zoo.build("resnet18")
        untrained = zoo.build("resnet18", distinct=False)
        for with_weights, label in ((False, "open"), (True, "filled")):
            graph = zoo.export(untrained.module, untrained.inputs, with_weights=with_weights)
            merged = sum(node.op_type == "Identity" for node in graph.graph.node)
            self.report.check(
                merged > 50, f"untrained ResNet-18 {label}: the export merged weights", str(merged)
            )
            truth = {k: v for k, v in trained.state_dict.items() if not k.endswith("num_batches_tracked")}
            self.accept(f"untrained ResNet-18 {label}", graph, trained.state_dict, trained, truth=truth)

    def test_merged_without_trace(self) -> None:
        """Test a checkpoint with two weights that the export merged into one."""
        tied = zoo.build("gpt_tied")
        untied = zoo.make_case("untied", zoo.UntiedGpt, lambda: zoo.ids(96))
        graph = zoo.export(tied.module, tied.inputs)
        names = ["lm_head.weight"]  # a key that differs from the one slot of both
        self.refuse("merged without a trace", graph, untied.state_dict, names)

    def test_subgraphs(self) -> None:
        make = Gated
        case = zoo.make_case("gated", make, lambda: (torch.randn(3, 6),))
        scripted = torch.jit.script(case.module)
        graph = zoo.export(scripted, case.inputs)
        kinds = {node.op_type for node in graph.graph.node}
        self.report.check(kinds >= {"If", "Loop"}, "subgraphs: the export has If and Loop", str(kinds))
        state = case.state_dict
        self.accept("subgraphs, inputs", graph, state, case)
        for keep in (True, False):
            label = f"subgraphs, undefined names {'with' if keep else 'without'} value_info"
            self.accept(label, without_inputs(graph, state, keep), state, case)
        other = zoo.make_case("gated", make, lambda: (torch.randn(3, 6),), seed_shift=1)
        full = zoo.export(torch.jit.script(other.module), other.inputs, with_weights=True)
        self.accept("subgraphs, initializers", full, state, case)

    def test_external_data_already(self) -> None:
        """Test a graph that already has external data."""
        folder = self.folder / "given"
        folder.mkdir()
        graph = folder / "graph.onnx"
        copy = onnx.ModelProto()
        copy.CopyFrom(self.full)
        onnx.save(copy, str(graph), save_as_external_data=True, location="weights.data", size_threshold=0)
        state = self.small.state_dict
        self.accept("external data replaced", graph, state, self.small)

        part = {key: value for key, value in state.items() if key.startswith("features")}
        mixed = zoo.make_case("mixed", zoo.SmallVgg, zoo.image)
        mixed.module.load_state_dict({**self.other.state_dict, **part})
        mixed = zoo.Case("mixed", mixed.module, mixed.inputs, zoo.run_module(mixed.module, mixed.inputs))
        rest = ("--keep", ",".join(key for key in self.other.state_dict if key.startswith("classifier")))
        self.refuse("external data kept unasked", graph, part, ["missing from the checkpoint"])
        result = self.accept("external data kept", graph, part, mixed, *rest)
        if result:
            (folder / "weights.data").rename(folder / "away.data")
            wrong = support.wrong_initializers(
                result[0], support.expected_initializers(self.full, mixed.state_dict)
            )
            self.report.check(not wrong, "external data kept: is a copy of its own", str(wrong[:3]))
            self.accept("external data replaced, its file gone", graph, state, self.small)
            self.refuse("external data kept, its file gone", graph, part, ["weights.data"], *rest)

    # --- alignments ---

    def test_submodule(self) -> None:
        """Test the graph of a submodule with the complete checkpoint, and the other way round."""
        state = self.small.state_dict
        part = zoo.Case("part", self.small.module.features, self.small.inputs, ())
        part = zoo.Case("part", part.module, part.inputs, zoo.run_module(part.module, part.inputs))
        self.accept("a submodule's graph", zoo.export(part.module, part.inputs), state, part)

        whole = zoo.Case("whole", Wrapper(self.small.module), self.small.inputs, self.small.outputs)
        graph = zoo.export(whole.module, whole.inputs)
        truth = {f"model.{k}": v for k, v in state.items() if not k.endswith("num_batches_tracked")}
        self.accept("a wrapper's graph", graph, state, whole, truth=truth)

    def test_wrapper_components(self) -> None:
        state = OrderedDict()
        for key, value in self.small.state_dict.items():
            first, rest = key.split(".", 1)
            state[f"_orig_mod.{first}._fsdp_wrapped_module.{rest}"] = value
        self.accept("torch.compile and FSDP components", self.graph, state, self.small)

    def test_teacher_and_student(self) -> None:
        both = {**prefixed(self.small.state_dict, "student."), **prefixed(self.other.state_dict, "teacher.")}
        self.refuse("teacher and student", self.graph, both, ["student", "teacher", "--prefix"])
        self.accept("teacher and student, the student", self.graph, both, self.small, "--prefix", "student.")
        self.accept("teacher and student, the teacher", self.graph, both, self.other, "--prefix", "teacher.")

    def test_nested_key(self) -> None:
        both = {"model": self.small.state_dict, "ema": self.other.state_dict, "epoch": 3}
        self.refuse("two state dicts", self.graph, both, ["model", "ema", "--key"])
        self.accept("two state dicts, one chosen", self.graph, both, self.other, "--key", "ema")
        single = {"epoch": 3, "net": {"weights": self.small.state_dict}}
        self.accept("a deep state dict", self.graph, single, self.small)

    def test_folded_export(self) -> None:
        """Test that the default export, which folds BatchNorm into convolutions, cannot get new weights."""
        graph = zoo.export(self.other.module, self.other.inputs, with_weights=True, fold=True)
        names = {tensor.name for tensor in graph.graph.initializer}
        folded = not any(name.endswith("running_mean") for name in names)
        self.report.check(folded, "a folding export: BatchNorm is gone", str(sorted(names)[:3]))
        self.refuse(
            "a folding export", graph, self.small.state_dict, ["BatchNorm", "do_constant_folding=False"]
        )


if __name__ == "__main__":
    parsed = support.parse_arguments(__doc__.splitlines()[0], runtime.NODE_MODULES)
    sys.exit(FormsTest(parsed).run())
