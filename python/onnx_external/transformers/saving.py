"""The graphs of a model over one copy of its weights, and the files beside them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import Error, ExistsError, InvalidArgumentError, ReadWriteError, Remedy
from ..reports import SaveReport, SetReport
from ..save import save
from ..torch.skeleton import Skeleton
from .recipes import map_document, map_of_set
from .recording import Made

__all__ = ["Graph", "Saving"]

_COPIED = (
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.model",
    "spiece*",
    "chat_template*",
    "preprocessor_config.json",
    "processor_config.json",
    "feature_extractor_config.json",
)
"""What lies beside the weights and belongs to the model, too."""


class Graph(NamedTuple):
    """One graph, and what fills it."""

    skeleton: Skeleton
    made: Mapping[str, Made]
    """How its weights are made of the checkpoint's."""


class Saving:
    """Saves a model: all of its graphs, or nothing."""

    def __init__(self, source: Path, target: Path, graphs: Mapping[str, Graph]) -> None:
        """Args: the folder of the model; where to, a folder or a file; the graphs by name."""
        self._source, self._target = source, target
        self._graphs = {f"{name}.onnx": graph for name, graph in graphs.items()}
        self.folder = self._folder()
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

    def plan(self, options: Mapping[str, Any]) -> SaveReport | SetReport:
        """Find out whether all of it can be saved."""
        report = self._save({**options, "dry_run": True})
        _refuse_existing(_beside(self._source), self.folder, bool(options.get("overwrite")))
        return report

    def save(self, options: Mapping[str, Any]) -> SaveReport | SetReport:
        """Save it."""
        report = self._save(options)
        self.copied = _copy(_beside(self._source), self.folder)
        return report

    def _save(self, options: Mapping[str, Any]) -> SaveReport | SetReport:
        try:
            return self._save_one(options) if len(self._graphs) == 1 else self._save_set(options)
        except Error as error:
            if "use a layout that copies" in str(error):
                error.remedies.append(Remedy("layout", "single", "the weights are copied"))
            raise

    def _save_set(self, options: Mapping[str, Any]) -> SetReport:
        models = {name: _given(graph, options) for name, graph in self._graphs.items()}
        document = map_of_set({name: graph.made for name, graph in self._graphs.items()})
        report = save(models, self.folder, self._source, map=document, **options)
        assert isinstance(report, SetReport)
        return report

    def _save_one(self, options: Mapping[str, Any]) -> SaveReport:
        name, graph = next(iter(self._graphs.items()))
        path = self._target if self.folder != self._target else self.folder / name
        document = map_document(graph.made)
        report = save(_given(graph, options), path, self._source, map=document, **options)
        assert isinstance(report, SaveReport)
        return report


def _given(graph: Graph, options: Mapping[str, Any]) -> Skeleton | bytes:
    """As an object, whose constants are shared if two graphs have the same; link takes none."""
    linked = options.get("layout") == "link"
    return graph.skeleton.SerializeToString() if linked else graph.skeleton


def _beside(folder: Path) -> list[Path]:
    return sorted({path for name in _COPIED for path in folder.glob(name) if path.is_file()})


def _others(files: list[Path], out: Path) -> Iterator[tuple[Path, Path]]:
    """Files and where they are to be copied to, without those that lie there themselves."""
    for file in files:
        target = out / file.name
        if not (target.exists() and os.path.samefile(file, target)):
            yield file, target


def _refuse_existing(files: list[Path], out: Path, overwrite: bool) -> None:
    for _, target in _others(files, out):
        if target.exists() and not overwrite:
            raise ExistsError(f"{target}: exists; overwrite=True replaces it")


def _copy(files: list[Path], out: Path) -> list[str]:
    """Copy files, each complete or not at all; if one cannot be, those that are new go again."""
    new: list[Path] = []
    for file, target in _others(files, out):
        staged = target.with_name(f".{target.name}.part")
        try:
            shutil.copyfile(file, staged)
            if not target.exists():
                new.append(target)
            os.replace(staged, target)
        except BaseException as error:
            for each in (staged, *new):
                each.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise ReadWriteError(f"{target}: cannot be written: {error.strerror}") from error
            raise
    return [file.name for file in files]
