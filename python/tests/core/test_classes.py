"""Tests of classes whose objects are flattened by functions registered from Python."""

import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_external as oe
from onnx_external._sources import classes as _classes

torch = pytest.importorskip("torch")


class State:
    """An object like those that users' programs store in checkpoints."""

    def __init__(self) -> None:
        self.hidden = torch.arange(6.0).reshape(2, 3)
        self.layers = [torch.zeros(2), torch.ones(3)]
        self.steps = 7


NAME = f"{State.__module__}.State"


@pytest.fixture(autouse=True)
def nothing_stays_registered() -> Iterator[None]:
    yield
    _classes._registered.clear()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    torch.save({"w": torch.ones(4), "state": State()}, tmp_path / "states.pt")
    return tmp_path / "states.pt"


def names(path: Path) -> list[str]:
    with oe.open_checkpoint(path) as opened:
        return list(opened)


FLATTENED = ["w", "state.hidden", "state.layers.0", "state.layers.1"]


def test_an_unknown_class_is_left_out(checkpoint: Path) -> None:
    assert names(checkpoint) == ["w"]


@pytest.mark.parametrize("cls", [State, NAME, f"{State.__module__}.*"])
def test_a_class_flattens_by_its_attributes(cls: type | str, checkpoint: Path) -> None:
    oe.register_class(cls, ["hidden", "layers"])
    assert names(checkpoint) == FLATTENED
    with oe.open_checkpoint(checkpoint) as opened:
        assert np.array_equal(opened["state.hidden"].numpy(), State().hidden.numpy())


def test_a_class_flattens_by_a_function(checkpoint: Path) -> None:
    seen = []

    def flatten(value: oe.PickledValue) -> Iterator[tuple[str, oe.PickledValue]]:
        seen.append((value.kind, value.type))
        layers = value.attribute("layers")
        hidden = value.attribute("hidden")
        assert layers is not None and hidden is not None
        assert (layers.kind, layers.type, hidden.kind) == ("list", "", "tensor")
        assert value.attribute("no such") is None
        for index, layer in enumerate(layers.elements()):
            yield f"layer{index}", layer
        yield "h", hidden

    oe.register_class(State, flatten)
    assert names(checkpoint) == ["w", "state.layer0", "state.layer1", "state.h"]
    assert set(seen) == {("object", NAME)}


def test_dicts_and_arguments_are_described(tmp_path: Path) -> None:
    class Made:
        def __init__(self, first: Any, table: Any) -> None:
            self.given = first, table

        def __reduce__(self) -> Any:
            return Made, self.given

    Made.__qualname__ = "Made"
    setattr(sys.modules[__name__], "Made", Made)  # noqa: B010  (pickle looks it up)
    torch.save(
        {"made": Made(torch.ones(1), {"a": torch.ones(2), 3: torch.ones(3)})}, tmp_path / "m"
    )

    def flatten(value: oe.PickledValue) -> dict[str, oe.PickledValue]:
        first, table = value.arguments()
        assert (first.kind, table.kind) == ("tensor", "dict")
        return {"first": first, **dict(table.items())}

    oe.register_class(Made, flatten)
    assert names(tmp_path / "m") == ["made.first", "made.a", "made.3"]


def test_unregistering_leaves_the_class_out_again(checkpoint: Path) -> None:
    oe.register_class(State, ["hidden"])
    assert names(checkpoint) == ["w", "state.hidden"]
    assert oe.unregister_class(NAME) is True
    assert names(checkpoint) == ["w"]
    assert oe.unregister_class(State) is False


def test_a_registration_precedes_what_is_known(tmp_path: Path) -> None:
    module = types.ModuleType("transformers.cache_utils")
    cls = type("DynamicCache", (), {"__module__": module.__name__})
    module.DynamicCache = cls  # type: ignore[attr-defined]
    cache = cls()
    cache.key_cache, cache.value_cache = [torch.ones(1)], [torch.ones(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "transformers", types.ModuleType("transformers"))
        patch.setitem(sys.modules, module.__name__, module)
        torch.save({"past": cache}, tmp_path / "cache.pt")
    known = ["past.key_cache.0", "past.value_cache.0"]
    assert names(tmp_path / "cache.pt") == known
    oe.register_class("transformers.cache_utils.DynamicCache", ["value_cache"])
    assert names(tmp_path / "cache.pt") == known[1:]
    oe.unregister_class("transformers.cache_utils.DynamicCache")
    assert names(tmp_path / "cache.pt") == known


def test_saves_verifications_and_listings_flatten_alike(checkpoint: Path, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    value = onnx.helper.make_tensor_value_info
    inputs = [value("state.hidden", 1, [2, 3]), value("w", 1, [4])]
    nodes = [onnx.helper.make_node("Identity", [each.name], [f"{each.name}.y"]) for each in inputs]
    outputs = [value("state.hidden.y", 1, [2, 3]), value("w.y", 1, [4])]
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs)
    onnx.save(onnx.helper.make_model(graph), tmp_path / "graph.onnx")

    oe.register_class(State, ["hidden"])
    report = oe.save(tmp_path / "graph.onnx", tmp_path / "out", checkpoint)
    assert {tensor.key for tensor in report.tensors} == {"state.hidden", "w"}
    assert oe.verify(tmp_path / "out", checkpoint).ok
    listed = {tensor.name for tensor in oe.inspect(checkpoint).tensors}
    assert "state.hidden" in listed and "state.layers.0" not in listed


def test_what_a_function_raises_is_the_cause_of_our_error(checkpoint: Path, tiny: Path) -> None:
    def flatten(value: oe.PickledValue) -> dict[str, oe.PickledValue]:
        raise LookupError("no such layer")

    oe.register_class(State, flatten)
    with pytest.raises(oe.InvalidArgumentError) as caught:
        oe.open_checkpoint(checkpoint)
    assert f"{NAME}" in str(caught.value)
    assert "its flattening function raised LookupError: no such layer" in str(caught.value)
    assert type(caught.value.__cause__) is LookupError
    with pytest.raises(oe.InvalidArgumentError, match="LookupError") as elsewhere:
        oe.verify(tiny / "graph.onnx", checkpoint)  # opens the checkpoint on another thread
    assert type(elsewhere.value.__cause__) is LookupError
    refusal = oe.inspect(checkpoint).refusal
    assert refusal is not None and "LookupError: no such layer" in refusal
    oe.unregister_class(State)
    with pytest.raises(oe.NotFoundError) as other:
        oe.open_checkpoint(checkpoint.with_name("absent.pt"))
    assert other.value.__cause__ is None


def test_what_is_no_error_passes_through(checkpoint: Path) -> None:
    def flatten(value: oe.PickledValue) -> dict[str, oe.PickledValue]:
        raise KeyboardInterrupt

    oe.register_class(State, flatten)
    with pytest.raises(KeyboardInterrupt) as caught:
        oe.open_checkpoint(checkpoint)
    assert not isinstance(caught.value, oe.Error)


def test_an_attribute_that_is_missing_is_named(checkpoint: Path) -> None:
    oe.register_class(State, ["hidden", "depth"])
    with pytest.raises(oe.InvalidArgumentError, match="State has no attribute 'depth'"):
        oe.open_checkpoint(checkpoint)


@pytest.mark.parametrize(
    ("result", "wanted"),
    [
        (lambda value: None, "returned a NoneType"),
        (lambda value: 3, "returned a int"),
        (lambda value: [value], "returned a list with a PickledValue"),
        (lambda value: [("a", value, 1)], "returned a list with a tuple"),
        (lambda value: {"a": None}, "returned a NoneType under the name 'a'"),
        (lambda value: {1: value}, "returned a name that is a int"),
        (lambda value: value, "returned a PickledValue"),
    ],
)
def test_a_result_of_another_form_is_refused(result: Any, wanted: str, checkpoint: Path) -> None:
    oe.register_class(State, result)
    with pytest.raises(oe.InvalidArgumentError, match=wanted):
        oe.open_checkpoint(checkpoint)


def test_a_value_ends_with_the_call_that_it_was_given_to(tmp_path: Path) -> None:
    kept: list[oe.PickledValue] = []
    torch.save({"w": torch.ones(4), "a": State(), "b": State()}, tmp_path / "two.pt")

    def of_the_first(value: oe.PickledValue) -> dict[str, oe.PickledValue]:
        hidden = value.attribute("hidden")
        assert hidden is not None
        kept.append(hidden)
        return {"hidden": kept[0]}

    oe.register_class(State, of_the_first)
    with pytest.raises(oe.InvalidArgumentError, match="of another object under the name 'hidden'"):
        oe.open_checkpoint(tmp_path / "two.pt")
    for use in (
        lambda value: value.kind,
        lambda value: value.type,
        lambda value: value.elements(),
        lambda value: value.items(),
        lambda value: value.arguments(),
        lambda value: value.attribute("hidden"),
    ):
        with pytest.raises(ValueError, match="valid only while the function"):
            use(kept[0])


def test_a_function_may_open_checkpoints_and_change_registrations(
    checkpoint: Path, tiny: Path
) -> None:
    def flatten(value: oe.PickledValue) -> dict[str, oe.PickledValue]:
        assert len(names(tiny / "checkpoint.pt")) > 10
        oe.unregister_class(State)
        hidden = value.attribute("hidden")
        assert hidden is not None
        return {"hidden": hidden}

    oe.register_class(State, flatten)
    assert names(checkpoint) == ["w", "state.hidden"]  # as registered when the call began
    assert names(checkpoint) == ["w"]


def test_threads_open_at_once(checkpoint: Path) -> None:
    oe.register_class(State, ["hidden", "layers"])
    found: list[list[str]] = []
    threads = [
        threading.Thread(target=lambda: found.extend(names(checkpoint) for _ in range(20)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [FLATTENED] * 80


@pytest.mark.parametrize("name", ["State", "", ".State", "module."])
def test_a_name_without_a_module_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"expected 'module\.Class'"):
        oe.register_class(name, ["hidden"])


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="cls: expected a class"):
        oe.register_class(3, ["hidden"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="flatten: expected"):
        oe.register_class(State, "hidden")
    with pytest.raises(TypeError, match="flatten: expected"):
        oe.register_class(State, [3])  # type: ignore[list-item]
