"""Defines keywords of exports, on how a module is traced, rewritten and compared."""

from __future__ import annotations

from collections import abc
from collections.abc import Collection, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

from .._base.keywords import define
from .._base.options import Writing

Rewrite: TypeAlias = Literal["auto"] | bool


class OnnxOptions(TypedDict, total=False):
    """Options of torch.onnx.export that exports of modules pass on.

    Args:
        input_names: the names of the graph's inputs.
        output_names: the names of the graph's outputs.
        opset_version: the ONNX opset version of the graph.
        custom_translation_table: functions that translate operators, by operator.
    """

    input_names: Sequence[str]
    output_names: Sequence[str]
    opset_version: int | None
    custom_translation_table: abc.Mapping[Any, Any]


class RewriteKeywords(TypedDict, total=False):
    """Keywords for the rewriting of data-dependent control flow.

    Args:
        rewrite: when to rewrite data-dependent control flow (docs/python-rewriting.md). "auto":
            only if the plain export fails or is wrong for a set; True: always; False: never. The
            module is restored afterwards.
        asserts: "omit" leaves assertions and exceptions that depend on tensor values out of the
            graph, and says so in the report; "refuse" makes them an error.
        max_iterations: the maximum number of iterations of a loop whose state grows; the graph
            of such a loop needs a bound.
    """

    rewrite: Rewrite
    asserts: Literal["omit", "refuse"]
    max_iterations: int | None


define(RewriteKeywords, {"rewrite": "auto", "asserts": "omit", "max_iterations": None})


class TraceKeywords(RewriteKeywords, total=False):
    """Keywords for an export, and for the comparison before the save.

    Args:
        optimize: run torch's optimizer on the graph. Weights keep their names and shapes.
        repeat: if a module has lists of equal layers, trace only a few layers, and repeat them in
            the graph after proving that this is equivalent. False: trace all layers.
        check: run the graph on ONNX Runtime before it is saved, and compare it with the module
            on the example and all input sets, or on generated sizes if there are no further
            sets. None: if onnxruntime is installed, and the weights are the module's own and at
            most 1 GiB. False: never; input sets for which a condition on a size has another
            outcome are errors.
    """

    optimize: bool
    repeat: bool
    check: bool | None


define(TraceKeywords, {"optimize": True, "repeat": True, "check": None}, RewriteKeywords)


class ModuleKeywords(Writing, TraceKeywords, total=False):
    """The keywords of `oe.torch.export`.

    Args:
        extra: values for buffers and constants that have none, by name.
        keep: parameters and persistent buffers whose values are taken from the module and stay
            in the graph.
        atol: the absolute difference that the check accepts as rounding, as for oe.validate().
            None: determined by the types and magnitudes of the results.
        rtol: the same relative to the expected value.
        unreached: what to do about branches, and loops with zero or one iteration, that no set
            reaches, so that they are not compared: "note" lists them in
            `report.rewriting.unreached`; "refuse" raises an error.
        state: what to do about buffers that forward updates, and inputs that it writes in place:
            "note" names them in `report.notes`, and the graph does not update them; "outputs" adds
            their new values after all other outputs, under the same names ("output.NAME" if a
            weight or an input has the name).
    """

    extra: abc.Mapping[str, Any] | None
    keep: Collection[str]
    atol: float | None
    rtol: float | None
    unreached: Literal["note", "refuse"]
    state: Literal["note", "outputs"]


define(
    ModuleKeywords,
    {"extra": None, "keep": (), "atol": None, "rtol": None, "unreached": "note", "state": "note"},
    Writing,
    TraceKeywords,
)
