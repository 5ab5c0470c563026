"""Rewritten functions: what they look like, and that they do what they did."""

import random
from typing import Any

import pytest

pytest.importorskip("torch", minversion="2.9")

import rewriting_cases
from rewriting_plain import all_keys, changed, rewritten, source

from onnx_external.rewriting.refusals import RewriteError


def outcome(function: Any, x: int) -> Any:
    rewriting_cases.count = 0
    try:
        found = function(x)
    except Exception as error:
        return type(error), str(error)
    return repr(found)


def outcomes(function: Any) -> list[Any]:
    return [outcome(function, x) for x in range(-3, 7)]


@pytest.mark.parametrize("function", rewriting_cases.CASES, ids=lambda each: each.__name__)
def test_a_rewritten_function_does_what_it_did(function: Any) -> None:
    before = outcomes(function)
    keys = all_keys(function)
    dice = random.Random(0)
    choices = [(keys, ()), (keys, keys)]
    choices += [([each], some) for each in keys for some in ((), (each,))]
    for _ in range(20):
        some = [each for each in keys if dice.random() < 0.5]
        choices.append((some, [each for each in some if dice.random() < 0.3]))
    for chosen, absorbed in choices:
        if function in rewriting_cases.WITHOUT_ABSORBING:
            absorbed = ()
        with rewritten(function, chosen, absorbed):
            assert outcomes(function) == before, (chosen, absorbed)
    assert outcomes(function) == before


def test_rewritten_methods_do_what_they_did() -> None:
    before = outcomes(rewriting_cases.methods)
    for method in rewriting_cases.METHODS:
        keys = all_keys(method)
        assert keys
        for chosen, absorbed in ((keys, ()), (keys, keys), *(([each], ()) for each in keys)):
            with rewritten(method, chosen, absorbed):
                assert outcomes(rewriting_cases.methods) == before
    assert outcomes(rewriting_cases.methods) == before


@pytest.mark.parametrize("function", rewriting_cases.REFUSED, ids=lambda each: each.__name__)
def test_what_cannot_be_rewritten_is_refused_with_its_line(function: Any) -> None:
    with pytest.raises(RewriteError, match=rewriting_cases.REFUSED[function]) as caught:
        changed(function, all_keys(function, guards=True))
    file, line, _ = caught.value.where.split(":")
    assert file == "rewriting_cases.py"
    first = source(function).node.lineno
    assert first < int(line) < first + 10
    assert not changed(function, ()).count
