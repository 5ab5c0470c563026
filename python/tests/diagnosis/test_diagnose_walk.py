"""Tests of the order in which the modules of a model are judged, with a simulated judge."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import onnx_external as oe
from onnx_external._comparing.comparing import compare
from onnx_external._diagnosis.judging import Judge
from onnx_external._diagnosis.outcomes import Outcome
from onnx_external._diagnosis.pieces import Wanted, compare_outputs
from onnx_external._diagnosis.recording import MOST_CALLS, Recorded
from onnx_external._diagnosis.reports import Diagnosis, ModuleDiagnosis
from onnx_external._diagnosis.unmarked import Unmarked
from onnx_external._diagnosis.walking import Walk

OK, DISC, FAIL, NOINPUT = oe.Status.OK, oe.Status.DISC, oe.Status.FAIL, oe.Status.NOINPUT
CHILDC, CUSTOM = oe.Status.CHILDC, oe.Status.CUSTOM
NAMES = ["", "a", "a.up", "a.down", "b"]


class MadeUp:
    """A judge with given verdicts; `alone` is that on a module around replaced ones."""

    def __init__(self, wrong: dict[str, Any], alone: Any = OK) -> None:
        self.wrong, self.alone = wrong, alone
        self.model_is_right = False
        self.around_of: list[tuple[str, list[str]]] = []

    def fetch(self, modules: Sequence[Recorded]) -> None:
        pass

    def piece(self, name: str) -> object:
        return object()

    def whole(self, recorded: Recorded) -> ModuleDiagnosis:
        status, step = self.wrong.get(recorded.name, (OK, ""))
        return ModuleDiagnosis(recorded.name, recorded.cls, status, step, order=recorded.order)

    def around(self, recorded: Recorded, replaced: Sequence[Recorded]) -> Outcome:
        self.around_of.append((recorded.name, [each.name for each in replaced]))
        return Outcome(self.alone)


def walked(judge: Any, strategy: Any = "always") -> dict[str, ModuleDiagnosis]:
    modules = [Recorded(name, object(), order=len(NAMES) - n) for n, name in enumerate(NAMES)]
    found = Walk(judge, modules, strategy, (), None).run()
    return {each.name: each for each in found}


def test_what_is_wrong_is_judged_again_around_the_wrong_ones_inside_of_it() -> None:
    judge = MadeUp({"": (DISC, ""), "a": (DISC, ""), "a.up": (DISC, "")})
    found = walked(judge)
    assert judge.around_of == [("a", ["a.up"]), ("", ["a.up"])]
    assert found["a.up"].status == DISC | CUSTOM and found[""].status == OK | CHILDC
    assert [each.name for each in Diagnosis("m", list(found.values())).wrong] == ["a.up"]
    assert list(walked(judge, "failing")) == NAMES
    assert list(walked(MadeUp({}), "failing")) == [""]


@pytest.mark.parametrize(("alone", "status"), [(DISC, DISC | CHILDC), (FAIL, DISC)])
def test_what_is_around_them_may_be_wrong_by_itself_or_not_run(alone: Any, status: Any) -> None:
    found = walked(MadeUp({"": (DISC, ""), "b": (DISC, "")}, alone))
    assert found[""].status == status
    assert found["b"].status == (DISC | CUSTOM if alone == DISC else DISC)


def test_nothing_is_replaced_that_cannot_be_cut() -> None:
    judge = MadeUp({"": (DISC, ""), "a": (FAIL, "cut"), "b": (DISC, "")})
    found = walked(judge)
    assert judge.around_of == [] and found[""].status == DISC and found["b"].status == DISC


def test_a_module_that_was_called_too_often_or_never_is_not_judged() -> None:
    tolerance = (None, None, set[str]())
    judge = Judge("m.onnx", *[None] * 3, 1, tolerance, False, Unmarked())  # type: ignore[arg-type]
    often = Recorded("a", object(), order=0, counts={0: 2, 1: MOST_CALLS + 1})
    assert judge.whole(often).reason == "it was called more than 64 times in one run"
    assert judge.whole(Recorded("b", object())).reason == "it was not called"
    assert judge.whole(often).status == NOINPUT


def test_what_a_module_hands_on_is_not_expected_of_its_piece() -> None:
    x, tolerance = np.ones((2, 3), np.float32), (None, None, set[str]())
    wanted, got = [Wanted(x, True, True)], {"y": 5 * x}
    assert compare_outputs(got, wanted, [x], [], tolerance) == []
    (found,) = compare_outputs(got, wanted, [x + 1], [], tolerance)
    assert found.output == "y" and not found.ok
    assert compare_outputs({"y": x}, wanted, [x], [], tolerance)[0].ok


def judged_in_sets(*pairs: tuple[Any, Any]) -> ModuleDiagnosis:
    """Return the whole model, with its actual and expected outputs in each set."""
    sets = [
        [compare("y", np.array(got, np.float32), np.array(want, np.float32), 1e-3, 0.0)]
        for got, want in pairs
    ]
    outcome = Outcome(sets=sets)
    outcome.judge()
    return ModuleDiagnosis("", "Model", outcome.status, order=0, sets=sets)


def test_the_difference_is_the_largest_of_all_input_sets() -> None:
    # More elements differ in the first set, but one element differs by more in the second.
    module = judged_in_sets(([1.1, 2.1], [1, 2]), ([1, 2.5], [1, 2]), ([1, 2], [1, 2]))
    report = Diagnosis("m", [module])
    assert report.tree().splitlines()[1].split()[:4] == ["(model)", "Model", "differs", "0.5"]
    assert report.sentence == (
        "The first module that goes wrong is the model itself (Model): 1 of 2 elements of y does "
        "not agree, by 0.5 at most, in input_sets[1]."
    )
    told = report.to_dict()["modules"][0]
    assert told["max_abs"] == 0.5 and told["times"] == pytest.approx(500)


def test_the_set_has_the_number_that_it_was_given_under() -> None:
    module = judged_in_sets(([1.1], [1]), ([1.5], [1]))
    assert "in input_sets[2]." in Diagnosis("m", [module], numbers=[0, 2]).sentence
    assert "input set" not in Diagnosis("m", [judged_in_sets(([1.5], [1]))]).sentence


def test_a_set_that_agrees_has_the_largest_difference_if_all_agree() -> None:
    module = judged_in_sets(([1.0001], [1]), ([1.0005], [1]))
    assert Diagnosis("m", [module]).tree().splitlines()[1].split()[3] == "0.0005"


def test_each_status_says_what_it_means() -> None:
    text = inspect.getdoc(oe.Status) or ""
    for each in oe.Status:
        assert re.search(rf"^- {each.name}: [A-Z]", text, re.MULTILINE), each.name


def test_a_module_that_was_judged_by_its_own_operations_alone_says_so() -> None:
    sets = judged_in_sets(([1], [1])).sets
    own = ModuleDiagnosis("", "Model", OK | CHILDC, order=0, replaced=sets)
    assert "own operations only" in Diagnosis("m", [own]).tree()
    own.sets = sets
    assert "own operations only" not in Diagnosis("m", [own]).tree()
