"""Tests that recorded inputs, including caches, become test data, and that nested trees have Python's names.

torch records the calls of a small attention layer with a cache; stand-ins for transformers' classes give
pickles of the same form. python onnx must find torch's tensors in input_K.pb, and ONNX Runtime must compute
torch's outputs from these files.

usage: inputs_test.py --bin-dir DIR --work-dir DIR [--node-modules DIR] [--only NAME] [-v]
"""

import sys
import types
from collections import OrderedDict

import onnx
import onnx.numpy_helper
import torch
from torch import nn

import exported_pt2
import runtime
import support
import zoo
from save_cases import SaveTest

HEADS, WIDTH, LAYERS = 2, 4, 2


def make_class(module: str, name: str, bases: tuple = (object,), **members) -> type:
    """Return a class that pickles under a name of transformers."""
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
    made = type(name, bases, {"__module__": module, **members})
    setattr(sys.modules[module], name, made)
    return made


def reduce_output(self):
    """ModelOutput.__reduce__: the class, all fields, and what OrderedDict adds."""
    _, _, *rest = OrderedDict.__reduce__(self)
    return (type(self), (), *rest)


CACHE_UTILS = "transformers.cache_utils"
DynamicCache = make_class(CACHE_UTILS, "DynamicCache")
DynamicLayer = make_class(CACHE_UTILS, "DynamicLayer")
EncoderDecoderCache = make_class(CACHE_UTILS, "EncoderDecoderCache")
MambaCache = make_class(CACHE_UTILS, "MambaCache")
BaseModelOutput = make_class(
    "transformers.modeling_outputs", "BaseModelOutput", (OrderedDict,), __reduce__=reduce_output
)


def made(cls: type, **attributes):
    thing = cls()
    thing.__dict__.update(attributes)
    return thing


def old_cache(keys: list, values: list):
    return made(DynamicCache, _seen_tokens=3, key_cache=keys, value_cache=values)


def new_cache(keys: list, values: list):
    layers = [made(DynamicLayer, keys=k, values=v, is_initialized=True) for k, v in zip(keys, values)]
    layers.insert(1, made(DynamicLayer, keys=None, values=None, is_initialized=False))
    return made(DynamicCache, layers=layers, layer_class_to_replicate=DynamicLayer)


class Attention(nn.Module):
    """Attends to a cache of two layers; keys and values of a layer do different things."""

    def __init__(self):
        super().__init__()
        self.query = nn.Linear(HEADS * WIDTH, HEADS * WIDTH)

    def forward(self, hidden, mask, *past):
        keys, values = past[:LAYERS], past[LAYERS:]
        query = self.query(hidden).reshape(hidden.shape[0], -1, HEADS, WIDTH).transpose(1, 2)
        out = query
        for number, (key, value) in enumerate(zip(keys, values)):
            score = torch.softmax(out @ key.transpose(2, 3) + (number + 1) * mask[:, None, None], dim=-1)
            out = out + score @ value
        return out


def a_call(batch: int, length: int, seed: int) -> tuple:
    """hidden, mask, keys, values."""
    generator = torch.Generator().manual_seed(seed)

    def rand(*shape):
        return torch.rand(shape, generator=generator)

    keys = [rand(batch, HEADS, length, WIDTH) for _ in range(LAYERS)]
    values = [rand(batch, HEADS, length, WIDTH) - 1 for _ in range(LAYERS)]
    return rand(batch, 1, HEADS * WIDTH), rand(batch, length), keys, values


LISTS = ["hidden", "mask", *(f"past_{part}_cache_{i}" for part in ("key", "value") for i in range(LAYERS))]
BY_LAYER = ["hidden", "mask", *(f"past.{part}_cache.{i}" for part in ("key", "value") for i in range(LAYERS))]
OPTIMUM = ["hidden", "mask", *(f"past.{i}.{part}" for part in ("key", "value") for i in range(LAYERS))]


class InputsTest(SaveTest):
    folder_name = "inputs"

    def export(self, module: Attention, names: list, fixed: bool = False) -> onnx.ModelProto:
        hidden, mask, keys, values = a_call(2, 3, 0)
        past = {name: {0: "batch", 2: "length"} for name in names[2:]}
        dynamic = {} if fixed else {"hidden": {0: "batch"}, "mask": {0: "batch", 1: "length"}, **past}
        return zoo.export(
            module, (hidden, mask, *keys, *values), input_names=names, output_names=["y"], dynamic_axes=dynamic
        )

    def save(self, label: str, graph: onnx.ModelProto, module: nn.Module, recording, *options):
        folder, graph_path, checkpoint = self.write(label, graph, module.state_dict())
        if callable(recording):
            recording(folder / "recorded.pt")
        else:
            torch.save(recording, folder / "recorded.pt")
        out = folder / "out"
        process = self.tools.save(
            graph_path, checkpoint, "-o", out, "--test-data", folder / "recorded.pt", *options
        )
        return out, process

    def accept_calls(self, label: str, names: list, calls: list, recording) -> dict:
        """Save, and check that each set has the tensors of the call in graph order, and computes its output."""
        module = Attention().eval()
        graph = self.export(module, names)
        out, process = self.save(label, graph, module, recording)
        if not self.report.check(process.returncode == 0, f"{label}: is accepted", support.last_line(process)):
            return {}
        for number, (hidden, mask, keys, values) in enumerate(calls):
            tensors = (hidden, mask, *keys, *values)
            read = []
            for index, expected in enumerate(tensors):
                proto = onnx.TensorProto()
                proto.ParseFromString((out / f"test_data_set_{number}" / f"input_{index}.pb").read_bytes())
                value = torch.from_numpy(onnx.numpy_helper.to_array(proto).copy())
                same = value.dtype == expected.dtype and torch.equal(value, expected)
                self.report.check(
                    same and proto.name == names[index], f"{label}: set {number} input {index} is torch's"
                )
                read.append(value)
            expected = module(*tensors).detach()
            case = zoo.Case(label, module, tuple(read), (expected,))
            self.runtime.add(f"{label} set {number}", out / "model.onnx", case, graph)
        verified = self.tools.verify(out / "model.onnx")
        self.report.check(verified.returncode == 0, f"{label}: verifies", support.last_line(verified))
        return support.parse_json(process.stdout)

    def test_caches_in_every_spelling(self) -> None:
        for spelling, names in (("lists", LISTS), ("dots", BY_LAYER), ("optimum", OPTIMUM)):
            for form, cache in (("old", old_cache), ("new", new_cache)):
                calls = [a_call(2, 3, 1), a_call(1, 5, 2)]
                recording = [((h,), {"past": cache(k, v), "mask": m, "use_cache": True}) for h, m, k, v in calls]
                document = self.accept_calls(f"cache {spelling} {form}", names, calls, recording)
                verdicts = {guess["verdict"] for guess in document.get("dimensions", [])}
                self.report.check(
                    verdicts == {"symbolic"}, f"cache {spelling} {form}: all that varied is symbolic"
                )

    def test_positional_cache(self) -> None:
        call = a_call(2, 4, 3)
        recording = ((call[0], call[1], old_cache(call[2], call[3])), {})
        self.accept_calls("positional cache", LISTS, [call], recording)

    def test_dict_and_legacy_tuple(self) -> None:
        call = a_call(2, 4, 4)
        named = dict(zip(LISTS, (call[0], call[1], *call[2], *call[3])))
        self.accept_calls("dict", LISTS, [call], named)
        self.accept_calls("positional", LISTS, [call], tuple(named.values()))

    def test_example_inputs_of_an_exported_program(self) -> None:
        call = a_call(2, 4, 10)
        inputs = ((call[0], call[1], old_cache(call[2], call[3])), {})
        self.accept_calls(
            "exported program", LISTS, [call], lambda path: exported_pt2.write_flat(path, {}, {}, inputs=inputs)
        )

    def test_never_varied(self) -> None:
        calls = [a_call(2, 3, 5), a_call(2, 6, 6)]
        recording = [((h, m), {"past": old_cache(k, v)}) for h, m, k, v in calls]
        document = self.accept_calls("never varied", LISTS, calls, recording)
        guesses = {(guess["input"], guess["axis"]): guess["verdict"] for guess in document["dimensions"]}
        self.report.check(
            guesses[("hidden", 0)] == "never-varied" and guesses[("mask", 1)] == "symbolic",
            "never varied: the batch is reported",
            str(guesses),
        )

    def test_fixed_graph(self) -> None:
        module = Attention().eval()
        graph = self.export(module, LISTS, fixed=True)
        calls = [a_call(2, 3, 7), a_call(2, 6, 8)]
        recording = [((h, m), {"past": old_cache(k, v)}) for h, m, k, v in calls]
        state = module.state_dict()
        callers = [i.name for i in graph.graph.input if i.name not in state]
        callers = ("--inputs", ",".join(callers))  # float inputs of fixed shape: to be confirmed
        out, process = self.save("fixed graph", graph, module, recording, *callers)
        self.report.check(
            process.returncode == 1 and "export these dimensions as dynamic" in process.stderr,
            "fixed graph: is refused",
            support.last_line(process),
        )
        self.report.check(support.is_empty(out), "fixed graph: nothing is left")
        _, process = self.save("fixed graph", graph, module, recording, *callers, "--dry-run")
        document = support.parse_json(process.stdout) or {}
        must = [g for g in document.get("dimensions", []) if g["verdict"] == "must-be-symbolic"]
        self.report.check(
            len(must) == 1 + 2 * LAYERS and must[0]["seen"] == [3, 6],
            "fixed graph: a dry run lists the dimensions",
            str(must),
        )

    def test_swapped_keys_are_seen(self) -> None:
        """Test the oracle itself: exchanged keys and values must not compute the same."""
        module = Attention().eval()
        hidden, mask, keys, values = a_call(2, 3, 9)
        right = module(hidden, mask, *keys, *values)
        wrong = module(hidden, mask, *values, *keys)
        self.report.check(not torch.allclose(right, wrong, rtol=1e-2), "swapped keys: torch tells them apart")

    def listed(self, label: str, thing) -> list:
        folder, _, path = self.write(label, self.graph, thing)
        process = self.tools.inspect(path)
        self.report.check(process.returncode == 0, f"{label}: is listed", support.last_line(process))
        return [(t["name"], t["shape"]) for t in (support.parse_json(process.stdout) or {"tensors": []})["tensors"]]

    def test_nested_trees_have_pythons_names(self) -> None:
        model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        tree = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "layers": [{"w": torch.ones(4)}, ({"w": torch.ones(5)}, torch.ones(6))],
        }
        expected = list(flatten(tree, ""))
        self.report.check(self.listed("nested tree", tree) == expected, "nested tree: names", str(expected))

    def test_caches_are_listed_as_exporters_see_them(self) -> None:
        t = torch.ones
        thing = {
            "both": made(
                EncoderDecoderCache,
                self_attention_cache=old_cache([t(1)], [t(2)]),
                cross_attention_cache=new_cache([t(3), t(4)], [t(5), t(6)]),
                is_updated={0: True},
            ),
            "mamba": made(MambaCache, conv_states=[t(7), t(8)], ssm_states=t(9)),
            "output": BaseModelOutput(last_hidden_state=t(10)),
        }
        expected = [
            ("both.self_attention_cache.key_cache.0", [1]),
            ("both.self_attention_cache.value_cache.0", [2]),
            ("both.cross_attention_cache.key_cache.0", [3]),
            ("both.cross_attention_cache.key_cache.1", [4]),
            ("both.cross_attention_cache.value_cache.0", [5]),
            ("both.cross_attention_cache.value_cache.1", [6]),
            ("mamba.conv_states.0", [7]),
            ("mamba.conv_states.1", [8]),
            ("mamba.ssm_states", [9]),
            ("output.last_hidden_state", [10]),
        ]
        found = self.listed("cache classes", thing)
        self.report.check(found == expected, "cache classes: names", str(found))

    def test_optimizer_states_fill_slots_by_key(self) -> None:
        """A graph whose weights are an optimizer's moments: an integer key on the way."""
        state = {"optimizer": {"state": {0: dict(self.small.state_dict)}, "param_groups": [{"params": [0]}]}}
        for key in ("optimizer.state.0", "optimizer"):
            options = ["--key", key] + (["--prefix", "state.0."] if key == "optimizer" else [])
            self.accept(f"key {key}", self.graph, state, self.small, *options)


def flatten(value, path: str):
    """(name, shape) of each tensor, in order."""
    if isinstance(value, torch.Tensor):
        yield path, list(value.shape)
        return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    for key, part in items:
        yield from flatten(part, f"{path}.{key}" if path else str(key))


if __name__ == "__main__":
    sys.exit(InputsTest(support.parse_arguments(__doc__, runtime.NODE_MODULES)).run())
