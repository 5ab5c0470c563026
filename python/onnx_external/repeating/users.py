"""How many users torch's text of a node counts, in a deep model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .kinds import Stack
from .naming import place_in
from .recording import Segment

__all__ = ["counted", "more_users"]

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
    for node in exported.graph.nodes:
        users = Counter(_segment(user, stacks) for user in node.users)
        own, more = _segment(node, stacks), 0
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


def _segment(node: Any, stacks: Sequence[Stack]) -> Segment | None:
    for path, _ in (node.meta.get("nn_module_stack") or {}).values():
        found = place_in(path, stacks)
        if found is not None:
            return found
    return None


def counted(text: str, more: Mapping[str, int]) -> str:
    """Return torch's text of a node with the users that it has in the deep model."""
    found = _COUNT.match(text)
    if found is None or found[1] not in more:
        return text
    return f"%{found[1]} : [num_users={int(found[2]) + more[found[1]]}]{text[found.end() :]}"
