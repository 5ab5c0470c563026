"""Reduces a graph's metadata to scopes and source lines, without data about the machine.

torch writes the whole stack trace of each node into the model, with paths on the exporting machine,
and names the node's module three times. These texts are nine tenths of a graph without weights.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ._tracing import is_library
from ._walking import all_nodes, all_values

if TYPE_CHECKING:
    import onnx_ir

LINE = "line"
"""The key in a node's metadata for its line of code, such as "modeling_llama.py:259"."""
FILES = "pkg.onnx_external.files"
"""The key in the graph's metadata for the files of these lines. The file names start with their
package, and are separated by line breaks."""

_TRACE = "pkg.torch.onnx.stack_trace"
_FX_NODE = "pkg.torch.onnx.fx_node"
_REPEATING = ("namespace", "pkg.torch.onnx.class_hierarchy")
"""Metadata of nodes that repeats name_scopes and the source lines."""
_OF_GRAPH = (
    "pkg.torch.export.ExportedProgram.graph_signature",
    "pkg.torch.export.ExportedProgram.range_constraints",
)
"""Metadata of the graph that repeats the metadata and the shapes of values."""
_ORIGINAL = "pkg.torch.onnx.original_node_name"
_KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
_PERSISTENT = "pkg.torch.export.graph_signature.InputSpec.persistent"
_FRAME = re.compile(r'File "(.+?)", line (\d+)')
_WEIGHT = re.compile(r"%[pbc]_")
"""The start of the name of a parameter, buffer or constant in torch's description of a node."""
_OF_TORCH = "torch/"
"""The path prefix of torch's own files in the stack traces that torch records."""
_PROGRAM = "node"
"""The key under which onnx_ir's objects keep the node of torch's program."""
_REMOTE = "transformers_modules"
"""The package into which transformers copies a folder's code, under the folder's name."""


def fold_metadata(model: onnx_ir.Model) -> None:
    """Remove metadata that is redundant or names the machine, and shorten source locations.

    Args:
        model: the model from torch.onnx, optimized or not.
    """
    model.producer_version = (model.producer_version or "").partition("+")[0] or None
    for key in _OF_GRAPH:
        model.graph.metadata_props.pop(key, None)
    for value in (*all_values(model), *model.graph.initializers.values()):
        value.metadata_props.pop(_ORIGINAL, None)
        value.meta.pop(_PROGRAM, None)
        if value.metadata_props.get(_PERSISTENT) == "None":
            del value.metadata_props[_PERSISTENT]
    _name_lines(model)


def drop_unread(model: onnx_ir.Model) -> None:
    """Remove torch's descriptions of nodes, except those that read or mention a weight.

    Args:
        model: the model to save. Afterwards, its layers cannot be repeated: that needs these texts.
    """
    for node in all_nodes(model):
        text = node.metadata_props.get(_FX_NODE)
        reads = any(value is not None and _KIND in value.metadata_props for value in node.inputs)
        if text is not None and not reads and _WEIGHT.search(text) is None:
            del node.metadata_props[_FX_NODE]


def _name_lines(model: onnx_ir.Model) -> None:
    places: list[tuple[onnx_ir.Node, str, str]] = []
    for node in all_nodes(model):
        node.meta.pop(_PROGRAM, None)
        for key in _REPEATING:
            node.metadata_props.pop(key, None)
        trace = node.metadata_props.pop(_TRACE, "")
        places += [(node, *each) for each in list(_places(trace))[-1:]]
    named = {path: portable_name(path) for path in dict.fromkeys(path for _, path, _ in places)}
    short = _short_names(set(named.values()))
    for node, path, line in places:
        node.metadata_props[LINE] = f"{short[named[path]]}:{line}"
    if named:
        model.graph.metadata_props[FILES] = "\n".join(sorted(short))


def _places(trace: str) -> Iterator[tuple[str, str]]:
    """Yield files and lines of a stack trace outside torch and this package, outermost first."""
    for path, line in _FRAME.findall(trace):
        if not is_library(path) and not path.startswith(_OF_TORCH):
            yield path, line


def _short_names(names: Collection[str]) -> dict[str, str]:
    """Return the last part of each file name, or the whole name if the last part is not unique."""
    last = [name.rpartition("/")[2] for name in names]
    return {
        name: own if last.count(own) == 1 else name for name, own in zip(names, last, strict=True)
    }


def portable_name(path: str) -> str:
    """Return the path of a source file, starting with its package: the same on all machines.

    Args:
        path: the path of the file. If it is in no package, the result is the file name alone.
    """
    file = Path(path)
    parts = [file.name]
    for folder in file.parents:
        if not (folder / "__init__.py").is_file():
            break
        parts.insert(0, folder.name)
    return file.name if parts[0] == _REMOTE else "/".join(parts)
