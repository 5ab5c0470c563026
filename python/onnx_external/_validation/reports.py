"""The reports of oe.validate."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .._base.meter import Step
from .._base.pages import Paged
from .._comparing.comparing import Comparison
from .._comparing.precision import Quantized
from .._comparing.quality import Quality


@dataclass
class ComparedOutput(Comparison):
    """The comparison of one output in one input set."""

    set: str = ""
    by_quality: bool = False
    """True for floats of a quantized model, which `GraphValidation.quality` judges: only their
    shapes and special values have to agree."""

    @property
    def ok(self) -> bool:
        """True if all elements agree; if `by_quality`, True if NaN and infinities agree."""
        if not self.by_quality:
            return super().ok
        special = (self.nan, self.inf) == (self.expected_nan, self.expected_inf)
        return self.problem is None and special and not self.is_empty


@dataclass(frozen=True)
class ValidatedInput:
    """One input in one input set."""

    set: str
    name: str
    dtype: str
    shape: list[int]
    origin: str
    """"given", "recorded", or how the input was generated."""


@dataclass(frozen=True)
class Latency:
    """The durations in seconds of runs on the first input set, after one warm-up run."""

    runs: int
    least: float
    median: float
    mean: float
    most: float


def latency_of(seconds: Sequence[float]) -> Latency:
    """Return the statistics of durations."""
    return Latency(
        len(seconds),
        min(seconds),
        statistics.median(seconds),
        statistics.fmean(seconds),
        max(seconds),
    )


@dataclass
class GraphValidation:
    """The comparison of one model with its reference."""

    name: str
    """The name of the model file without its suffix."""
    model: str
    against: str
    providers: list[str]
    """The execution providers in the session of ONNX Runtime."""
    inputs: list[ValidatedInput] = field(default_factory=list)
    outputs: list[ComparedOutput] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Remarks on what was not compared, and why."""
    lacks: list[str] = field(default_factory=list)
    """The inputs that the reference is called with, but that the model does not have."""
    draws: list[str] = field(default_factory=list)
    """The random operators in the model or the reference, which make two runs differ."""
    computes: dict[str, str] = field(default_factory=dict)
    """Float types used in the computation, and where they are used, such as {"float16": "weights"}.
    The tolerance may be derived from one of them instead of the type of an output."""
    quantized: Quantized | None = None
    """The quantization of a model whose outputs do not agree, or whose quality is judged."""
    quality: Quality | None = None
    """The total loss caused by quantization; its attribute `ok` tells whether it is within the
    limits."""
    latency: Latency | None = None
    reference_latency: Latency | None = None
    """The latency of the reference, if the reference is an ONNX model."""
    load_memory: int | None = None
    """The peak anonymous memory (RssAnon on Linux) that loading the model added, in bytes."""
    run_memory: int | None = None
    """The peak memory that the first run added, in bytes."""

    @property
    def empty(self) -> list[str]:
        """Outputs that were compared in no set, because they had no elements or only NaN."""
        compared = {each.output for each in self.outputs if not each.is_empty}
        every = dict.fromkeys(each.output for each in self.outputs)
        return [name for name in every if name not in compared]

    @property
    def wrong(self) -> list[ComparedOutput]:
        """The outputs that do not agree."""
        return [each for each in self.outputs if each.is_wrong]

    @property
    def tolerances(self) -> list[str]:
        """The tolerances for floats with their reasons, and slices that have their own scale."""
        kinds: dict[str, list[ComparedOutput]] = {}
        for each in self.outputs:
            if each.atol:
                kinds.setdefault(self._reason(each), []).append(each)
        told = [
            f"tolerance {reason}: atol {_range([each.atol for each in found])}, "
            f"rtol {_range([each.rtol for each in found])}"
            for reason, found in kinds.items()
        ]
        parts = {each.output: each.parts for each in self.outputs if each.parts}
        return told + [f"of {name}, {', '.join(each)}" for name, each in parts.items()]

    def _reason(self, output: ComparedOutput) -> str:
        if output.precision is None:
            return "as given"
        of = {output.expected_dtype: "outputs of the reference", output.dtype: "outputs"}
        return f"of {output.precision} ({(self.computes | of)[output.precision]})"

    @property
    def ok(self) -> bool:
        """True if there is an output, and all outputs were compared and agree."""
        if self.quality is not None and not self.quality.ok:
            return False
        return bool(self.outputs) and not self.empty and not self.wrong


@dataclass
class Validation(Paged):
    """The report of oe.validate, with one part for each model."""

    graphs: list[GraphValidation]
    """The comparison of each model."""
    dump: str | None = None
    """The folder to which inputs and outputs were written; None if they were not written."""
    exported: str | None = None
    """The folder to which a transformers folder was exported."""
    steps: list[Step] = field(default_factory=list)
    """The steps of the validation, with their time and memory."""
    versions: dict[str, str] = field(default_factory=dict)
    """The versions of the packages involved."""

    @property
    def ok(self) -> bool:
        """True if all outputs of all models agree."""
        return bool(self.graphs) and all(graph.ok for graph in self.graphs)

    def __bool__(self) -> bool:
        """Return `ok`."""
        return self.ok

    @property
    def outputs(self) -> list[ComparedOutput]:
        """The outputs of all models."""
        return [output for graph in self.graphs for output in graph.outputs]

    @property
    def sentence(self) -> str:
        """The result in words: that all outputs agree, or which do not, and the likely reason."""
        several = len(self.graphs) > 1
        told = [text for graph in self.graphs for text in _told(graph, several)]
        if told:
            return "; ".join(told)
        empty = sum(each.is_empty for each in self.outputs)
        more = f"; in some sets, {empty} had nothing to compare" if empty else ""
        draws = [name for graph in self.graphs for name in graph.draws]
        if draws:
            more += (
                f", although random numbers are drawn by {_named(draws)}: another run may differ"
            )
        count = len(self.outputs) - empty
        more += "".join(f"; {_quality(graph, several)}" for graph in self.graphs if graph.quality)
        if any(each.by_quality for each in self.outputs):
            return f"no quality limit is exceeded{more}"
        return f"{'the output agrees' if count == 1 else f'all {count} outputs agree'}{more}"

    def __str__(self) -> str:
        """Return `sentence`; `repr()` returns the whole report."""
        return self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, in which non-finite numbers are text ("nan", "inf")."""
        found = asdict(self)
        for graph, own in zip(self.graphs, found["graphs"], strict=True):
            own["ok"] = graph.ok
            if graph.quality is not None:
                own["quality"] |= {"ok": graph.quality.ok, "sentence": graph.quality.sentence}
            for output, each in zip(graph.outputs, own["outputs"], strict=True):
                each |= {
                    "ok": output.ok,
                    "share": output.share,
                    "times": output.times,
                    "is_empty": output.is_empty,
                }
        plain: dict[str, Any] = finite({"ok": self.ok, "sentence": self.sentence, **found})
        return plain


_SHOWN = 5
"""The maximum number of outputs that a sentence names."""


def _range(values: Sequence[float]) -> str:
    least, most = f"{min(values):.2g}", f"{max(values):.2g}"
    return least if least == most else f"{least} to {most}"


def _named(names: Sequence[str]) -> str:
    shown = list(dict.fromkeys(names))
    rest = len(shown) - _SHOWN
    return ", ".join([*shown[:_SHOWN], *([f"{rest} more"] if rest > 0 else [])])


def _told(graph: GraphValidation, several: bool) -> list[str]:
    """Return sentences about what is wrong with a graph."""
    found, of = [], f" of {graph.name}" if several else ""
    if not graph.outputs:
        what = "the model has no outputs" if graph.inputs else "there was no input set"
        found.append(f"nothing{of} was compared: {what}")
    if graph.empty:
        found.append(
            f"nothing was compared of {_named(graph.empty)}{of}, which had no elements, or only "
            "NaN, in all input sets; pass other inputs"
        )
    if graph.wrong:
        names = _named([each.output for each in graph.wrong])
        several = len(graph.outputs) > 1
        which = f"{len(graph.wrong)} of {len(graph.outputs)} outputs" if several else "the output"
        told = f"{which}{of} {'do' if len(graph.wrong) > 1 else 'does'} not agree: {names}"
        told += _magnitude(graph.wrong)
        worst = max(graph.wrong, key=lambda each: each.share)
        if graph.quantized is not None and not worst.by_quality and worst.precision is not None:
            beyond = worst.atol, worst.rtol, worst.precision, worst.scale
            told += f"; {graph.quantized.advice(*beyond)}"
        if graph.lacks:
            told += (
                f". The cause may be that the model has no input {_named(graph.lacks)}, which "
                f"{graph.against} is called with"
            )
        if graph.draws:
            told += f". The cause may be random numbers, drawn by {_named(graph.draws)}"
        found.append(told)
    if graph.quality is not None and not graph.quality.ok:
        faults = " and ".join(graph.quality.faults)
        found.append(f"{_quality(graph, bool(of))}, and {faults}")
    return found


def _quality(graph: GraphValidation, several: bool) -> str:
    """Return a phrase about a graph's loss of quality by quantization."""
    assert graph.quality is not None
    of = f" of {graph.name}" if several else ""
    how = "" if graph.quantized is None else f"quantized ({', '.join(graph.quantized.operators)}): "
    return f"{how}{graph.quality.sentence}{of}"


def _magnitude(wrong: Sequence[ComparedOutput]) -> str:
    """Return the difference of outputs as text, or the reason why values could not be compared."""
    most = max((each.max_abs for each in wrong if each.max_abs), default=None)
    if most is not None:
        return f", by {most:.3g} at most"
    problem = next((each.problem for each in wrong if each.problem), None)
    return f" ({problem})" if problem else ""


def finite(value: Any) -> Any:
    """Return a copy in which numbers that are not finite, which JSON lacks, are text."""
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [finite(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
