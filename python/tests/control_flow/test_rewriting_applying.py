"""Tests of replacing the code of functions and restoring it."""

import functools
import gc
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.9")

from onnx_external._control_flow.applying import RUNTIME, applied, compiled  # noqa: E402
from onnx_external._control_flow.finding.blaming import blamed, blamed_by_guard  # noqa: E402
from onnx_external._control_flow.finding.functions import Function, Missing, called, source_of  # noqa: E402
from onnx_external._control_flow.finding.observing import observe  # noqa: E402
from onnx_external._tracing.frames import is_users  # noqa: E402

factor = 3


def times(x: Any) -> Any:
    return x * factor


def other(x: Any) -> Any:
    return x + 1000


def recursive(n: int) -> int:
    return n * recursive(n - 1) if n > 1 else 1


def decorated(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Base:
    def run(self, x: Any) -> Any:
        return x + 1


class Private(Base):
    __secret = 5

    def run(self, x: Any, *, __times: int = 2) -> Any:
        return super().run(x) * self.__secret * __times

    @staticmethod
    def still(x: Any) -> Any:
        return Private.__secret + x

    @classmethod
    def of_class(cls, x: Any) -> Any:
        return cls.__secret + x

    @property
    def held(self) -> Any:
        return [self.__secret for _ in range(2)]

    @decorated
    def wrapped(self, x: Any) -> Any:
        return __class__.__name__, self.__secret + x  # type: ignore[name-defined]


def maker(start: int) -> Callable[[int], int]:
    total = start

    def add(x: int) -> int:
        nonlocal total
        total += x
        return total

    return add


def found(function: Any) -> Function:
    source = source_of(function)
    assert isinstance(source, Function), source
    return source


def again(function: Any) -> types.CodeType:
    """Return the code of a function, compiled again from its source."""
    source = found(function)
    return compiled(source, source.tree())


def test_recompiled_code_does_what_the_function_did() -> None:
    add = maker(10)
    private = Private()
    double = lambda x, y=2: x * y * factor  # noqa: E731
    held = Private.held.fget  # type: ignore[attr-defined]
    functions = [
        times,
        recursive,
        add,
        double,
        Private.run,
        Private.still,
        Private.of_class.__func__,  # type: ignore[attr-defined]
        held,
        Private.wrapped,
        Private.wrapped.__wrapped__,  # type: ignore[attr-defined]
    ]
    codes: dict[Any, Any] = {each: again(each) for each in functions}

    def everything() -> list[Any]:
        return [
            times(2),
            recursive(5),
            double(4),
            private.run(1),
            private.run(1, _Private__times=3),  # type: ignore[call-arg]
            Private.still(1),
            Private.of_class(1),
            private.held,
            private.wrapped(2),
        ]

    before = everything()
    with applied(codes, None):
        assert all(each.__code__ is codes[each] for each in functions)
        assert everything() == before
        assert add(5) == 15
    assert add(5) == 20
    assert everything() == before


def test_the_place_of_code_stays() -> None:
    made = again(Private.wrapped.__wrapped__)  # type: ignore[attr-defined]
    before = Private.wrapped.__wrapped__.__code__  # type: ignore[attr-defined]
    assert made.co_firstlineno == before.co_firstlineno
    assert made.co_filename == before.co_filename
    assert list(made.co_lines())[-1][2] == list(before.co_lines())[-1][2]


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_code_is_always_restored_when_the_context_ends(error: Any) -> None:
    before, names = times.__code__, set(globals())
    try:
        with applied({times: other.__code__}, "runtime"):
            assert times(1) == 1001
            assert globals()[RUNTIME] == "runtime"
            if error is not None:
                raise error
    except (ValueError, KeyboardInterrupt):
        pass
    assert times.__code__ is before
    assert set(globals()) == names


def test_contexts_over_the_same_function_are_nested() -> None:
    before = times.__code__
    with applied({times: other.__code__}, 1):
        with applied({times: before}, 2):
            assert times(1) == 3
            assert globals()[RUNTIME] == 2
        assert times(1) == 1001
        assert globals()[RUNTIME] == 1
    assert times.__code__ is before


def test_what_cannot_be_exchanged_leaves_nothing_behind() -> None:
    add, before = maker(0), times.__code__
    with pytest.raises(ValueError, match="free vars"):
        with applied({times: other.__code__, add: other.__code__}, None):
            pass
    assert times.__code__ is before
    assert RUNTIME not in globals()


def test_code_that_others_replaced_is_left_with_a_note() -> None:
    before = times.__code__
    theirs = recursive.__code__
    try:
        with pytest.warns(RuntimeWarning, match="times was replaced by other code"):
            with applied({times: other.__code__}, None):
                times.__code__ = theirs
        assert times.__code__ is theirs
    finally:
        times.__code__ = before
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with applied({times: other.__code__}, None):
            times.__code__ = before
    assert times.__code__ is before


def test_a_second_thread_waits() -> None:
    before, inside, order = times.__code__, threading.Event(), []

    def first() -> None:
        with applied({times: other.__code__}, 1):
            inside.set()
            second_started.wait(10)
            order.append(("first", times(1)))

    def second() -> None:
        inside.wait(10)
        second_started.set()
        with applied({times: recursive.__code__}, 2):
            order.append(("second", times(1)))

    second_started = threading.Event()
    threads = [threading.Thread(target=each) for each in (first, second)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(20)
    assert order == [("first", 1001), ("second", 1)]
    assert times.__code__ is before


def test_functions_with_one_code_are_all_exchanged() -> None:
    one, two = maker(0), maker(100)
    ran = called(lambda: (one(1), two(1)))
    assert {id(one), id(two)} <= {id(each) for each in ran}
    codes = {each: again(each) for each in ran if each.__name__ == "add"}
    with applied(codes, None):
        assert (one(1), two(1)) == (2, 102)


def generated(n: int) -> Any:
    for each in range(n):
        yield helper(each)


def helper(x: Any) -> Any:
    return x


class Net(torch.nn.Module):
    def forward(self, x: Any, n: int = 3) -> Any:
        for each in generated(2):
            x = x + each
        if x.sum() > 0 and n > 2:
            x = -x
        y = 1 if x.shape[0] > 2 else 2
        squares = [row * y for row in x if n]
        for row, _ in zip(x, range(9), strict=False):
            y = y + row
        return torch.stack(squares), max(x.sum(), x.min()), y


def hook(module: Any, args: Any, result: Any) -> Any:
    return result


def test_the_users_functions_that_run_are_found_and_no_others() -> None:
    net = Net()
    net.register_forward_hook(hook)
    observed = observe(net, [((torch.ones(2),), {})])
    names = {each.name for each in observed.functions}
    assert names == {"Net.forward", "generated", "helper", "hook"}
    assert not observed.missing
    assert not is_users(torch.nn.Linear.forward.__code__.co_filename)
    assert not is_users(functools.partialmethod.__init__.__code__.co_filename)
    assert is_users(pytest.importorskip("transformers").__file__)


def test_functions_that_the_collector_passes_over_are_found() -> None:
    frozen = gc.get_freeze_count()
    gc.freeze()  # as servers do before they fork
    try:
        assert times in called(lambda: times(2)) and gc.get_freeze_count() > 0
    finally:
        if not frozen:
            gc.unfreeze()


def test_functions_without_source_are_said() -> None:
    space: dict[str, Any] = {}
    exec(compile("def made(x):\n    return x", "<made>", "exec"), space)
    observed = observe(lambda x: space["made"](x), [((1,), {})])
    assert [str(each) for each in observed.missing] == ["<made>:1: made: its source is not found"]
    assert isinstance(source_of(space["made"]), Missing)


def line_of(text: str) -> int:
    with open(__file__) as file:
        return next(n for n, line in enumerate(file, 1) if text in line)


def chosen_words(observed: Any) -> list[str]:
    return sorted(observed.seen[each].kind for each in observed.chosen)


def test_what_saw_a_tensor_is_chosen() -> None:
    observed = observe(Net(), [((torch.ones(2),), {})])
    assert chosen_words(observed) == ["and", "comprehension", "for", "max", "zip"]
    first = observed.seen[f"test_rewriting_applying.py:{line_of('if x.sum() > 0 and')}:8"]
    assert (first.kind, first.outcomes, first.untaken) == ("if", [{True}], [False])


def test_what_differs_between_the_sets_is_chosen() -> None:
    sets = [((torch.ones(2),), {}), ((torch.ones(3),), {})]
    observed = observe(Net(), sets)
    words = ["and", "comprehension", "for", "if else", "max", "zip"]
    assert chosen_words(observed) == words
    assert observed.seen[
        next(key for key, each in observed.seen.items() if each.kind == "if else")
    ].outcomes == [{False}, {True}]


def test_observing_changes_neither_results_nor_inputs_nor_code() -> None:
    x, before = torch.ones(3), Net.forward.__code__
    observe(Net(), [((x,), {"n": 1})])
    assert x.equal(torch.ones(3))
    assert Net.forward.__code__ is before


def listed(x: Any) -> Any:
    rows = [x, x + 1]
    total = sum(rows) + len(rows)
    for n, row in enumerate(rows):
        total = total + n * row
    return total if any(each.sum() > 0 for each in rows) else max(1, 2)


def test_lists_of_tensors_stay_lists_but_where_their_truth_is_asked() -> None:
    observed = observe(listed, [((torch.ones(2),), {})])
    assert chosen_words(observed) == ["any"]


class Hidden(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        n = x.sum().item()
        return helper(-x if n > 2 else x)


class Sized(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        if x.shape[0] > 6:
            return x * 2
        return x + 1 if self.training is None else x


def test_a_refused_trace_names_its_innermost_test() -> None:
    sets = [((torch.ones(2),), {})]
    observed = observe(Hidden(), sets)
    assert not observed.chosen
    with pytest.raises(Exception) as caught:
        torch.export.export(Hidden(), sets[0][0], strict=False)
    keys = blamed(caught.value, observed)
    assert [observed.seen[each].kind for each in keys] == ["if else"]
    assert observed.choose(keys) == keys == observed.chosen
    assert observed.choose(keys) == set()
    assert blamed(ValueError("of the user"), observed) == set()


def test_a_guard_names_the_test_of_its_line_or_those_that_compare_numbers() -> None:
    observed = observe(Sized(), [((torch.ones(2),), {})])
    line = line_of("x.shape[0] > 6")
    key = f"test_rewriting_applying.py:{line}:8"
    assert blamed_by_guard(observed) == {key}
    assert blamed_by_guard(observed, stack=[(__file__, line), ("elsewhere.py", 3)]) == {key}
    observed = observe(Net(), [((torch.ones(5),), {"n": 1})])
    found = blamed_by_guard(observed, guard="L['x'].size()[0] == 5")
    assert {observed.seen[each].kind for each in found} == {"if", "if else", "for", "comprehension"}
    found = blamed_by_guard(observed, guard="L['x'].size()[0] == 4")
    assert {observed.seen[each].kind for each in found} == {"if", "if else"}


@functools.lru_cache
@functools.lru_cache
def decorated(x: int) -> int:
    return x


def test_a_decorated_function_is_found_by_the_first_line_of_its_code() -> None:
    from onnx_external._control_flow.finding.blaming import _function_at
    from onnx_external._control_flow.finding.observing import Observation

    function = decorated.__wrapped__.__wrapped__
    found = source_of(function)
    observed = Observation([found])
    code = function.__code__
    assert _function_at(code.co_filename, code.co_firstlineno, observed) is found
    assert _function_at(code.co_filename, code.co_firstlineno - 1, observed) is None
