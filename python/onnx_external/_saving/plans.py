"""Implements oe.plan, which returns a save that can be inspected before it is carried out."""

from __future__ import annotations

from collections import abc
from typing import TYPE_CHECKING

from .._base.argument_types import checks_types
from .._base.options import SaveKeywords, StrPath, Weights
from .._base.progress import Progress
from .._sources.graphs import Graph
from .reports import SaveReport
from .save import save

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Plan(SaveReport):
    """A planned save; it keeps the arguments alive so that it can be carried out."""

    _arguments: tuple[Graph | abc.Mapping[str, Graph], Weights | None, StrPath | None, SaveKeywords]

    def save(self, path: StrPath | None = None, *, progress: Progress = None) -> SaveReport:
        """Carry out the plan.

        The arguments are read again, so later changes to them count.

        Args:
            path: as for `oe.save`. None: the path of the plan.
            progress: as for `oe.save`. None: the progress of the plan.

        Raises:
            Error: as `oe.save` raises it.
        """
        model, weights, planned, options = self._arguments
        if progress is not None:
            options = {**options, "progress": progress}
        return save(model, planned if path is None else path, weights, **options)


@checks_types
def plan(
    model: Graph | abc.Mapping[str, Graph],
    *,
    path: StrPath | None = None,
    weights: Weights | None = None,
    **how: Unpack[SaveKeywords],
) -> Plan:
    """Return what `oe.save` would do with the same arguments, without writing anything.

    The plan keeps the arguments, so that `plan.save()` can carry it out.

    ```python
    plan = oe.plan("graph.onnx", path="out/model.onnx", weights="checkpoint.pt")
    for pair in plan.pairs:
        print(pair.slot, "from", pair.key)
    plan.save()
    ```

    Args:
        model: as for `oe.save`, like all other arguments.
        path: the target of the save. None: no folder is examined.
        weights: the weights for the graph. None: the weights in the model.
        **how: the keywords of `SaveKeywords`.

    Raises:
        MappingError: weights and keys do not fit one to one, or weights have no data.
        Error: any other error that `oe.save` would raise before it writes.
    """
    planned = Plan.__new__(Plan)
    planned.__dict__.update(save(model, path, weights, dry_run=True, **how).__dict__)
    planned._arguments = (model, weights, path, how)
    return planned
