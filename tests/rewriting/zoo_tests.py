"""A: conditions on tensors."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from entries import any_of, down, entry, number, up
from torch import nn

ROWS = ((0,),)
SIGNS = lambda: [(up(2, 3),), (down(2, 3),), (up(4, 3),), (down(1, 3),)]  # noqa: E731


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))


@entry("if/else", SIGNS, ROWS)
class A01_IfElse(Base):
    def forward(self, x):
        if x.sum() > 0:
            y = self.linear(x)
        else:
            y = x - 1
        return y * 2


@entry(
    "if/elif/elif/else",
    lambda: [(up(2, 3) * 9,), (up(2, 3),), (down(2, 3),), (down(3, 3) * 9,)],
    ROWS,
)
class A02_Elif(Base):
    def forward(self, x):
        m = x.mean()
        if m > 2:
            y = x / 2
        elif m > 0:
            y = x + self.scale
        elif m > -2:
            y = x * self.scale
        else:
            y = torch.zeros_like(x)
        return y + m


@entry("early returns", lambda: [(up(2, 3),), (down(2, 3),), (torch.zeros(3, 3),)], ROWS)
class A03_EarlyReturn(Base):
    def forward(self, x):
        s = x.sum()
        if s > 0:
            return self.linear(x)
        x = x + 1
        if s < 0:
            return x * self.scale
        return x - 5


@entry("a return in one branch of two, in the middle", SIGNS, ROWS)
class A04_OneBranchReturns(Base):
    def forward(self, x):
        if x.max() > 0:
            x = x * 2
        else:
            x = x - 1
            if x.min() < -1.5:
                return x.abs()
            x = x * 3
        return self.linear(x)


@entry("x if test else y", SIGNS, ROWS)
class A05_IfExp(Base):
    def forward(self, x):
        y = self.linear(x) if x.sum() > 0 else x.neg()
        return (y if y.mean() > 0.1 else y * 10) + 1


@entry(
    "and, or, not",
    lambda: [(up(2, 3),), (down(2, 3),), (number([[0.5, -0.2, 0.1]]),), (up(2, 3) * 100,)],
    ROWS,
)
class A06_Logic(Base):
    def forward(self, x):
        if x.sum() > 0 and not x.max() > 10 or x.min() < -5:
            return x + 1
        if not (x > 0).any():
            return x * self.scale
        return x - 1


@entry("chained comparisons", lambda: [(number([0.2, 0.2]),), (number([3.0, 1.0]),), (number([-1.0, 0.0]),)], ROWS)
class A07_Chain(nn.Module):
    def forward(self, x):
        if 0 < x.sum() <= 1:
            return x * 2
        if -5 < x.min() < x.max() < 2:
            return x * 3
        return x * 4


@entry("tests within tests", lambda: [(up(2, 3),), (up(2, 3) * 20,), (down(2, 3),), (down(2, 3) * 20,)], ROWS)
class A08_Nested(Base):
    def forward(self, x):
        s = x.sum()
        y = x
        if s > 0:
            if s > 20:
                y = y / s
            y = y + 1
        else:
            y = y * 2
            if s < -20:
                y = y - s
            else:
                y = self.linear(y)
        return y


@entry("an attribute of self that is set in a branch", SIGNS, ROWS)
class A09_Attribute(Base):
    def forward(self, x):
        self.last = x
        if x.sum() > 0:
            self.last = self.linear(x)
            self.sign = torch.ones(1)
        else:
            self.sign = -torch.ones(1)
        return self.last * self.sign


@entry("a dict that a branch writes into", SIGNS, ROWS)
class A10_Dict(Base):
    def forward(self, x):
        found = {"x": x, "bias": torch.zeros(3)}
        if x.sum() > 0:
            found["bias"] = self.scale
        else:
            found["x"] = found["x"].abs()
        return found["x"] + found["bias"]


@entry("a list that both branches append to", SIGNS, ROWS)
class A11_List(Base):
    def forward(self, x):
        parts = [x]
        if x.sum() > 0:
            parts.append(self.linear(x))
        else:
            parts.append(x * 2)
        parts.append(x + 1)
        return torch.cat(parts)


@entry("a list that one branch alone appends to", SIGNS, ROWS)
class A12_ListOneBranch(Base):
    def forward(self, x):
        parts = [x]
        if x.sum() > 0:
            parts.append(self.linear(x))
        return torch.cat(parts, 0)


@entry("None in one branch, a tensor in the other", SIGNS, ROWS)
class A13_NoneOrTensor(Base):
    def forward(self, x):
        bias = None
        if x.sum() > 0:
            bias = self.scale
        y = self.linear(x)
        if bias is not None:
            y = y + bias
        return y


@entry("in-place arithmetic in a branch", SIGNS, ROWS)
class A14_InPlace(Base):
    def forward(self, x):
        y = x.clone()
        if x.sum() > 0:
            y += 1
            y.mul_(self.scale)
        else:
            y.clamp_(min=-0.5)
        return y, x


@entry("slices written in a branch", SIGNS, ROWS)
class A15_Slices(Base):
    def forward(self, x):
        y = torch.zeros_like(x)
        y[:, 0] = x[:, 0]
        if x.sum() > 0:
            y[:, 1:] = x[:, :2]
        else:
            y[0] = 7.0
        return y


@entry("a comprehension with a test on a tensor", lambda: [(up(3, 3),), (down(3, 3),), (any_of(3, 3),)])
class A16_ComprehensionTest(nn.Module):
    def forward(self, x):
        kept = [row * 2 if row.sum() > 0 else row - 1 for row in (x[0], x[1], x[2])]
        return torch.stack(kept)


@entry("walrus", SIGNS, ROWS)
class A17_Walrus(Base):
    def forward(self, x):
        if (s := x.sum()) > 0:
            y = x * s
        elif (m := x.min()) > -0.5:
            y = x - m
        else:
            y = x + s
        return y + s


@entry("a nested function", SIGNS, ROWS)
class A18_NestedFunction(Base):
    def forward(self, x):
        def step(v, factor=2):
            if v.mean() > 0:
                return v * factor
            return v - self.scale

        return step(step(x), factor=3)


@entry("a lambda", SIGNS, ROWS)
class A19_Lambda(Base):
    def forward(self, x):
        pick = lambda v: self.linear(v) if v.sum() > 0 else v.exp()  # noqa: E731
        return pick(x) + 1


@entry("a nonlocal that a branch sets", SIGNS, ROWS)
class A20_Nonlocal(nn.Module):
    def forward(self, x):
        total = torch.zeros(3)

        def add(v):
            nonlocal total
            if v.sum() > 0:
                total = total + v.sum(0)
            else:
                total = total - 1

        add(x)
        add(x - 0.5)
        return total


@entry("try around a test", SIGNS, ROWS)
class A21_Try(Base):
    def forward(self, x):
        try:
            if x.sum() > 0:
                y = self.linear(x)
            else:
                y = x * 2
        except ValueError:
            y = x
        finally:
            z = 1
        return y + z


@entry("with around a test, and no_grad within a branch", SIGNS, ROWS)
class A22_With(Base):
    def forward(self, x):
        with torch.no_grad():
            if x.sum() > 0:
                with torch.no_grad():
                    y = self.linear(x)
            else:
                y = x * self.scale
        return y


@entry("match beside a test", SIGNS, ROWS)
class A23_Match(Base):
    mode = "double"

    def forward(self, x):
        match self.mode:
            case "double":
                y = x * 2
            case _:
                y = x
        if y.sum() > 0:
            y = self.linear(y)
        return y


class Gate:
    """A plain object with a condition in a method."""

    limit = 0.0

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        if self.open(x):
            return x * self.factor
        return x / self.factor

    def open(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean() > self.limit

    @property
    def double(self) -> float:
        return 2 * self.factor

    @staticmethod
    def clamp(x: torch.Tensor) -> torch.Tensor:
        return x.clamp(max=1) if x.max() > 1 else x

    @classmethod
    def shift(cls, x: torch.Tensor) -> torch.Tensor:
        if x.min() < cls.limit:
            x = x - x.min()
        return x


@entry("a method of a plain object", SIGNS, ROWS)
class A24_Helper(Base):
    def forward(self, x):
        return Gate(3.0).apply(self.linear(x))


@entry("static and class methods", SIGNS, ROWS)
class A25_Static(nn.Module):
    def forward(self, x):
        return Gate.clamp(Gate.shift(x * 2))


@entry("a property with a test", SIGNS, ROWS)
class A26_Property(Base):
    @property
    def factor(self):
        if self.seen.sum() > 0:
            return self.scale
        return self.scale * -2

    def forward(self, x):
        self.seen = x
        return x * self.factor


class Parent(Base):
    def forward(self, x):
        if x.sum() > 0:
            return self.linear(x)
        return x


@entry("super().forward with a test", SIGNS, ROWS)
class A27_Super(Parent):
    def forward(self, x):
        y = super().forward(x)
        if y.max() > 0.3:
            y = y - 1
        return y


def traced(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) + 0.5

    return wrapper


@entry("a decorated method", SIGNS, ROWS)
class A28_Decorated(Base):
    @traced
    @torch.no_grad()
    def forward(self, x):
        if x.sum() > 0:
            return self.linear(x)
        return x.abs()


@entry("assert on a tensor", lambda: [(up(2, 3),), (up(4, 3),)], ROWS)
class A29_Assert(Base):
    def forward(self, x):
        assert x.min() > 0, f"not positive: {x.min()}"
        return self.linear(x).abs().sqrt()


@entry("raise on a tensor", lambda: [(up(2, 3),), (up(4, 3),)], ROWS)
class A30_Raise(Base):
    def forward(self, x):
        if torch.isnan(x).any():
            raise ValueError("not a number")
        if x.min() < 0:
            raise ValueError("negative")
        return self.linear(x)


@entry("max, min of tensors by Python's functions", SIGNS, ROWS)
class A31_MaxMin(nn.Module):
    def forward(self, x):
        top = max(x.mean(), x.sum() / 10)
        low = min(x[0].sum(), x.max(), x.min() + 0.2)
        return x * top + low


@entry("any, all over a list of tests", SIGNS, ROWS)
class A32_AnyAll(nn.Module):
    def forward(self, x):
        if all(part.sum() > 0 for part in (x[:1], x[1:] + 0.01)):
            return x + 1
        if any([x.max() > 0, x.min() < -0.9]):
            return x + 2
        return x + 3


@entry("bool(), int(), float() of tensors", SIGNS, ROWS)
class A33_Bool(nn.Module):
    def forward(self, x):
        flag = bool(x.sum() > 0)
        count = int((x > 0.5).sum())
        size = float(x.abs().max())
        if flag:
            return x * count
        return x / size


@entry("a float or an int from a branch", SIGNS, ROWS)
class A34_Numbers(nn.Module):
    def forward(self, x):
        factor = 2.5
        power = 1
        if x.sum() > 0:
            factor = 0.5
            power = 2
        return (x * factor) ** power


@entry("a string from a branch", SIGNS, ROWS)
class A35_String(Base):
    def forward(self, x):
        mode = "plain" if x.sum() > 0 else "scaled"
        y = self.linear(x)
        if mode == "scaled":
            y = y * self.scale
        return y


@entry("a branch that calls another module", SIGNS, ROWS)
class A36_Modules(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"a": nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 3)), "b": Parent()})

    def forward(self, x):
        if x.sum() > 0:
            return self.parts["a"](x)
        return self.parts["b"](x + 2)


@entry("other sizes in the two branches", SIGNS, ROWS)
class A37_OtherSizes(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            y = x[:1]
        else:
            y = torch.cat([x, x])
        return y * 2


@entry("two outputs, in a tuple from a branch", SIGNS, ROWS)
class A38_Tuple(Base):
    def forward(self, x):
        a, b = (x, self.linear(x)) if x.sum() > 0 else (x * 2, x * 3)
        if b.max() > a.max():
            a, b = b, a
        return a, b


@entry("a dict as the result, from two returns", SIGNS, ROWS)
class A39_DictResult(Base):
    def forward(self, x):
        if x.sum() > 0:
            return {"y": self.linear(x), "n": x.sum()}
        return {"y": x, "n": x.min()}


@entry("torch.equal and allclose as tests", lambda: [(up(2, 3), up(2, 3)), (torch.ones(2, 3), torch.ones(2, 3))])
class A40_Equal(nn.Module):
    def forward(self, x, y):
        if torch.equal(x, y):
            return x * 2
        if torch.allclose(x, y * 1000):
            return y
        return x + y


@entry("integers as tests: nonzero counts", lambda: [(number([0, 0, 0]),), (number([1, 0, 2]),)], ROWS)
class A41_Truth(nn.Module):
    def forward(self, x):
        if (x > 0).sum():
            return x + 1
        return x - 1


@entry("a buffer that a branch updates", SIGNS, ROWS)
class A42_Buffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        mean = self.mean
        if x.sum() > 0:
            mean = 0.9 * mean + 0.1 * x.mean(0)
        return x - mean


@entry("other types in the two branches, at the end", SIGNS, ROWS, refused="(?i)int64|float32|dtype|type")
class A43_OtherTypes(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return (x * 10).long()
        return x


@entry("other ranks in the two branches, at the end", SIGNS, ROWS, refused="(?i)dimension|rank|shape")
class A44_OtherRanks(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x.sum(0)
        return x


@entry("None or a tensor as the result", SIGNS, ROWS, refused="(?i)none")
class A45_NoneResult(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x, x * 2
        return x, None


@entry("a name that one branch alone binds", SIGNS, ROWS)
class A46_OneBranchBinds(Base):
    def forward(self, x):
        positive = x.sum() > 0
        if positive:
            extra = self.linear(x)
        y = x * 2
        if positive:
            y = y + extra
        return y


@entry(
    "half precision: infinity is clamped",
    lambda: [(up(2, 3).half(),), (number([[float("inf"), 1.0, 2.0]]).half(),)],
    ROWS,
)
class A47_Clamp(nn.Module):
    def forward(self, x):
        x = x * 2
        if x.dtype == torch.float16 and not torch.isfinite(x).all():
            limit = torch.finfo(x.dtype).max - 1000
            x = torch.clamp(x, min=-limit, max=limit)
        return x


@entry("optional argument beside a test", lambda: [(up(2, 3), up(3)), (down(2, 3), up(3))], ((0,), ()))
class A48_Optional(Base):
    def forward(self, x, y=None, scale=None):
        scale = self.scale if scale is None else scale
        if y is not None and y.sum() > 0 and x.sum() > 0:
            x = x * scale
        return x + (y if y is not None else 0)


@entry("del, and a name used again", SIGNS, ROWS)
class A49_Del(Base):
    def forward(self, x):
        t = x * 2
        if t.sum() > 0:
            u = t + 1
            x = u * u
            del u
        t = x
        return t


@entry("a generator function that yields by tests", SIGNS, ROWS)
class A50_Generator(Base):
    def parts(self, x):
        yield x
        yield self.linear(x) if x.sum() > 0 else x - 1

    def forward(self, x):
        return sum(self.parts(x))


@entry("views of one tensor, written in a branch", SIGNS, ROWS)
class A51_Views(nn.Module):
    def forward(self, x):
        y = x.clone()
        left, right = y[:, :1], y[:, 1:]
        if x.sum() > 0:
            left.add_(10)
        else:
            right.mul_(2)
        return y, left


@entry("an attribute of a plain object that a branch sets", SIGNS, ROWS)
class A52_PlainAttribute(nn.Module):
    def forward(self, x):
        state = Gate(2.0)
        state.value = x
        if x.sum() > 0:
            state.value = x * state.double
        return state.value + 1


@entry("ternaries within ternaries, in arguments", SIGNS, ROWS)
class A53_TernaryArguments(nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0.1 if x.mean() > 0 else (-0.5 if x.min() < -0.7 else -0.2), max=1.0)


@entry("an if whose test has a side effect, in the right order", SIGNS, ROWS)
class A54_Order(nn.Module):
    def forward(self, x):
        log = []

        def seen(v, n):
            log.append(v * n)
            return v.sum() > 0

        if seen(x, 1) and seen(x - 0.4, 2):
            y = x
        else:
            y = x + 1
        return y + log[0]


@entry("None or a tensor from a conditional expression, within a call", SIGNS, ROWS)
class A55_NoneTernary(Base):
    def shifted(self, x, bias=None):
        return x if bias is None else x + bias

    def forward(self, x):
        y = self.shifted(self.linear(x), bias=self.scale if x.sum() > 0 else None)
        return y * 2


@entry("lists of other lengths from a conditional expression", SIGNS, ROWS)
class A56_ListTernary(Base):
    def forward(self, x):
        parts = [x] + ([self.linear(x), x * 2] if x.max() > 0 else [])
        size = (len(parts), "many") if x.min() > 0 else (1, "one")
        total = torch.cat(parts) * size[0]
        return total if size[1] == "many" else total + self.scale


@entry(
    "a text that a loop's test decides by",
    lambda: [(up(3, 3),), (down(3, 3),), (torch.cat([up(1, 3), down(2, 3)]),)],
    ROWS,
)
class A57_ModeInLoop(Base):
    def forward(self, x):
        total = torch.zeros(3)
        for row in x:
            mode = "up" if row.sum() > 0 else "down"
            total = total * 0.5 + (row if mode == "up" else self.linear(row))
        return total


@entry("a test of texts whose outcome no set changes, beside one that is a tensor's", SIGNS, ROWS)
class A58_AllClose(Base):
    def forward(self, x):
        near = torch.allclose(x, x + 10)
        if x.sum() > 0 and not near:
            return self.linear(x)
        return x - 1 if torch.equal(x, x * 1) else x


@dataclass
class Pair:
    """Two tensors, and the number of changed ones."""

    first: torch.Tensor
    second: torch.Tensor
    changes: int = 0

    def turned(self) -> Pair:
        if self.first.sum() > self.second.sum():
            return Pair(self.second, self.first, self.changes + 1)
        return self


@entry("a dataclass that a method with a test gives", SIGNS, ROWS)
class A59_Dataclass(Base):
    def forward(self, x):
        pair = Pair(x, self.linear(x)).turned()
        if pair.first.max() > 1:
            pair.second = pair.second * 2
        return pair.first - pair.second, pair.first * pair.changes


memory: Any = None


@entry("a global, and private names", SIGNS, ROWS)
class A60_Global(Base):
    def __twice(self, x):
        return x * 2 if x.mean() > 0 else x * -2

    def forward(self, x):
        global memory
        self.__seen = x
        if x.sum() > 0:
            memory = x[0]
            self.__seen = self.__twice(x)
        else:
            memory = x[-1] * 3
        return memory + self.__seen


def picked(x: torch.Tensor, *others: torch.Tensor, by: Any = None, **more: torch.Tensor) -> torch.Tensor:
    if by is not None and by > 0:
        return x + sum(others)
    for name, each in more.items():
        x = x - each if name != "none" and each.max() > 1 else x
    return x


@entry("*args, **kwargs and a keyword alone", SIGNS, ROWS)
class A61_Stars(Base):
    def forward(self, x):
        given = {"one": x * 2, "none": x * 9}
        return picked(x, *(x, self.scale), by=x.sum(), **given) + picked(x, **given)


@entry("except with a name, in a loop of Python's, and finally", SIGNS, ROWS)
class A62_Except(Base):
    def forward(self, x):
        words = []
        for name in ("scale", "nowhere"):
            try:
                value = getattr(self, name)
                if x.sum() > 0:
                    x = x * value
                else:
                    x = x - value
            except AttributeError as error:
                words.append(f"{type(error).__name__}: {name}")
                x = x + len(words)
            finally:
                x = x * 1.5
        return x


@entry("f-strings beside a test, as keys", SIGNS, ROWS)
class A63_Texts(Base):
    def forward(self, x):
        found = {f"row_{n}": self.linear(x) * n for n in range(3)}
        if x.sum() > 0:
            found[f"row_{len(found)}"] = x
        else:
            found[f"row_{len(found)}"] = x * 2
        return sum(found[f"row_{n:d}"] for n in range(len(found)))


exec(  # a function without source
    "def unseen(x):\n    return x.clamp(min=0) if x.dim() > 1 else x",
    globals(),
)


@entry("a function without source is called beside a test", SIGNS, ROWS)
class A64_NoSource(Base):
    def forward(self, x):
        y = unseen(x)  # type: ignore[name-defined]  # noqa: F821
        if y.sum() > 1:
            y = self.linear(y)
        return y


@entry("a buffer written in place beside a test", SIGNS, ROWS)
class A65_InPlaceBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += 1
        self.calls.clamp_(max=2)
        y = x / self.calls
        if y.sum() > 0:
            y = y * 2
        return y


class Refuses(nn.Module):
    def forward(self, x):
        raise ValueError("it has nothing to say")


@entry("an exception that leaves a submodule, and is handled, before a test", SIGNS, ROWS)
class A66_Handled(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Refuses()

    def forward(self, x):
        try:
            y = self.part(x)
        except ValueError:
            y = x * 2
        return y + 1 if y.sum() > 0 else y


class Maybe(Base):
    def forward(self, x):
        return self.linear(x) if x.sum() > 0 else None


@entry("a submodule that gives a tensor or None", SIGNS, ROWS)
class A67_MaybePart(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Maybe()

    def forward(self, x):
        found = self.part(x)
        return x - 1 if found is None else found * 2
