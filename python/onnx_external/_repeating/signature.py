"""What torch writes into a graph about its inputs and outputs, for a deep model."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from .kinds import Stack
from .naming import Names, place_in
from .numbers import Numbers
from .proof import NOWHERE
from .recording import Segment

_GIVEN = ": USER_INPUT"
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
    inputs = head.split("\n")
    lines = [*_weights(inputs, names.stacks, names)]
    told = _outputs(outputs, inputs, names, numbers)
    return "\n".join([*_inputs(lines, names), "# outputs", *told])


def _weights(lines: Sequence[str], stacks: Sequence[Stack], names: Names) -> Iterator[str]:
    """The lines before the outputs, those of each layer repeated."""
    of_layers = [(_segment(line, stacks) or NOWHERE, line) for line in lines]
    for number, group in itertools.groupby(of_layers, lambda each: each[0].stack):
        found = list(group)
        if number < 0:
            yield from (line for _, line in found)
            continue
        for layer in range(len(stacks[number].kinds)):
            stood = Segment(number, stacks[number].stand_in(layer))
            rows = [line for segment, line in found if segment == stood]
            yield from (names.text(row, stood, layer, {}) for row in rows)


def _segment(line: str, stacks: Sequence[Stack]) -> Segment | None:
    found = _LINE.match(line)
    return place_in(found[3], stacks) if found is not None and found[3] else None


def _inputs(lines: Sequence[str], names: Names) -> list[str]:
    tensors = _tensors(lines, names)
    given = [line for line in lines if line.endswith(_GIVEN)]
    if len(tensors) != len(names.shallow_inputs):
        return list(lines)
    others = iter([line for line in given if line.removesuffix(_GIVEN) not in tensors])
    told = []
    places = iter(range(len(names.inputs)))
    for is_tensor in names.proof.given:
        if not is_tensor:
            told.append(next(others))
            continue
        new = _input(next(places), tensors, names)
        if new is None:
            return list(lines)
        told.append(f"{new}{_GIVEN}")
    first = lines.index(given[0]) if given else len(lines)
    return [*lines[:first], *told, *lines[first + len(given) :]]


def _input(place: int, given: Sequence[str], names: Names) -> str | None:
    """What torch calls an input; None if it is not known which of the shallow model it is."""
    slot = names.proof.inputs.get(place)
    if slot is None:
        return None
    return names.numbered(
        given[slot.number], names.shallow_inputs[slot.number], names.inputs[place]
    )


def _outputs(text: str, head: Sequence[str], names: Names, numbers: Numbers) -> Sequence[str]:
    lines = text.split("\n")
    given = [line for line in lines if line.endswith(": USER_OUTPUT")]
    if len(given) != len(names.shallow_outputs):
        return lines
    first = lines.index(given[0]) if given else len(lines)
    rest = lines[first + len(given) :]
    told = _changed(lines[:first], head, names, numbers)
    for place in range(len(names.outputs)):
        slot = names.proof.outputs[place]
        name = given[slot.number].removesuffix(": USER_OUTPUT")
        told.append(f"{_output(name, slot.segment, names, numbers)}: USER_OUTPUT")
    return [*told, *rest]


def _changed(
    lines: Sequence[str], inputs: Sequence[str], names: Names, numbers: Numbers
) -> list[str]:
    """The lines of what changes in place, those of inputs repeated."""
    found = {
        match[3]: match for match in map(_LINE.match, lines) if match and "INPUT_MUT" in match[2]
    }
    tensors = _tensors(inputs, names)
    if not found.keys() <= set(tensors):
        return list(lines)
    told = [line for line in lines if not any(line == each[0] for each in found.values())]
    for place, slot in sorted(names.proof.inputs.items()):
        match = found.get(tensors[slot.number])
        if match is not None:
            new = _output(match[1], slot.segment, names, numbers)
            told.append(f"{new}: {match[2]} target={_input(place, tensors, names)!r}")
    return told


def _tensors(lines: Sequence[str], names: Names) -> list[str]:
    """What torch calls the shallow model's inputs; nothing if they are not to be told apart."""
    given = [line.removesuffix(_GIVEN) for line in lines if line.endswith(_GIVEN)]
    if len(given) != len(names.proof.shallow_given):
        return []
    return [name for name, each in zip(given, names.proof.shallow_given, strict=True) if each]


def _output(name: str, segment: Segment, names: Names, numbers: Numbers) -> str:
    if segment.stack < 0:
        return numbers.afterwards(name, range(len(names.stacks))) or name
    stack = names.stacks[segment.stack]
    stood = Segment(segment.stack, stack.stand_in(segment.layer))
    return numbers.of_layer(name, stood, segment.layer) or f"{name}_layer_{segment.layer}"
