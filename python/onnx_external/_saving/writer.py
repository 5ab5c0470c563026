"""Writes models tensor by tensor, for exporters that produce one tensor at a time."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Literal

from .. import _core
from .._base.argument_types import checks_types, of_class, refuse_others
from .._base.errors import InvalidArgumentError
from .._base.options import Layout, Mapping, StrPath, flat
from .._base.progress import Progress, shown
from .._sources.graphs import Graph, graph_without
from .._sources.tensors import checked_name, describe
from .save import target_of

_log = logging.getLogger("onnx_external")

_FILES = ("data_name", "max_shard_size", "align")
"""The fields of `Layout` that a Writer uses."""


class Writer:
    """Writes a model whose tensors are added one by one.

    ```python
    with oe.Writer("out/model.onnx") as writer:
        for name, tensor in tensors:
            writer.add(name, tensor)  # the tensor is not needed any more
        writer.finish(graph)
    ```

    Nothing is visible in the folder before finish() has returned. If the `with` ends in any other
    way, everything written is removed.
    """

    @checks_types
    def __init__(
        self,
        path: StrPath,
        *,
        layout: Literal["single", "per-tensor", "shards"] = "single",
        overwrite: bool = False,
        verify: bool = True,
        fsync: bool = True,
        threads: int = 0,
        mapping: Mapping | None = None,
        files: Layout | None = None,
    ) -> None:
        """Start a save. The model is not visible before finish().

        Args:
            path: the model's file, or the folder of a "model.onnx".
            layout: "single", "per-tensor" or "shards", as for `oe.save`.
            overwrite: replace an existing model.
            verify: read everything back before the model appears.
            fsync: wait until everything is on the disk.
            threads: the maximum number of threads for finish(); 0 means one per CPU.
            mapping: `oe.Mapping(partial=True)` accepts a graph that lacks weights; no runtime can
                open such a model. Other options are errors: tensors are added by name.
            files: `oe.Layout(data_name=, data_dir=, max_shard_size=, align=)`.

        Raises:
            ExistsError: the model exists, and `overwrite` is False.
            InvalidArgumentError: an option is not valid for a Writer, or a name is not a plain file
                name.
        """
        folder, name = target_of(path)
        assert folder is not None
        which, how = of_class("mapping", Mapping, mapping), of_class("files", Layout, files)
        refuse_others("mapping", which, ("partial",), "a Writer")
        refuse_others("files", how, ("data_dir", *_FILES), "a Writer")
        options: dict[str, Any] = {
            **{name: value for name, value in flat(how).items() if name in _FILES},
            "layout": layout,
            "overwrite": overwrite,
            "verify": verify,
            "fsync": fsync,
            "partial": which.partial,
            "threads": threads,
        }
        self._path = folder / name
        self._names: set[str] = set()
        self._finished = False
        self._core = _core.Writer(folder, name, how.data_dir, options)

    def add(self, name: str, tensor: object) -> None:
        """Write a tensor of any kind that a state dict can contain.

        Any thread may call this method. The tensor is no longer needed after the call.

        Args:
            name: the name of the initializer.
            tensor: a tensor of torch, numpy or onnx_ir, or an object with `__dlpack__` or
                `__array__`.

        Raises:
            Error: the tensor cannot be saved, or the disk is full.
        """
        self._core.add([describe(checked_name("add", name), tensor)])
        self._names.add(name)

    @checks_types
    def finish(self, model: Graph, *, progress: Progress = None) -> Path:
        """Read all data back, write the model, make it visible, and return its path.

        Args:
            model: the graph, in any form that `oe.save` takes. The added tensors become its
                initializers, and replace those of the same names; its other data stays inside it.
            progress: as for `oe.save`.

        Raises:
            MappingError: the graph has weights without data that were not added, or weights that
                contradict each other.
        """
        graph = graph_without(model, self._names)
        with shown(progress) as callback:
            self._core.finish(graph, callback)
        self._finished = True
        _log.info("saved %s: %d tensors", self._path, len(self._names))
        return self._path

    def close(self) -> None:
        """Remove everything written so far, unless finish() has completed."""
        self._core.abandon()

    def __enter__(self) -> Writer:
        """Return self."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Remove everything written so far, unless finish() has completed."""
        self.close()
        if kind is None and not self._finished:
            raise InvalidArgumentError(f"{self._path}: finish() was not called; nothing was saved")
