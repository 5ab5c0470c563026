"""Measures the loss by quantization: KL divergence, top-1 agreement, perplexity, relative error."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .precision import Quantized, quantized
from .tolerances import BLOCK
from .values import Array, Value, is_float

_WEIGHT_ONLY = {"MatMulNBits", "GatherBlockQuantized"}
_LOGITS = "logits"


@dataclass(frozen=True)
class Limits:
    """The limits for the loss by quantization; None means that a figure is not checked."""

    kl: float | None = None
    agreement: float | None = None
    error: float | None = None

    def __bool__(self) -> bool:
        """Return whether any limit is set."""
        return any(each is not None for each in (self.kl, self.agreement, self.error))


MOST_KL = 0.1
"""The default limit of the KL divergence in nats; docs/python-validate.md has measured values."""


def default_limits(how: Quantized) -> Limits:
    """Return the default limits for a quantized model."""
    return Limits(kl=MOST_KL, error=how.share)


@dataclass
class Quality:
    """The loss of a model compared with its reference, over all compared positions."""

    source: str
    """The origin of the inputs: "the input sets", or the name of a text file."""
    limits: Limits
    has_logits: bool = False
    positions: int = 0
    """The number of positions at which logits were compared."""
    tokens: int = 0
    """The number of tokens in the text; all except the first token of each chunk are predicted."""
    agreement: float | None = None
    """The fraction of positions at which the model and the reference rank the same token first."""
    kl: float | None = None
    """The mean KL divergence of the model's probabilities from the reference's, in nats."""
    perplexity: float | None = None
    """The model's perplexity on the text."""
    reference_perplexity: float | None = None
    error: float | None = None
    """The root mean square of the difference, divided by that of the expected values: for logits
    or, if there are none, the maximum over all outputs."""

    @property
    def faults(self) -> list[str]:
        """The exceeded limits, as sentences; a figure that is NaN exceeds its limit."""
        found, limits = [], self.limits
        if self.kl is not None and limits.kl is not None and not self.kl <= limits.kl:
            found.append(f"a KL divergence of {self.kl:.3g} is more than {limits.kl:.3g}")
        least = limits.agreement
        if self.agreement is not None and least is not None and not self.agreement >= least:
            found.append(f"an agreement of {self.agreement:.2%} is less than {least:.2%}")
        most = None if self.has_logits and limits.kl is not None else limits.error
        if self.error is not None and most is not None and not self.error <= most:
            found.append(f"a relative error of {self.error:.2%} is more than {most:.2%}")
        return found

    @property
    def ok(self) -> bool:
        """True if no limit is exceeded."""
        return not self.faults

    @property
    def sentence(self) -> str:
        """All measured figures of the loss in one sentence."""
        of = f"{self.tokens} tokens of {self.source}" if self.tokens else self.source
        told = []
        if self.kl is not None and self.agreement is not None:
            told.append(f"KL divergence {self.kl:.3g} nats")
            told.append(f"top-1 agreement {self.agreement:.2%} of {self.positions} positions")
        if self.perplexity is not None:
            expected = self.reference_perplexity
            told.append(f"perplexity {self.perplexity:.5g}, reference {expected:.5g}")
        if self.error is not None:
            what = "of logits" if self.has_logits else "of outputs"
            told.append(f"relative error {what} {self.error:.2%}")
        return f"{', '.join(told) or 'nothing was compared'} ({of})"


@dataclass
class QualitySums:
    """Accumulates the loss of a model, several rows of logits at a time."""

    source: str
    limits: Limits
    _squares: dict[str, tuple[float, float]] = field(default_factory=dict)
    _positions: int = 0
    _same: int = 0
    _kl: float = 0.0
    _tokens: int = 0
    _predicted: int = 0
    _loss: float = 0.0
    _expected_loss: float = 0.0

    def add(self, output: str, got: Value, want: Value, following: Array | None = None) -> None:
        """Add one output, unless it is not a float array or the shapes differ.

        Args:
            output: the name of the output.
            got: the model's output.
            want: the expected output.
            following: for logits, the next token at each position of each row, except the last one.
        """
        if got is None or want is None or isinstance(got, list) or isinstance(want, list):
            return
        if not (is_float(got) and is_float(want)) or got.shape != want.shape or not got.size:
            return
        is_logits = output.rpartition(".")[2] == _LOGITS and got.ndim >= 2
        columns = got.shape[-1] if is_logits else 1
        targets = None
        if is_logits and following is not None and got.ndim == 3:
            if got.shape[:2] == (following.shape[0], following.shape[1] + 1):
                targets = np.pad(following, ((0, 0), (0, 1)), constant_values=-1).reshape(-1)
        left, right = got.reshape(-1, columns), want.reshape(-1, columns)
        step = max(1, BLOCK // columns)
        for start in range(0, len(left), step):
            rows = slice(start, start + step)
            one, other = left[rows].astype(np.float64), right[rows].astype(np.float64)
            self._add_squares(output, one, other)
            if is_logits:
                self._add_rows(one, other, None if targets is None else targets[rows])

    def _add_squares(self, output: str, got: Array, want: Array) -> None:
        both = np.isfinite(got) & np.isfinite(want)
        # Values that a mask fills in (-3.4e38) would hide everything else.
        both &= np.abs(want) < 1e30
        off = np.where(both, got - want, 0.0)
        size = np.where(both, want, 0.0)
        before = self._squares.get(output, (0.0, 0.0))
        self._squares[output] = (
            before[0] + float(np.vdot(off, off)),
            before[1] + float(np.vdot(size, size)),
        )

    def _add_rows(self, got: Array, want: Array, targets: Array | None) -> None:
        self._positions += len(want)
        self._same += int(np.count_nonzero(got.argmax(-1) == want.argmax(-1)))
        ours, theirs = _log_softmax(got), _log_softmax(want)
        shares = np.exp(theirs)
        with np.errstate(all="ignore"):
            self._kl += float(np.where(shares > 0, shares * (theirs - ours), 0.0).sum())
        if targets is not None:
            (places,) = np.nonzero(targets >= 0)
            self._predicted += len(places)
            self._loss -= float(ours[places, targets[places]].sum())
            self._expected_loss -= float(theirs[places, targets[places]].sum())

    def add_tokens(self, count: int) -> None:
        """Add a number of tokens to the token count of the text."""
        self._tokens += count

    def found(self) -> Quality:
        """Return the quality over all outputs that were added."""
        errors = {
            name: math.sqrt(off / size) if size else (math.inf if off else 0.0)
            for name, (off, size) in self._squares.items()
        }
        logits = {name: each for name, each in errors.items() if name.rpartition(".")[2] == _LOGITS}
        found = Quality(self.source, self.limits, bool(self._positions), self._positions)
        found.tokens = self._tokens
        found.error = max((logits if self._positions else errors).values(), default=None)
        if self._positions:
            found.agreement = self._same / self._positions
            found.kl = max(0.0, self._kl / self._positions)
            if math.isnan(self._kl):
                found.kl = math.nan
        if self._predicted:
            found.perplexity = _exp(self._loss / self._predicted)
            found.reference_perplexity = _exp(self._expected_loss / self._predicted)
        return found


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _log_softmax(logits: Array) -> Array:
    with np.errstate(all="ignore"):
        shifted = logits - logits.max(-1, keepdims=True)
        found: Array = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return found


def quantized_weights(model: str | bytes) -> Quantized | None:
    """Return the quantization of a model's weights; None if activations are also quantized.

    Args:
        model: the model's path or bytes.
    """
    found = quantized(model)
    if found is None:
        return None
    if _WEIGHT_ONLY & set(found.operators):
        return found
    return found if isinstance(model, str) and _says_so(Path(model)) else None


def _says_so(model: Path) -> bool:
    """Return whether the manifest of a model records that the save quantized weights."""
    try:
        text = model.with_suffix(".manifest.json").read_text(encoding="utf-8")
        manifest: Mapping[str, Any] = json.loads(text)
        return any("quantize" in each for each in manifest.get("tensors", ()))
    except (OSError, ValueError, TypeError, AttributeError):
        return False
