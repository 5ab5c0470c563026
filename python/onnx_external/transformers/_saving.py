"""Saves the graphs of a model over one copy of its weights, and the files next to them."""

from __future__ import annotations

import math
import os
from collections import abc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from .._base.errors import Error, InvalidArgumentError, Remedy
from .._base.options import Layout, Mapping, QuantizeArgument
from .._folders.preconditions import refuse_existing
from .._folders.side_files import SideFile, files_beside, note_on_pointers
from .._saving.reports import SaveReport, at, together
from .._saving.save import save_again
from .._saving.transposing import Learned
from .._sources.checkpoint import Checkpoint, open_checkpoint
from ..torch._guards import Sizes
from ..torch._skeleton import Skeleton
from ._beside import Beside
from ._recipes import map_document, map_of_set
from ._recording import Made


class Graph(NamedTuple):
    """One graph, and how its weights are filled."""

    skeleton: Skeleton
    made: abc.Mapping[str, Made]
    """How the graph's weights are made from tensors of the checkpoint."""
    sizes: Sizes
    """The assumptions that the trace made about sizes."""


class Part(NamedTuple):
    """Graphs that share their data files, and how their matrices are stored."""

    graphs: abc.Mapping[str, Graph]
    """The graphs by name, without the suffix."""
    suffix: str = ""
    """The suffix that follows the name of each graph in file names."""
    quantize: QuantizeArgument = None
    learned: Learned | None = None
    """The plans of other saves of these graphs."""

    def file(self, name: str) -> str:
        """Return the file name of a graph, with the suffix of its variant."""
        return f"{name}{self.suffix}.onnx"


class Saving:
    """Saves either all graphs of a model, or nothing."""

    def __init__(
        self,
        weights: list[Path],
        target: Path,
        parts: abc.Sequence[Part],
        made: abc.Sequence[Path] = (),
        place: str = "",
        apart: bool = False,
        source: Path | None = None,
    ) -> None:
        """Prepare a save.

        Args:
            weights: the file or folder with the weights.
            target: a folder or a file.
            parts: the graphs; each part has data files of its own.
            made: new files, which are copied instead of the model's files of these names.
            place: the subfolder of `target` for the graphs.
            apart: True if each graph has data files of its own.
            source: the model's folder, if its weights are elsewhere.
        """
        self._weights, self._source, self._target = weights, source or weights[0], target
        self._parts, self._apart = list(parts), apart
        self._made, self.place = made, place
        own = {each.name for each in made}
        self._files = [each for each in files_beside(self._source) if each.name not in own]
        self._files += [SideFile(each, each.name) for each in made]
        self._graphs = {part.file(n): graph for part in parts for n, graph in part.graphs.items()}
        self.folder = self._folder()
        self._place = self.folder / place
        self.notes = note_on_pointers(self._files)
        self.copied: list[str] = []
        """The files that were copied next to the graphs."""

    @classmethod
    def of_all(cls, savings: abc.Sequence[Saving]) -> Saving:
        """Combine several savings into one, with the files that the first one copies."""
        one = savings[0]
        parts = [part for each in savings for part in each._parts]
        if len(savings) == 1:
            return one
        return cls(
            one._weights,
            one._target,
            parts,
            one._made,
            one.place,
            one._apart,
            source=one._source,
        )

    def _folder(self) -> Path:
        if self._target.suffix != ".onnx" or self._target.is_dir():
            return self._target
        if len(self._graphs) == 1:
            return self._target.parent
        raise InvalidArgumentError(
            f"{self._target}: the model has several graphs ({', '.join(self._graphs)}); give a "
            "folder for them"
        )

    @property
    def _is_staged(self) -> bool:
        """True if files are moved into place together at the end, because there are several saves.

        Files are also staged if runtimes find data by file name, because a save chooses other names
        if older files exist.
        """
        return self._apart or len(self._parts) > 1

    def needs_plan(self, options: abc.Mapping[str, Any]) -> bool:
        """Return whether a save may be refused although a save into a temporary folder was not.

        This is not the case for one set of models with floats in a new folder, with files as they
        are by default.
        """
        return (
            self._is_staged
            or self._parts[0].quantize is not None
            or options["layout"] in ("inline", "link")
            or options["files"] != Layout()
            or os.path.lexists(self.folder)
        )

    def weight_bytes(self) -> int:
        """Return the size of the graphs' weights, each counted once."""
        sizes: dict[Any, int] = {}
        for graph in self._graphs.values():
            for name, value in graph.skeleton.model.graph.initializers.items():
                assert value.shape is not None and value.dtype is not None
                origin = graph.made.get(name, name) if value.const_value is None else id(value)
                size = value.dtype.itemsize * math.prod(int(each) for each in value.shape)
                sizes[origin, value.dtype] = math.ceil(size)
        return sum(sizes.values())

    def plan(self, options: abc.Mapping[str, Any]) -> SaveReport:
        """Check that everything can be saved, and return the plan."""
        if self._is_staged and not options.get("overwrite"):
            for name in self._graphs:
                refuse_existing(self._place / name)
        place = self._place / ".planned" if self._is_staged else self._place
        report = self._save({**options, "dry_run": True}, None, place)
        self._beside(options).check(bool(options.get("overwrite")))
        return report

    def save(
        self, options: abc.Mapping[str, Any], look: Callable[[Path], None] | None = None
    ) -> SaveReport:
        """Save the graphs and the files next to them.

        Args:
            options: the options of oe.save.
            look: a function that is called with the folder of the graphs before they are moved into
                place.
        """
        beside = self._beside(options)
        with beside.saving(bool(options.get("fsync", True)), bool(options.get("overwrite"))):
            if self._is_staged:
                room = beside.room() / self.place
                report = self._save({**options, "overwrite": False}, None, room)
                if look is not None:
                    look(room)
                beside.publish()
            else:
                report = self._save(options, beside, self._place)
        self.copied = [file.name for file in self._files]
        return report

    def _beside(self, options: abc.Mapping[str, Any]) -> Beside:
        return Beside(self._files, self.folder, options.get("progress") or None)

    @property
    def beside(self) -> list[str]:
        """The names of the files that will be next to the graphs."""
        return [file.name for file in self._files]

    def _save(self, options: abc.Mapping[str, Any], last: Beside | None, place: Path) -> SaveReport:
        """Save all graphs.

        Args:
            options: the options of oe.save.
            last: the callback for the progress of a single save.
            place: the target.
        """
        given = {name: each for name, each in options.items() if name != "variant"}
        given |= {"progress": last} if last else {}
        try:
            # Of a tensor that several files have, transformers takes the last one.
            overlay, variant = len(self._weights) > 1, options.get("variant")
            with open_checkpoint(self._weights, variant=variant, overlay=overlay) as weights:
                reports = [
                    report
                    for part in self._parts
                    for report in self._saved(weights, part, place, given)
                ]
        except Error as error:
            if error.kind == "not-linked":
                error.remedies.append(Remedy("layout", "single", "the weights are copied"))
            raise
        return at(together(reports), self._place) if self._is_staged else reports[0]

    def _saved(
        self, weights: Checkpoint, part: Part, place: Path, options: abc.Mapping[str, Any]
    ) -> Iterator[SaveReport]:
        """Save the graphs of a part, each alone or all over one copy of their weights."""
        options, learned = {"quantize": part.quantize, **options}, part.learned or Learned()
        mapping: Mapping = options["mapping"]
        if len(part.graphs) == 1 or self._apart:
            if len(part.graphs) > 1:
                mapping = replace(mapping, unmatched="skip")  # another graph has it
            if self._apart and options.get("layout") == "single":
                options["layout"] = "shards"  # of which there is one, unless it is too large
            for name, graph in part.graphs.items():
                alone = self.folder != self._target
                path = self._target if alone else place / part.file(name)
                document = map_document(graph.made)
                given = _with_data_name(options, path.name)
                given["mapping"] = replace(mapping, map=document)
                yield save_again(learned, _given(graph, options), path, weights, **given)
            return
        models = {part.file(name): _given(graph, options) for name, graph in part.graphs.items()}
        document = map_of_set({part.file(name): each.made for name, each in part.graphs.items()})
        given = _with_data_name(options, part.file("model"))
        given["mapping"] = replace(mapping, map=document)
        yield save_again(learned, models, place, weights, **given)


def _with_data_name(options: abc.Mapping[str, Any], model: str) -> dict[str, Any]:
    """Return options in which the data file is named after the model, as browsers expect."""
    files: Layout = options.get("files") or Layout()
    if options.get("layout", "single") not in ("single", "shards") or files.data_name is not None:
        return dict(options)
    return {**options, "files": replace(files, data_name=f"{model}_data")}


def _given(graph: Graph, options: abc.Mapping[str, Any]) -> Skeleton | bytes:
    """Return the graph to save. The layout "link" needs it as bytes."""
    linked = options.get("layout") == "link"
    return graph.skeleton.SerializeToString() if linked else graph.skeleton
