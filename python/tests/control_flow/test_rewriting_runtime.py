"""Tests of the runtime: Python's semantics for real values, a graph's for traced ones."""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", minversion="2.9")
pytest.importorskip("onnxscript")
ort = pytest.importorskip("onnxruntime")

from torch.fx.experimental.proxy_tensor import PreDispatchTorchFunctionMode  # noqa: E402

from onnx_external._base.errors import RewriteError, UnmergeableError  # noqa: E402
from onnx_external._control_flow.runtime import Runtime  # noqa: E402
from onnx_external._control_flow.values import UNDEFINED, described, same_value  # noqa: E402
from onnx_external.torch._converting import converted  # noqa: E402

AUTO = torch.export.Dim.AUTO
ROWS = {0: AUTO}
UP = torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.25, 4.0]])
DOWN = -UP


class Calls(torch.nn.Module):
    """A module that calls a function that calls helpers."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        super().__init__()
        self.rt = Runtime(**options)
        self.function = function
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, *args: Any) -> Any:
        return self.function(self.rt, self, *args)


def traced(module: Calls, inputs: tuple[Any, ...], dims: Any) -> Any:
    with (
        torch.fx.experimental._config.patch(backed_size_oblivious=True),
        module.rt.tracing(module),
    ):
        shapes = None if dims is None else (dims,)
        return torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)


def proved(function: Callable[..., Any], *sets: Any, dims: Any = None, **options: Any) -> Calls:
    """Trace a function, and compare its graph on ONNX Runtime with eager on all inputs."""
    torch.manual_seed(0)
    module = Calls(function, **options).eval()
    full = [each if isinstance(each, tuple) else (each,) for each in sets]
    wanted = [copy.deepcopy(module)(*copy.deepcopy(each)) for each in full]
    dims = dims if dims is None or isinstance(dims, tuple) else (dims,)
    with torch.no_grad():
        program = traced(module, copy.deepcopy(full[0]), dims)
        data = converted(program).model_proto.SerializeToString()
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    session = ort.InferenceSession(data, settings, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    for inputs, want in zip(full, wanted, strict=True):
        feeds = {n: t.numpy() for n, t in zip(names, inputs, strict=True)}
        results = torch.utils._pytree.tree_leaves(want)
        for got, value in zip(session.run(None, feeds), results, strict=True):
            expected = torch.as_tensor(value).detach().numpy()
            assert got.shape == expected.shape
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    return module


def refused(function: Callable[..., Any], inputs: Any, words: str, **options: Any) -> RewriteError:
    module = Calls(function, **options).eval()
    full = inputs if isinstance(inputs, tuple) else (inputs,)
    dims = tuple(ROWS if each.dim() else {} for each in full)
    with pytest.raises(RewriteError, match=words) as caught:
        traced(module, full, dims)
    return caught.value


# --- values


def test_equal_values_of_python_are_one_and_signed_zeros_are_not() -> None:
    assert same_value([1, "a", {"k": None}], [1, "a", {"k": None}])
    assert not same_value(0.0, -0.0)
    assert not same_value(1, True)
    assert copy.deepcopy(UNDEFINED) is UNDEFINED


def test_a_value_is_described_in_words() -> None:
    assert described(torch.zeros(2, dtype=torch.int32)) == "a tensor of int32"
    assert described(UNDEFINED) == "not set"
    assert described([]) == "a list"


# --- eager


def test_with_real_values_the_helpers_do_what_python_does() -> None:
    rt = Runtime()
    assert rt.if_(torch.tensor(1), lambda: "a", lambda: "b", (), "k") == "a"
    assert rt.ifexp([], lambda: "a", lambda: "b", "k") == "b"
    assert rt.and_(lambda: 0, lambda: 1 / 0) == 0
    assert rt.or_(lambda: "", lambda: [], lambda: {"x": 1}) == {"x": 1}
    assert rt.not_(torch.tensor(0.0)) is True
    assert rt.chain(lambda: 1, "Lt", lambda: 3, "GtE", lambda: 3) is True
    assert rt.chain(lambda: 3, "Lt", lambda: 1, "Lt", lambda: 1 / 0) is False
    assert rt.max(3, 7) == 7 and rt.min([4, 2]) == 2 and rt.sum([1, 2], 5) == 8
    assert rt.any(x > 2 for x in (1, 3)) and not rt.all([True, 0])
    assert list(rt.zip(rt.range(2), rt.enumerate("ab"))) == [(0, (0, "a")), (1, (1, "b"))]
    assert rt.int("12") == 12 and rt.float(3) == 3.0 and rt.bool([]) is False
    assert rt.len([1]) == 1 and list(rt.reversed([1, 2])) == [2, 1]
    assert rt.get(lambda: undefined_name) is UNDEFINED  # type: ignore[name-defined]  # noqa: F821


def test_loops_of_python_stop_where_python_stops() -> None:
    rt, items = Runtime(), iter(range(10))
    state = rt.for_(
        items, lambda item, broken, n: (item == 3, n + 1), ("broken", "n"), (False, 0), True, "k"
    )
    assert state == (True, 4)
    assert next(items) == 4  # no further item was consumed
    asked: list[int] = []

    def going(broken: bool, n: int) -> bool:
        asked.append(n)
        return True

    state = rt.while_(going, lambda b, n: (n == 2, n + 1), ("b", "n"), (False, 0), True, "k")
    assert state == (True, 3) and asked == [0, 1, 2]  # not evaluated after the break
    assert rt.comprehend_if(range(5), lambda x: x * x, lambda x: x % 2, "k") == [1, 9]


def test_assertions_and_exceptions_are_raised_in_eager() -> None:
    rt = Runtime()
    rt.assert_(torch.tensor(True), "k", lambda: 1 / 0)
    with pytest.raises(AssertionError, match="why"):
        rt.assert_(torch.tensor(False), "k", lambda: "why")
    with pytest.raises(ZeroDivisionError):
        rt.raise_(True, lambda: 1 / 0, "k")


# --- branches


def test_a_branch_reads_any_value_and_writes_in_place() -> None:
    def function(rt: Any, module: Any, x: Any) -> Any:
        x = x.clone()
        view = x[0]

        def then() -> Any:
            part = x[1]
            part.mul_(2)
            x[0] = 7.0
            x[x > 6] = 0.5
            return (module.linear(x), 2)

        y, n = rt.if_(x.sum() > 0, then, lambda: (x - 1, 3), ("y", "n"), "k")
        return y, x, view + n

    proved(function, UP, DOWN)


def test_a_branch_writes_to_objects_and_all_of_them_are_merged() -> None:
    def function(rt: Any, module: Any, x: Any) -> Any:
        table, rows, count = {"a": x, "n": 1}, [x, x], 0

        def add() -> None:
            nonlocal count
            count += 2

        def then() -> tuple[()]:
            table["a"], table["n"] = x * 3, 2
            rows[1] = x + 5
            module.seen = x[0]
            add()
            return ()

        rt.if_(x.sum() > 0, then, lambda: (), (), "k")
        return table["a"] * table["n"], rows[0] + rows[1], module.seen + count

    module = proved(function, UP, DOWN)
    assert torch.equal(module.seen, torch.zeros(3))  # the trace left the buffer unchanged


def test_branches_may_give_other_sizes_and_tests_on_sizes_nest() -> None:
    def function(rt: Any, module: Any, x: Any) -> Any:
        def odd() -> Any:
            return rt.if_(x.shape[1] % 2, lambda: x[:, :2] * 2, lambda: x[:, 1:], (), "inner")

        return rt.if_(x.shape[1] > 6, lambda: x[:, :3], odd, (), "outer") + 1

    sets = [torch.rand(2, n) for n in (6, 5, 9, 12)]
    proved(function, *sets, dims={1: AUTO})


def test_and_or_not_and_chains_of_tensors_are_lazy_where_they_index() -> None:
    def function(rt: Any, module: Any, x: Any, i: Any) -> Any:
        inside = rt.and_(lambda: i < x.shape[0], lambda: x[i] > 1)
        chained = rt.chain(lambda: 0, "Lt", lambda: i, "LtE", lambda: 2)
        both = rt.or_(lambda: rt.not_(inside), lambda: chained)
        n = rt.or_(lambda: i, lambda: 5)
        return rt.ifexp(both, lambda: x * 2, lambda: x - 1, "k") + n

    sets = [(torch.tensor([0.0, 2.0, 3.0]), torch.tensor(n)) for n in (1, 0, 3)]
    proved(function, *sets, dims=(ROWS, None))


@pytest.mark.parametrize(
    ("then", "other", "words"),
    [
        (lambda x: None, lambda x: x, "None in one branch and a tensor of float32"),
        (lambda x: x, lambda x: x.int(), "float32 in one branch and int32 in the other"),
        (lambda x: x, lambda x: x[0], "2 dimensions in one branch and 1 in the other"),
        (lambda x: 1, lambda x: 2.5, "float in one branch and int in the other"),
        (lambda x: "a", lambda x: "b", "'a' in one branch and 'b' in the other"),
        (lambda x: (x, x), lambda x: [x], "a tuple of 2 items in one branch and a list of 1"),
        (lambda x: {"a": x}, lambda x: {}, "a dict with 'a' in one branch"),
    ],
)
def test_results_that_cannot_be_one_are_refused_by_key_and_in_words(
    then: Any, other: Any, words: str
) -> None:
    def function(rt: Any, module: Any, x: Any) -> Any:
        return rt.if_(x.sum() > 0, lambda: then(x), lambda: other(x), (), "user.py:3:4")

    error = refused(function, UP, words)
    assert isinstance(error, UnmergeableError) and error.key == "user.py:3:4"
    assert str(error).startswith("user.py:3:4: ")


def test_an_item_that_one_branch_adds_is_refused_and_kept_by_a_mask_once_absorbed() -> None:
    def function(rt: Any, module: Any, x: Any) -> Any:
        out = [x[0]]
        rt.if_(x.sum() > 0, lambda: out.append(x[1]), lambda: None, (), "k")
        return torch.stack(out), rt.len(out)

    refused(function, UP, "2 items after one branch and 1 after the other")
    proved(function, UP, DOWN, absorbed={"k"})


def test_a_write_that_a_view_would_have_to_see_is_refused() -> None:
    def function(rt: Any, module: Any, x: Any) -> Any:
        x = x.clone()
        row = x[0]

        def then() -> Any:
            row.add_(1)
            return x * 2

        return rt.if_(x.sum() > 0, then, lambda: x, (), "k")

    refused(function, UP, "reads a view of it")


# --- assertions


def test_assertions_and_exceptions_on_tensors_are_left_out_and_noted_or_refused() -> None:
    def function(rt: Any, module: Any, x: Any) -> Any:
        rt.assert_(x.sum() > 0, "user.py:1:0", None)
        rt.raise_(x.sum() < 0, lambda: None, "user.py:2:0")
        return x * 2

    notes = proved(function, UP).rt.notes
    assert [each.partition(" that ")[0] for each in notes] == [
        "user.py:1:0: an assertion",
        "user.py:2:0: an exception",
    ]
    refused(function, UP, "user.py:1:0: an assertion depends on", asserts="refuse")


# --- loops


def test_a_loop_over_rows_carries_appends_and_tests() -> None:
    def function(rt: Any, module: Any, x: Any) -> Any:
        out: list[Any] = []
        big: list[Any] = []

        def body(item: Any, h: Any, n: Any) -> Any:
            i, (row, other) = item
            h = torch.tanh(module.linear(row) + h)
            out.append(h * i)
            rt.if_(row.sum() > 0, lambda: big.append(other), lambda: None, (), "if")
            return h, n + i

        pairs = rt.enumerate(rt.zip(x, rt.reversed(x)))
        h, n = rt.for_(pairs, body, ("h", "n"), (torch.zeros(3), 0), False, "for")
        return torch.stack(out), h, n, torch.cat([torch.zeros(3), *big][0:1]), rt.len(big)

    sets = [torch.randn(n, 3) for n in (3, 1, 5)]
    proved(function, *sets, dims=ROWS)


def test_a_loop_over_no_rows_runs_no_iteration() -> None:
    def function(rt: Any, module: Any, x: Any) -> Any:
        sums: list[Any] = [x.sum(0)]
        seen = torch.zeros_like(x)

        def inner(value: Any, h: Any) -> Any:
            return (torch.tanh(h + value),)

        def body(i: Any, h: Any) -> Any:
            (h,) = rt.for_(x[i], inner, ("h",), (h,), False, "inner")
            sums.append(x[i] - x[i - 1])
            seen[i] = h
            return (h,)

        rows = rt.range(1, x.shape[0])
        (h,) = rt.for_(rows, body, ("h",), (torch.ones(()),), False, "outer")
        return h, torch.stack(sums), seen

    sets = [torch.randn(*each) for each in ((3, 2), (0, 2), (1, 4), (2, 0), (5, 3))]
    proved(function, *sets, dims={0: AUTO, 1: AUTO})


def test_a_loop_over_rows_that_are_there_has_no_test_around_it() -> None:
    def function(rt: Any, module: Any, x: Any) -> Any:
        return rt.for_(x, lambda row, h: (h + row,), ("h",), (torch.ones(3),), False, "k")

    for least, operator in ((0, "cond"), (1, "scan")):
        program = traced(Calls(function), (UP,), ({0: torch.export.Dim("rows", min=least)},))
        names = [str(each.target) for each in program.graph.nodes]
        assert operator in names
        assert ("cond" in names) == (least == 0)


def test_a_loop_writes_rows_and_breaks_and_has_an_else() -> None:
    def function(rt: Any, module: Any, x: Any) -> Any:
        out = torch.zeros_like(x)

        def body(i: Any, broken: Any, n: Any) -> Any:
            def go() -> Any:
                out[i] = x[i] * 2
                return (False, n + 1)

            return rt.if_(x[i].sum() > 4, lambda: (True, n), go, (), "if")

        init = (False, 0)
        rows = rt.range(x.shape[0])
        broken, n = rt.for_(rows, body, ("broken", "n"), init, True, "for")
        return rt.if_(broken, lambda: (out,), lambda: (out + 100,), ("out",), "else")[0], n

    quiet, loud = torch.zeros(3, 2), torch.tensor([[1.0, 1.0], [1.0, 0.0], [9.0, 9.0], [0.0, 1.0]])
    proved(function, quiet, loud, loud[:1], dims=ROWS)


def test_a_while_loop_carries_numbers_tuples_and_buffers() -> None:
    def function(rt: Any, module: Any, x: Any) -> Any:
        module.seen = x[0] * 0

        def body(pair: Any, n: Any) -> Any:
            h, c = pair
            module.seen = module.seen + x[1]
            return (h + c * 0.1, c - h * 0.1), n + 1

        limit = (x > 0).sum()
        (h, c), n = rt.while_(
            lambda pair, n: n < limit, body, ("pair", "n"), ((x, x * 2), 0), False, "k"
        )
        return h, c, n, module.seen

    proved(function, UP, DOWN)


def test_what_grows_in_a_loop_needs_max_iterations() -> None:
    def function(rt: Any, module: Any, ids: Any) -> Any:
        steps: list[Any] = []

        def body(ids: Any) -> Any:
            new = ids[-1] % 5 + ids.shape[0]
            steps.append(new * 2)
            return (torch.cat([ids, new.reshape(1)]),)

        (ids,) = rt.while_(lambda ids: ids.sum() < 30, body, ("ids",), (ids,), False, "u.py:5:4")
        return ids, torch.stack(steps)

    sets = [torch.tensor(each) for each in ([1, 2], [3, 5, 2], [9])]
    error = refused(function, sets[0], "ids and steps grows|max_iterations")
    assert error.where == "u.py:5:4"
    module = proved(function, *sets, dims=ROWS, max_iterations=12)
    assert module.rt.notes == ["u.py:5:4: the loop ends after at most 12 iterations"]


def test_rows_of_different_lengths_are_padded_to_what_bounds_them() -> None:
    def function(rt: Any, module: Any, x: Any, n: Any) -> Any:
        out: list[Any] = []

        def body(i: Any) -> Any:
            out.append(x[i, : n[i]] * 2)
            return ()

        rt.for_(rt.range(x.shape[0]), body, (), (), False, "k")
        return torch.cat(out)

    sets = [
        (torch.rand(3, 6), torch.tensor([2, 3, 1])),
        (torch.rand(4, 5), torch.tensor([5, 0, 2, 1])),
    ]
    proved(function, *sets, dims=({0: AUTO, 1: AUTO}, ROWS))


def test_a_list_that_grew_in_a_loop_is_read_and_changed_from_both_ends() -> None:
    def function(rt: Any, module: Any, x: Any) -> Any:
        out: list[Any] = [x[0] * 0]
        front: list[Any] = []

        def body(row: Any) -> Any:
            out.append(row)
            front[:0] = [row * 2, row * 3]
            return ()

        rt.for_(x, body, (), (), False, "k")
        ends = rt.item(out, 0), rt.item(out, -1), rt.item(out, 1), torch.stack(front)
        some = torch.stack(rt.item(out, slice(1, None))), rt.item(out, slice(None, None, -1))
        rt.method(out, "reverse")
        last = rt.method(out, "pop")
        first = rt.method(out, "pop", 0)
        return *ends, some[0], torch.stack(some[1]), last, first, torch.stack([*out, last])

    proved(function, *(torch.randn(n, 3) for n in (3, 2, 5)), dims=ROWS)


def test_an_iteration_may_ask_for_the_length_of_a_list_that_it_adds_to() -> None:
    def function(rt: Any, module: Any, x: Any) -> Any:
        out: list[Any] = [x[0]]

        def body(row: Any, at: Any) -> Any:
            out.append(row * rt.len(out))
            return (rt.ifexp(rt.len(out) == 3, lambda: 1, lambda: at, "t"),)

        (at,) = rt.for_(x, body, ("at",), (0,), False, "k")
        return torch.stack(out), at + x.sum() * 0

    proved(function, *(torch.rand(n, 3) for n in (3, 1, 5)), dims=ROWS)


def test_an_iteration_that_reads_items_of_others_is_refused() -> None:
    def function(rt: Any, module: Any, x: Any, read: Any) -> Any:
        out: list[Any] = [x[0]]

        def body(row: Any) -> Any:
            out.append(row + read(rt, out))
            return ()

        rt.for_(x, body, (), (), False, "k")
        return torch.stack(out)

    x = torch.rand(3, 3)
    for read in (
        lambda rt, out: out[-1],
        lambda rt, out: rt.item(out, -1),
        lambda rt, out: torch.stack(out).sum(0),
    ):
        refused(lambda rt, m, x, read=read: function(rt, m, x, read), x, "reads from a list to")

    def inserted(rt: Any, module: Any, x: Any) -> Any:
        return function(rt, module, x, lambda _, out: (out.insert(1, x[0]), 0)[1])

    refused(inserted, x, "changed in a loop other than by append")


def test_an_index_chooses_among_tensors_numbers_and_layers() -> None:
    def function(rt: Any, module: Any, x: Any, n: Any) -> Any:
        layers = torch.nn.ModuleList([module.linear, torch.nn.Tanh()])
        return (
            rt.chosen(layers, n, "a")(x),
            rt.chosen([x, -x], n, "b"),
            rt.chosen((2, 0.5), n, "c"),
            rt.chosen(x, 0, "d"),
        )

    proved(function, *((UP, torch.tensor(n)) for n in (0, 1, -1)), dims=(ROWS, {}))
    refused(lambda rt, m, x, n: rt.chosen(["a", "b"], n, "k"), (UP, torch.tensor(1)), "chooses an")


def test_a_comprehension_keeps_what_its_test_keeps() -> None:
    def function(rt: Any, module: Any, x: Any) -> Any:
        rows = rt.comprehend_if(x, lambda r: r * 2, lambda r: r.sum() > 0, "a")
        some = rt.comprehend_if((x[0], x[1]), lambda r: r + 1, lambda r: r.sum() > 0, "b")
        every = rt.comprehend(rows, lambda r: r.sum(), "c")
        empty = rt.not_(some)
        return torch.stack(rows), rt.sum(some), rt.len(rows), rt.sum(every), rt.bool(empty)

    sets = [torch.tensor(each) for each in ([[1.0, 2], [3, -9], [0, 1]], [[1.0, 1], [2, 2]])]
    proved(function, *sets, dims=ROWS)


def test_a_loop_whose_state_changes_its_form_is_refused() -> None:
    def shape(rt: Any, module: Any, x: Any) -> Any:
        return rt.while_(
            lambda h: h.sum() > 0, lambda h: (h.sum(0),), ("h",), (x,), False, "u.py:1:0"
        )

    def none(rt: Any, module: Any, x: Any) -> Any:
        return rt.for_(x, lambda row, h: (row,), ("h",), (None,), False, "u.py:1:0")

    refused(shape, UP, "h has 2 dimensions before an iteration of the loop and 1 after it")
    refused(
        none, UP, "u.py:1:0: h is None before an iteration .* set it to a tensor before the loop"
    )


# --- numbers and indices


def test_numbers_out_of_tensors_stay_tensors() -> None:
    def function(rt: Any, module: Any, x: Any) -> Any:
        n = rt.int(x.abs().sum().item())
        low = rt.max(0, x.min().item(), -2.5)
        flags = x.tolist()
        same = torch.equal(x[0], x[1])
        test = rt.any([flags[0][0] > 0.7, same])
        return rt.ifexp(test, lambda: x * n, lambda: x + low, "k"), rt.float(n)

    proved(function, UP, DOWN)


def test_functions_of_math_take_values_and_sizes() -> None:
    def function(rt: Any, module: Any, x: Any, n: Any) -> Any:
        k, value, rows = rt.int(n.item()), x.sum().item(), x.shape[0]
        whole = [rt.quotient(each, k, 4) for each in (int, math.floor, math.ceil, math.trunc)]
        sizes = [rt.quotient(each, rows, 2) for each in (int, math.floor, math.ceil)]
        sizes += [rt.quotient(int, 1 - rows, 2), rt.quotient(int, k, rows), rt.int(rows * 0.7)]
        cut = x[: rt.call(math.ceil, rows * 0.3)], x[rt.quotient(int, rows, 2) :]
        near = rt.round(value), rt.round(value, 2), rt.round(rows / 2), rt.round(k), rt.round(rows)
        logs = [rt.call(each, k * k + 1) for each in (math.log2, math.log, math.exp)]
        exact = rt.call(math.floor, rt.call(math.log2, rows)), rt.call(math.log, rows, 3)
        root = rt.call(math.sqrt, rows), rt.call(math.hypot, value, k), rt.call(math.isnan, value)
        return whole, sizes, cut, near, logs, exact, root

    sets = [(torch.randn(rows, 2), torch.tensor(n)) for rows, n in ((3, 5), (1, -7), (8, 0))]
    proved(function, *sets, dims=(ROWS, {}))


def test_linspace_takes_a_number_of_steps_that_depends_on_a_tensor() -> None:
    def function(rt: Any, module: Any, x: Any, n: Any) -> Any:
        return torch.linspace(-1, 1, n.item()), torch.linspace(0, 5, steps=x.shape[0])

    sets = [(torch.randn(rows), torch.tensor(n)) for rows, n in ((3, 5), (1, 7), (9, 1), (2, 0))]
    proved(function, *sets, dims=(ROWS, {}))


def test_indices_that_are_tensors_read_and_write() -> None:
    def function(rt: Any, module: Any, x: Any, t: Any) -> Any:
        y = x.clone()
        y[:, t] = x[:, t] * 10
        y[t, 1] = 3.0
        y[t] += 1
        return y, x[..., t], x[t, None, 1:3], x[t, t]

    sets = [(torch.rand(4, 4), torch.tensor(n)) for n in (2, -1, 0)]
    proved(function, *sets)


def test_an_index_that_is_a_size_fixes_no_size_and_branches_read_bounds_from_outside() -> None:
    def function(rt: Any, module: Any, x: Any, n: Any) -> Any:
        rows, k = x.shape[0], rt.int(n.item())
        y = x.clone()
        y[rows - 1] = x[rows // 2] * 2

        def cut() -> Any:
            inner = rt.ifexp(x.max() > 0, lambda: x[rows - 1], lambda: torch.zeros(rows, 2)[0], "j")
            return x[:k].sum(0) + inner

        return y, rt.ifexp(x.sum() > 0, cut, lambda: x[k // 2], "k"), x[rows - 1, -1]

    sets = [(torch.randn(rows, 2), torch.tensor(n)) for rows, n in ((3, 2), (1, 1), (6, 4), (2, 1))]
    proved(function, *sets, dims=(ROWS, {}))


def test_slices_with_bounds_that_are_tensors_are_cut_at_the_size() -> None:
    def function(rt: Any, module: Any, x: Any, t: Any) -> Any:
        return x[:t], x[t:] * 2, x[1 : t + 1].sum()

    sets = [(torch.rand(n, 2), torch.tensor(t)) for n, t in ((7, 2), (6, 9), (4, -1), (4, 0))]
    proved(function, *sets, dims=(ROWS, None))


# --- restored state


def state_of_torch() -> tuple[Any, ...]:
    hooks = torch.nn.modules.module._global_buffer_registration_hooks
    return (
        torch.is_grad_enabled(),
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
        dict(hooks),
        torch.nn.Module.__setattr__,
        torch.no_grad.__enter__,
        torch.no_grad.__exit__,
        PreDispatchTorchFunctionMode.__torch_function__,
    )


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_everything_that_tracing_changes_is_restored(error: type[BaseException] | None) -> None:
    def function(rt: Any, module: Any, x: Any) -> Any:
        module.note = ["traced"]
        module.seen = x[0]

        def then() -> Any:
            module.seen = x[1]
            if error is not None:
                raise error
            return x

        return rt.if_(x.sum() > 0, then, lambda: x * 2, (), "k")

    module, before = Calls(function).eval(), state_of_torch()
    seen, names = module.seen, set(vars(module))
    if error is None:
        traced(module, (UP,), None)
    else:
        with pytest.raises(error):
            traced(module, (UP,), None)
    assert state_of_torch() == before
    assert module.seen is seen and set(vars(module)) == names
    assert not module.rt._state.tables and module.rt._state.loops == 0


@pytest.mark.parametrize(
    "switch", [torch.no_grad, torch.enable_grad, lambda: torch.autocast("cpu", enabled=False)]
)
def test_a_switch_that_changes_nothing_is_not_in_the_graph_and_loses_no_subgraph(
    switch: Any,
) -> None:
    def function(rt: Any, module: Any, x: Any) -> Any:
        with switch():
            hit = (x > 1).nonzero()

        def body(row: Any, total: Any) -> Any:
            with switch():
                at = row[0]
            return (rt.if_(at > 0, lambda: total + x[at], lambda: total - x[at], (), "i"),)

        (total,) = rt.for_(hit, body, ("total",), (x * 0,), False, "k")
        with switch():
            return total * 2

    proved(function, torch.tensor([2.0, 0.0, 3.0]), torch.tensor([0.0, 0.5]), dims=ROWS)


def test_autocast_that_is_switched_on_stays_in_a_trace() -> None:
    def function(rt: Any, module: Any, x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.autocast("cpu", enabled=False):
            return module.linear(x)

    program = traced(Calls(function).eval(), (UP,), None)
    names = [str(node.target) for node in program.graph.nodes]
    assert any("autocast" in name for name in names), names


def test_gradients_are_not_switched_in_a_trace_and_nesting_is_allowed() -> None:
    outer, inner = Runtime(), Runtime()
    assert torch.is_grad_enabled()
    with outer.tracing():
        with inner.tracing(), torch.enable_grad():
            assert not torch.is_grad_enabled()
        with torch.no_grad():
            pass
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()
