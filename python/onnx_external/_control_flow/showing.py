"""Shows rewritten code in a form that a person would write: as diffs, or a folder of diffs.

Unchanged statements keep their source text and comments. Rewritten statements show the runtime as
`rt`, without the keys that are passed to it.
"""

from __future__ import annotations

import ast
import copy
import difflib
import linecache
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnx_external._control_flow.finding.functions import Function, FunctionNode
from onnx_external._control_flow.finding.observing import Observation, Seen
from onnx_external._control_flow.passes.building import copy_of, first_line

_KEYED = frozenset(
    "if_ ifexp for_ while_ comprehend comprehend_if raise_ looked_up chosen decided".split()
)
"""The functions of the runtime whose last argument is a key."""


@dataclass(frozen=True)
class Change:
    """The source of one function before and after rewriting."""

    name: str
    path: str
    line: int
    count: int
    """The number of rewritten conditions and loops."""
    before: str
    after: str

    @property
    def diff(self) -> str:
        """A unified diff of the function before and after."""
        place = f"{os.path.basename(self.path)}:{self.line} {self.name}"
        lines = difflib.unified_diff(
            self.before.splitlines(),
            self.after.splitlines(),
            place,
            f"{place} (rewritten)",
            lineterm="",
        )
        return "".join(f"{each}\n" for each in lines)


def shown(function: Function, tree: FunctionNode, count: int) -> Change:
    """Return the source of a rewritten function, in the form shown to people.

    Args:
        function: the original function.
        tree: the rewritten definition of the function.
        count: the number of rewritten conditions and loops.
    """
    lines = [each.rstrip("\n") for each in linecache.getlines(function.path)]
    node, source = function.node, _Source(lines, function.node)
    first, last = first_line(node), node.end_lineno or 0
    if isinstance(tree, ast.Lambda):
        before = [ast.get_source_segment("\n".join(lines), node) or ast.unparse(node)]
        after = [source.unparsed(tree)]
    else:
        before = _dedented(lines[first - 1 : last], node.col_offset)
        after = source.statement(tree, 0)
    texts = ("".join(f"{each}\n" for each in part) for part in (before, after))
    return Change(function.name, function.path, first, count, *texts)


def dump(changes: Iterable[Change], folder: str | os.PathLike[str]) -> list[Path]:
    """Write a diff and the rewritten source of each function to a folder; return the files."""
    where = Path(folder)
    where.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    taken: set[str] = set()
    for each in changes:
        stem = Path(each.path).stem
        name = re.sub(r"[^\w.-]+", "_", f"{stem}.{each.name}").strip("._") or "function"
        name, number = name[:120], 1
        while (name if number == 1 else f"{name}-{number}").lower() in taken:
            number += 1
        name = name if number == 1 else f"{name}-{number}"
        taken.add(name.lower())
        for suffix, text in ((".diff", each.diff), (".py", each.after)):
            file = where / f"{name}{suffix}"
            file.write_text(text, encoding="utf-8")
            written.append(file)
    return written


def untaken(observed: Observation) -> list[str]:
    """Return a line for each outcome of a rewritten condition or loop that no input set had."""
    found = []
    for key in sorted(observed.chosen & observed.seen.keys(), key=_in_order):
        seen = observed.seen[key]
        found += [f"{_line(key)}: {_words(seen, each)}" for each in seen.untaken if seen.sets]
    return found


def _in_order(key: str) -> tuple[str, int, int]:
    file, line, column = key.rsplit(":", 2)
    return file, int(line), int(column)


def _line(key: str) -> str:
    return key.rsplit(":", 1)[0]


def _words(seen: Seen, outcome: object) -> str:
    if seen.kind in ("for", "comprehension"):
        times = ("zero times", "once", "several times")[int(str(outcome))]
        return f"no input set runs this `{seen.kind}` {times}"
    return f"no input set makes this condition {outcome} ({seen.kind})"


def _dedented(lines: Sequence[str], width: int) -> list[str]:
    return [each[width:] if not each[:width].strip() else each.lstrip() for each in lines]


_Place = tuple[str, int, int, int, int]


def _place(node: ast.AST) -> _Place:
    places = ("lineno", "col_offset", "end_lineno", "end_col_offset")
    line, column, end, last = (getattr(node, each, None) or 0 for each in places)
    return type(node).__name__, line, column, end, last


class _Source:
    """Writes a rewritten definition, keeping the original text of unchanged parts."""

    def __init__(self, lines: list[str], original: FunctionNode) -> None:
        self.lines = lines
        statements = [each for each in ast.walk(original) if isinstance(each, ast.stmt)]
        self.known = {_place(each): each for each in statements}
        self.starts = {(each.lineno, each.col_offset): each for each in reversed(statements)}
        self.commented: set[int] = set()

    def unparsed(self, node: ast.AST) -> str:
        """Return the source text of a rewritten node."""
        return ast.unparse(ast.fix_missing_locations(_Words().visit(copy_of(node))))

    def block(self, body: Sequence[ast.stmt], indent: int) -> list[str]:
        """Return the lines of several statements."""
        return [line for each in body for line in self.statement(each, indent)]

    def statement(self, node: ast.stmt, indent: int) -> list[str]:
        """Return the lines of a statement, preceded by the comments before it."""
        comments = self._comments(node, indent)
        same = self._same(node)
        if same is not None:
            text = self._text(same, indent)
            if text is not None:
                return [*comments, *text]
        if hasattr(node, "body") or isinstance(node, ast.Match):
            return [*comments, *self._compound(node, indent)]
        return [*comments, *self._indented(self.unparsed(node).splitlines(), indent)]

    def _same(self, node: ast.stmt) -> ast.stmt | None:
        """Return the original statement if the node is still equal to it; otherwise None."""
        known = self.known.get(_place(node))
        return known if known is not None and ast.dump(known) == ast.dump(node) else None

    def _indented(self, lines: Iterable[str], indent: int) -> list[str]:
        return [f"{' ' * indent}{each}" if each else "" for each in lines]

    def _text(self, node: ast.stmt, indent: int) -> list[str] | None:
        """Return the source of a statement; None if it does not have source lines of its own."""
        first, last = first_line(node), node.end_lineno or node.lineno
        front = self.lines[first - 1][: node.col_offset]
        back = self.lines[last - 1].encode()[node.end_col_offset or 0 :].decode().strip()
        if front.strip() or (back and not back.startswith("#")):
            return None
        if indent != node.col_offset and any(
            isinstance(each, ast.Constant | ast.JoinedStr)
            and getattr(each, "end_lineno", 0) != getattr(each, "lineno", 0)
            for each in ast.walk(node)
        ):
            return None  # a text of several lines must not be moved
        return self._indented(_dedented(self.lines[first - 1 : last], node.col_offset), indent)

    def _comments(self, node: ast.stmt, indent: int) -> list[str]:
        """Return the comments and empty lines before a statement the first time it is written."""
        start = self.starts.get((node.lineno, node.col_offset))
        if start is None:
            return []
        found: list[str] = []
        line = first_line(start) - 1
        while line > 0 and self.lines[line - 1].strip()[:1] in ("", "#"):
            if line in self.commented:
                break
            self.commented.add(line)
            found.insert(0, self.lines[line - 1].strip())
            line -= 1
        if isinstance(self.known.get(_place(node)), ast.FunctionDef) and indent == 0:
            return []  # of the definition itself
        return self._indented(found, indent)

    def _compound(self, node: ast.stmt, indent: int) -> list[str]:
        """Return the lines of a statement with blocks; an unchanged head keeps its text."""
        if isinstance(node, ast.Match):
            found = self._indented([f"match {self.unparsed(node.subject)}:"], indent)
            for case in node.cases:
                guard = f" if {self.unparsed(case.guard)}" if case.guard else ""
                found += self._indented([f"case {ast.unparse(case.pattern)}{guard}:"], indent + 4)
                found += self.block(case.body, indent + 8)
            return found
        found = self._head(node, indent)
        found += self.block(getattr(node, "body", []), indent + 4)
        for each in getattr(node, "handlers", ()):
            head = self.unparsed(_emptied(each)).splitlines()[:-1]
            found += self._indented(head, indent)
            found += self.block(each.body, indent + 4)
        for field, word in (("orelse", "else"), ("finalbody", "finally")):
            block = getattr(node, field, [])
            if field == "orelse" and isinstance(node, ast.If) and self._is_elif(block):
                found += self._elif(block[0], indent)
            elif block:
                found += self._indented([f"{word}:"], indent)
                found += self.block(block, indent + 4)
        return found

    def _is_elif(self, block: Sequence[ast.stmt]) -> bool:
        if len(block) != 1 or not isinstance(block[0], ast.If):
            return False
        return self.lines[block[0].lineno - 1][block[0].col_offset :].startswith("elif")

    def _elif(self, node: ast.stmt, indent: int) -> list[str]:
        lines = self.statement(node, indent)
        at = next(place for place, each in enumerate(lines) if each.strip()[:2] in ("if", "el"))
        lines[at] = re.sub(r"^(\s*)if\b", r"\1elif", lines[at])
        return lines

    def _head(self, node: ast.stmt, indent: int) -> list[str]:
        known = self.known.get(_place(node))
        if known is not None and ast.dump(_emptied(known)) == ast.dump(_emptied(node)):
            first = known.body[0]  # type: ignore[attr-defined]
            last = first_line(first) - 1
            while last > first_line(known) and self.lines[last - 1].strip()[:1] in ("", "#"):
                last -= 1
            if first_line(known) <= last and not self.lines[last][: first.col_offset].strip():
                lines = self.lines[first_line(known) - 1 : last]
                return self._indented(_dedented(lines, known.col_offset), indent)
        if isinstance(node, ast.Try):
            return self._indented(["try:"], indent)
        return self._indented(self.unparsed(_emptied(node)).splitlines()[:-1], indent)


def _emptied(node: ast.AST) -> ast.AST:
    """Return a statement with `pass` in place of its blocks."""
    made = copy.copy(node)
    for field in ("orelse", "finalbody", "handlers"):
        if hasattr(made, field):
            setattr(made, field, [])
    made.body = [ast.Pass()]  # type: ignore[attr-defined]
    if type(made).__name__ in ("Try", "TryStar"):
        made.finalbody = [ast.Pass()]  # type: ignore[attr-defined]
    return made


class _Words(ast.NodeTransformer):
    """Replaces the runtime's name with `rt`, and its calls with calls without keys."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id == "__oe_rt__":
            node.id = "rt"
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        function = node.func
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            if function.value.id == "__oe_rt__":
                if function.attr in _KEYED:
                    node.args = node.args[:-1]
                    if function.attr == "if_" and not getattr(node.args[-1], "elts", ["names"]):
                        node.args = node.args[:-1]
                elif function.attr == "taken":
                    del node.args[1]
                elif function.attr == "assert_":
                    message = node.args[2]
                    empty = isinstance(message, ast.Constant) and message.value is None
                    node.args = [node.args[0], *([] if empty else [message])]
        self.generic_visit(node)
        return node
