"""Records the forward passes of generate(), for the prompt and for the tokens after it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transformers

from .._base.errors import ExportError
from .._folders.models import PROMPT, STEP
from ..torch._untouched import ZeroProducts
from ._decoders import cache_for
from ._examples import words_of
from ._exporter import silently
from ._inputs import plain_words
from ._unseen import with_media

_ALONG = {"decoder_input_ids": 1, "decoder_position_ids": -1, "decoder_inputs_embeds": 1}
"""Inputs that have an element for each new token, and the dimension of these elements."""

WAY_OUT = (
    "give other examples with inputs={name: tensor}, or use the class that does not generate "
    "with task='feature-extraction'"
)


def with_prompt(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of generate(), with several tokens for an encoder-decoder's decoder.

    torch would fix the length of a prompt of one token. The length of the prompt depends on the
    batch size, and generate() of most classes inserts the start-of-text token before it.
    """
    found = dict(given)
    tensors = [each for each in given.values() if isinstance(each, torch.Tensor) and each.dim()]
    if not model.config.is_encoder_decoder or not tensors or "decoder_input_ids" in found:
        return found
    rows = len(tensors[0])
    found["decoder_input_ids"] = words_of(model.config, rows, rows + 1)
    return found


def generate_inputs(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of generate(), with settings that let it run without weights' values."""
    return {"logits_processor": [plain_words(model)], **cache_for(model), **given}


def forward_calls(model: Any, given: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Run transformers' own generate(), and return the inputs of each forward pass.

    Classes that override generate(), such as Whisper's, also run the model for other purposes, such
    as detecting the language, and call the base class's generate() for the text.

    Args:
        model: a transformers model, whose weights need no values.
        given: the inputs of generate().
        count: the number of new tokens, each of which takes one pass.

    Raises:
        ExportError: generate() does not run.
    """
    from transformers.exporters.utils import _capture_forward

    settings = copy.deepcopy(model.generation_config)
    settings.max_new_tokens = settings.min_new_tokens = count
    words = copy.deepcopy(generate_inputs(model, given))
    running = silently(
        f"{type(model).__name__}.generate() does not run", with_media(model, WAY_OUT)
    )
    with running, ZeroProducts(), _capture_forward(model) as calls:
        transformers.GenerationMixin.generate(model, **words, generation_config=settings)
        if len(calls) != count:
            raise RuntimeError(f"it ran the model {len(calls)} times for {count} tokens")
    for call in calls:
        call.pop("logits_to_keep", None)  # what generate() needs of a result is not the graph's
    return list(calls)


def several_steps(calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the inputs of one forward pass that is equivalent to several one-token passes.

    Args:
        calls: consecutive calls; the cache and all inputs that do not grow are taken from the
            first call.
    """
    found = dict(calls[0])
    for name, dim in _ALONG.items():
        if found.get(name) is not None:
            found[name] = torch.cat([call[name] for call in calls], dim)
    if found.get("decoder_attention_mask") is not None:
        found["decoder_attention_mask"] = calls[-1]["decoder_attention_mask"]
    return found


def pair_of_calls(
    model: Any, given: Mapping[str, Any], several: bool
) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return the two decoder graphs of an encoder-decoder, each as a module and its inputs.

    Args:
        model: a transformers model.
        given: the inputs of generate().
        several: True if prompts and steps may have any number of tokens.
    """
    calls = calls_of_several(model, given) if several else None
    if calls is None:
        calls = forward_calls(model, given, 3 if several else 2)
    return {PROMPT: (copy.copy(model), calls[0]), STEP: (copy.copy(model), calls[-1])}


def calls_of_several(model: Any, given: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the inputs of a prompt with several tokens, and of a step with several tokens.

    If the code of the model only accepts one token at a time, the result is None.

    Args:
        model: a transformers model.
        given: the inputs of generate().
    """
    try:
        first, *rest = forward_calls(model, with_prompt(model, given), 3)
        steps = several_steps(rest)
        with silently("it does not run", ""), ZeroProducts(), torch.no_grad():
            model(**copy.deepcopy(steps))
    except ExportError:
        return None
    return [first, steps]
