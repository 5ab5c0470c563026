"""The graphs of a model over one copy of its weights, and the files beside them."""

from __future__ import annotations

from collections import abc
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from .._base.errors import Error, InvalidArgumentError, Remedy
from .._base.options import Layout, Mapping
from .._folders.side_files import SideFile, files_beside, note_on_pointers
from .._saving.reports import SaveReport, together
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
        place: str = "",
        apart: bool = False,
        source: Path | None = None,
    ) -> None:
        """Prepare a save.

        Args:
            weights: what holds the weights.
            target: where to, a folder or a file.
            graphs: by name.
            made: files that were made to lie beside the graphs, in the place of the model's.
            place: the folder in `target` that the graphs lie in.
            apart: each graph has a data file of its own.
            source: the model's folder, if its weights lie elsewhere.
        """
        self._weights, self._source, self._target = weights, source or weights[0], target
        self._apart = apart
        own = {each.name for each in made}
        self._files = [each for each in files_beside(self._source) if each.name not in own]
        self._files += [SideFile(each, each.name) for each in made]
        self._graphs = {f"{name}.onnx": graph for name, graph in graphs.items()}
        self.folder = self._folder()
        self._place = self.folder / place
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
        report = self._save({**options, "dry_run": True}, None)
        self._beside(options).check(bool(options.get("overwrite")))
        return report

    def save(self, options: abc.Mapping[str, Any]) -> SaveReport:
        """Save it."""
        beside = self._beside(options)
        with beside.saving(bool(options.get("fsync", True)), bool(options.get("overwrite"))):
            report = self._save(options, beside)
        self.copied = [file.name for file in self._files]
        return report

    def _beside(self, options: abc.Mapping[str, Any]) -> Beside:
        return Beside(self._files, self.folder, options.get("progress") or None)

    @property
    def beside(self) -> list[str]:
        """The names of the files that will lie beside the graphs."""
        return [file.name for file in self._files]

    def _save(self, options: abc.Mapping[str, Any], last: Beside | None) -> SaveReport:
        """Save all graphs.

        Args:
            options: of oe.save.
            last: is told the progress of the last save.
        """
        given = {name: each for name, each in options.items() if name != "variant"}
        try:
            # Of a tensor that several files have, transformers takes the last one.
            overlay, variant = len(self._weights) > 1, options.get("variant")
            with open_checkpoint(self._weights, variant=variant, overlay=overlay) as weights:
                if not self._apart:
                    return self._saved(weights, given | ({"progress": last} if last else {}))
                return self._saved_apart(weights, given, last)
        except Error as error:
            if error.kind == "not-linked":
                error.remedies.append(Remedy("layout", "single", "the weights are copied"))
            raise

    def _saved_apart(
        self, weights: Checkpoint, options: dict[str, Any], last: Beside | None
    ) -> SaveReport:
        """Save one graph after the other; all of them are planned before the first is written."""
        reports = []
        options["mapping"] = replace(options["mapping"], unmatched="skip")  # another graph has it
        for number, (name, graph) in enumerate(self._graphs.items()):
            at_last = last is not None and number == len(self._graphs) - 1
            told = {"progress": last} if at_last else {}
            reports.append(self._saved_alone(weights, name, graph, options | told))
        return together(reports)

    def _saved(self, weights: Checkpoint, options: dict[str, Any]) -> SaveReport:
        mapping: Mapping = options.pop("mapping")
        if len(self._graphs) > 1:
            models = {name: _given(graph, options) for name, graph in self._graphs.items()}
            document = map_of_set({name: graph.made for name, graph in self._graphs.items()})
            mapping = replace(mapping, map=document)
            options = _with_data_name(options, "model.onnx")
            return save(models, self._place, weights, mapping=mapping, **options)
        name, graph = next(iter(self._graphs.items()))
        return self._saved_alone(weights, name, graph, options | {"mapping": mapping})

    def _saved_alone(
        self, weights: Checkpoint, name: str, graph: Graph, options: abc.Mapping[str, Any]
    ) -> SaveReport:
        path = self._target if self.folder != self._target else self._place / name
        mapping = replace(options["mapping"], map=map_document(graph.made))
        given = _with_data_name(options, path.name) | {"mapping": mapping}
        return save(_given(graph, options), path, weights, **given)


def _with_data_name(options: abc.Mapping[str, Any], model: str) -> dict[str, Any]:
    """Name the data file after the model, as runtimes in browsers look for it."""
    files: Layout = options.get("files") or Layout()
    if options.get("layout", "single") not in ("single", "shards") or files.data_name is not None:
        return dict(options)
    return {**options, "files": replace(files, data_name=f"{model}_data")}


def _given(graph: Graph, options: abc.Mapping[str, Any]) -> Skeleton | bytes:
    """As an object, whose constants are shared if two graphs have the same; link takes none."""
    linked = options.get("layout") == "link"
    return graph.skeleton.SerializeToString() if linked else graph.skeleton
