"""Proves that a deep model computes, layer by layer, the same as a shallow model.

If the representative layers in the shallow model's record are repeated, the result must equal the
deep model's record: the same operators with the same operands. The operands in a layer come from
the layer itself, from the layer before, from values that are computed once for all layers, or from
the model's inputs and weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

from .kinds import Stack
from .recording import Leaf, Op, Place, Record, Segment, Unprovable


class Slot(NamedTuple):
    """The input or output of the shallow model that corresponds to one of the deep model."""

    number: int
    """The index of the input or output in the shallow model."""
    segment: Segment
    """The layer of the deep model that it belongs to; `stack` is -1 if there is no such layer."""


@dataclass
class Proof:
    """The corresponding inputs and outputs, by their indices in the deep model."""

    inputs: dict[int, Slot] = field(default_factory=dict)
    outputs: dict[int, Slot] = field(default_factory=dict)
    given: list[bool] = field(default_factory=list)
    """True for each input of the deep model that is a tensor; the indices above count only
    tensors."""
    shallow_given: list[bool] = field(default_factory=list)
    """True for each input of the shallow model that is a tensor."""

    def match_unused(
        self, stacks: Sequence[Stack], deep: Sequence[str], shallow: Sequence[str]
    ) -> None:
        """Match unused inputs by the layer numbers in their names.

        Args:
            stacks: the lists of layers.
            deep: the names of the deep model's inputs.
            shallow: the names of the shallow model's inputs.
        """
        for number, name in enumerate(deep):
            if number in self.inputs:
                continue
            for segment in [slot.segment for slot in self.inputs.values()]:
                if segment.stack < 0:
                    continue
                stood = stacks[segment.stack].stand_in(segment.layer)
                old = re.sub(rf"(?<!\d){segment.layer}(?!\d)", str(stood), name)
                layers = [int(each) for each in re.findall(r"\d+", name)]
                if layers == [segment.layer] and old in shallow:
                    self.inputs[number] = Slot(shallow.index(old), segment)
                    break


NOWHERE = Segment(-1, 0)


def proved(stacks: Sequence[Stack], deep: Record, shallow: Record) -> Proof:
    """Prove that a shallow model represents a deep model, by comparing their records.

    Args:
        stacks: the lists of layers, in the order in which segments number them.
        deep: the record of the deep model.
        shallow: the record of the shallow model, which has only the kept layers.

    Raises:
        Unprovable: the shallow model does not represent the deep model.
    """
    return _Comparing(stacks, deep, shallow).proof()


class _Comparing:
    def __init__(self, stacks: Sequence[Stack], deep: Record, shallow: Record) -> None:
        self._stacks, self._deep, self._shallow = stacks, deep, shallow
        self._visits = self._matched_visits()
        self._deep_visits = {
            each: place for place, each in enumerate(deep.segments) if each.stack >= 0
        }
        self._passing = _passing(shallow)
        self._proof = Proof(given=deep.given, shallow_given=shallow.given)

    def proof(self) -> Proof:
        for visit, other in enumerate(self._visits):
            self._compare(visit, other)
        self._match_outputs()
        self._check_inputs()
        return self._proof

    def _matched_visits(self) -> list[int]:
        """Return, for each segment of the deep model, its counterpart in the shallow model."""
        wanted = list(self._expected())
        found = [segment for segment, _ in wanted]
        if found != self._deep.segments:
            raise Unprovable(self._order(found))
        return [visit for _, visit in wanted]

    def _expected(self) -> Iterator[tuple[Segment, int]]:
        """Yield the segments expected in the deep model: the shallow ones, with layers repeated."""
        seen: set[Segment] = set()
        for visit, segment in enumerate(self._shallow.segments):
            if segment.stack < 0:
                yield segment, visit
                continue
            if segment in seen:
                raise Unprovable(f"{self._name(segment)} runs more than once")
            seen.add(segment)
            if segment.layer == 0:
                yield from self._repeated(segment.stack, visit)

    def _repeated(self, stack: int, first: int) -> Iterator[tuple[Segment, int]]:
        kept = self._stacks[stack].kept
        there = self._shallow.segments[first : first + len(kept)]
        if there != [Segment(stack, place) for place in range(len(kept))]:
            raise Unprovable(f"something runs between the layers of {self._stacks[stack].name}")
        for layer in range(len(self._stacks[stack].kinds)):
            yield Segment(stack, layer), first + self._stacks[stack].stand_in(layer)

    def _order(self, wanted: Sequence[Segment]) -> str:
        for has, want in zip(self._deep.segments, wanted, strict=False):
            if has != want:
                after = has if want.stack < 0 else want
                return f"its layers do not run one after the other: {self._name(after)}"
        return "not all of its layers run"

    def _name(self, segment: Segment) -> str:
        if segment.stack < 0:
            return "the code outside the layers"
        return f"{self._stacks[segment.stack].name}.{segment.layer}"

    # --- operators

    def _compare(self, visit: int, other: int) -> None:
        mine, its = self._deep.ops[visit], self._shallow.ops[other]
        for one, two in zip(mine, its, strict=False):
            self._same(one, two, visit, other)
        if len(mine) != len(its):
            raise self._differs(
                visit, (mine if len(mine) > len(its) else its)[min(len(mine), len(its))]
            )

    def _differs(self, visit: int, op: Op) -> Unprovable:
        name = self._name(self._deep.segments[visit])
        return Unprovable(f"{name} differs from the layers of a shallower model: {op.name}")

    def _same(self, one: Op, two: Op, visit: int, other: int) -> None:
        scope = self._lifted_name(two.scope, visit, other)
        given = self._lifted(two.given, visit, other)
        if one.name != two.name or one.made != two.made or one.scope != scope:
            raise self._differs(visit, one)
        if not self._fits(one.given, given, visit):
            raise self._differs(visit, one)

    def _fits(self, has: Any, wants: Any, visit: int) -> bool:
        """Return whether operands correspond to those in the shallow model; also match inputs."""
        if _is_input(wants):
            return _is_input(has) and self._input(has.key, wants.key, visit)
        if type(wants) is tuple:
            return (
                type(has) is tuple
                and len(has) == len(wants)
                and all(self._fits(a, b, visit) for a, b in zip(has, wants, strict=True))
            )
        return bool(has == wants)

    def _input(self, has: int, wants: int, visit: int) -> bool:
        """Match an input to the shallow model's; it belongs to this layer unless others read it."""
        if self._deep.inputs[has] != self._shallow.inputs[wants]:
            return False
        segment = self._deep.segments[visit]
        known = self._proof.inputs.setdefault(has, Slot(wants, segment))
        if known.number != wants:
            return False
        if known.segment != segment:
            self._proof.inputs[has] = Slot(wants, NOWHERE)
        return True

    # --- from the shallow model to the deep one

    def _lifted(self, value: Any, visit: int, other: int) -> Any:
        if isinstance(value, Place):
            return self._lifted_place(value, visit, other)
        if isinstance(value, Leaf):
            if value.kind != "weight":
                return value
            names = tuple(sorted(self._lifted_name(name, visit, other) for name in value.key))
            return Leaf("weight", names)
        if type(value) is tuple:
            return tuple(self._lifted(each, visit, other) for each in value)
        return value

    def _lifted_place(self, place: Place, visit: int, other: int) -> Place:
        """Return the place in the deep model that corresponds to a place in the shallow model."""
        if place.visit == other:
            return place._replace(visit=visit)
        source = self._shallow.segments[place.visit]
        if source.stack < 0:
            return place._replace(visit=self._visits.index(place.visit))
        here, there = self._deep.segments[visit], self._shallow.segments[other]
        follows = there.stack == source.stack and there.layer == source.layer + 1
        if follows and self._passing.get(place) == {other}:
            layer = here.layer - 1
        else:
            layer = self._stacks[source.stack].kept[source.layer]
        return place._replace(visit=self._deep_visits[Segment(source.stack, layer)])

    def _lifted_name(self, name: str, visit: int, other: int) -> str:
        """Return the name in the deep model for a module or weight of the shallow model."""
        here, there = self._deep.segments[visit], self._shallow.segments[other]
        for number, stack in enumerate(self._stacks):
            rest = name.removeprefix(f"{stack.name}.")
            if rest == name:
                continue
            place, dot, inner = rest.partition(".")
            own = there == Segment(number, int(place))
            layer = here.layer if own else stack.kept[int(place)]
            return f"{stack.name}.{layer}{dot}{inner}"
        return name

    # --- inputs and outputs

    def _match_outputs(self) -> None:
        """Find the shallow model's counterpart of each output of the deep model."""
        by_origin: dict[Any, list[int]] = {}
        for number, origin in enumerate(self._shallow.outputs):
            by_origin.setdefault(origin, []).append(number)
        rest = [origin for origin in self._deep.outputs if self._layer_of(origin) is None]
        others = [
            number
            for number, origin in enumerate(self._shallow.outputs)
            if not any(self._stands_for(origin))
        ]
        if len(rest) != len(others):
            raise Unprovable("its outputs differ from those of a shallower model")
        remaining = iter(others)
        for number, origin in enumerate(self._deep.outputs):
            segment = self._layer_of(origin)
            if segment is None:
                self._proof.outputs[number] = self._plain_output(origin, next(remaining))
                continue
            found = by_origin.get(self._stood(origin), [])
            if len(found) != 1:
                raise Unprovable(
                    "it returns a value of a layer that a shallower model does not return"
                )
            self._proof.outputs[number] = Slot(found[0], segment)
        self._check_counts()

    def _layer_of(self, origin: Any) -> Segment | None:
        """Return the layer that computes a value of the deep model, or alone uses an input."""
        if _is_input(origin):
            slot = self._proof.inputs.get(origin.key)
            return slot.segment if slot is not None and slot.segment.stack >= 0 else None
        if not isinstance(origin, Place):
            return None
        segment = self._deep.segments[origin.visit]
        return segment if segment.stack >= 0 else None

    def _stood(self, origin: Any) -> Any:
        """Return the shallow model's counterpart of a layer's result that is an output."""
        if isinstance(origin, Leaf):
            return origin._replace(key=self._proof.inputs[origin.key].number)
        return origin._replace(visit=self._visits[origin.visit])

    def _plain_output(self, origin: Any, number: int) -> Slot:
        last = len(self._deep.segments) - 1
        wanted = self._lifted(self._shallow.outputs[number], last, self._visits[last])
        if not self._fits(origin, wanted, last):
            raise Unprovable("its outputs differ from those of a shallower model")
        return Slot(number, NOWHERE)

    def _check_counts(self) -> None:
        """Check that each output of the shallow model occurs for every layer it represents."""
        found = {slot for slot in self._proof.outputs.values() if slot.segment.stack >= 0}
        for number, origin in enumerate(self._shallow.outputs):
            for segment in self._stands_for(origin):
                if Slot(number, segment) not in found:
                    name = self._name(segment)
                    raise Unprovable(f"{name} returns fewer values than in a shallower model")

    def _stands_for(self, origin: Any) -> Iterator[Segment]:
        """Yield the layers of the deep model whose outputs are represented by a shallow output."""
        if _is_input(origin):
            for slot in self._proof.inputs.values():
                if slot.number == origin.key and slot.segment.stack >= 0:
                    yield slot.segment
        elif isinstance(origin, Place):
            segment = self._shallow.segments[origin.visit]
            layers = self._stacks[segment.stack].kinds if segment.stack >= 0 else ()
            for layer in range(len(layers)):
                if self._stacks[segment.stack].stand_in(layer) == segment.layer:
                    yield Segment(segment.stack, layer)

    def _check_inputs(self) -> None:
        """Check that both models agree on which layer uses each input, or that all layers do."""
        shared: dict[int, bool] = {}
        users = _users(self._shallow)
        for number, slot in self._proof.inputs.items():
            alone = slot.segment.stack >= 0
            if alone and len(users[slot.number]) > 1:
                raise Unprovable(f"input {number} differs between layers")
            if shared.setdefault(slot.number, not alone) is alone:
                raise Unprovable(f"input {number} belongs to one layer, but is also used by others")
            if not alone and sum(s.number == slot.number for s in self._proof.inputs.values()) > 1:
                raise Unprovable(f"input {number} differs between layers")
        self._match_unused()
        if self._deep.given.count(False) != self._shallow.given.count(False):
            raise Unprovable(
                "its inputs that are not tensors differ from those of a shallower model"
            )

    def _match_unused(self) -> None:
        """Match the remaining unused inputs, if both models have the same number of them."""
        used = {slot.number for slot in self._proof.inputs.values()}
        mine = [n for n in range(len(self._deep.inputs)) if n not in self._proof.inputs]
        its = [n for n in range(len(self._shallow.inputs)) if n not in used]
        if len(mine) == len(its):
            self._proof.inputs.update({a: Slot(b, NOWHERE) for a, b in zip(mine, its, strict=True)})


def _is_input(value: Any) -> TypeGuard[Leaf]:
    return isinstance(value, Leaf) and value.kind == "input"


def _taken(record: Record) -> Iterator[tuple[Any, int]]:
    """Yield all operands of operators, including nested operands, with the segment using them."""

    def inside(value: Any) -> Iterator[Any]:
        if type(value) is tuple:
            for each in value:
                yield from inside(each)
        else:
            yield value

    for visit, ops in enumerate(record.ops):
        for op in ops:
            for value in inside(op.given):
                yield value, visit


def _users(record: Record) -> Mapping[int, set[int]]:
    """Return a dict from the number of each input to the segments that use the input."""
    found: dict[int, set[int]] = {}
    for value, visit in _taken(record):
        if _is_input(value):
            found.setdefault(value.key, set()).add(visit)
    return found


def _passing(record: Record) -> Mapping[Place, set[int]]:
    """Return, for each result of a layer, the later layers of the same stack that use it."""
    found: dict[Place, set[int]] = {}
    for value, visit in _taken(record):
        if isinstance(value, Place) and value.visit != visit:
            stack = record.segments[value.visit].stack
            if stack >= 0 and record.segments[visit].stack == stack:
                found.setdefault(value, set()).add(visit)
    return found
