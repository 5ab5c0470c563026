"""What torch's texts say of a program's nodes: their names and users, in a deep model.

Not every node of the program is one of the graph, whose metadata names it all the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .kinds import Stack
from .naming import place_in
from .numbers import Numbers
from .recording import Segment

__all__ = ["Mentions", "counted", "more_users"]

_MENTION = re.compile(r"%(\w+)")
_COUNT = re.compile(r"^%(\w+) : \[num_users=(\d+)\]")


def more_users(exported: Any, stacks: Sequence[Stack]) -> dict[str, int]:
    """Return how many more users the nodes of a shallow model's program have in the deep one.

    Args:
        exported: an ExportedProgram, as it was converted; None if it was not kept.
        stacks: the lists of layers.
    """
    if exported is None:
        return {}
    gone = [
        Counter(
            stack.stand_in(layer) for layer in range(len(stack.kinds)) if layer not in stack.kept
        )
        for stack in stacks
    ]
    found = {}
    places = _places(exported, stacks)
    for node in exported.graph.nodes:
        users = Counter(places[user] for user in node.users)
        own, more = places[node], 0
        for number, templates in enumerate(gone):
            for place, times in templates.items():
                template = Segment(number, place)
                if not _is_passed_on(own, template, users):
                    more += times * users[template]
        if more:
            found[node.name] = more
    return found


def _is_passed_on(own: Segment | None, template: Segment, users: Counter[Segment | None]) -> bool:
    """Whether a layer takes a value from itself or the layer before, so each has its own."""
    if own is None or own.stack != template.stack:
        return False
    if own == template:
        return True
    mine = {each for each in users if each is not None and each.stack == own.stack}
    return own.layer + 1 == template.layer and mine <= {own, template}


def _places(exported: Any, stacks: Sequence[Stack]) -> dict[Any, Segment | None]:
    """The layers of a program's nodes; one that no module has made is where all around it are."""
    found: dict[Any, Segment | None] = {}
    users: dict[Any, set[Segment | None]] = {}
    for node in reversed(exported.graph.nodes):
        users[node] = set()
        for user in node.users:
            known = _has_module(user)
            users[node] |= {_segment(user, stacks)} if known else users[user]
    for node in exported.graph.nodes:
        found[node] = _segment(node, stacks)
        if _has_module(node):
            continue
        around = {found[each] for each in node.all_input_nodes} - {None} | users[node]
        found[node] = around.pop() if users[node] and len(around) == 1 else None
    return found


def _has_module(node: Any) -> bool:
    return node.op != "call_function" or bool(node.meta.get("nn_module_stack"))


def _segment(node: Any, stacks: Sequence[Stack]) -> Segment | None:
    for path, _ in (node.meta.get("nn_module_stack") or {}).values():
        found = place_in(path, stacks)
        if found is not None:
            return found
    return None


@dataclass
class Mentions:
    """Names in texts that no value of the graph has, such as of what the optimizer took out."""

    stacks: Sequence[Stack]
    numbers: Numbers
    _places: dict[str, tuple[Segment | None, tuple[int, ...]]] = field(default_factory=dict)
    """Of the program's nodes: the layer, and the stacks that have run before."""

    def learn(self, exported: Any, known: Collection[str]) -> None:
        """Note where the nodes of a program are, but for those with names that are known."""
        passed: dict[int, None] = {}
        places = _places(exported, self.stacks) if exported is not None else {}
        for node, segment in places.items():
            if segment is not None and segment.layer == len(self.stacks[segment.stack].kept) - 1:
                passed[segment.stack] = None
            if node.name not in known:
                self._places[node.name] = segment, tuple(passed)

    def renamed(self, text: str, own: Segment | None, layer: int) -> dict[str, str]:
        """Return what the names in torch's text of a node are in the deep model.

        Args:
            text: the text.
            own: the layer of the node in the shallow model.
            layer: its layer in the deep one.
        """
        found = {}
        for name in set(_MENTION.findall(text)) & self._places.keys():
            segment, passed = self._places[name]
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


def counted(text: str, more: Mapping[str, int]) -> str:
    """Return torch's text of a node with the users that it has in the deep model."""
    found = _COUNT.match(text)
    if found is None or found[1] not in more:
        return text
    return f"%{found[1]} : [num_users={int(found[2]) + more[found[1]]}]{text[found.end() :]}"
