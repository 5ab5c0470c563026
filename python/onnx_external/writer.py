"""Writing tensor by tensor, for exporters whose tensors come one by one and go away."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from . import _core
from .errors import InvalidArgumentError
from .graphs import Graph, graph_without
from .progress import Progress, shown
from .save import target_of
from .tensors import checked_name, describe

__all__ = ["Writer"]

_log = logging.getLogger("onnx_external")


class Writer:
    """Writes a model whose tensors are given one by one.

    ```python
    with oe.Writer("out/model.onnx") as writer:
        for name, tensor in tensors:
            writer.add(name, tensor)  # it may go away now
        writer.finish(graph)
    ```

    Nothing is visible in the folder before finish() has returned. Whatever else ends the `with`
    removes everything that was written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        layout: str = "single",
        data_name: str | None = None,
        data_dir: str = "initializers",
        max_shard_size: int | str | None = None,
        align: int | None = None,
        overwrite: bool = False,
        verify: bool = True,
        fsync: bool = True,
        partial: bool = False,
        threads: int = 0,
    ) -> None:
        """Start a save; the arguments are those of `oe.save`.

        Args:
            path: the model's file, or the folder of a "model.onnx".
            layout: "single", "per-tensor" or "shards".
            partial: take a graph that lacks weights; no runtime opens the model then.
        """
        folder, name = target_of(path)
        assert folder is not None
        options: dict[str, Any] = {
            "layout": layout,
            "data_name": data_name,
            "max_shard_size": max_shard_size,
            "align": align,
            "overwrite": overwrite,
            "verify": verify,
            "fsync": fsync,
            "partial": partial,
            "threads": threads,
        }
        self._path = folder / name
        self._names: set[str] = set()
        self._finished = False
        self._core = _core.Writer(folder, name, data_dir, options)

    def add(self, name: str, tensor: object) -> None:
        """Write a tensor, of any kind that a state dict may have. Any thread may call this.

        The tensor is not used any more when this returns. Its name is that of an initializer.
        """
        self._core.add([describe(checked_name("add", name), tensor)])
        self._names.add(name)

    def finish(self, model: Graph, *, progress: Progress = None) -> Path:
        """Read everything back, write the model and make it visible. Return its path.

        Args:
            model: the graph, in any form that `oe.save` takes. The tensors that were added become
                its initializers, in the place of those of their names if it has some; other data
                of it stays inside of it.
            progress: as for `oe.save`.

        Raises:
            MappingError: the graph has weights that were not added and that it does not hold.
        """
        graph = graph_without(model, self._names)
        with shown(progress) as callback:
            self._core.finish(graph, callback)
        self._finished = True
        _log.info("saved %s: %d tensors", self._path, len(self._names))
        return self._path

    def close(self) -> None:
        """Remove what was written, unless it is finished."""
        self._core.abandon()

    def __enter__(self) -> Writer:
        """Return self."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove what was written, unless it is finished."""
        self.close()
        if kind is None and not self._finished:
            raise InvalidArgumentError(f"{self._path}: finish() was not called; nothing was saved")
