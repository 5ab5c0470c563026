"""What torch writes into a graph about its inputs and outputs, for a deep model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .kinds import Stack
from .naming import Names, place_in
from .numbers import Numbers
from .recording import Segment

__all__ = ["told_signature"]

_LINE = re.compile(r"^(\w+): (\w+)(?: target='([^']*)')?(.*)$")


def told_signature(text: str, names: Names, numbers: Numbers) -> str:
    """Return torch's description of a signature with the lines of all layers.

    Args:
        text: that of the shallow model: a line for each weight, input and output.
        names: of the graph.
        numbers: of what it makes.
    """
    head, found, outputs = text.partition("\n# outputs\n")
    if not found:
        return text
    lines = [*_weights(head.split("\n"), names.stacks, names)]
    return "\n".join([*_inputs(lines, names), "# outputs", *_outputs(outputs, names, numbers)])


def _weights(lines: Sequence[str], stacks: Sequence[Stack], names: Names) -> Iterator[str]:
    """The lines before the outputs, those of each layer repeated."""
    place = 0
    while place < len(lines):
        segment = _segment(lines[place], stacks)
        if segment is None:
            yield lines[place]
            place += 1
            continue
        rows: dict[int, list[str]] = {}
        while place < len(lines):
            own = _segment(lines[place], stacks)
            if own is None or own.stack != segment.stack:
                break
            rows.setdefault(own.layer, []).append(lines[place])
            place += 1
        stack = stacks[segment.stack]
        for layer in range(len(stack.kinds)):
            stood = Segment(segment.stack, stack.stand_in(layer))
            yield from (names.text(row, stood, layer, {}) for row in rows.get(stood.layer, []))


def _segment(line: str, stacks: Sequence[Stack]) -> Segment | None:
    found = _LINE.match(line)
    return place_in(found[3], stacks) if found is not None and found[3] else None


def _inputs(lines: Sequence[str], names: Names) -> list[str]:
    given = [line for line in lines if line.endswith(": USER_INPUT")]
    if len(given) != len(names.shallow_inputs):
        return list(lines)
    told = []
    for place, new in enumerate(names.inputs):
        slot = names.proof.inputs.get(place)
        if slot is None:
            return list(lines)
        name = given[slot.number].removesuffix(": USER_INPUT")
        told.append(f"{names.numbered(name, names.shallow_inputs[slot.number], new)}: USER_INPUT")
    first = lines.index(given[0]) if given else len(lines)
    return [*lines[:first], *told, *lines[first + len(given) :]]


def _outputs(text: str, names: Names, numbers: Numbers) -> Sequence[str]:
    lines = text.split("\n")
    given = [line for line in lines if line.endswith(": USER_OUTPUT")]
    if len(given) != len(names.shallow_outputs):
        return lines
    rest = lines[lines.index(given[-1]) + 1 :] if given else lines
    told = []
    for place in range(len(names.outputs)):
        slot = names.proof.outputs[place]
        name = given[slot.number].removesuffix(": USER_OUTPUT")
        told.append(f"{_output(name, slot.segment, names, numbers)}: USER_OUTPUT")
    return [*told, *rest]


def _output(name: str, segment: Segment, names: Names, numbers: Numbers) -> str:
    if segment.stack < 0:
        return numbers.afterwards(name, range(len(names.stacks))) or name
    stack = names.stacks[segment.stack]
    stood = Segment(segment.stack, stack.stand_in(segment.layer))
    return numbers.of_layer(name, stood, segment.layer) or f"{name}_layer_{segment.layer}"
