"""Derives the names in a deep model's graph from those in the shallow model's graph."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .kinds import Stack
from .proof import Proof, Slot
from .recording import Segment

_NUMBERED = re.compile(r"^(.*_)(\d+)$")
_TOKEN = re.compile(r"[A-Za-z_][\w.]*")


def place_in(name: str, stacks: Sequence[Stack]) -> Segment | None:
    """Return the layer of the shallow model that contains a module or weight, by its name."""
    for number, stack in enumerate(stacks):
        rest = name.removeprefix(f"{stack.name}.")
        place = rest.partition(".")[0]
        if rest != name and place.isdigit():
            return Segment(number, int(place))
    return None


def place_among(names: Iterable[str], stacks: Sequence[Stack]) -> Segment | None:
    """Return the layer of the first module that is in a layer; None if no module is."""
    return next(filter(None, (place_in(name, stacks) for name in names)), None)


def deep_name(name: str, stacks: Sequence[Stack]) -> str:
    """Return the name in the deep model for a module or weight of the shallow model."""
    found = place_in(name, stacks)
    if found is None:
        return name
    stack = stacks[found.stack]
    return _of_layer(name, stack.name, found.layer, stack.kept[found.layer], ".")


def _of_layer(text: str, list_name: str, place: int, layer: int, dot: str) -> str:
    """Replace a layer's name in a text with another layer's name, unless a digit follows."""
    start = list_name.replace(".", dot) + dot
    if start not in text:
        return text
    return re.sub(rf"(?<![A-Za-z0-9.]){re.escape(start)}{place}(?!\d)", f"{start}{layer}", text)


@dataclass
class Names:
    """The names of inputs, outputs, values and nodes in one graph.

    Attributes:
        stacks: the lists of layers.
        proof: the correspondence of the inputs and outputs of both models.
        inputs: the names of the deep model's inputs.
        outputs: the names of the deep model's outputs.
        shallow_inputs: the names of the shallow model's inputs.
        shallow_outputs: the names of the shallow model's outputs.
        numbered_outputs: True if outputs are named after their operators, not after layers.
    """

    stacks: Sequence[Stack]
    proof: Proof
    inputs: Sequence[str]
    outputs: Sequence[str]
    shallow_inputs: Sequence[str]
    shallow_outputs: Sequence[str]
    numbered_outputs: bool = False
    _used: set[str] = field(default_factory=set)

    def input_of(self, name: str, segment: Segment | None) -> str | None:
        """Return the deep model's input that corresponds to a shallow input of this layer."""
        return self._of(name, segment, self.shallow_inputs, self.proof.inputs, self.inputs)

    def output_of(self, name: str, segment: Segment | None) -> str | None:
        """Return the deep model's output that corresponds to a shallow output of this layer."""
        return self._of(name, segment, self.shallow_outputs, self.proof.outputs, self.outputs)

    @staticmethod
    def _of(
        name: str,
        segment: Segment | None,
        shallow: Sequence[str],
        slots: Mapping[int, Slot],
        deep: Sequence[str],
    ) -> str | None:
        if name not in shallow:
            return None
        number = shallow.index(name)
        for place, slot in slots.items():
            same = slot.segment == segment if segment is not None else slot.segment.stack < 0
            if slot.number == number and same:
                return deep[place]
        return None

    def all_inputs_of(self, name: str) -> list[str]:
        """Return all inputs of the deep model that an input of the shallow model represents."""
        number = self.shallow_inputs.index(name)
        slots = self.proof.inputs.items()
        return [self.inputs[place] for place, slot in slots if slot.number == number]

    def belongs_to_layer(self, name: str) -> bool:
        """Return whether each layer of the deep model has its own input for this shallow input."""
        if name not in self.shallow_inputs:
            return False
        number = self.shallow_inputs.index(name)
        found = [slot for slot in self.proof.inputs.values() if slot.number == number]
        return bool(found) and all(slot.segment.stack >= 0 for slot in found)

    def numbered(self, name: str, old: str, new: str) -> str:
        """Return torch's name of an input in the deep model; it ends with a number.

        Args:
            name: torch's name in the shallow model, such as "cache_2".
            old: the name of the input in the shallow model.
            new: the name of the input in the deep model.
        """
        found = _NUMBERED.match(name)
        if found is None or old not in self.shallow_inputs:
            return name
        moved = self.inputs.index(new) - self.shallow_inputs.index(old)
        return f"{found[1]}{int(found[2]) + moved}"

    def is_taken(self, name: str) -> bool:
        """Return whether a name is already used."""
        return name in self._used

    def take(self, name: str) -> None:
        """Mark a name as used, so that no other value or node gets it."""
        self._used.add(name)

    def fresh(self, name: str, layer: int, wanted: str | None) -> str:
        """Return an unused name for a value or node of a repeated layer.

        Args:
            name: the name in the repeated layer.
            layer: the layer of the deep model.
            wanted: the name that a trace would assign; None if unknown.
        """
        if wanted is None or wanted in self._used:
            wanted = f"{name}_layer_{layer}"
        while wanted in self._used:
            wanted += "_"
        self._used.add(wanted)
        return wanted

    def text(self, text: str, segment: Segment, layer: int, renamed: Mapping[str, str]) -> str:
        """Return a layer's metadata, adapted to another layer.

        Args:
            text: the metadata in the shallow model.
            segment: the layer of the shallow model.
            layer: the layer of the deep model.
            renamed: the names in the deep model of values that have other names there, by their old
                names.
        """
        name = self.stacks[segment.stack].name
        for dot in (".", "_"):
            text = _of_layer(text, name, segment.layer, layer, dot)
        return self.told(text, renamed)

    @staticmethod
    def told(text: str, renamed: Mapping[str, str]) -> str:
        """Return metadata with the names that values have in the deep model."""
        if renamed.keys().isdisjoint(_TOKEN.findall(text)):
            return text
        return _TOKEN.sub(lambda match: renamed.get(match[0], match[0]), text)
