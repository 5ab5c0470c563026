"""Generates the source of random modules, with types, so that eager torch can always run them.

The names have types. T is a batch of rows (n, 3), V three numbers, S one number, K a Python count from a tensor, and N
a size or a Python constant. Values that a loop computes repeatedly are bounded by tanh.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

TENSORS = "TVS"
HEAD = '''"""A module that random_modules.py made of seed {seed}."""

import torch
from torch import nn


class Module(nn.Module):
    flag = {flag}

    def __init__(self):
        super().__init__()
        torch.manual_seed({seed})
        self.linear = nn.Linear(3, 3)
        self.weight = nn.Parameter(torch.randn(3))
'''


@dataclass
class Scope:
    """The names that are bound at a place, by type, and the place."""

    names: dict[str, str] = field(default_factory=dict)
    in_loop: bool = False
    returns: bool = True
    """Whether a `return` of the module's results may stand here."""
    lists: dict[str, bool] = field(default_factory=dict)
    """Lists of V that may be appended to here."""
    dicts: tuple[str, ...] = ()
    depth: int = 0

    def of(self, kind: str) -> list[str]:
        return [name for name, each in self.names.items() if each == kind]

    def inner(self, **changes: object) -> Scope:
        made = Scope(dict(self.names), self.in_loop, self.returns, dict(self.lists), self.dicts, self.depth + 1)
        for name, value in changes.items():
            setattr(made, name, value)
        return made


class Generator:
    """Generates the source of one module."""

    def __init__(self, seed: int, statements: int = 9) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.count = 0
        self.left = self.random.randint(4, statements)
        self.helpers: list[str] = []
        self.attributes: list[str] = []

    def source(self) -> str:
        scope = Scope({"x": "T", "v": "V", "n": "N"})
        body = ["n = x.shape[0]"]
        for name in ("p", "q")[: self.random.randint(0, 2)]:
            body.append(f"self.{name} = {self.tensor(scope, 'V')} * 1.0")
            self.attributes.append(name)
        if self.chance(0.3):
            self.helper("V")
        if self.chance(0.3):
            body += self.nested(scope)
        body += self.block(scope)
        body.append(f"return {self.tensor(scope, 'V')}, {self.tensor(scope, 'S')}, {self.tensor(scope, 'T')}")
        text = HEAD.format(seed=self.seed, flag=self.random.choice(["True", "False"]))
        for each in self.helpers:
            text += "\n" + indented(each.splitlines(), 1)
        return text + "\n" + indented(["def forward(self, x, v):", *pushed(body)], 1)

    # --- choices

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def new(self, letter: str = "a") -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def constant(self) -> str:
        return self.random.choice(["0.5", "2.0", "-1.0", "0.25", "1.5", "3"])

    # --- expressions

    def tensor(self, scope: Scope, kind: str, depth: int = 0) -> str:
        names = scope.of(kind)
        if kind == "V":
            names += ["self.weight", *(f"self.{each}" for each in self.attributes)]
            names += [f'{each}["a"]' for each in scope.dicts]
        if names and (depth > 2 or self.chance(0.35)):
            return self.random.choice(names)
        if depth > 2:
            return "v.sum()" if "v" in scope.names and kind == "S" else self.fallback(kind)
        makers = {"T": self.rows, "V": self.three, "S": self.scalar}
        return makers[kind](scope, depth + 1)

    def fallback(self, kind: str) -> str:
        return {"S": "self.weight.sum()", "T": "(self.weight + torch.zeros(n, 1))"}[kind]

    def arithmetic(self, scope: Scope, kind: str, depth: int) -> str:
        one = self.tensor(scope, kind, depth)
        pick = self.random.randrange(6)
        if pick == 0:
            return f"torch.tanh({one})"
        if pick == 1:
            return f"({one} * {self.factor(scope, depth)})"
        if pick == 2:
            return f"{one}.abs()"
        if pick == 3 and depth < 3:
            return f"({one} if {self.test(scope, depth)} else {self.tensor(scope, kind, depth)})"
        other = self.tensor(scope, self.random.choice({"T": "TVS", "V": "VS", "S": "S"}[kind]), depth)
        return f"({one} {self.random.choice('+-*')} {other})"

    def factor(self, scope: Scope, depth: int) -> str:
        counts = [*scope.of("K"), *scope.of("N")]
        if counts and self.chance(0.4):
            return self.random.choice(counts)
        if self.chance(0.15):
            return f"float({self.tensor(scope, 'S', depth)})"
        return self.constant()

    def rows(self, scope: Scope, depth: int) -> str:
        pick = self.random.randrange(6)
        if pick == 0:
            return f"self.linear({self.tensor(scope, 'T', depth)})"
        if pick == 1:
            return f"torch.softmax({self.tensor(scope, 'T', depth)}, -1)"
        if pick == 2:
            return f"({self.tensor(scope, 'T', depth)} + {self.tensor(scope, 'V', depth)})"
        return self.arithmetic(scope, "T", depth)

    def three(self, scope: Scope, depth: int) -> str:
        pick = self.random.randrange(9)
        if pick == 0:
            return f"{self.tensor(scope, 'T', depth)}.mean(0)"
        if pick == 1:
            return f"{self.tensor(scope, 'T', depth)}[{self.random.choice(['0', '-1', 'n - 1', 'n // 2'])}]"
        if pick == 2:
            return f"self.linear({self.tensor(scope, 'V', depth)})"
        if pick == 3 and scope.of("K"):
            return f"{self.tensor(scope, 'T', depth)}[:{self.random.choice(scope.of('K'))}].sum(0)"
        if pick == 4 and depth < 3:
            cut = f"{self.tensor(scope, 'T', depth)}"
            return f"({cut}[:1] if {self.test(scope, depth)} else {cut}).sum(0)"
        if pick == 5 and self.helpers and depth < 3 and scope.names.get("self", "") != "helper":
            return f"self.h0({self.tensor(scope, 'V', depth)})"
        return self.arithmetic(scope, "V", depth)

    def scalar(self, scope: Scope, depth: int) -> str:
        pick = self.random.randrange(6)
        if pick < 2:
            return f"{self.tensor(scope, 'V', depth)}.{self.random.choice(['sum()', 'mean()', 'max()', 'min()'])}"
        if pick == 2:
            return f"{self.tensor(scope, 'T', depth)}.{self.random.choice(['sum()', 'mean()', 'max()'])}"
        if pick == 3:
            one, other = self.tensor(scope, "S", depth), self.tensor(scope, "S", depth)
            return f"{self.random.choice(['max', 'min'])}({one}, {other})"
        return self.arithmetic(scope, "S", depth)

    def test(self, scope: Scope, depth: int = 0) -> str:
        if depth < 2 and self.chance(0.3):
            word = self.random.choice(["and", "or"])
            one, other = self.test(scope, depth + 1), self.test(scope, depth + 1)
            return f"({one} {word} {other})"
        if depth < 3 and self.chance(0.12):
            return f"(not {self.test(scope, depth + 1)})"
        pick = self.random.randrange(10)
        sizes = [*scope.of("N"), *scope.of("K")]
        if pick == 0 and sizes:
            return f"{self.random.choice(sizes)} % 2 == {self.random.randrange(2)}"
        if pick == 1 and sizes:
            return f"{self.random.choice(sizes)} {self.random.choice(['>', '==', '<='])} {self.random.randrange(4)}"
        if pick == 2:
            return "self.flag"
        if pick == 3:
            return f"({self.tensor(scope, 'V', depth + 1)} > 0.1).{self.random.choice(['any()', 'all()'])}"
        if pick == 4:
            return f"-1.0 < {self.tensor(scope, 'S', depth + 1)} < 1.0"
        compare = self.random.choice(["> 0.05", "< -0.05", "> 1.0", "< 0.7"])
        return f"{self.tensor(scope, 'S', depth + 1)} {compare}"

    # --- statements

    def block(self, scope: Scope, most: int = 99) -> list[str]:
        lines: list[str] = []
        for _ in range(self.random.randint(1, 3) if scope.depth else 99):
            if self.left <= 0 or most <= 0:
                break
            self.left -= 1
            most -= 1
            lines += self.statement(scope)
        return lines or self.assign(scope)

    def statement(self, scope: Scope) -> list[str]:
        plain: list[Callable[[Scope], list[str]]] = [self.assign, self.augmented, self.count_of, self.in_place]
        deep: list[Callable[[Scope], list[str]]] = [
            self.branch, self.branch, self.branch, self.rows_loop, self.range_loop, self.while_loop, self.none_or_tensor,
            self.mode, self.listed, self.dictionary, self.walrus, self.checked, self.surrounded,
        ]  # fmt: skip
        if self.attributes:
            plain.append(self.attribute)
        if scope.lists:
            plain.append(self.append)
        if scope.depth > 2 or self.chance(0.4):
            return self.random.choice(plain)(scope)
        return self.random.choice(deep)(scope)

    def bounded(self, scope: Scope, kind: str) -> str:
        made = self.tensor(scope, kind)
        return f"torch.tanh({made})" if scope.in_loop else made

    def target(self, scope: Scope, kind: str) -> str:
        known = [name for name in scope.of(kind) if name not in ("x", "v", "row")]
        return self.random.choice(known) if known and self.chance(0.6) else self.new()

    def assign(self, scope: Scope) -> list[str]:
        kind = self.random.choice(TENSORS)
        value = self.bounded(scope, kind)
        name = self.target(scope, kind)
        scope.names[name] = kind
        return [f"{name} = {value}"]

    def augmented(self, scope: Scope) -> list[str]:
        names = [name for name in scope.names if scope.names[name] in "TV" and name.startswith("a")]
        if not names:
            return self.assign(scope)
        name = self.random.choice(names)
        return [f"{name} = {name} {self.random.choice('+-')} {self.bounded(scope, 'S')}"]

    def count_of(self, scope: Scope) -> list[str]:
        value = f"int(({self.tensor(scope, 'V')} > 0).sum())"
        if self.chance(0.3):
            value = f"({self.tensor(scope, 'V')} > 0.2).sum().item()"
        name = self.new("k")
        scope.names[name] = "K"
        return [f"{name} = {value}"]

    def in_place(self, scope: Scope) -> list[str]:
        kind = self.random.choice("TV")
        name = self.new()
        lines = [f"{name} = {self.bounded(scope, kind)}.clone()"]
        scope.names[name] = kind
        pick = self.random.randrange(4)
        if pick == 0:
            change = [f"{name}[{self.random.choice(['0', '-1'])}] = {self.tensor(scope, 'S' if kind == 'V' else 'V')}"]
        elif pick == 1:
            change = [f"{name}.mul_({self.constant()})"]
        elif pick == 2:
            change = [f"{name} += {self.tensor(scope, 'S')}"]
        else:
            change = [f"{name}[..., 1:] = {self.constant()}"]
        if self.chance(0.6):
            return [*lines, f"if {self.test(scope)}:", *pushed(change)]
        return lines + change

    def attribute(self, scope: Scope) -> list[str]:
        return [f"self.{self.random.choice(self.attributes)} = {self.bounded(scope, 'V')} * 1.0"]

    def append(self, scope: Scope) -> list[str]:
        return [f"{self.random.choice(list(scope.lists))}.append({self.bounded(scope, 'V')})"]

    def branch(self, scope: Scope) -> list[str]:
        lines = [f"if {self.test(scope)}:"]
        blocks = [scope.inner()]
        lines += pushed(self.arm(blocks[-1]))
        if self.chance(0.25):
            lines.append(f"elif {self.test(scope)}:")
            blocks.append(scope.inner())
            lines += pushed(self.arm(blocks[-1]))
        if self.chance(0.7):
            lines.append("else:")
            blocks.append(scope.inner())
            lines += pushed(self.arm(blocks[-1]))
            first = blocks[0].names
            for name, kind in first.items():
                if all(each.names.get(name) == kind for each in blocks):
                    scope.names[name] = kind
        return lines

    def arm(self, scope: Scope) -> list[str]:
        scope.lists = {name: True for name in scope.lists} if self.chance(0.5) else {}
        lines = self.block(scope, most=3)
        if scope.in_loop and self.chance(0.3):
            return [*lines, self.random.choice(["break", "continue"])]
        if scope.returns and self.chance(0.2):
            values = ", ".join(self.tensor(scope, kind) for kind in "VST")
            return [*lines, f"return {values}"]
        return lines

    def carries(self, scope: Scope, lines: list[str]) -> None:
        """Bind the names that a loop changes before the loop."""
        for kind in self.random.sample(TENSORS, self.random.randint(1, 2)):
            if not [name for name in scope.of(kind) if name.startswith("a")]:
                name = self.new()
                lines.append(f"{name} = {self.tensor(scope, kind)}")
                scope.names[name] = kind

    def loop(self, scope: Scope, head: str, bound: dict[str, str]) -> list[str]:
        inner = scope.inner(in_loop=True, lists={})
        inner.names.update(bound)
        inner.returns = scope.returns and self.chance(0.3)
        body = self.block(inner, most=3)
        lines = [head, *pushed(body)]
        if self.chance(0.1):
            lines += ["else:", *pushed(self.assign(scope.inner()))]
        return lines

    def rows_loop(self, scope: Scope) -> list[str]:
        lines: list[str] = []
        self.carries(scope, lines)
        rows = self.tensor(scope, "T")
        pick = self.random.randrange(5)
        if pick == 0:
            return lines + self.loop(scope, f"for i, row in enumerate({rows}):", {"row": "V", "i": "N"})
        if pick == 1:
            other = self.tensor(scope, "T")
            return lines + self.loop(scope, f"for row, other in zip({rows}, {other}):", {"row": "V", "other": "V"})
        if pick == 2:
            return lines + self.loop(scope, f"for row in reversed({rows}):", {"row": "V"})
        return lines + self.loop(scope, f"for row in {rows}:", {"row": "V"})

    def range_loop(self, scope: Scope) -> list[str]:
        lines: list[str] = []
        self.carries(scope, lines)
        bounds = ["n", "2", "n - 1", "1, n", *scope.of("K")]
        index = self.new("i")
        return lines + self.loop(scope, f"for {index} in range({self.random.choice(bounds)}):", {index: "N"})

    def while_loop(self, scope: Scope) -> list[str]:
        lines: list[str] = []
        self.carries(scope, lines)
        steps, value = self.new("w"), self.new()
        lines += [f"{steps} = 0", f"{value} = {self.tensor(scope, 'S')}"]
        scope.names[value] = "S"
        test = f"{value}.abs() > 0.2 and {steps} < {self.random.randint(1, 5)}"
        loop = self.loop(scope.inner(depth=scope.depth), f"while {test}:", {})
        first = pushed([f"{steps} += 1", f"{value} = {value} * 0.6"])
        scope.names[steps] = "K"
        return [*lines, loop[0], *first, *loop[1:]]

    def none_or_tensor(self, scope: Scope) -> list[str]:
        name, result = self.new("o"), self.new()
        lines = [f"{name} = None", f"if {self.test(scope)}:", f"    {name} = {self.bounded(scope, 'V')}"]
        base = self.tensor(scope, "V")
        scope.names[result] = "V"
        return [*lines, f"{result} = {base}", f"if {name} is not None:", f"    {result} = {result} + {name}"]

    def mode(self, scope: Scope) -> list[str]:
        name, result = self.new("m"), self.new()
        lines = [f'{name} = "double"', f"if {self.test(scope)}:", f'    {name} = "same"']
        base = self.bounded(scope, "V")
        scope.names[result] = "V"
        return [*lines, f"{result} = {base}", f'if {name} == "double":', f"    {result} = {result} * 2"]

    def listed(self, scope: Scope) -> list[str]:
        name, result = self.new("l"), self.new()
        pick = self.random.randrange(4)
        if pick == 0:
            made = f"torch.stack([row * {self.tensor(scope, 'S')} for row in {self.tensor(scope, 'T')}])"
            scope.names[result] = "T"
            return [f"{result} = {made}"]
        lines = [f"{name} = [{self.bounded(scope, 'V')}]"]
        if pick == 1:
            loop = [f"for row in {self.tensor(scope, 'T')}:"]
            inner = scope.inner(in_loop=True)
            inner.names["row"] = "V"
            lines += [*loop, f"    {name}.append({self.bounded(inner, 'V')})"]
        else:
            inner = scope.inner(lists={name: True}, returns=False, in_loop=False)
            inner.names = dict(scope.names)
            lines += self.block(inner, most=2)
            # Names that the block binds are also bound here.
            scope.names.update(inner.names)
            lines += [f"if {self.test(scope)}:", f"    {name}.append({self.bounded(scope, 'V')})"]
        scope.names[result] = "V"
        return [*lines, f"{result} = torch.stack({name}).{self.random.choice(['sum(0)', 'mean(0)', 'max(0).values'])}"]

    def dictionary(self, scope: Scope) -> list[str]:
        name = self.new("d")
        lines = [f'{name} = {{"a": {self.bounded(scope, "V")}}}']
        scope.dicts = (*scope.dicts, name)
        return [*lines, f"if {self.test(scope)}:", f'    {name}["a"] = {self.bounded(scope, "V")}']

    def walrus(self, scope: Scope) -> list[str]:
        name = self.new()
        head = f"if ({name} := {self.bounded(scope, 'S')}) > 0.1:"
        scope.names[name] = "S"
        return [head, *pushed(self.arm(scope.inner()))]

    def checked(self, scope: Scope) -> list[str]:
        if self.chance(0.5):
            return [f"assert {self.tensor(scope, 'S')}.abs() >= 0"]
        return [f"if torch.isnan({self.tensor(scope, 'S')}):", '    raise ValueError("not a number")']

    def surrounded(self, scope: Scope) -> list[str]:
        inner = scope.inner(depth=scope.depth)
        body = pushed(self.block(inner, most=2))
        scope.names.update(inner.names)
        if self.chance(0.5):
            return ["with torch.no_grad():", *body]
        return ["try:", *body, "finally:", "    pass"]

    # --- functions

    def helper(self, kind: str) -> None:
        scope = Scope({"r": kind, "self": "helper"}, returns=False)
        attributes, self.attributes = self.attributes, []
        body = self.block(scope, most=2)
        if self.chance(0.5):
            body += [f"if {self.test(scope)}:", f"    return {self.tensor(scope, kind)}"]
        body.append(f"return {self.tensor(scope, kind)}")
        self.attributes = attributes
        self.helpers.append("\n".join(["def h0(self, r):", *pushed(["n = 2", *body])]))

    def nested(self, scope: Scope) -> list[str]:
        total, name = self.new(), self.new("f")
        scope.names[total] = "V"
        inner = Scope({"u": "V"}, returns=False)
        body = self.block(inner, most=1)
        change = f"    {total} = {total} + {self.tensor(inner, 'V')}"
        lines = [
            f"{total} = {self.tensor(Scope({'v': 'V', 'x': 'T'}), 'V')}",
            f"def {name}(u):",
            f"    nonlocal {total}",
        ]
        lines += pushed(body) + pushed([f"if {self.test(inner)}:", change])
        return [*lines, f"{name}(v)", f"{name}(x.mean(0))"]


def pushed(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def indented(lines: list[str], levels: int) -> str:
    return "\n".join("    " * levels + line for line in lines) + "\n"


def source_of(seed: int) -> str:
    return Generator(seed).source()
