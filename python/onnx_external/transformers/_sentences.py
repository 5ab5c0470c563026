"""Adds the sentence-transformers modules in modules.json to the model's graph.

sentence-transformers pools the tokens of a model, optionally followed by dense layers and a
normalization. `task="sentence-similarity"` makes these modules part of the model. The outputs of
the model then have optimum's names, `token_embeddings` and `sentence_embedding`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers.utils import ModelOutput

from .._base.errors import InvalidArgumentError, NotFoundError
from .._folders.config import modules_of, read_leniently
from .._sources.checkpoint import open_checkpoint

TASK = "sentence-similarity"
_FLAG = "pooling_mode_"
_MODES = {  # as older versions write them, one flag for each
    "cls_token": "cls",
    "max_tokens": "max",
    "mean_tokens": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean_tokens": "weightedmean",
    "lasttoken": "lasttoken",
}
_LENGTH = 1e-9
"""The minimum divisor, for masks that contain no ones."""


@dataclass
class SentenceOutput(ModelOutput):  # type: ignore[misc]
    """The output of a model with sentence-transformers modules."""

    token_embeddings: torch.Tensor | None = None
    sentence_embedding: torch.Tensor | None = None
    last_hidden_state: torch.Tensor | None = None
    """The tokens under a second name, which optimum's classes in sentence-transformers expect."""


def with_sentences(model: Any, folder: Path) -> Any:
    """Append the sentence-transformers modules of a folder to a model.

    Args:
        model: a transformers model that returns last_hidden_state.
        folder: the folder with modules.json.

    Raises:
        NotFoundError: the folder has no modules.json.
        InvalidArgumentError: a module is of an unsupported kind.
    """
    steps = list(_steps(folder, model.dtype))
    own = type(model)
    signature = inspect.signature(own.forward)

    @functools.wraps(own.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> SentenceOutput:
        given = signature.bind(self, *args, **kwargs).arguments
        tokens = own.forward(self, *args, **kwargs).last_hidden_state
        mask = given.get("attention_mask")
        if mask is None:
            mask = torch.ones_like(tokens[..., 0], dtype=torch.int64)
        found = steps[0](tokens, mask)
        for step in self.sentence_modules:
            found = step(found)
        return SentenceOutput(tokens, found, tokens)

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        own.__init__(self, *args, **kwargs)
        self.sentence_modules = torch.nn.ModuleList(steps[1:])

    body = {"forward": forward, "__init__": init, "__module__": own.__module__}
    model.__class__ = type(own.__name__, (own,), body)
    model.sentence_modules = torch.nn.ModuleList(steps[1:])
    return model.eval().requires_grad_(False)


def _steps(folder: Path, dtype: torch.dtype) -> Iterator[Any]:
    """Yield the pooling function, and the modules after it.

    Raises:
        NotFoundError: the folder has no modules.json.
        InvalidArgumentError: a module is of an unsupported kind.
    """
    listed = modules_of(folder)
    if not listed:
        raise NotFoundError(
            f"{folder / 'modules.json'}: not found; {TASK} needs a sentence-transformers folder; "
            "use feature-extraction for the model alone"
        )
    kinds = [str(each.get("type")).rpartition(".")[2] for each in listed]
    if kinds[:2] != ["Transformer", "Pooling"]:
        raise InvalidArgumentError(
            f"{folder / 'modules.json'}: begins with {', '.join(kinds[:2])}; {TASK} needs a "
            "Transformer followed by a Pooling"
        )
    for each, kind in zip(listed[1:], kinds[1:], strict=True):
        part = folder / str(each.get("path") or "")
        if kind not in _MAKERS:
            raise InvalidArgumentError(
                f"{folder / 'modules.json'}: {kind} is not supported; {TASK} supports "
                f"{', '.join(_MAKERS)}"
            )
        made = _MAKERS[kind](part, read_leniently(part))
        yield made.to(dtype) if isinstance(made, torch.nn.Module) else made


def _pooling(part: Path, config: dict[str, Any]) -> Callable[[Any, Any], Any]:
    modes = config.get("pooling_mode")
    if modes is None:
        modes = [mode for flag, mode in _MODES.items() if config.get(_FLAG + flag)] or "mean"
    modes = [modes] if isinstance(modes, str) else list(modes)
    unknown = [mode for mode in modes if mode not in _POOLS]
    if unknown:
        raise InvalidArgumentError(
            f"{part / 'config.json'}: pooling_mode {unknown[0]!r} is not one of {', '.join(_POOLS)}"
        )

    def pooled(tokens: Any, mask: Any) -> Any:
        return torch.cat([_POOLS[mode](tokens, mask) for mode in modes], dim=-1)

    return pooled


def _at(tokens: Any, place: Any) -> Any:
    """Return one token of each text, at a different position in each."""
    places = place.clamp(0, tokens.shape[1] - 1)[:, None, None].expand(-1, 1, tokens.shape[2])
    return tokens.gather(1, places)[:, 0]


def _first(tokens: Any, mask: Any) -> Any:
    return _at(tokens, (mask.cumsum(1) == 0).sum(1))


def _last(tokens: Any, mask: Any) -> Any:
    return _at(tokens, tokens.shape[1] - 1 - (mask.flip(1).cumsum(1) == 0).sum(1))


def _largest(tokens: Any, mask: Any) -> Any:
    return tokens.masked_fill(mask[..., None] == 0, float("-inf")).amax(1)


def _mean(tokens: Any, mask: Any, power: float = 1.0) -> Any:
    weights = mask[..., None].to(tokens.dtype)
    return (tokens * weights).sum(1) / weights.sum(1).clamp(min=_LENGTH) ** power


def _later_more(tokens: Any, mask: Any) -> Any:
    places = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
    return _mean(tokens, mask * places)


_POOLS: dict[str, Callable[[Any, Any], Any]] = {
    "cls": _first,
    "max": _largest,
    "mean": _mean,
    "mean_sqrt_len_tokens": functools.partial(_mean, power=0.5),
    "weightedmean": _later_more,
    "lasttoken": _last,
}


class _Normalize(torch.nn.Module):  # type: ignore[misc]
    def forward(self, found: Any) -> Any:
        return torch.nn.functional.normalize(found, p=2.0, dim=1)


def _dense(part: Path, config: dict[str, Any]) -> torch.nn.Module:
    """Make a dense layer whose weights become constants in the graph."""
    name = str(config.get("activation_function") or "torch.nn.modules.linear.Identity")
    activation = getattr(torch.nn, name.rpartition(".")[2], None)
    if not (isinstance(activation, type) and issubclass(activation, torch.nn.Module)):
        raise InvalidArgumentError(f"{part / 'config.json'}: torch.nn has no activation {name}")
    with open_checkpoint(part) as weights:
        values = {key: tensor.torch().clone() for key, tensor in weights.items()}
    bias = values.get("linear.bias")
    if "linear.weight" not in values:
        raise InvalidArgumentError(f"{part}: the weights do not include linear.weight")
    wide = values["linear.weight"]
    linear = torch.nn.Linear(wide.shape[1], wide.shape[0], bias is not None)
    with torch.no_grad():
        linear.weight.copy_(wide)
        if bias is not None:
            linear.bias.copy_(bias)
    return torch.nn.Sequential(linear, activation())


_MAKERS: dict[str, Callable[[Path, dict[str, Any]], Any]] = {
    "Pooling": _pooling,
    "Dense": _dense,
    "Normalize": lambda part, config: _Normalize(),
}
