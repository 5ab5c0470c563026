"""Passes outputs from graph to graph, as a runtime does that runs a folder's graphs in order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .._folders.models import ENCODER, PROMPTS

ENCODED = "encoder_hidden_states"
"""The decoder's input for the result of the preceding encoder."""
USES_CACHE = "use_cache_branch"
"""The input that selects the branch of a merged decoder."""
RESULT = "last_hidden_state"
_OTHER_RESULTS = "encoder_outputs."
_PAST, _PRESENT = re.compile(r"past_\w+\."), re.compile(r"present(_\w+)?\.")
"""Prefixes of the names of caches (`past_key_values.0.key`, `present.0.key`) and of states
(`past_conv.0`, `present_conv.0`)."""


def is_past(name: str) -> bool:
    """Return whether an input is part of a cache or state."""
    return _PAST.match(name) is not None


def is_present(name: str) -> bool:
    """Return whether an output is part of the extended cache or the next state."""
    return _PRESENT.match(name) is not None


def past_of(name: str) -> str:
    """Return the name of the input that receives a cache output in the next step."""
    return _PRESENT.sub(lambda found: f"past{found[1] or '_key_values'}.", name, count=1)


def present_of(name: str) -> str:
    """Return the name of the cache output that becomes the given input in the next step."""
    found = _PAST.sub(lambda each: f"present{each[0].removeprefix('past')}", name, count=1)
    return found.replace("present_key_values.", "present.", 1)


def encoded_name(output: str) -> str:
    """Return the name of the decoder input that receives an output of the preceding encoder."""
    return ENCODED if output == RESULT else _OTHER_RESULTS + output


def handed_on(graph: str, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of a graph that later graphs use, named like the inputs of those graphs.

    Args:
        graph: the name of the graph.
        outputs: the outputs by name; the values may be of any kind.
    """
    found = {past_of(name): value for name, value in outputs.items() if is_present(name)}
    found |= {
        f"input.{name.removeprefix('output.')}": value
        for name, value in outputs.items()
        if name.startswith("output.")
    }
    if graph == ENCODER:
        plain = {name: value for name, value in outputs.items() if not is_present(name)}
        found |= {encoded_name(name): value for name, value in plain.items()}
    return found


def missing_links(
    takes: Mapping[str, Mapping[str, str]], gives: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Return a sentence for each graph input that is not an output of an earlier graph.

    Args:
        takes: the inputs of each graph in order, with their forms ("float32[batch, 4, past, 8]").
        gives: the outputs of each graph, in the same form.
    """
    found: list[str] = []
    given: dict[str, str] = {}
    before: list[str] = []
    prompt = next((name for name in PROMPTS if name in takes), "")
    for graph, inputs in takes.items():
        for name, form in inputs.items():
            of_encoder = name == ENCODED or name.startswith(_OTHER_RESULTS)
            source = ENCODER if of_encoder else prompt
            carried = of_encoder or is_past(name)
            if not carried or source not in before:
                continue
            if name not in given:
                found.append(f"{graph}.onnx takes {name}, which {source}.onnx does not return")
            elif not _fits(form, given[name]):
                found.append(
                    f"{graph}.onnx takes {name} as {form}, but {source}.onnx returns {given[name]}"
                )
        given |= handed_on(graph, gives[graph])
        before.append(graph)
    return found


def _fits(taken: str, given: str) -> bool:
    """Return whether two forms have the same type, the same rank and no contradicting sizes."""
    (one, first), (other, second) = (
        (form.partition("[")[0], list(_sizes(form.partition("[")[2].removesuffix("]"))))
        for form in (taken, given)
    )
    return (
        one == other
        and len(first) == len(second)
        and all(
            left == right or not (left.isdigit() and right.isdigit())
            for left, right in zip(first, second, strict=True)
        )
    )


def _sizes(text: str) -> Iterator[str]:
    """Yield the sizes in a form: "Max(0, words)" and "8" for "Max(0, words), 8"."""
    start = depth = 0
    for place, each in enumerate(text):
        depth += (each == "(") - (each == ")")
        if each == "," and not depth:
            yield text[start:place].strip()
            start = place + 1
    yield text[start:].strip()
