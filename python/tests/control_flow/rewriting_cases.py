# ruff: noqa
"""Functions that use all of Python's grammar besides control flow.

Each function is called with the numbers -3 to 6. It must return or raise the same after it is
rewritten.
"""

import contextlib
import dataclasses
import functools
import math
from math import sqrt
from typing import Any

CASES: list[Any] = []


def case(function: Any) -> Any:
    CASES.append(function)
    return function


@case
def plain(x: int) -> Any:
    if x > 2:
        y = x * 2
    else:
        y = -x
    return y


@case
def without_else(x: int) -> Any:
    y = 1
    if x > 2:
        y += x
        unused = y
        del unused
    return y


@case
def chain_of_tests(x: int) -> Any:
    if x < 0:
        kind = "negative"
    elif x == 0:
        kind = "zero"
    elif x < 3:
        kind = "small"
    else:
        kind, x = "large", x - 1
    return kind, x


@case
def early_returns(x: int) -> Any:
    """Several."""
    if x < 0:
        return "below"
    y = x + 1
    if y > 3:
        if y > 5:
            return "far above"
        y -= 1
        if y == 4:
            return
    z = y * 2
    return y, z


log: list[Any] = []


def seen(value: Any, *rest: Any, **more: Any) -> Any:
    log.append((value, rest, more))
    return value


@case
def lists_that_grow(x: int) -> Any:
    outs: list[Any] = [x]
    before, back, shared = outs, [], []
    alias = shared
    for i in range(x):
        outs = outs + [outs[-1] + i]
        back = [i, *back]
        shared += [i, -i]
        if i > 2:
            outs.append(outs[-1] * 2)
    outs.reverse()
    return outs, outs[::-1], outs[0], outs[1:], back, alias, before, outs.pop(), outs.index(x)


@case
def lists_read_from_both_ends(x: int) -> Any:
    ends: list[Any] = []
    for i in range(x):
        ends.insert(0, ends[0] + i if i else 7)
        (first, *rest) = ends
        rest = rest + [first]
    steps = []
    while len(steps) < x:
        steps.append(len(steps))
        steps = steps + steps[-1:]
    return ends, steps, [max, min][x % 2](ends or [0])


@case
def ternaries(x: int) -> Any:
    mode = "plain" if seen(x) > 0 else None
    rows = [seen(1), seen(2) if seen(x > 2) else (seen("three") if seen(x < 0) else 4), *log[:1]]
    rows[0] += seen(10) if x > 1 else seen(20)
    rows[seen(0)] += 10 if x > 1 else 20
    return mode, rows


@case
def ternaries_in_calls(x: int) -> Any:
    mode = seen(x > 0)
    total = seen(1, *([2] if seen(x) else [0]), z=(seen(5) if mode else [])) + seen(7)
    text = {seen("a"): seen(1) if seen(0 < (x if seen(x) else 5) < 3) else "b", "c": x}
    return (seen(total).real if seen(x > 3) else text["a"]), text


@case
def ternaries_in_tests(x: int) -> Any:
    total = 1
    if (seen(x) if x > 1 else seen(3)) and (1 if seen(x) else None):
        total = -total
    elif seen("rest" if x < -1 else 8) == 8:
        total += 5
    assert (total if seen(x > -9) else None) is not None
    return total


@case
def ternaries_in_loops(x: int) -> Any:
    total = 0
    for each in seen([0, 1] if x % 2 else (9,)):
        total += sum([x, 5, 7][0 if each == 9 else 1 :]) - each
        if each > (3 if x > 3 else 30):
            break
    return total


@case
def ternaries_that_stay(x: int) -> Any:
    keep = lambda y: y if y > x else "no"
    return keep(2), [i if i > x else "" for i in (1, 4)], f"{x if x else None}"


@case
def functions_of_math(x: int) -> Any:
    log: Any = lambda *rest: ("a function of another kind", *rest)
    whole = int(x / 2), math.floor(x / 2), math.ceil(seen(x) / seen(3)), math.trunc(x / 3.5)
    near = round(x / 4), round(x / 7, 2), round(number=x), math.floor(x)
    return whole, near, log(x, 2), sqrt(abs(x)), math.hypot(x, *whole), math.log(abs(x) or 1)


@case
def nested_returns(x: int) -> Any:
    if x % 2:
        if x > 3:
            return 1
        z = 5
    else:
        z = 6
        if x < 0:
            return 2
    return z


@case
def no_return_at_the_end(x: int) -> Any:
    if x > 1:
        return x


@case
def bound_in_one_branch(x: int) -> Any:
    if x > 1:
        y = 2
    if x > 1:
        return y
    return 0


@case
def unbound_at_the_end(x: int) -> Any:
    if x > 1:
        y = 2
    return [x] + ([y] if x > 1 else [])


@case
def expressions(x: int) -> Any:
    y = x if x > 2 else (-x if x < 0 else 7)
    return y, not x, (x and y) or 3, (x or y) and [x], not (x and not y)


@case
def chained(x: int) -> Any:
    return 0 < x < 5, 1 <= x != 3 == x, 0 < x in [1, 2], x is x is not None, -2 < x <= 2 > 1


@case
def lazily(x: int) -> Any:
    seen: list[Any] = []

    def note(value: Any) -> Any:
        seen.append(value)
        return value

    found = (note(x > 0) and note(x > 2)) or note(x == -1)
    again = note(0) < note(x) < note(3)
    return found, again, seen


@case
def loop(x: int) -> Any:
    total = 0
    for i in range(x):
        total += i
        double = total * 2
        total = total + double % 3
    return total


@case
def loop_variable_afterwards(x: int) -> Any:
    i = -1
    for i in range(x):
        pass
    return i


@case
def break_and_continue(x: int) -> Any:
    found = []
    for i in range(6):
        if i == x:
            break
        if i % 2:
            continue
        found.append(i)
    return found, i


@case
def loop_else(x: int) -> Any:
    for i in range(4):
        if i == x:
            word = "found"
            break
    else:
        word = "missed"
    return word


@case
def loop_else_without_break(x: int) -> Any:
    y = 0
    for i in range(max(x, 0)):
        y += i
    else:
        y += 100
    while y > 100:
        y -= x if x > 0 else 50
    else:
        y = -y
    return y


@case
def return_in_loop(x: int) -> Any:
    for i in range(5):
        if i * i > x:
            return i
    return None


@case
def return_in_nested_loops(x: int) -> Any:
    count = 0
    for i in range(4):
        for j in range(4):
            count += 1
            if i * j == x:
                return i, j, count
            if j > i:
                break
        else:
            count += 10
        if count > 40:
            return "many"
    return count


@case
def return_in_loop_with_else(x: int) -> Any:
    for i in range(3):
        if i == x:
            return "inside"
        if i + 4 == x:
            break
    else:
        return "else"
    return "after"


@case
def while_loop(x: int) -> Any:
    steps = 0
    while x > 0:
        x -= 2
        steps += 1
    return x, steps


@case
def while_true(x: int) -> Any:
    n = 0
    while True:
        n += 1
        if n > x:
            break
        if n % 2:
            continue
        n += 1
    return n


@case
def while_true_return(x: int) -> Any:
    n = 0
    while True:
        n += 3
        if n > x:
            return n


@case
def return_after_a_test_in_a_loop(x: int) -> Any:
    for i in range(3):
        if x > 2:
            i += 1
        x += i
        return i, x
    return x


@case
def continue_in_outer_else(x: int) -> Any:
    out = []
    for i in range(4):
        for j in range(3):
            if j == x:
                break
        else:
            if i == 2:
                continue
            out.append("whole")
        out.append(i)
    return out


@case
def targets(x: int) -> Any:
    out = {}
    for n, (a, *rest) in enumerate([(1, 2, 3), (x, 5)]):
        out[n] = a, rest
        if a > 2:
            n, *others = rest
            out["others"] = n, others
    return out, n, a


@case
def subscripts_and_attributes(x: int) -> Any:
    held = Held(x)
    table = {"a": 1}
    if x > 2:
        held.value += 3
        table["a"] *= 2
        table["b"] = held.value
    else:
        del table["a"]
        held.other = 1
    return held, table


@dataclasses.dataclass
class Held:
    value: int
    other: Any = None

    def grown(self, by: int, /, *more: int, sign: int = 1, **named: int) -> Any:
        if by > 2 and sign > 0:
            self.value += by
        for each in more:
            if each > by:
                self.value += each
        return dataclasses.replace(self, other=named), self.value


@case
def dataclass_methods(x: int) -> Any:
    return Held(x).grown(x, 1, 5, sign=x - 1, more=x)


@case
def nonlocal_name(x: int) -> Any:
    total = 0

    def add(by: int) -> None:
        nonlocal total
        if by > 2:
            total += by
        elif by < 0:
            total = -1
        for each in range(by):
            total += each

    add(x)
    add(3)
    return total


@case
def captured_name(x: int) -> Any:
    scale = 1
    scaled = lambda value: value * scale
    if x > 2:
        scale = 10
        x = scaled(x)
    for _ in range(2):
        scale += 1
        x += scaled(1)
    return scaled(x)


count = 0


@case
def global_name(x: int) -> Any:
    global count
    count = 0
    if x > 2:
        count += x
        touch()
    for i in range(x):
        count += i
    return count


def touch() -> None:
    global count
    count += 100


@case
def declared_in_a_branch(x: int) -> Any:
    if x > 0:
        global count
        count = x
    return count if x > 0 else None


@case
def captured_where_it_ends(x: int) -> Any:
    if x > 2:
        step = x
        return sum(each * step for each in range(3))
    if x < 0:
        size = -x

        def sized() -> int:
            return size

        size += 1
        return sized()
    last = lambda: word
    if x == 0:
        word = "zero"
        return last()
    if x == 1:
        if x:
            global count
            count = x
        word = "one"
    else:
        word = "two"
    return last(), count


@case
def functions_of_each_round(x: int) -> Any:
    made = []
    for i in range(x):
        made.append(lambda: i)
    return [each() for each in made]


@case
def inner_function(x: int) -> Any:
    def inner(y: int, z: int = 2 if x > 1 else 3) -> Any:
        if y > z:
            return y
        return [each for each in range(z) if each != y]

    return inner(x), inner(1)


@case
def function_of_a_branch(x: int) -> Any:
    if x > 1:

        def found(y: int) -> int:
            return y + x
    else:

        def found(y: int) -> int:
            return y - x

    return found(3)


@case
def comprehensions(x: int) -> Any:
    rows = range(x)
    return (
        [i * 2 for i in rows],
        [i for i in rows if i > 1 if i != 3],
        {i % 2 for i in rows},
        {i: i * i for i in rows if i},
        [(a, b) for a in rows for b in range(a) if b],
        [a + b for a, b in zip(rows, range(9))],
        [(a, b, c) for a, (b, *c) in enumerate([(x, 1), (2, 3, 4)])],
        sum(i for i in rows),
        any(i == 2 for i in rows),
        max((i for i in rows), default=None),
        [[j for j in range(i)] for i in rows],
        [i if i > 1 else -i for i in rows],
    )


@case
def walrus(x: int) -> Any:
    if (y := x + 1) > 2:
        y += 1
    if x > 1 and (z := x * 2) > 4:
        y += z
    else:
        z = 0
    n = 9
    found = x > 2 and (n := x)
    w = (m := 3) if x > 0 else (m := 4)
    return y, z, n, found, w, m


@case
def walrus_in_loops(x: int) -> Any:
    n, out = x, []
    while (n := n - 1) > 0:
        out.append(n)
        if n == 2:
            break
    else:
        out.append("end")
    return out, n


@case
def walrus_in_alternatives(x: int) -> Any:
    out = []
    if x < 0:
        out.append("negative")
    elif x > 4 or (y := x + 1) == 3:
        out.append("some")
    elif (y := x * 2) > 5 and y < 9:
        out.append(y)
    assert x < 6 or (n := x), "n"
    return out


@case
def texts(x: int) -> Any:
    name = f"{x if x > 2 else 'low'!s:>5} {x and 1}"
    if x > 3:
        name = f"{name}-{x:03d}"
    return name


@case
def asserts(x: int) -> Any:
    assert x < 5, f"{x} is too large"
    assert x != 4
    if x < 0:
        raise ValueError(f"{x} is negative")
    if x == 3:
        y = x
        raise KeyError(y)
    else:
        z = 1
    return x + z


@case
def raises_instead(x: int) -> Any:
    if x > 0:
        return x
    raise ValueError("not positive")


@case
def raises_otherwise(x: int) -> Any:
    if x > 2:
        y = x
    elif x > 0:
        y = 1
    else:
        raise ValueError(x)
    return y


@contextlib.contextmanager
def noted(log: list[Any]) -> Any:
    log.append("in")
    try:
        yield 5
    finally:
        log.append("out")


@case
def with_returns(x: int) -> Any:
    log: list[Any] = []
    with noted(log) as five:
        if x > 4:
            return log
        y = x + five
        if x < 0:
            y = 0
    log.append(y)
    with noted(log), contextlib.suppress(ZeroDivisionError):
        if x == 1:
            return log, "one"
        return log, 6 // x
    return log, "suppressed"


@case
def with_loops(x: int) -> Any:
    log: list[Any] = []
    for i in range(4):
        with noted(log):
            if i == x:
                break
            if i + 1 == x:
                continue
            log.append(i)
        log.append("end")
    return log


@case
def try_blocks(x: int) -> Any:
    log = []
    y = "unset"
    try:
        if x > 2:
            y = "large"
            10 // (x - 3)
        elif x < 0:
            y = [][x]
    except ZeroDivisionError as error:
        log.append(str(error))
    except IndexError:
        if x < -1:
            y = "index"
        else:
            raise
    else:
        log.append("else")
    finally:
        log.append("finally")
        if x > 4:
            log.append("large")
    return log, y


@case
def try_returns(x: int) -> Any:
    log: list[Any] = []
    try:
        if x > 3:
            return log
        y = 6 // x
        if y > 4:
            return log, y
    except ZeroDivisionError:
        if x == 0:
            return log, "zero"
    else:
        log.append("else")
    finally:
        log.append("finally")
    return log, "end"


@case
def try_in_loop(x: int) -> Any:
    log, n = [], 0
    for i in range(5):
        try:
            if i == x:
                break
            if i == 1:
                continue
            n += 6 // (i - 2)
        except ZeroDivisionError:
            log.append("zero")
            if x > 5:
                return log
        finally:
            n += 100
        log.append(n)
    return log, n


@case
def matches(x: int) -> Any:
    out = []
    match [x, 1]:
        case [0, one]:
            if one > 0:
                out.append(one)
        case [n, *rest] if n > 3:
            for each in rest:
                if each:
                    out.append(n)
            if n > 4:
                return "far"
        case [n, _]:
            if n < 0:
                return "negative"
            out.append(-n)
    return out


@case
def generators(x: int) -> Any:
    def made(n: int) -> Any:
        k = 1
        if n > 2:
            k = n
        yield k
        yield k if n > 1 else 0
        for each in range(k):
            n += each
        yield n

    total = 0
    for each in made(x):
        if each != 1:
            total += each
    return total, list(made(x))


@case
def keywords(x: int) -> Any:
    def inner(a: int, /, b: int = 2, *c: int, d: int, e: int = 5, **f: int) -> Any:
        if a > b:
            c, e = (a,), d
        if d > 3:
            f["d"] = d
        return a, b, c, d, e, f

    return inner(x, d=x), inner(5, x, 3, d=1, g=2)


@case
def lambdas(x: int) -> Any:
    choose = lambda y, z=3: y if y > z else -z
    both = lambda *a: all(each > 1 for each in a) and a
    return choose(x), both(x, 2), sorted(range(4), key=lambda each: each if x > 2 else -each)


class Parent:
    scale = 2

    def run(self, x: int) -> Any:
        return x * self.scale


class Child(Parent):
    __hidden = 7

    def run(self, x: int) -> Any:
        if x > 2:
            y = super().run(x) + self.__hidden
        elif x < 0:
            return super(Child, self).run(x), __class__.__name__  # type: ignore[name-defined]
        else:
            y = super().run(1) if x else self.__low(x)
        __y = y
        for __i in range(2):
            __y += __i
        return __y

    def __low(self, x: int) -> int:
        return -self.__hidden if x == 0 else x

    @property
    def kind(self) -> Any:
        return "child" if self.scale > 1 else "other"

    @classmethod
    def made(cls, x: int) -> Any:
        if x > 1:
            return cls().run(x)
        return super().__name__ if x > 9 else cls.__hidden

    @staticmethod
    def still(x: int) -> Any:
        total = 0
        while x > 0:
            total, x = total + x, x - 1
        return total

    @functools.lru_cache
    def cached(self, x: int) -> Any:
        if x > 2:
            return "large"
        return "small"


METHODS = [
    Child.run,
    Child._Child__low,  # type: ignore[attr-defined]
    Child.kind.fget,  # type: ignore[attr-defined]
    Child.made.__func__,  # type: ignore[attr-defined]
    Child.still,
    Child.cached.__wrapped__,
    Held.grown,
]


def methods(x: int) -> Any:
    Child.cached.cache_clear()
    child = Child()
    return child.run(x), child.kind, Child.made(x), Child.still(x), child.cached(x)


@case
def imports(x: int) -> Any:
    if x > 2:
        import math as numbers
    else:
        import cmath as numbers  # type: ignore[no-redef]
    return numbers.__name__


@case
def annotated(x: int) -> Any:
    y: int
    if x > 1:
        y = 2
        z: str = "z"
    else:
        y, z = 1, ""
    return y, z


@case
def swapped(x: int) -> Any:
    a, b, *c = x, 2, 3, 4
    if a > b:
        a, b = b, a
        c[0], (x, *c) = a, c
    return a, b, c, x


@case
def deleted(x: int) -> Any:
    y = z = 1
    if x > 2:
        del y
        z = 2
        y = 3
    try:
        return y, z
    except NameError:
        return "gone", z


@case
def classes_within(x: int) -> Any:
    class Local:
        y = x

        def run(self) -> Any:
            if self.y > 2:
                return "large"
            return "small" if self.y else "zero"

    return Local().run()


@case
def docs_and_dead_code(x: int) -> Any:
    """Return something."""
    if x > 100:
        return x
        x = 3
    return 1
    return x


@case
def fibonacci(x: int) -> Any:
    a, b = 0, 1
    while b < x * 10:
        a, b = b, a + b
        if a == 5:
            a += 1
    return a, b


@case
def recursive(x: int) -> Any:
    if x <= 0:
        return 1
    return x * recursive(x - 1)


def yields_in_a_loop(x: int) -> Any:
    for each in range(x):
        yield each


def yields_below_a_test(x: int) -> Any:
    if x > 2:
        yield x


def generator_kept(x: int) -> Any:
    return iter(each for each in range(x))


def bound_in_a_comprehension(x: int) -> Any:
    return [k := each for each in range(x)], k


def bound_in_the_middle(x: int) -> Any:
    return touch(), x and (k := x), k


def deleted_and_read(x: int) -> Any:
    y = 1
    if x > 2:
        del y
    return y


def finally_returns(x: int) -> Any:
    try:
        x += 1
    finally:
        if x > 1:
            return x
    return 0


def caught(x: int) -> Any:
    try:
        if x > 1:
            raise ValueError(x)
    except ValueError:
        x = 0
    return x


def guarded(x: int) -> Any:
    match x:
        case int() if x > 0:
            return 1
    return 2


def class_body(x: int) -> Any:
    class Local:
        y = 1 if x else 2

    return Local


def sees_names(x: int) -> Any:
    if x > 2:
        return locals()
    return None


def functions_in_a_comprehension(x: int) -> Any:
    return [lambda: i for i in range(x)]


def closure(start: int) -> Any:
    total = start

    def add(x: int) -> Any:
        nonlocal total
        if x > 2:
            total += x
            return "large", total
        for each in range(x):
            total += each
        return total

    return add


def waits_in_a_loop(x: int) -> Any:
    async def inner() -> Any:
        if x > 2:
            return await inner()
        return 1

    return inner


@case
def looked_up_by_a_text(x: int) -> Any:
    table = {f"n{each}": each * 2 for each in range(-3, 7)}
    name = "n"
    return table[f"n{x}"] + table[f"{name}{x}"], table[f"n{x!r}"], table[f"n{x:d}"]


@case
def matched(x: int) -> Any:
    log.append(x)
    match x + 1:
        case 0 | 1:
            return "few"
        case 2 if log[-1] > 0:
            y: Any = 2
        case n if n > 5:
            y = n
        case None:
            y = None
        case 4 as four:
            match four - x:
                case 1:
                    y = four
                case _:
                    y = 0
        case other:
            log.append(other)
            y = -other
    return y, x


WITHOUT_ABSORBING = {generators}
"""What follows their tests cannot be moved."""
REFUSED = {
    yields_in_a_loop: "a yield or await is inside a condition",
    yields_below_a_test: "a yield or await is inside a condition",
    generator_kept: "write a list",
    bound_in_a_comprehension: "write a loop",
    bound_in_the_middle: "bind the name in a statement before the expression",
    deleted_and_read: "y is deleted in a branch",
    finally_returns: "`finally` contains return",
    caught: "is caught in the same function",
    guarded: "the guard of a `case`",
    class_body: "in a class body",
    sees_names: r"locals\(\) is inside a condition",
    functions_in_a_comprehension: "a function is created in each iteration",
}
