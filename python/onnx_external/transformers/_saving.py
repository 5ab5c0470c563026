"""The graphs of a model over one copy of its weights, and the files beside them."""

from __future__ import annotations

from collections import abc
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from .._base.errors import Error, InvalidArgumentError, Remedy
from .._base.options import Mapping
from .._folders.side_files import SideFile, files_beside, note_on_pointers
from .._saving.reports import SaveReport
from .._saving.save import save
from .._sources.checkpoint import Checkpoint, open_checkpoint
from ..torch._guards import Sizes
from ..torch._skeleton import Skeleton
from ._beside import Beside
from ._recipes import map_document, map_of_set
from ._recording import Made


class Graph(NamedTuple):
    """One graph, and what fills it."""

    skeleton: Skeleton
    made: abc.Mapping[str, Made]
    """How its weights are made of the checkpoint's."""
    sizes: Sizes
    """What its trace assumed about sizes."""


class Saving:
    """Saves a model: all of its graphs, or nothing."""

    def __init__(
        self,
        weights: list[Path],
        target: Path,
        graphs: abc.Mapping[str, Graph],
        made: abc.Sequence[Path] = (),
    ) -> None:
        """Prepare a save.

        Args:
            weights: the model's folder and files.
            target: where to, a folder or a file.
            graphs: by name.
            made: files that were made to lie beside the graphs.
        """
        self._weights, self._source, self._target = weights, weights[0], target
        self._files = [*files_beside(self._source), *(SideFile(each, each.name) for each in made)]
        self._graphs = {f"{name}.onnx": graph for name, graph in graphs.items()}
        self.folder = self._folder()
        self.notes = note_on_pointers(self._files)
        self.copied: list[str] = []
        """Files that lie beside the graphs now."""

    def _folder(self) -> Path:
        if self._target.suffix != ".onnx" or self._target.is_dir():
            return self._target
        if len(self._graphs) == 1:
            return self._target.parent
        raise InvalidArgumentError(
            f"{self._target}: the model is several graphs ({', '.join(self._graphs)}); give the "
            "folder for them"
        )

    def plan(self, options: abc.Mapping[str, Any]) -> SaveReport:
        """Find out whether all of it can be saved."""
        report = self._save({**options, "dry_run": True})
        self._beside(options).check(bool(options.get("overwrite")))
        return report

    def save(self, options: abc.Mapping[str, Any]) -> SaveReport:
        """Save it."""
        beside = self._beside(options)
        with beside.saving(bool(options.get("fsync", True)), bool(options.get("overwrite"))):
            report = self._save({**options, "progress": beside})
        self.copied = [file.name for file in self._files]
        return report

    def _beside(self, options: abc.Mapping[str, Any]) -> Beside:
        return Beside(self._files, self.folder, options.get("progress") or None)

    def _save(self, options: abc.Mapping[str, Any]) -> SaveReport:
        given = {name: each for name, each in options.items() if name != "variant"}
        if given["layout"] in ("single", "shards") and given["files"].data_name is None:
            given["files"] = replace(given["files"], data_name=self._data_name())
        try:
            # Of a tensor that several files have, transformers takes the last one.
            overlay, variant = len(self._weights) > 1, options.get("variant")
            with open_checkpoint(self._weights, variant=variant, overlay=overlay) as weights:
                return self._saved(weights, given)
        except Error as error:
            if error.kind == "not-linked":
                error.remedies.append(Remedy("layout", "single", "the weights are copied"))
            raise

    def _data_name(self) -> str:
        """Return the name of the data file, by which runtimes in browsers fetch it."""
        alone = len(self._graphs) == 1 and self.folder != self._target
        return f"{self._target.name if alone else 'model.onnx'}_data"

    def _saved(self, weights: Checkpoint, options: dict[str, Any]) -> SaveReport:
        mapping: Mapping = options.pop("mapping")
        if len(self._graphs) > 1:
            models = {name: _given(graph, options) for name, graph in self._graphs.items()}
            document = map_of_set({name: graph.made for name, graph in self._graphs.items()})
            mapping = replace(mapping, map=document)
            return save(models, self.folder, weights, mapping=mapping, **options)
        name, graph = next(iter(self._graphs.items()))
        path = self._target if self.folder != self._target else self.folder / name
        mapping = replace(mapping, map=map_document(graph.made))
        return save(_given(graph, options), path, weights, mapping=mapping, **options)


def _given(graph: Graph, options: abc.Mapping[str, Any]) -> Skeleton | bytes:
    """As an object, whose constants are shared if two graphs have the same; link takes none."""
    linked = options.get("layout") == "link"
    return graph.skeleton.SerializeToString() if linked else graph.skeleton
