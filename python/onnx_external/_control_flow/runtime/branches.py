"""Applies torch.cond to two functions without arguments, which may read and write anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.utils import _pytree as pytree

from onnx_external._base.errors import UnmergeableError
from onnx_external._control_flow.runtime.collected import Collected
from onnx_external._control_flow.runtime.lifting import Lift, Run, apart, missing_sizes, probe, run
from onnx_external._control_flow.runtime.merging import Part, part_of
from onnx_external._control_flow.runtime.places import CACHES, Places, at_key, put_key, starts_with
from onnx_external._control_flow.runtime.sizes import is_free
from onnx_external._control_flow.runtime.state import State
from onnx_external._control_flow.values import UNDEFINED, is_number
from onnx_external._tracing.assuming import assuming
from onnx_external._tracing.empty_sizes import is_only_tried

_cond = torch.ops.higher_order.cond
Function: TypeAlias = Callable[[], Any]


def branched(
    state: State,
    test: Any,
    functions: tuple[Function, Function],
    key: str,
    names: tuple[str, ...],
    *,
    promotes: bool = True,
) -> Any:
    """Return the result of one of two functions, chosen by a condition.

    Args:
        state: the state of the runtime.
        test: a tensor or a SymBool.
        functions: the branches; the first branch is taken if the condition is true.
        key: the key of the condition.
        names: the names of the values in the tuples that the functions return; empty if they return
            single values.
        promotes: True if an int and a float, as the whole results, may be merged into a float.
    """
    places = Places(functions)
    runs = []
    for function, outcome in zip(functions, (True, False), strict=True):
        with assuming(test, outcome):
            runs.append(probe(state, function, places))
    merged = _Merged(state, places, test, (runs[0], runs[1]), key, names, promotes)
    lifted = {**runs[0].lifted, **runs[1].lifted, **merged.originals()}
    mutated = list(dict.fromkeys([*runs[0].mutated, *runs[1].mutated]))
    ids = list(lifted)

    def branch(function: Function) -> Callable[..., tuple[torch.Tensor, ...]]:
        def traced(*given: Any) -> tuple[torch.Tensor, ...]:
            # Tensors that are written in place are cloned first.
            pairs = zip(ids, given, strict=False)
            table = {one: each.clone() if one in mutated else each for one, each in pairs}
            with state.branch(table):
                lift = Lift(state, table)
                done = run(function, lift, places)
                out = [lift.stand_in(each) for each in merged.leaves(done, lift)]
                out += [table[one].clone() for one in mutated]
                return tuple(out or [torch.zeros(())])

        return traced

    def tried(done: Run) -> Callable[..., tuple[torch.Tensor, ...]]:
        def results_of(*_: Any) -> tuple[torch.Tensor, ...]:
            out = [*merged.leaves(done, Lift(state, {}))]
            out += [lifted[one].clone() for one in mutated]
            return tuple(out or [torch.zeros(())])

        return results_of

    def chosen(then: Any, other: Any, sizes: Sequence[torch.SymInt] = ()) -> Any:
        operands = apart(state.resolved(each) for each in lifted.values())
        return _cond(predicate(state.resolved(test)), then, other, (*operands, *sizes))

    def call(sizes: list[torch.SymInt]) -> Any:
        return chosen(branch(functions[0]), branch(functions[1]), sizes)

    def types() -> Any:
        return chosen(tried(runs[0]), tried(runs[1]))

    results = iter(list(operator(call, types, places, list(lifted.values()))))
    value = merged.rebuilt(results)
    for one in mutated:
        lifted[one].copy_(next(results))
    return value


def operator(
    call: Callable[[list[torch.SymInt]], Any],
    types: Callable[[], Any],
    places: Places,
    operands: list[Any],
) -> Any:
    """Call an operator, with additional operands for sizes in branches that no operand has.

    Not all conversions in torch accept sizes as operands, so sizes are passed only if necessary.

    Args:
        call: calls the operator with the given sizes as additional operands.
        types: returns values with the types of the results. It is called instead in code that is
            only tried, because running branches and iterations again would double the time with
            each level of nesting.
        places: the objects that the branches can see.
        operands: the operands of the operator.
    """
    if is_only_tried():
        return types()
    try:
        return call([])
    except (AssertionError, RuntimeError) as error:
        sizes = missing_sizes(places, operands)
        if not any(each in str(error) for each in _UNKNOWN_SIZE) or not sizes:
            raise
        return call(sizes)


_UNKNOWN_SIZE = ("not tracked with proxy", "a.node.constant should not be None")
"""torch's messages if a branch, or an operator in it, uses a size that is not available there."""


def predicate(value: Any) -> Any:
    """Return a condition in the form that torch.cond expects: a 0-d bool tensor or a SymBool."""
    if isinstance(value, torch.Tensor):
        return (value if value.dtype == torch.bool else value != 0).reshape(())
    return value != 0 if isinstance(value, (torch.SymInt, torch.SymFloat)) else value


@dataclass
class _Merged:
    """The results of two branches, and their writes to objects, merged into one."""

    state: State
    places: Places
    test: Any
    runs: tuple[Run, Run]
    key: str
    names: tuple[str, ...]
    promotes: bool

    def __post_init__(self) -> None:
        self.part = self._value()
        self.written: list[tuple[int, Any, Part]] = []
        self.grown: list[tuple[int, list[Part]]] = []
        for number in dict.fromkeys([*self.runs[0].changes, *self.runs[1].changes]):
            self._place(number, [self._content(number, each) for each in self.runs])

    def originals(self) -> dict[int, torch.Tensor]:
        """Return the tensors in objects that only one of the branches writes to."""
        values = [at_key(self.places.all[n].before, key) for n, key, _ in self.written]
        tensors = [e for e in pytree.tree_leaves(values) if isinstance(e, torch.Tensor)]
        return {self.state.key(each): each for each in tensors}

    def leaves(self, done: Run, lift: Lift) -> Iterator[torch.Tensor]:
        """Return the tensors that are the results of one branch."""
        yield from self.part.leaves(_in(lift, done.value))
        for number, key, part in self.written:
            yield from part.leaves(_in(lift, at_key(self._content(number, done), key)))
        for number, parts in self.grown:
            tail = self._content(number, done)[len(self.places.all[number].before) :]
            for place, part in enumerate(parts):
                there = place < len(tail)
                yield from part.leaves(_in(lift, tail[place]) if there else UNDEFINED)
                yield torch.full((), there, dtype=torch.bool)

    def rebuilt(self, results: Iterator[torch.Tensor]) -> Any:
        """Write to the objects, and return the merged value."""
        value = self.part.rebuilt(results, self.state)
        contents: dict[int, Any] = {}
        for number, key, part in self.written:
            content = contents.setdefault(number, self.places.all[number].read())
            put_key(content, key, part.rebuilt(results, self.state))
        for number, parts in self.grown:
            content = contents.setdefault(number, self.places.all[number].read())
            for part in parts:
                item, there = part.rebuilt(results, self.state), next(results).reshape(1)
                content.append(_kept(item, there))
        for number, content in contents.items():
            self.places.all[number].assign(content)
        return value

    def _value(self) -> Part:
        names = self.names
        one, other = (each.value for each in self.runs)
        if names and isinstance(one, tuple) and len(one) == len(names) == len(other):
            pairs = zip(one, other, names, strict=True)
            parts = [self._part(a, b, name) for a, b, name in pairs]
            return Part(parts=parts, spec=pytree.tree_structure((0,) * len(one)))
        if not self.promotes and is_number(one) and is_number(other):
            self._check_numbers(one, other)
        return self._part(one, other, "the result")

    def _part(self, one: Any, other: Any, name: str, *, unset: bool = True) -> Part:
        return part_of(one, other, self.key, name, unset=unset, test=self.test)

    def _check_numbers(self, one: Any, other: Any) -> None:
        kinds = {_kind(one), _kind(other)}
        if len(kinds) > 1:
            raise UnmergeableError(
                f"the result is {' in one branch and '.join(sorted(kinds))} in the other, but has "
                "one type in a graph: write both as floats or both as ints",
                self.key,
            )

    def _content(self, number: int, done: Run) -> Any:
        return done.changes.get(number, self.places.all[number].before)

    def _place(self, number: int, contents: list[Any]) -> None:
        place = self.places.all[number]
        one, other = contents
        if isinstance(one, set):
            if one != other:
                raise UnmergeableError(f"{place.label} is a different set in each branch", self.key)
            self.written.append((number, None, Part(constant=(one,))))
        elif isinstance(one, list):
            self._list(number, one, other)
        else:
            for key in [each for each in dict.fromkeys([*one, *other]) if each not in CACHES]:
                values = [each.get(key, UNDEFINED) for each in contents]
                if any(each is not place.before.get(key, UNDEFINED) for each in values):
                    name, unset = place.named(key), place.is_variable
                    part = self._part(values[0], values[1], name, unset=unset)
                    self.written.append((number, key, part))

    def _list(self, number: int, one: list[Any], other: list[Any]) -> None:
        place = self.places.all[number]
        if len(one) == len(other):
            for at, (a, b) in enumerate(zip(one, other, strict=True)):
                part = self._part(a, b, place.named(at), unset=False)
                self.written.append((number, at, part))
            return
        many = len(place.before)
        tails = [one[many:], other[many:]]
        appended = all(starts_with(each, place.before) for each in (one, other))
        if not (appended and place.may_grow) or not (
            self.state.loops or self.key in self.state.absorbed
        ):
            raise UnmergeableError(
                f"{place.label} has {len(one)} items after one branch and {len(other)} after the "
                "other",
                self.key,
            )
        self.grown.append((number, list(self._items(place.label, tails))))

    def _items(self, label: str, tails: list[list[Any]]) -> Iterator[Part]:
        for at in range(max(map(len, tails))):
            values = [each[at] if at < len(each) else UNDEFINED for each in tails]
            for each in values:
                if isinstance(each, torch.Tensor) and any(map(is_free, each.shape)):
                    raise UnmergeableError(
                        f"a branch appends rows of different lengths to {label}", self.key
                    )
            yield self._part(values[0], values[1], f"an item of {label}")


def _kept(item: Any, there: torch.Tensor) -> Collected:
    """Return an item that a branch may append, with a flag that is true if it did."""
    if not isinstance(item, Collected):
        return Collected(item.unsqueeze(0), there)
    kept = there.expand(item.values.shape[0]) if item.kept is None else item.kept & there
    return Collected(item.values, kept, item.lengths)


def _kind(value: Any) -> str:
    """Return the name of a number's type."""
    if isinstance(value, (bool, torch.SymBool)):
        return "bool"
    return "int" if isinstance(value, (int, torch.SymInt)) else "float"


def _in(lift: Lift, value: Any) -> Any:
    """Return the value with operands in place of tensors from outside the branch."""
    if isinstance(value, torch.Tensor):
        return lift.stand_in(value)
    return pytree.tree_map(lift.stand_in, value)
