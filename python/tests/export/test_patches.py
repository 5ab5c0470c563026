"""Tests that oe.torch.patches applies, reports and undoes patches."""

from __future__ import annotations

import dataclasses
import sys
import types
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import onnx_external as oe  # noqa: E402
from onnx_external.torch._patching.static_dimensions import StaticDimensionError  # noqa: E402

ROWS = {0: torch.export.Dim.DYNAMIC}


class Halves(torch.nn.Module):
    """A module to patch."""

    def forward(self, x: Any) -> Any:
        return self.scaled(x) / 2

    def scaled(self, x: Any) -> Any:
        return x * self.factor

    @property
    def factor(self) -> int:
        return 1

    @staticmethod
    def fixed() -> int:
        return 1


class patched_Halves:  # the form in which users write such patches
    """Triples its input instead."""

    _PATCHED_CLASS_ = Halves
    _PATCHES_ = ("scaled", "fixed")

    def scaled(self, x: Any) -> Any:
        return x * 3

    @staticmethod
    def fixed() -> int:
        return 3


def state() -> dict[str, Any]:
    """Return the state that a context must restore."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
    from torch.utils import _pytree as pytree

    return {
        "halves": dict(vars(Halves)),
        "shapes": dict(vars(ShapeEnv)),
        # transformers modules that are imported meanwhile register classes once.
        "nodes": {each for each in pytree.SUPPORTED_NODES if "transformers" not in each.__module__},
        "names": {
            name for name in pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE if "transformers" not in name
        },
        "functions": torch.overrides._len_torch_function_stack(),
        "grad": torch.is_grad_enabled(),
    }


@dataclasses.dataclass
class Pair:
    """An input of a class unknown to torch."""

    left: Any
    right: Any


class TakesPair(torch.nn.Module):
    def forward(self, pair: Pair) -> Any:
        return pair.left + pair.right


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """Import the modules of torch's first export, which register classes."""
    torch.export.export(torch.nn.Linear(1, 1), (torch.ones(1, 1),))


def exported(module: Any, *args: Any, **options: Any) -> Any:
    return torch.export.export(module, args, strict=False, **options)


def test_a_custom_patch_replaces_methods_while_the_context_lasts() -> None:
    x, before = torch.ones(2), state()
    with oe.torch.patches(custom=[patched_Halves]) as patches:
        assert Halves()(x).tolist() == [1.5, 1.5]
        assert Halves.fixed() == 3
        program = exported(Halves(), x)
    assert Halves()(x).tolist() == [0.5, 0.5]
    assert state() == before
    name = f"{__name__}.Halves.scaled"
    assert f"custom  {name}: Triples its input instead." in patches.report().replace("      ", "")
    assert len(patches.involved(program)[name]) == 1


def test_patches_are_undone_after_an_error_and_an_interruption() -> None:
    for error in (ValueError, KeyboardInterrupt):
        before = state()
        with pytest.raises(error), oe.torch.patches(custom=[patched_Halves]):
            raise error
        assert state() == before


def test_patches_may_be_nested() -> None:
    class patched_Again(patched_Halves):
        _PATCHED_CLASS_ = Halves
        _PATCHES_ = ("fixed",)

        @staticmethod
        def fixed() -> int:
            return 9

    before = state()
    with oe.torch.patches(custom=[patched_Halves]):
        with oe.torch.patches(custom=[patched_Again]):
            assert Halves.fixed() == 9
        assert Halves.fixed() == 3
    assert state() == before


def test_the_patches_of_a_module_are_found() -> None:
    module = types.ModuleType("patches_of_mine")
    exec(
        "class patched_Mine:\n    _PATCHED_CLASS_ = 'no.such.Class'\n    _PATCHES_ = []",
        vars(module),
    )
    with oe.torch.patches(custom=[module]) as patches:
        pass
    assert patches.skipped[0].name == "no.such.Class"
    assert "the class is not there" in patches.report()


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"_PATCHES_": "forward"}, "must be the list"),
        ({"_PATCHES_": ["forward"]}, "which the class does not define"),
        ({"_PATCHES_": ["gone"], "gone": len}, "has no 'gone' in the installed version"),
        ({"_PATCHED_CLASS_": 3, "_PATCHES_": []}, "is not a class"),
    ],
)
def test_a_patch_of_another_form_is_refused(members: dict[str, Any], message: str) -> None:
    patch = type("patched_Wrong", (), {"_PATCHED_CLASS_": Halves, **members})
    with pytest.raises(oe.InvalidArgumentError, match=message), oe.torch.patches(custom=[patch]):
        pass


def test_a_patch_for_other_versions_is_left_out() -> None:
    patch = type(
        "patched_Old",
        (),
        {
            "_PATCHED_CLASS_": Halves,
            "_PATCHES_": ["fixed"],
            "_VERSIONS_": {"torch": "<1.0"},
            "fixed": staticmethod(lambda: 7),
        },
    )
    with oe.torch.patches(custom=[patch]) as patches:
        assert Halves.fixed() == 1
    assert "it is for torch <1.0" in patches.skipped[0].why


def test_classes_that_are_not_patches_are_refused() -> None:
    with (
        pytest.raises(oe.InvalidArgumentError, match="not a class with _PATCHED_CLASS_"),
        oe.torch.patches(custom=[Halves]),
    ):
        pass


def test_classes_of_inputs_are_known_for_a_while() -> None:
    pair, before = Pair(torch.ones(2), torch.ones(2)), state()
    with oe.torch.patches(classes=[Pair]) as patches:
        program = exported(TakesPair(), pair)
    assert len(program.graph_signature.user_inputs) == 2
    assert any(each.kind == "class" and each.name.endswith("Pair") for each in patches.applied)
    assert state() == before


def test_the_attributes_of_a_class_can_be_named() -> None:
    class Bag:
        def __init__(self, tensor: Any) -> None:
            self.tensor, self.other = tensor, object()

    class TakesBag(torch.nn.Module):
        def forward(self, bag: Any) -> Any:
            return bag.tensor * 2

    with oe.torch.patches(classes=[(Bag, ["tensor"])]):
        program = exported(TakesBag(), Bag(torch.ones(2)))
    assert len(program.graph_signature.user_inputs) == 1


class Fixes(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.view(4, -1)[:, :1] + x.reshape(2, 2, x.shape[1]).sum()


def test_the_line_that_makes_a_dimension_static_is_named() -> None:
    before = state()
    with (
        pytest.raises(Exception, match=r"x.shape\[0\] became 4") as raised,
        oe.torch.patches(stop_if_static=True),
    ):
        exported(Fixes(), torch.ones(4, 3), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    chain, error = [], raised.value
    while error is not None:
        chain.append(error)
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    assert any(isinstance(each, StaticDimensionError) for each in chain)
    assert Path(__file__).name in str(raised.value)
    assert state() == before


def test_what_a_trace_assumes_of_sizes_is_collected() -> None:
    with oe.torch.patches() as patches:
        exported(Fixes(), torch.ones(4, 3), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    assert [(each.size, each.equals) for each in patches.constraints] == [("x.shape[0]", "4")]
    assert "x.reshape(2, 2" in patches.report()


def test_the_report_is_written_into_a_folder(tmp_path: Path) -> None:
    with oe.torch.patches(custom=[patched_Halves], dump=str(tmp_path / "dump")):
        pass
    assert "Triples its input instead" in (tmp_path / "dump" / "patches.txt").read_text()


def test_transformers_patches_are_named() -> None:
    pytest.importorskip("transformers.exporters")
    import transformers  # noqa: F401

    with oe.torch.patches() as patches:
        names = [each.name for each in patches.applied if each.kind == "transformers"]
    assert names
    assert all(each.split(".")[0] in sys.modules for each in names)


class Kept:
    """Tensors of a user's class."""

    def __init__(self, first: Any, second: Any, size: int = 0) -> None:
        self.first, self.second, self.size = first, second, size


class OfKept(torch.nn.Module):
    def forward(self, kept: Kept) -> Any:
        return kept.first + kept.second


def test_classes_of_the_one_registry_are_known_to_exports(tmp_path: Path) -> None:
    from torch.utils import _pytree as pytree

    kept = Kept(torch.ones(2), torch.ones(2))
    oe.register_class(Kept, ["first", "second"])
    try:
        with oe.torch.patches() as patches:
            assert any(each.name.endswith("Kept") for each in patches.applied)
        report = oe.torch.export(OfKept(), (kept,), tmp_path / "model.onnx")
        assert report.checked == 1
        assert oe.diagnose_export(OfKept().eval(), (kept,), rewrite=False).ok
    finally:
        oe.unregister_class(Kept)
    assert Kept not in pytree.SUPPORTED_NODES
    with pytest.raises(oe.Error):
        oe.torch.export(OfKept(), (kept,), tmp_path / "other.onnx")


@pytest.fixture
def diagnostic(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a package with the structure of onnx_diagnostic."""
    place = tmp_path / "onnx_diagnostic" / "torch_export_patches" / "patches"
    place.mkdir(parents=True)
    for each in (place, place.parent, place.parent.parent):
        (each / "__init__.py").touch()
    head = f"from {__name__} import Halves\n\nclass patched_Halves:\n    _PATCHED_CLASS_ = Halves\n"
    base = "class Base:\n    def scaled(self, x):\n        return x * 5\n\n"
    fits = '    _PATCHES_ = ["scaled"]\n'
    misfits = '    _PATCHES_ = ["gone"]\n    def gone(self):\n        return 1\n'
    (place / "_patch_fits.py").write_text(base + head.replace("Halves:", "Halves(Base):") + fits)
    (place / "_patch_misfits.py").write_text(head + misfits)
    (place / "_patch_other.py").write_text("import no_such_module_anywhere\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    there = [name for name in sys.modules if name.partition(".")[0] == "onnx_diagnostic"]
    for name in there:
        monkeypatch.delitem(sys.modules, name)
    return place


def test_patches_of_another_package_are_a_source(diagnostic: Path) -> None:
    before = state()
    with oe.torch.patches(source="onnx_diagnostic") as patches:
        assert Halves()(torch.ones(1)).item() == 2.5
        kinds = {each.kind: each.name for each in patches.applied}
        assert kinds["onnx_diagnostic"].endswith("Halves.scaled")
    assert state() == before
    left = " ".join(each.why for each in patches.skipped)
    assert "has no 'gone'" in left and "no_such_module_anywhere" in left
    for name in [each for each in sys.modules if each.partition(".")[0] == "onnx_diagnostic"]:
        del sys.modules[name]


def test_a_source_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx_diagnostic", None)
    for source, words in (("onnx_diagnostic", "cannot be imported"), ("other", "expected")):
        with pytest.raises(oe.InvalidArgumentError, match=words), oe.torch.patches(source=source):
            pass
