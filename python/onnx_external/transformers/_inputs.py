"""Chooses the inputs of a graph: the tensors that the folder's tokenizer or processor returns.

forward() has a default for most of its arguments, and an argument that is missing in the trace is
not in the graph. Inputs are therefore chosen by what a caller will pass, not by what forward()
requires.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
import transformers
from torch.utils import _pytree as pytree

from .._base.argument_types import are_names, wrong_type
from .._base.errors import InvalidArgumentError
from .._comparing.values import to_torch
from .._folders.config import read_leniently
from ._examples import (
    MAKERS,
    Examples,
    chooses,
    has_head_behind_decoder,
    in_choices,
    vocabulary_of,
)
from ._naming import parameters

Inputs: TypeAlias = Mapping[str, Any] | Sequence[str]
"""Examples by name, or the names of the inputs for which examples are made."""

_WITH_DEFAULTS = ("bbox", "pixel_mask", "global_attention_mask", "token_type_ids", "attention_mask")
"""Inputs for which forward() substitutes a constant if they are missing."""
_GIVEN_ONLY = ("token_type_ids", "attention_mask")
"""Inputs that are used only if the folder's tokenizer or processor returns them."""
_ASIDE = (
    "inputs_embeds", "decoder_inputs_embeds", "position_ids", "decoder_position_ids",
    "encoder_hidden_states", "encoder_attention_mask", "decoder_attention_mask", "labels",
    "start_positions", "end_positions", "next_sentence_label", "bool_masked_pos", "mask_labels",
    "class_labels", "future_values", "target_values",
)  # fmt: skip
"""Alternatives to other inputs, inputs computed from others, and inputs for training."""
_TEXTS = ("input_ids", "inputs_embeds")
_STATES = ("past_key_values", "cache", "cache_params", "state", "mems", "encoder_outputs")


def inputs_of(model: Any, folder: Path, inputs: Inputs | None) -> Inputs:
    """Return examples, or the names of the inputs for which examples are made.

    Args:
        model: a transformers model.
        folder: the folder with the tokenizer or processor.
        inputs: the caller's choice; None: the tensors that the tokenizer or processor returns, and
            those that forward() takes with a default.

    Raises:
        InvalidArgumentError: forward() has no such input.
    """
    if inputs is None:
        return _usual(model, given_by_folder(folder, model))
    check_inputs(inputs)
    taken = inspect.signature(model.forward).parameters
    unknown = [name for name in inputs if name not in taken]
    if isinstance(inputs, Mapping) and (model.can_generate() or not unknown):
        return {name: _example(name, value) for name, value in inputs.items()}
    if unknown:
        raise InvalidArgumentError(
            f"inputs: {type(model).__name__} has no {', '.join(unknown)}; it takes "
            f"{', '.join(_tensors(model))}"
        )
    return tuple(dict.fromkeys(inputs))


def check_inputs(inputs: Any) -> None:
    """Raise an error unless the inputs are names, or examples by name.

    Raises:
        WrongTypeError: `inputs` is something else.
    """
    if inputs is None or (inputs and are_names(inputs)):
        return
    raise wrong_type(
        "inputs",
        "names, such as ['input_ids', 'attention_mask'], or examples: {'input_ids': tensor}",
        inputs,
    )


def _example(name: str, value: Any) -> Any:
    """Return an example in the form that the model takes; arrays and lists become tensors."""
    if isinstance(value, np.ndarray):
        return to_torch(value)
    if value is None:
        raise InvalidArgumentError(f"inputs: {name} is None; leave it out")
    if not isinstance(value, list) or not all(map(_is_number, pytree.tree_leaves(value))):
        return value
    try:
        return torch.tensor(value)
    except ValueError as error:
        raise InvalidArgumentError(f"inputs: {name} is not a tensor: {error}") from None


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def varied(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return examples with batch sizes and lengths of at least 2, because traces fix sizes of 1.

    The mask of a text that generate() continues gets a zero, because a mask of ones is dropped. A
    model with a state may mix up the entries of a batch, so its examples are not changed.
    """
    tensors = {name: each for name, each in given.items() if isinstance(each, torch.Tensor)}
    found, sizes = dict(given), [each.shape[0] for each in tensors.values() if each.dim()]
    if getattr(model, "_is_stateful", False) or not sizes:
        return found
    if set(sizes) == {1}:
        found |= {name: each.repeat(2, *[1] * (each.dim() - 1)) for name, each in tensors.items()}
    words = next((found[name].shape[:2] for name in _TEXTS if name in tensors), None)
    if words is not None and words[1:] == (1,):
        for name in tensors:
            if found[name].shape[:2] == words:
                found[name] = found[name].repeat_interleave(2, 1)
    is_decoder = "attention_mask" in tensors and model.can_generate()
    if is_decoder and not model.config.is_encoder_decoder:
        found["attention_mask"] = _with_padding(found["attention_mask"])
    return found


def _with_padding(mask: torch.Tensor) -> torch.Tensor:
    """Return a mask with a zero, since generate() drops a mask of ones before the model runs."""
    if mask.dim() != 2 or min(mask.shape) < 2 or not bool((mask == 1).all()):
        return mask
    mask = mask.clone()
    mask[1, 0] = 0
    return mask


def _usual(model: Any, given: set[str]) -> tuple[str, ...]:
    """Return the usual inputs of a model: the tensors that its tokenizer and processor return."""
    taken, main = inspect.signature(model.forward).parameters, main_input(model)
    generates = model.can_generate()
    found = [main] if main in MAKERS else []
    if not generates:
        found += _required(taken)
    found += ["attention_mask"] if main == "input_ids" and main in taken else []
    if "pixel_values" in taken and not (main == "input_ids" and generates):
        found += ["pixel_values", "noise"]  # the model would draw them, differently in each run
    if not generates:
        moves_on = getattr(model.config, "decoder_start_token_id", None) is not None
        alike = moves_on and has_head_behind_decoder(model)
        found += [] if alike else ["decoder_input_ids"]
        found += [name for name in _WITH_DEFAULTS if name not in _GIVEN_ONLY or name in given]
    return tuple(name for name in dict.fromkeys(found) if name in taken)


def _required(taken: Mapping[str, inspect.Parameter]) -> list[str]:
    """Return the arguments that forward() requires."""
    alone = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [n for n, each in taken.items() if each.default is each.empty and each.kind not in alone]


def main_input(model: Any) -> str:
    """Return the name of the model's main input; if there are several, the first."""
    name = model.main_input_name
    return name if isinstance(name, str) else str(name[0])


def omitted(model: Any, graphs: Iterable[Iterable[str]]) -> list[str]:
    """Return the tensor arguments of forward() that no graph takes.

    Args:
        model: a transformers model.
        graphs: the names of the inputs of each graph.
    """
    names = {name for graph in graphs for name in parameters(graph)}
    return [name for name in _tensors(model) if name not in names]


def note_of_omitted(model: Any, names: Sequence[str], inputs: Inputs) -> list[str]:
    """Return a note on tensors that a caller may have but cannot pass to a graph.

    Args:
        model: a transformers model.
        names: the result of `omitted`.
        inputs: the inputs of the traces; those that no graph takes have no effect.
    """
    usual = [name for name in names if name not in _ASIDE and name not in inputs]
    if model.can_generate():  # it returns no others, and a mask only for texts
        apart = ["token_type_ids"] + ["attention_mask"] * (main_input(model) != "input_ids")
        usual = [name for name in usual if name in _WITH_DEFAULTS and name not in apart]
    if not usual:
        return []
    return [
        f"{type(model).__name__} also takes {', '.join(usual)}, which no graph does; "
        "choose the inputs with inputs=NAMES"
    ]


def _tensors(model: Any) -> list[str]:
    """Return the parameters of forward() that are tensors, except caches."""
    return [
        name
        for name, each in inspect.signature(model.forward).parameters.items()
        if "Tensor" in str(each.annotation)
        and each.default in (None, each.empty)
        and name not in _STATES
    ]


def fewer(names: Inputs) -> tuple[str, ...] | None:
    """Return the names without inputs that have defaults; None if there are no such inputs."""
    kept = ("attention_mask",) if "input_ids" in names else ()
    found = tuple(name for name in names if name not in _WITH_DEFAULTS or name in kept)
    return found if len(found) < len(names) else None


def given_by_folder(folder: Path, model: Any) -> set[str]:
    """Return the names of the tensors that a folder's tokenizer or feature extractor returns.

    If the folder has no tokenizer, transformers' usual tokenizer for the model is assumed.
    """
    if main_input(model) == "input_ids":
        settings = read_leniently(folder, "tokenizer_config.json")
        names = settings.get("model_input_names")
        if isinstance(names, list):
            return set(map(str, names))
        return set(_names_of(_tokenizer(settings, model.config)))
    settings = read_leniently(folder, "preprocessor_config.json")
    if not settings:
        part = read_leniently(folder, "processor_config.json").get("feature_extractor")
        settings = part if isinstance(part, dict) else {}
    extractor = getattr(transformers, str(settings.get("feature_extractor_type")), None)
    return set() if extractor is None else set(_of_extractor(extractor, settings))


def _tokenizer(settings: Mapping[str, Any], config: Any) -> Any:
    from transformers.models.auto import tokenization_auto as auto

    kinds = auto.TOKENIZER_MAPPING_NAMES
    usual = kinds.get(getattr(config, "model_type", ""))
    for name in (settings.get("tokenizer_class"), usual):
        try:
            found = auto.tokenizer_class_from_name(name) if isinstance(name, str) else None
        except Exception:  # of whatever kind: a package that the class needs is missing
            found = None
        if found is not None:
            return found
    return None


def _names_of(found: Any) -> list[str]:
    try:
        names = getattr(found, "model_input_names", None)
    except ImportError:  # the class needs a package that is not installed
        return []
    return [str(name) for name in names] if isinstance(names, (list, tuple)) else []


def _of_extractor(extractor: Any, settings: Mapping[str, Any]) -> list[str]:
    """Return the names of a feature extractor's results, without the mask if it returns none."""
    names = _names_of(extractor)
    asked = settings.get("return_attention_mask")
    if asked is None:
        taken = inspect.signature(extractor).parameters.get("return_attention_mask")
        asked = True if taken is None else taken.default
    return [name for name in names if asked or name != "attention_mask"]


def sample_inputs(model: Any, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Return example inputs for generate() or forward()."""
    examples = Examples(model)
    order = {name: place for place, name in enumerate(_ordered(names))}
    lacking = [name for name in order if not examples.add(name)]
    lacking = [name for name in lacking if name not in _WITH_DEFAULTS]
    if lacking or not examples.made:
        raise InvalidArgumentError(
            f"{type(model).__name__} takes {', '.join(lacking) or main_input(model)}, for "
            "which no example can be made; give inputs={name: tensor}"
        )
    return in_choices(examples.made) if chooses(model) else examples.made


def _ordered(names: Sequence[str]) -> list[str]:
    """Return the names in the order in which examples are made."""
    return [*(name for name in MAKERS if name in names), *(n for n in names if n not in MAKERS)]


def plain_words(model: Any) -> Any:
    """Return a logits processor with which generate() always chooses a token that is not special.

    Without weights, all tokens have equal scores. The first is often the token that ends or pads a
    text, which generate() of some classes cuts off immediately.
    """
    settings = model.generation_config
    special: set[int] = set()
    for name, value in vars(settings).items():
        if name.endswith(("token_id", "token_ids", "tokens")):
            special.update(_numbers(value))
    words = range(vocabulary_of(model.config))
    word = next((word for word in words if word not in special), 0)

    def choose(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        chosen = torch.full_like(scores, -torch.inf)
        chosen[:, word] = 0
        return chosen

    return choose


def _numbers(value: Any) -> set[int]:
    """Return the integers in a setting, which may be an integer, a list of integers, or neither."""
    if isinstance(value, int):
        return {value}
    if isinstance(value, (list, tuple, set)):
        return {number for one in value for number in _numbers(one)}
    return set()
