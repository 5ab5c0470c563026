"""The graphs of a folder, run one after the other as a runtime runs them for a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._folders.models import ENCODER, PROMPTS

ENCODED = "encoder_hidden_states"
"""The decoder's name for the result of the encoder before it."""
USES_CACHE = "use_cache_branch"
"""The input that selects the branch of a merged decoder."""
RESULT = "last_hidden_state"
_OTHER_RESULTS = "encoder_outputs."


def encoded_name(output: str) -> str:
    """Return the name by which a decoder takes an output of the encoder before it."""
    return ENCODED if output == RESULT else _OTHER_RESULTS + output


def handed_on(graph: str, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of a graph that later graphs take, by the names of their inputs.

    Args:
        graph: its name.
        outputs: the outputs, of any kind, by name.
    """
    renamed = (("present.", "past_key_values."), ("output.", "input."))
    found = {
        after + name.removeprefix(before): value
        for name, value in outputs.items()
        for before, after in renamed
        if name.startswith(before)
    }
    if graph == ENCODER:
        plain = {name: value for name, value in outputs.items() if not name.startswith("present.")}
        found |= {encoded_name(name): value for name, value in plain.items()}
    return found


def missing_links(
    takes: Mapping[str, Mapping[str, str]], gives: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Return a sentence for each input of a graph that no earlier graph produces.

    Args:
        takes: the inputs of each graph in order, with their forms ("float32[batch, 4, past, 8]").
        gives: the outputs.
    """
    found: list[str] = []
    given: dict[str, str] = {}
    before: list[str] = []
    prompt = next((name for name in PROMPTS if name in takes), "")
    for graph, inputs in takes.items():
        for name, form in inputs.items():
            of_encoder = name == ENCODED or name.startswith(_OTHER_RESULTS)
            source = ENCODER if of_encoder else prompt
            carried = of_encoder or name.startswith("past_key_values.")
            if not carried or source not in before:
                continue
            if name not in given:
                found.append(f"{graph}.onnx takes {name}, which {source}.onnx does not give")
            elif not _fits(form, given[name]):
                found.append(
                    f"{graph}.onnx takes {name} as {form}, and {source}.onnx gives {given[name]}"
                )
        given |= handed_on(graph, gives[graph])
        before.append(graph)
    return found


def _fits(taken: str, given: str) -> bool:
    """Return whether two forms have equal types, equal ranks and no contradicting sizes."""
    (one, first), (other, second) = (
        (form.partition("[")[0], form.partition("[")[2].removesuffix("]").split(", "))
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
