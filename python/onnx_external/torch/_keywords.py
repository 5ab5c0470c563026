"""Keywords of exports: how a module is traced, rewritten, and compared with its graph."""

from __future__ import annotations

from collections import abc
from collections.abc import Collection
from typing import Any, Literal, TypeAlias, TypedDict

from .._base.keywords import define
from .._base.options import Writing

Rewrite: TypeAlias = Literal["auto"] | bool


class RewriteKeywords(TypedDict, total=False):
    """Keywords on the rewriting of data-dependent control flow.

    Args:
        rewrite: rewriting of data-dependent control flow, see docs/python-rewriting.md. "auto":
            only if the plain export fails or is wrong for a set; True: always; False: never. The
            module is restored afterwards.
        asserts: "omit" leaves assertions and exceptions on the values of tensors out of the
            graph, and says so in the report; "refuse" refuses them.
        max_iterations: the largest number of iterations of a loop whose state grows, for which
            a graph needs a bound.
    """

    rewrite: Rewrite
    asserts: Literal["omit", "refuse"]
    max_iterations: int | None


define(RewriteKeywords, {"rewrite": "auto", "asserts": "omit", "max_iterations": None})


class TraceKeywords(RewriteKeywords, total=False):
    """Keywords of an export, and of the comparison before the save.

    Args:
        optimize: run torch's optimizer on the graph. Names and shapes of weights stay.
        repeat: trace a module whose lists of layers are alike with few of them, and repeat
            these in the graph, after proving that this is equivalent. False: trace all layers.
        check: run the graph on ONNX Runtime before it is saved, and compare it with the module
            on the example and all input sets, or on made-up sizes if there are none. None: if
            onnxruntime is installed, the weights are the module's own, and have no more than 1 GiB.
            False: never; input sets for which a condition on a size was decided differently are
            errors.
    """

    optimize: bool
    repeat: bool
    check: bool | None


define(TraceKeywords, {"optimize": True, "repeat": True, "check": None}, RewriteKeywords)


class ModuleKeywords(Writing, TraceKeywords, total=False):
    """The keywords of `oe.torch.export`.

    Args:
        extra: values for buffers and constants that have none, by name.
        keep: parameters and persistent buffers whose values stay in the graph, taken from the
            module.
        atol: the difference from the module that the check takes for rounding, as for
            oe.validate(). None: by the types and the sizes of the results.
        rtol: likewise, for each unit of a result.
        unreached: the treatment of a branch, or of loops with no or one iteration, that no set
            reaches, so that it was never compared: "note" lists them in
            `report.rewriting.unreached`; "refuse" raises an error.
        state: the treatment of buffers that forward updates, and of inputs that it writes in
            place: "note" names them in `report.notes`, and the graph does not update them;
            "outputs" adds their new values as the last outputs, with their names ("output.NAME" if
            a weight or an input has the name).
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
