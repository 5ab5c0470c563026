"""Tests of the text of rewritten functions, and that their behaviour is unchanged."""

import ast
import random
import re
import textwrap
from typing import Any

import pytest

pytest.importorskip("torch", minversion="2.9")

import rewriting_cases
from rewriting_functions import all_keys, changed, rewritten, source

from onnx_external._base.errors import RewriteError
from onnx_external._control_flow.passes import rewrite
from onnx_external._control_flow.passes.keys import key_of, keyed
from onnx_external._control_flow.passes.matches import as_tests


def outcome(function: Any, x: int) -> Any:
    rewriting_cases.count = 0
    rewriting_cases.log.clear()
    try:
        found = function(x)
    except Exception as error:
        return type(error), str(error)
    return repr((found, rewriting_cases.log))


def outcomes(function: Any) -> list[Any]:
    return [outcome(function, x) for x in range(-3, 7)]


@pytest.mark.parametrize("function", rewriting_cases.CASES, ids=lambda each: each.__name__)
def test_a_rewritten_function_does_what_it_did(function: Any) -> None:
    before = outcomes(function)
    keys = all_keys(function)
    dice = random.Random(0)
    choices = [(keys, ()), (keys, keys)]
    choices += [([each], some) for each in keys for some in ((), (each,))]
    for _ in range(8):
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


def after(text: str, absorbed: bool = False) -> str:
    """Return the text of a fully rewritten function, without keys and prefixes."""
    tree = ast.parse(textwrap.dedent(text)).body[0]
    assert isinstance(tree, ast.FunctionDef)
    keys = {key_of("", each) for each in ast.walk(tree) if keyed(each)}
    made = rewrite(tree, keys, keys if absorbed else (), path="")
    text = ast.unparse(ast.fix_missing_locations(made.tree))
    return re.sub(r"(, )?':\d+:\d+'", "", text).replace("__oe_rt__", "rt")


def test_plain_cases_are_tests() -> None:
    text = """
    def f(x, mode):
        match x.shape[0]:
            case 1 | 2 if mode:
                y = x
            case n if n > 5:
                y = x * n
            case _:
                y = -x
        match mode:
            case "a":
                y = 2 * y
            case Pair(a, b):
                y = a
        return y
    """
    tree = ast.parse(textwrap.dedent(text))
    as_tests(tree)
    expected = """
    def f(x, mode):
        __oe_match_3_4__ = x.shape[0]
        if (__oe_match_3_4__ == 1 or __oe_match_3_4__ == 2) and mode:
            y = x
        else:
            n = __oe_match_3_4__
            if n > 5:
                y = x * n
            else:
                y = -x
        match mode:
            case "a":
                y = 2 * y
            case Pair(a, b):
                y = a
        return y
    """
    assert ast.unparse(tree) == ast.unparse(ast.parse(textwrap.dedent(expected)))


PASSES = {
    "an if": (
        """
        def f(x):
            if x > 1:
                y = 2
            else:
                y = x
                unused = 1
            return y
        """,
        """
        def f(x):
            def then_1():
                y = 2
                return (y,)
            def else_1():
                y = x
                unused = 1
                return (y,)
            (y,) = rt.if_(x > 1, then_1, else_1, ('y',))
            return y
        """,
    ),
    "an if whose branches return": (
        """
        def f(x):
            if x > 1:
                return 2
            x += 1
            return x
        """,
        """
        def f(x):
            def else_1(x=x):
                x += 1
                return x
            return rt.if_(x > 1, lambda: 2, else_1, ())
        """,
    ),
    "a return out of with": (
        """
        def f(x, c):
            with c:
                if x > 1:
                    return 2
            return x
        """,
        """
        def f(x, c):
            done_1 = False
            with c:
                def then_2():
                    result_1 = 2
                    done_1 = True
                    return (result_1, done_1)
                result_1, done_1 = rt.if_(x > 1, then_2, lambda: (rt.get(lambda: result_1), done_1),
                    ('result_1', 'done_1'))
            return rt.if_(done_1, lambda: result_1, lambda: x, ())
        """,
    ),
    "a for": (
        """
        def f(x):
            y = 0
            for a, b in x:
                z = a + b
                y += z
            return y
        """,
        """
        def f(x):
            y = 0
            def body_1(item_1, y):
                a, b = item_1
                z = a + b
                y += z
                return (y,)
            (y,) = rt.for_(x, body_1, ('y',), (y,), False)
            return y
        """,
    ),
    "a for with break": (
        """
        def f(x):
            y = 0
            for each in x:
                if each:
                    break
                y = each
            return y
        """,
        """
        def f(x):
            y = 0
            def body_1(each, broken_1, y):
                def else_2():
                    y = each
                    return (False, y)
                return rt.if_(each, lambda: (True, y), else_2, ())
            broken_1, y = rt.for_(x, body_1, ('broken', 'y'), (False, y), True)
            return y
        """,
    ),
    "a while": (
        """
        def f(x):
            while x < 9:
                x = x * 2
            return x
        """,
        """
        def f(x):
            def test_1(x):
                return x < 9
            def body_1(x):
                x = x * 2
                return (x,)
            (x,) = rt.while_(test_1, body_1, ('x',), (x,), False)
            return x
        """,
    ),
    "booleans": (
        """
        def f(x, y):
            return x and (not y) or 0 < x < y
        """,
        """
        def f(x, y):
            return rt.or_(lambda: rt.and_(lambda: x, lambda: rt.not_(y)),
                lambda: rt.chain(lambda: 0, 'Lt', lambda: x, 'Lt', lambda: y))
        """,
    ),
    "comprehensions": (
        """
        def f(x):
            return [a for a in x if a], {k: v for k, v in x}, [a + b for a in x for b in a]
        """,
        """
        def f(x):
            return (rt.comprehend_if(x, lambda a: a, lambda a: a),
                dict(rt.comprehend(x, lambda item: (lambda k, v: (k, v))(*item))),
                [each for row in rt.comprehend(x, lambda a: rt.comprehend(a, lambda b: a + b))
                    for each in row])
        """,
    ),
    "a name that is bound in an expression": (
        """
        def f(x):
            if x > 1 and (n := x) < 5:
                x = n
            return x
        """,
        """
        def f(x):
            value_1 = x > 1
            def then_2():
                value_1 = (n := x) < 5
                return (value_1, n)
            value_1, n = rt.if_(value_1, then_2, lambda: (value_1, rt.get(lambda: n)),
                ('value_1', 'n'))
            def then_3():
                x = n
                return (x,)
            (x,) = rt.if_(value_1, then_3, lambda: (x,), ('x',))
            return x
        """,
    ),
    "assertions and exceptions": (
        """
        def f(x):
            assert x, "no x"
            assert x > 1
            if x > 2:
                raise ValueError(x)
            return max(x, 3)
        """,
        """
        def f(x):
            rt.assert_(x, lambda: 'no x')
            rt.assert_(x > 1, None)
            def fail_1():
                raise ValueError(x)
            rt.raise_(x > 2, fail_1)
            return rt.max(x, 3)
        """,
    ),
    "a nonlocal": (
        """
        def f(x):
            y = 0
            def g():
                nonlocal y
                if x:
                    y = 1
                return y
            return g()
        """,
        """
        def f(x):
            y = 0
            def g():
                nonlocal y
                def then_1(y_=rt.get(lambda: y)):
                    nonlocal y
                    y = y_
                    y = 1
                    return (y,)
                def else_1(y_=rt.get(lambda: y)):
                    nonlocal y
                    y = y_
                    return (y,)
                (y,) = rt.if_(x, then_1, else_1, ('y',))
                return y
            return g()
        """,
    ),
    "a list that rounds make anew, and that is read backwards": (
        """
        def f(x):
            outs = []
            for row in x:
                outs = outs + [row]
            return outs[::-1]
        """,
        """
        def f(x):
            outs = []
            outs = [*outs]
            def body_1(row):
                outs.append(row)
                return ()
            rt.for_(x, body_1, (), (), False)
            return rt.item(outs, slice(None, None, -1))
        """,
    ),
    "a list of which a round reads what was appended last": (
        """
        def f(x, outs):
            for row in x:
                outs.append(outs[-1] + row)
            outs.reverse()
            return outs
        """,
        """
        def f(x, outs):
            last_1 = rt.end_of(outs, -1)
            def body_2(row, last_1):
                last_1 = last_1 + row
                outs.append(last_1)
                return (last_1,)
            (last_1,) = rt.for_(x, body_2, ('last_1',), (last_1,), False)
            rt.method(outs, 'reverse')
            return outs
        """,
    ),
    "a sum that rounds add to, and an index of several dimensions": (
        """
        def f(x, total):
            for row in x:
                total += row
            return total[:, 0]
        """,
        """
        def f(x, total):
            def body_1(row, total):
                total += row
                return (total,)
            (total,) = rt.for_(x, body_1, ('total',), (total,), False)
            return rt.item(total, (slice(None, None, None), 0))
        """,
    ),
    "an item that is chosen by an index": (
        """
        def f(layers, which):
            return layers[which](layers[0])
        """,
        """
        def f(layers, which):
            return rt.chosen(layers, which)(layers[0])
        """,
    ),
}


@pytest.mark.parametrize("name", PASSES)
def test_what_a_pass_makes(name: str) -> None:
    text, expected = PASSES[name]
    tree = ast.parse(textwrap.dedent(expected))
    assert after(text) == ast.unparse(tree)


def test_an_absorbed_test_holds_what_follows() -> None:
    text = """
        def f(x):
            if x:
                y = None
            else:
                y = x
            z = y
            return z
        """
    expected = """
        def f(x):
            def then_1():
                y = None
                z = y
                return z
            def else_1():
                y = x
                z = y
                return z
            return rt.if_(x, then_1, else_1, ())
        """
    assert after(text, absorbed=True) == ast.unparse(ast.parse(textwrap.dedent(expected)))


def test_what_follows_a_split_call_moves_into_both_branches() -> None:
    source = "def f(x):\n    mask = g(x)\n    return x if mask is None else h(mask)"
    tree = ast.parse(source).body[0]
    assert isinstance(tree, ast.FunctionDef)
    made = rewrite(tree, (), {"f.py:2:11-15"}, path="f.py")
    assert made.keys == ("f.py:2:11-15",)
    text = ast.unparse(made.tree).replace("lambda :", "lambda:")  # as in Python 3.10
    for outcome in (True, False):
        assert f"mask = __oe_rt__.taken(lambda: g(x), 'f.py:2:11-15', {outcome})" in text
    assert text.count("return x if mask is None else h(mask)") == 2
    asked = "__oe_rt__.decided(lambda: g(x), 'f.py:2:11-15')"
    assert f"return __oe_rt__.if_({asked}, then_1, else_1, (), 'f.py:2:11-15')" in text


def test_every_key_is_of_one_thing() -> None:
    tree = ast.parse(
        "not a and b or c and not (d or e) if not f else (g if h else i) if j < k < l else bool(m)"
    )
    nodes = [each for each in ast.walk(tree) if keyed(each)]
    assert len({key_of("f.py", each) for each in nodes}) == len(nodes) == 12


def test_a_closure_keeps_what_it_shares() -> None:
    plain, add = rewriting_cases.closure(5), rewriting_cases.closure(5)
    with rewritten(add, all_keys(add)):
        assert outcomes(add) == outcomes(plain)
    with rewritten(add, all_keys(add), all_keys(add)):
        assert outcomes(add) == outcomes(plain)
    assert outcomes(add) == outcomes(plain)


def test_coroutines_are_left_alone() -> None:
    waits = rewriting_cases.waits_in_a_loop
    assert changed(waits, all_keys(waits)).count == 0
