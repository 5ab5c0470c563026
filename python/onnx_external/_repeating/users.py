"""Adapts the names and users of nodes in torch's metadata to a deep model.

The metadata of a graph names all nodes of the program, including those that are not in the graph.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .kinds import Stack
from .naming import place_among
from .numbers import Numbers
from .recording import Segment

_MENTION = re.compile(r"%(\w+)")
_COUNT = re.compile(r"^%(\w+) : \[num_users=(\d+)\]")

Places: TypeAlias = Mapping[Any, Segment | None]
"""The layer of each node of a program, in the program's order; None for no layer."""


def more_users(places: Places, stacks: Sequence[Stack]) -> dict[str, int]:
    """Return how many additional users the nodes of a shallow model's program have in a deep model.

    Args:
        places: the layers of the nodes.
        stacks: the lists of layers.
    """
    gone = [Counter(map(stack.stand_in, stack.gone)) for stack in stacks]
    found = {}
    for node, own in places.items():
        users = Counter(places[user] for user in node.users)
        more = 0
        for number, templates in enumerate(gone):
            for place, times in templates.items():
                template = Segment(number, place)
                if not _is_passed_on(own, template, users):
                    more += times * users[template]
        if more:
            found[node.name] = more
    return found


def _is_passed_on(own: Segment | None, template: Segment, users: Counter[Segment | None]) -> bool:
    """Return whether each layer has a value of its own that it or the next layer reads."""
    if own is None or own.stack != template.stack:
        return False
    if own == template:
        return True
    mine = {each for each in users if each is not None and each.stack == own.stack}
    return own.layer + 1 == template.layer and mine <= {own, template}


def places_of(exported: Any, stacks: Sequence[Stack]) -> Places:
    """Return the layers of a program's nodes.

    A node without a module is assigned to the layer of the nodes around it, if they agree.

    Args:
        exported: the ExportedProgram that was converted; None if it was not kept.
        stacks: the lists of layers.
    """
    if exported is None:
        return {}
    found: dict[Any, Segment | None] = {}
    users: dict[Any, set[Segment | None]] = {}
    for node in reversed(exported.graph.nodes):
        users[node] = set()
        for user in node.users:
            if user.op == "output":
                continue
            known = _has_module(user)
            users[node] |= {_segment(user, stacks)} if known else users[user]
    for node in exported.graph.nodes:
        found[node] = _segment(node, stacks)
        if _has_module(node):
            continue
        around = {found[each] for each in node.all_input_nodes} - {None} | users[node]
        found[node] = around.pop() if node.users and len(around) == 1 else None
    return found


def _has_module(node: Any) -> bool:
    return node.op != "call_function" or bool(node.meta.get("nn_module_stack"))


def _segment(node: Any, stacks: Sequence[Stack]) -> Segment | None:
    scopes = (node.meta.get("nn_module_stack") or {}).values()
    return place_among((path for path, _ in scopes), stacks)


@dataclass
class Following:
    """Counts the users of a layer's results in the next layer, which may be a repeated layer.

    In the shallow model, the next layer may be the last layer, which uses a result less often if it
    needs only a part of the result.
    """

    places: Places
    stacks: Sequence[Stack]
    _nodes: dict[str, tuple[Segment, int]] = field(default_factory=dict)
    """The layer of each node and its position there, by the node's name."""
    _rows: dict[Segment, list[Any]] = field(default_factory=dict)
    _alike: dict[tuple[Segment, Segment], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Group the nodes by layer."""
        for node, segment in self.places.items():
            if segment is not None:
                row = self._rows.setdefault(segment, [])
                self._nodes[node.name] = segment, len(row)
                row.append(node)

    def more(self, layer: int) -> Callable[[str], int]:
        """Return a function that returns, by name, how many more users a node in this layer has."""
        return lambda name: self._more(name, layer)

    def _more(self, name: str, layer: int) -> int:
        segment, place = self._nodes.get(name, (Segment(-1, 0), 0))
        if segment.stack < 0 or layer + 1 >= len(self.stacks[segment.stack].kinds):
            return 0
        after = Segment(segment.stack, self.stacks[segment.stack].stand_in(layer + 1))
        before = after._replace(layer=after.layer - 1)
        mine, its = self._rows[segment], self._rows.get(before, [])
        if before == segment or not self._is_alike(segment, before):
            return 0
        there = segment._replace(layer=segment.layer + 1)
        return self._users(its[place], after) - self._users(mine[place], there)

    def _is_alike(self, one: Segment, other: Segment) -> bool:
        """Return whether two layers have the same operators in the same order."""
        if (one, other) not in self._alike:
            rows = (self._rows.get(each, []) for each in (one, other))
            mine, its = ([node.target for node in row] for row in rows)
            self._alike[one, other] = mine == its
        return self._alike[one, other]

    def _users(self, node: Any, segment: Segment) -> int:
        return sum(self.places[user] == segment for user in node.users)


def mentions(text: str) -> set[str]:
    """Return the names of the nodes that torch's text on a node mentions."""
    return set(_MENTION.findall(text))


@dataclass
class Mentions:
    """Names in metadata that no value has any more, such as those removed by the optimizer."""

    stacks: Sequence[Stack]
    numbers: Numbers
    _told: dict[str, tuple[Segment | None, tuple[int, ...]]] = field(default_factory=dict)
    """For each node of the program, its layer and the stacks that ran before it."""

    def learn(self, places: Places, known: Collection[str]) -> None:
        """Record the layers of a program's nodes, except nodes with known names."""
        passed: dict[int, None] = {}
        for node, segment in places.items():
            if segment is not None and segment.layer == len(self.stacks[segment.stack].kept) - 1:
                passed[segment.stack] = None
            if node.name not in known:
                self._told[node.name] = segment, tuple(passed)

    def passed(self, name: str) -> Sequence[int] | None:
        """Return the stacks that ran before a node outside all layers; None for other nodes."""
        segment, passed = self._told.get(name, (None, None))
        return passed if segment is None else None

    def renamed(self, text: str, own: Segment | None, layer: int) -> dict[str, str]:
        """Return the new names of the nodes that torch's text on a node mentions.

        Args:
            text: the text.
            own: the layer of the node in the shallow model.
            layer: the layer of the node in the deep model.
        """
        found = {}
        for name in mentions(text) & self._told.keys():
            segment, passed = self._told[name]
            new = self.numbers.afterwards(name, passed)
            if segment is not None:
                near = own is not None and own.stack == segment.stack
                before = own.layer - segment.layer if own is not None and near else -1
                kept = self.stacks[segment.stack].kept[segment.layer]
                there = layer - before if before in (0, 1) else kept
                new = self.numbers.of_layer(name, segment, there)
            if new is not None:
                found[name] = new
        return found


def counted(text: str, more: Callable[[str], int]) -> str:
    """Return torch's text on a node with the number of users in the deep model.

    Args:
        text: the text in the shallow model.
        more: a function that returns the number of additional users of a node, by its name.
    """
    found = _COUNT.match(text)
    if found is None:
        return text
    return f"%{found[1]} : [num_users={int(found[2]) + more(found[1])}]{text[found.end() :]}"
