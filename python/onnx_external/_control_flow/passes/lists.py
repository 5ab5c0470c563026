"""Makes iterations of rewritten loops only append to lists, and not read them.

`outs = outs + [y]` becomes `outs.append(y)`, applied to a copy that is made before the loop. If an
iteration reads the item that the previous one appended (`outs[-1]`), an additional name carries
that item.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from onnx_external._control_flow.passes.building import at, name, statement
from onnx_external._control_flow.passes.choice import Choice
from onnx_external._control_flow.passes.names import own_nodes, stored
from onnx_external._control_flow.passes.returns import inner_blocks

_Loop = ast.For | ast.While


def grown(choice: Choice, body: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield the source texts of the lists that a rewritten loop appends to."""
    for loop in (each for node in body for each in ast.walk(node)):
        if not isinstance(loop, _Loop) or not choice.must(loop):
            continue
        for each in ast.walk(loop):
            if isinstance(each, ast.AugAssign) and isinstance(each.op, ast.Add):
                yield ast.unparse(each.target)
            elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
                if each.func.attr in ("append", "extend", "insert"):
                    yield ast.unparse(each.func.value)


def only_added_to(choice: Choice, body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return statements in which rewritten loops only append to lists."""
    found: list[ast.stmt] = []
    for node in body:
        for block in inner_blocks(node):
            block[:] = only_added_to(choice, block)
        if isinstance(node, _Loop) and choice.must(node):
            for word in dict.fromkeys(stored(node.body)):
                found += _appended(node, word)
            for word in sorted(set(grown(choice, [node]))):
                found += _carried(choice, node, word)
        found.append(node)
    return found


def _appended(loop: _Loop, word: str) -> list[ast.stmt]:
    """Replace bindings of a name that add to a list with calls; return a copy to make before."""
    made: dict[int, list[ast.stmt]] = {}
    copies = False
    for each in (one for node in loop.body for one in own_nodes(node)):
        calls = _calls(each, word) if isinstance(each, ast.Assign | ast.AugAssign) else None
        if calls is not None:
            made[id(each)] = calls
            copies = copies or isinstance(each, ast.Assign)
    if not any(made.values()) or len(made) != _bindings(loop, word):
        return []
    _replace(loop.body, made)
    return [statement(loop, f"{word} = [*{word}]")] if copies else []


def _bindings(loop: _Loop, word: str) -> int:
    nodes = [loop.target, *loop.body] if isinstance(loop, ast.For) else loop.body
    names = (each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name))
    return sum(each.id == word and not isinstance(each.ctx, ast.Load) for each in names)


def _calls(node: ast.Assign | ast.AugAssign, word: str) -> list[ast.stmt] | None:
    """Return calls for `word = word + [item]`, `word += [item]` and the like; otherwise None."""
    value = node.value
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if len(targets) != 1 or not _is_name(targets[0], word):
        return None
    if isinstance(node, ast.AugAssign):
        is_list = isinstance(node.op, ast.Add) and isinstance(value, ast.List)
        items = [at(ast.Starred(name(node, word), ast.Load()), node), *_elements(value)]
        items = items if is_list else []
    elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        items = [*_elements(value.left), *_elements(value.right)]
    else:
        items = _elements(value)
    own = [n for n, e in enumerate(items) if isinstance(e, ast.Starred) and _is_name(e.value, word)]
    if len(own) != 1 or any(isinstance(e, ast.Starred) for n, e in enumerate(items) if n != own[0]):
        return None
    front, back = items[: own[0]][::-1], items[own[0] + 1 :]
    if front and back:
        return None
    text = f"{word}.insert(0, __item)" if front else f"{word}.append(__item)"
    return [statement(node, text, __item=each) for each in front or back]


def _elements(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.List) else [at(ast.Starred(node, ast.Load()), node)]


def _is_name(node: ast.AST, word: str) -> bool:
    return isinstance(node, ast.Name) and node.id == word


def _replace(body: list[ast.stmt], made: dict[int, list[ast.stmt]]) -> None:
    for node in body:
        for block in inner_blocks(node):
            _replace(block, made)
    body[:] = [one for each in body for one in made.get(id(each), [each])] or [
        at(ast.Pass(), body[0])
    ]


# --- additions of earlier iterations


def _carried(choice: Choice, loop: _Loop, word: str) -> list[ast.stmt]:
    """Carry the last item in a name if iterations read nothing else; return its first binding."""
    nodes = [each for node in loop.body for each in ast.walk(node)]
    added = {id(each): call for each in nodes if (call := _addition(each, word)) is not None}
    ways = {ast.unparse(call.func) for call in added.values()}
    end = "-1" if ways == {f"{word}.append"} else "0"
    read = {
        id(each)
        for each in nodes
        if isinstance(each, ast.Subscript)
        and isinstance(each.ctx, ast.Load)
        and ast.unparse(each) == f"{word}[{end}]"
    }
    mentioned = sum(_is_name(each, word) for each in nodes)
    if len(ways) != 1 or not read or mentioned != len(added) + len(read):
        return []
    last = choice.fresh()("last")
    for each in loop.body:
        _Reading(read, last).visit(each)
    made: dict[int, list[ast.stmt]] = {}
    for node in nodes:
        if id(node) in added and isinstance(node, ast.Expr):
            call = added[id(node)]
            bound = statement(node, f"{last} = __item", __item=call.args[-1])
            call.args[-1] = name(node, last)
            made[id(node)] = [bound, node]
    _replace(loop.body, made)
    return [statement(loop, f"{last} = __oe_rt__.end_of({word}, {end})")]


def _addition(node: ast.AST, word: str) -> ast.Call | None:
    """Return the call in the statement `word.append(item)` or `word.insert(0, item)`; else None."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or call.keywords:
        return None
    what, front = ast.unparse(call.func), [ast.unparse(each) for each in call.args[:-1]]
    return call if (what, front) in ((f"{word}.append", []), (f"{word}.insert", ["0"])) else None


class _Reading(ast.NodeTransformer):
    def __init__(self, places: set[int], word: str) -> None:
        self.places, self.word = places, word

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if id(node) in self.places:
            return name(node, self.word)
        self.generic_visit(node)
        return node
