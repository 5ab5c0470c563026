"""Tests of deep models whose layers may be repeated, and of models that only seem so."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
from torch import nn  # noqa: E402

import onnx_external as oe  # noqa: E402
import onnx_external.torch  # noqa: E402
from onnx_external._repeating.kinds import Stack, find_stacks  # noqa: E402
from onnx_external._repeating.naming import Names  # noqa: E402
from onnx_external._repeating.proof import Proof, Slot, proved  # noqa: E402
from onnx_external._repeating.recording import Segment, Unprovable, recorded  # noqa: E402
from onnx_external._repeating.shallow import shallow  # noqa: E402
from onnx_external._repeating.users import more_users, places_of  # noqa: E402
from onnx_external.torch._guards import Input, Sizes  # noqa: E402

DEPTH = 8
ODD = 5  # the layer that differs from the others


class Layer(nn.Module):
    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.inner = nn.Linear(4, 4)
        self.register_buffer("table", torch.arange(4.0), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).relu() + self.table


class Model(nn.Module):
    layer: Callable[[int], nn.Module] = Layer

    def __init__(self) -> None:
        super().__init__()
        self.num_layers = DEPTH
        self.layers = nn.ModuleList([type(self).layer(index) for index in range(DEPTH)])
        self.last = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


def proof_of(model: nn.Module, x: torch.Tensor | None = None) -> Proof:
    """Prove that the shallow model determines the graph of the deep one."""
    given = (torch.ones(3, 4) if x is None else x,)
    stacks = find_stacks(model.eval(), lambda tensor: True)
    assert stacks, "no layer can be left out"

    def export() -> None:
        with torch.no_grad():
            torch.export.export(model, given, strict=False)

    deep = recorded(model, stacks, export)
    with shallow(model, stacks):
        return proved(stacks, deep, recorded(model, stacks, export))


def test_layers_that_are_alike_can_be_repeated() -> None:
    model = Model()
    (stack,) = find_stacks(model, lambda tensor: True)
    assert (stack.name, stack.kept) == ("layers", (0, 1, 2, DEPTH - 1))
    assert [stack.stand_in(layer) for layer in range(DEPTH)] == [0, 1, 2, 2, 2, 2, 2, 3]
    assert proof_of(model).outputs


def test_a_model_is_unchanged_after_it_was_shallow() -> None:
    model = Model()
    names, layers = list(model.state_dict()), list(model.layers)
    proof_of(model)
    assert list(model.state_dict()) == names and list(model.layers) == layers
    assert [layer.index for layer in layers] == list(range(DEPTH))
    assert model.num_layers == DEPTH


def test_layers_of_two_kinds_can_be_repeated() -> None:
    class Wide(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x).tanh()

    class Two(Model):
        layer = staticmethod(lambda index: (Wide if index % 3 == 2 else Layer)(index))

        def __init__(self) -> None:
            global DEPTH
            before, DEPTH = DEPTH, 14
            super().__init__()
            DEPTH = before

    model = Two()
    (stack,) = find_stacks(model, lambda tensor: True)
    assert stack.kept == (0, 1, 2, 3, 5, 8, 13)
    assert proof_of(model).outputs


def test_two_lists_of_layers_can_be_repeated() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = Model(), Model()
            self.between = nn.Linear(2, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.decoder(self.between(self.encoder(x)))

    model = Both()
    assert [stack.name for stack in find_stacks(model, lambda t: True)] == [
        "encoder.layers",
        "decoder.layers",
    ]
    assert proof_of(model).outputs


def test_what_layers_hand_on_beside_their_result_can_be_repeated() -> None:
    class Counting(Layer):
        def forward(self, x: torch.Tensor, sum_: torch.Tensor) -> Any:  # type: ignore[override]
            x = self.inner(x)
            return x, sum_ + x

    class Summing(Model):
        layer = Counting

        def forward(self, x: torch.Tensor) -> Any:
            sum_ = torch.zeros_like(x)
            for layer in self.layers:
                x, sum_ = layer(x, sum_)
            return self.last(sum_)

    assert proof_of(Summing()).outputs


class HandsOn(Model):
    """Layers with one cache each, which is returned unchanged."""

    class layer(Layer):
        def forward(self, x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return self.inner(x) + cache

    def forward(self, caches: list[torch.Tensor], x: torch.Tensor) -> Any:
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache)
        return self.last(x), caches


def test_inputs_that_layers_hand_on_can_be_repeated() -> None:
    model = HandsOn()
    stacks = find_stacks(model.eval(), lambda tensor: True)
    (stack,) = stacks

    def record(depth: int) -> Any:
        given = [torch.ones(3, 4) for _ in range(depth)], torch.ones(3, 4)
        with torch.no_grad():
            return recorded(model, stacks, lambda: torch.export.export(model, given, strict=False))

    deep = record(DEPTH)
    with shallow(model, stacks):
        proof = proved(stacks, deep, record(len(stack.kept)))
    assert [proof.outputs[place].segment.layer for place in range(1, DEPTH + 1)] == [*range(DEPTH)]
    stood = [stack.stand_in(layer) for layer in range(DEPTH)]
    assert [proof.outputs[place].number - 1 for place in range(1, DEPTH + 1)] == stood


# --- models whose layers look alike, but are not ---


class TimesTwoOnce(Model):
    """A model with an operation between two layers."""

    def forward(self, x: torch.Tensor) -> Any:
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if index == ODD:
                x = x * 2
        return self.last(x)


class ByOwnIndex(Model):
    class layer(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = super().forward(x)
            return x * 2 if self.index == ODD else x


class ByNumber(Model):
    """Layers with a number that depends on the index, as in attention scaled by the index."""

    class layer(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) / (self.index + 1)


class Hidden:
    def __init__(self, scale: float) -> None:
        self.scale = scale


class ByHiddenAttribute(Model):
    """Layers with a number inside an object of a user's class."""

    class layer(Layer):
        def __init__(self, index: int) -> None:
            super().__init__(index)
            self.hidden = Hidden(2.0 if index == ODD else 1.0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.hidden.scale


class ByCounter(Model):
    """A model in which the sixth call of a function does more than the others."""

    def forward(self, x: torch.Tensor) -> Any:
        calls = [0]

        def count(value: torch.Tensor) -> torch.Tensor:
            calls[0] += 1
            return value * 2 if calls[0] == ODD + 1 else value

        for layer in self.layers:
            layer.count = count
        for layer in self.layers:
            x = layer(x)
        return self.last(x)

    class layer(Layer):
        count: Any

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.count(super().forward(x))


class SkipsLayers(Model):
    """A model whose sixth layer reads the result of the second."""

    class layer(Layer):
        def forward(self, x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return super().forward(x) + kept

    def forward(self, x: torch.Tensor) -> Any:
        found = [x]
        for index, layer in enumerate(self.layers):
            found.append(layer(found[-1], found[1 if index == ODD else index]))
        return self.last(found[-1])


class TwoBack(Model):
    """A model in which each layer reads the result of the layer two before it."""

    layer = SkipsLayers.layer

    def forward(self, x: torch.Tensor) -> Any:
        found = [x, x]
        for layer in self.layers:
            found.append(layer(found[-1], found[-2]))
        return self.last(found[-1])


class SharesCache(Model):
    """A model whose last layers use the cache of an earlier layer."""

    class layer(Layer):
        def forward(self, x: torch.Tensor, cache: Any) -> torch.Tensor:  # type: ignore[override]
            keys = self.inner(x)
            cache.append(keys)
            return keys + cache[3 if self.index > ODD else -1]

    def forward(self, x: torch.Tensor) -> Any:
        cache: list[torch.Tensor] = []
        for layer in self.layers:
            x = layer(x, cache)
        return self.last(x)


class Sliced(Model):
    def forward(self, x: torch.Tensor) -> Any:
        for layer in list(self.layers)[:ODD]:
            x = layer(x)
        return self.last(x)


class Reversed(Model):
    def forward(self, x: torch.Tensor) -> Any:
        for layer in reversed(list(self.layers)):
            x = layer(x)
        return self.last(x)


class Shuffled(Model):
    def forward(self, x: torch.Tensor) -> Any:
        for index in (0, 1, 2, 4, 3, 5, 6, 7):
            x = list(self.layers)[index % len(self.layers)](x)
        return self.last(x)


class ShuffledBefore(Model):
    """A model with a list that contains the layers in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.order = [[*self.layers][index] for index in (0, 1, 2, 4, 3, 5, 6, 7)]

    def forward(self, x: torch.Tensor) -> Any:
        for layer in self.order:
            x = layer(x)
        return self.last(x)


class RunsOneTwice(Model):
    def forward(self, x: torch.Tensor) -> Any:
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if index == ODD:
                x = layer(x)
        return self.last(x)


class Tied(Model):
    def __init__(self) -> None:
        super().__init__()
        self.layers[ODD].inner.weight = self.layers[3].inner.weight


class ExitsEarly(Model):
    def forward(self, x: torch.Tensor) -> Any:
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if index == ODD:
                break
        return self.last(x)


class ReturnsOne(Model):
    """A model that returns the result of one of the middle layers."""

    def forward(self, x: torch.Tensor) -> Any:
        found = []
        for layer in self.layers:
            x = layer(x)
            found.append(x)
        return self.last(x), found[min(ODD, len(found) - 1)]


class SizeTestedOnce(Model):
    """A condition with the same outcome in all layers for the example."""

    class layer(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            length = x.shape[0]
            if self.index == ODD and length > 6:
                x = x * 2
            return super().forward(x)


class HalfTestedOnce(Model):
    class layer(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            half = x.shape[0] / 2 + 1
            if self.index == ODD and half > 6:
                x = x * 2
            return super().forward(x)


class FloatTestedOnce(Model):
    """A condition that tests a float instead of the size."""

    class layer(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.index == ODD and 6.5 < x.shape[0]:
                x = x * 2
            return super().forward(x)


class AttributeTestedOnce(Model):
    class layer(Layer):
        def __init__(self, index: int) -> None:
            super().__init__(index)
            self.most = 6.5

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.index == ODD and not self.most > x.shape[0]:
                x = x * 2
            return super().forward(x)


MOST = 6.5


def at_most(size: int, limit: float = 6.5) -> bool:
    return limit >= size and MOST >= size


LIMITS = {"rows": [6.5], "columns": (9.5,)}


class ListTestedOnce(Model):
    """Layers that all read the size; one compares it with a float in a list."""

    class layer(Layer):
        def __init__(self, index: int) -> None:
            super().__init__(index)
            self.limits = [6.5]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows = x.shape[0]
            return super().forward(x) * (2 if self.index == ODD and self.limits[0] < rows else 1)


class TableTestedOnce(Model):
    """A model like ListTestedOnce, with the float in a list of the file."""

    class layer(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows = x.shape[0]
            return super().forward(x) * (2 if self.index == ODD and LIMITS["rows"][0] < rows else 1)


class RootTestedOnce(Model):
    """Layers that all read the size; one tests a plain number computed from the size."""

    class layer(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            half = x.shape[0] / 2
            return super().forward(x) * (2 if self.index == ODD and math.sqrt(half) > 9.5 else 1)


class MadePlainOnce(Model):
    """Layers that all read the size; one converts it to a plain number."""

    class layer(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows = x.shape[0]
            return super().forward(x) * (2 if self.index == ODD and int(rows) > 6 else 1)


class AskedByAnother(Model):
    """A model whose condition is in a function in the same file."""

    class layer(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.index == ODD and not at_most(x.shape[0]):
                x = x * 2
            return super().forward(x)


class Hooked(Model):
    def __init__(self) -> None:
        super().__init__()
        self.layers[ODD].register_forward_hook(lambda module, given, result: result * 2)


class OtherForward(Model):
    def __init__(self) -> None:
        super().__init__()
        odd = self.layers[ODD]
        odd.forward = lambda x: odd.inner(x).relu() - odd.table


class UsesDropout(Model):
    """A model that uses an attribute that usually matters only in training."""

    class layer(Layer):
        def __init__(self, index: int) -> None:
            super().__init__(index)
            self.dropout = 2.0 if index == ODD else 1.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.dropout


class OtherTable(Model):
    """Layers with tables of the same shape but different values."""

    class layer(Layer):
        def __init__(self, index: int) -> None:
            super().__init__(index)
            self.table.mul_(index)


class CallsPartOfAnother(Model):
    """A model in which one layer calls a part of its neighbour."""

    def __init__(self) -> None:
        super().__init__()
        self.layers[ODD].inner.other = [self.layers[ODD - 1].inner]

    class layer(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(getattr(self.inner, "other", [lambda y: y])[0](x))


DECEIVERS: dict[type[Model], str | tuple[int, str]] = {
    TimesTwoOnce: "its layers do not run one after the other: layers.6",
    ByOwnIndex: (5, "aten.mul.Tensor"),
    ByNumber: (3, "aten.div.Tensor"),
    ByHiddenAttribute: (5, "aten.mul.Tensor"),
    ByCounter: (5, "aten.mul.Tensor"),
    SkipsLayers: (5, "aten.add.Tensor"),
    TwoBack: (3, "aten.addmm.default"),
    SharesCache: (6, "aten.add.Tensor"),
    Sliced: "its layers do not run one after the other: layers.5",
    Reversed: "something runs between the layers of layers",
    Shuffled: "something runs between the layers of layers",
    ShuffledBefore: "something runs between the layers of layers",
    RunsOneTwice: (5, "aten.t.default"),
    Tied: (3, "aten.t.default"),
    ExitsEarly: "its layers do not run one after the other: layers.6",
    ReturnsOne: "it returns a value of a layer that a shallower model does not return",
    SizeTestedOnce: (5, "test __gt__"),
    HalfTestedOnce: (5, "test __gt__"),
    FloatTestedOnce: (5, "size"),
    ListTestedOnce: (5, "test __lt__"),
    TableTestedOnce: (5, "test __lt__"),
    RootTestedOnce: (5, "test __lt__ of numbers"),
    MadePlainOnce: (5, "test __int__"),
    AttributeTestedOnce: (5, "size"),
    AskedByAnother: (5, "size"),
    UsesDropout: (5, "aten.mul.Tensor"),
    CallsPartOfAnother: (4, "aten.t.default"),
}
"""Why a layer is seen: a sentence, or its number and the operator in which it differs."""


@pytest.mark.parametrize("deceiver", DECEIVERS, ids=lambda each: each.__name__)
def test_a_layer_that_is_not_like_the_others_is_seen(deceiver: type[Model]) -> None:
    model, why = deceiver(), DECEIVERS[deceiver]
    if isinstance(why, tuple):
        why = f"layers.{why[0]} differs from the layers of a shallower model: {why[1]}"
    assert find_stacks(model, lambda tensor: True)
    with pytest.raises(Unprovable) as caught:
        proof_of(model)
    assert str(caught.value) == why


@pytest.mark.parametrize("odd", [Hooked, OtherForward])
def test_layers_are_repeated_around_one_that_is_traced(odd: type[Model]) -> None:
    model = odd()
    (stack,) = find_stacks(model, lambda tensor: True)
    assert ODD in stack.kept and proof_of(model).outputs


def test_floats_in_lists_are_as_before_when_a_model_was_recorded() -> None:
    model = ListTestedOnce()
    with pytest.raises(Unprovable):
        proof_of(model)
    assert type(model.layers[0].limits[0]) is float and type(LIMITS["rows"][0]) is float


def test_layers_with_other_tables_are_of_other_kinds() -> None:
    assert not find_stacks(OtherTable(), lambda tensor: True)
    assert find_stacks(OtherTable(), lambda tensor: False)


# --- graphs ---


class DropsMore(Model):
    """Layers with a dropout that grows from layer to layer, but only in training."""

    class layer(Layer):
        def __init__(self, index: int) -> None:
            super().__init__(index)
            self.drop = index / DEPTH

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = super().forward(x)
            return x if self.drop == 0.0 or not self.training else x * 0


def test_layers_that_would_drop_more_in_a_training_can_be_repeated() -> None:
    assert proof_of(DropsMore()).outputs


class Summing(Model):
    """Layers that pass on two tensors, both of which are returned at the end."""

    class layer(Layer):
        def forward(self, x: torch.Tensor, sum_: torch.Tensor) -> Any:  # type: ignore[override]
            x = self.inner(x)
            return x, sum_ + x

    def forward(self, x: torch.Tensor) -> Any:
        sum_ = torch.zeros_like(x)
        for layer in self.layers:
            x, sum_ = layer(x, sum_)
        return self.last(sum_), x


class SharesWork(Model):
    """A model whose layers share a computation, which only the first keeps after optimization."""

    class layer(Layer):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return self.inner(x) * (mask > 0.5).to(x.dtype)

    def forward(self, x: torch.Tensor) -> Any:
        mask = x
        for layer in self.layers:
            x = layer(x, mask)
        return self.last(x)


class TwoLists(Model):
    """A model whose second list has names very different from those in a shallow model."""

    def __init__(self) -> None:
        super().__init__()
        self.more = nn.ModuleList([Layer(index) for index in range(DEPTH)])

    def forward(self, x: torch.Tensor) -> Any:
        for layer in (*self.layers, *self.more):
            x = layer(x)
        return self.last(x)


class Crossed(TwoLists):
    """A model in which the list that is defined later runs first."""

    def forward(self, x: torch.Tensor) -> Any:
        for layer in (*self.more, *self.layers):
            x = layer(x)
        return self.last(x)


class SharesSum(TwoLists):
    """A model whose second list reads a value computed after the first, with large name numbers."""

    class layer(Layer):
        def forward(self, x: torch.Tensor, sum_: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return self.inner(x) + sum_

    def __init__(self) -> None:
        super().__init__()
        self.more = nn.ModuleList([type(self).layer(index) for index in range(DEPTH)])

    def forward(self, x: torch.Tensor) -> Any:
        for layer in self.layers:
            x = layer(x, x)
        sum_ = x + 1
        for layer in self.more:
            x = layer(x, sum_)
        return self.last(x)


class Divides(Model):
    """A model whose layers share a constant. The constant after them has a later number."""

    class layer(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) / 2

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x) / 3


class Alternating(Model):
    """A model in which every other layer creates more names."""

    class layer(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if hasattr(self, "more"):
                x = self.inner(x).relu()
            return super().forward(x)

    def __init__(self) -> None:
        super().__init__()
        for layer in self.layers[::2]:
            layer.more = True


class LastTakesLess(Model):
    """A model that needs only a part of its last result, so its last layer reads less."""

    class layer(Layer):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:  # type: ignore[override]
            return self.inner(x) * x, self.inner(y) + x

    def forward(self, x: torch.Tensor) -> Any:
        y = x
        for layer in self.layers:
            x, y = layer(x, y)
        return self.last(y)


class Ordering(Model):
    """Layers that modify a tensor in place, like those that sort tokens by expert."""

    class layer(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            order = self.inner(x)[:, 0].argsort()
            back = torch.empty_like(order)
            back[order] = torch.arange(order.shape[0])
            return self.inner(x)[order].relu()[back]


KINDS = [Model, Summing, SharesWork, TwoLists, Crossed, SharesSum, Divides, LastTakesLess]


def _drop_text_of_torch(node: Any) -> None:
    kept = [each for each in node.metadata_props if each.key != "pkg.torch.onnx.fx_node"]
    del node.metadata_props[:]
    node.metadata_props.extend(kept)


@pytest.mark.parametrize("kind", KINDS, ids=lambda each: each.__name__)
def test_the_repeated_graph_is_that_of_a_full_trace(kind: type[Model], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = kind().eval(), torch.rand(3, 4)
    found = []
    for repeat in (True, False):
        path = tmp_path / str(repeat) / "model.onnx"
        rows = ({0: torch.export.Dim.AUTO},)
        report = oe.torch.export(model, (x,), path, dynamic_shapes=rows, repeat=repeat)
        assert report.checked > 1 and not report.notes
        found.append(onnx.load(path).graph)
    one, other = found
    for node in (*one.node, *other.node) if kind is SharesWork else ():
        _drop_text_of_torch(node)  # this text has numbers of values that the optimizer removed
    assert one.node == other.node  # including names and metadata
    assert one.input == other.input and one.output == other.output
    assert one.initializer == other.initializer
    assert {each.name: each for each in one.value_info} == {
        each.name: each for each in other.value_info
    }


def test_names_of_layers_that_alternate_are_those_of_a_full_trace(tmp_path: Path) -> None:
    model, x = Alternating().eval(), torch.rand(3, 4)
    found = []
    for repeat in (True, False):
        path = tmp_path / str(repeat) / "model.onnx"
        report = oe.torch.export(model, (x,), path, repeat=repeat, dynamic_shapes={})
        assert not report.notes
        nodes = onnx.load(path).graph.node
        found.append([node.name for node in nodes if node.op_type == "Gemm"])
    assert found[0] == found[1]


def test_users_are_counted_of_nodes_whose_module_is_not_known() -> None:
    model = Ordering().eval()
    stacks = find_stacks(model, lambda tensor: True)
    with shallow(model, stacks):
        exported = torch.export.export(model, (torch.rand(3, 4),), strict=False)
    plain = more_users(places_of(exported, stacks), stacks)
    written = [node for node in exported.graph.nodes if "index_put" in str(node.target)]
    assert len(written) == 4
    for node in written:  # transformers.exporters replaces this one
        del node.meta["nn_module_stack"]
    assert more_users(places_of(exported, stacks), stacks) == plain


@pytest.mark.parametrize("vary", [False, True])
def test_layers_with_nodes_whose_module_is_not_known_are_repeated(
    vary: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = torch.export.export

    def export(*args: Any, **kwargs: Any) -> Any:
        exported = plain(*args, **kwargs)
        for node in exported.graph.nodes:
            if "index_put" in str(node.target):
                del node.meta["nn_module_stack"]
        return exported

    monkeypatch.setattr(torch.export, "export", export)
    model, x = Ordering().eval(), torch.rand(3, 4)
    rows: Any = ({0: torch.export.Dim.AUTO},) if vary else {}  # then the layers share a Range
    report = oe.torch.export(model, (x,), tmp_path / "model.onnx", dynamic_shapes=rows)
    assert report.checked and not report.notes
    graph = onnx.load(tmp_path / "model.onnx").graph
    assert len([node for node in graph.node if node.op_type == "ScatterND"]) == DEPTH


def test_a_graph_that_cannot_be_repeated_is_traced_in_full(tmp_path: Path) -> None:
    report = oe.torch.export(ByOwnIndex().eval(), (torch.rand(3, 4),), tmp_path / "model.onnx")
    (note,) = [note for note in report.notes if "not repeated" in note]
    assert note.startswith("traced in full, not repeated: layers.5 ")
    graph = onnx.load(tmp_path / "model.onnx").graph
    assert len([node for node in graph.node if node.op_type == "Mul"]) == 1


def test_a_repeated_graph_that_no_runtime_loads_is_traced_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnx_external._repeating import stamping

    plain = stamping.stamp

    def stamp(model: Any, *args: Any) -> None:
        plain(model, *args)
        for node in model.graph:
            node.name = "one name"

    monkeypatch.setattr(stamping, "stamp", stamp)
    x, path = torch.rand(3, 4), tmp_path / "model.onnx"
    report = oe.torch.export(Model().eval(), (x,), path, dynamic_shapes={})
    assert report.checked
    assert report.notes == ["traced in full, because the graph with repeated layers was wrong"]


def test_a_repeated_graph_of_a_folder_that_no_runtime_loads_is_traced_in_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checking = pytest.importorskip("onnx_external.transformers._checking")
    from onnx_external.transformers._rewritten import FolderWays, PartWays

    traced: Any = SimpleNamespace(fusing=SimpleNamespace(has_fused=lambda name: False))
    ways: Any = FolderWays(traced, None, {"repeat": True, "rewrite": "auto"})  # type: ignore[arg-type]
    monkeypatch.setattr(PartWays, "traced", lambda self: "a full trace")
    ways.repeating.done.add("model")
    error = checking.UnloadablePartError("model", "", "it does not load")
    assert ways.again("model", None, error) == "a full trace"
    assert ways.repeating.notes == [
        ("model", "traced in full, because the repeated graph was wrong")
    ]
    with pytest.raises(oe.ExportError, match="it does not load"):
        ways.again("model", None, error)


def test_two_parts_of_one_name_are_not_a_graph(tmp_path: Path, monkeypatch: Any) -> None:
    from onnx_external._repeating.naming import Names

    monkeypatch.setattr(Names, "fresh", lambda self, name, layer, wanted: "one name")
    x, path = torch.rand(3, 4), tmp_path / "model.onnx"
    (note,) = oe.torch.export(Model().eval(), (x,), path, dynamic_shapes={}).notes
    assert note.endswith("several values or nodes in the graph have the name one name")


def test_a_repeated_graph_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Model().eval(), torch.rand(3, 4)
    for name in ("one", "other"):
        oe.torch.export(model, (x,), tmp_path / name / "model.onnx", check=False)
    one, other = (tmp_path / name / "model.onnx" for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()


def caches_of(count: int) -> dict[int, Slot]:
    """The first input or output belongs to no layer, and the others to one of `count` layers each.

    The second layer represents all layers after it.
    """
    layers = {1 + layer: Slot(1 + min(layer, 1), Segment(0, layer)) for layer in range(count)}
    return {0: Slot(0, Segment(-1, 0)), **layers}


def test_sizes_of_inputs_are_distinguished_from_inputs_that_are_not_tensors() -> None:
    repeated = pytest.importorskip("onnx_external.transformers._repeated")
    given = [True, False, True, True]
    proof = Proof(caches_of(3), {}, [True, True, False, True, True], given)
    deep, few = ["words", "in.0", "in.1", "in.2"], ["words", "in.0", "in.1"]
    names = Names([Stack("layers", (0,) * 3, frozenset())], proof, deep, [], few, [])
    sizes = [
        Input("words", (2, 1)),
        Input("mask", None),
        Input("cache_0", (4,)),
        Input("cache_1", (5,)),
    ]
    found = repeated._deep_sizes(Sizes(sizes), names).inputs
    assert [(each.name, each.dims) for each in found] == [
        ("words", (2, 1)), ("cache_0", (4,)), ("mask", None), ("cache_1", (5,)), ("cache_2", (5,)),
    ]  # fmt: skip
    with pytest.raises(Unprovable):
        repeated._deep_sizes(Sizes(sizes[:1]), names)
