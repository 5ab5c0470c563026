"""Computes the results of a folder's variants with ONNX Runtime, which clients must reproduce."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import onnx_external as oe

SUFFIXES = {"fp32": "", "q8": "_quantized", "q4": "_q4"}


def wanted(folder: Path, job: dict[str, Any], dtype: str) -> Any:
    """Return the expected answer of a job with the graphs of one variant.

    The float variant must give transformers' results.
    """
    if not SUFFIXES[dtype]:
        return job["wanted"]
    given = {
        name: np.array(each["data"], each["type"]).reshape(each["shape"]) for name, each in job["inputs"].items()
    }
    with tempfile.TemporaryDirectory() as place:
        alone = Path(place) / "model"
        # The config for GenAI names the float graph.
        shutil.copytree(folder, alone, ignore=shutil.ignore_patterns("genai_config.json"))
        for graph in (alone / "onnx").glob("*.onnx"):
            if graph.stem.endswith(SUFFIXES[dtype]):
                _compute_in_floats(graph)
            else:
                graph.unlink()  # oe.generate chooses the graph without a suffix
        if job["count"]:
            prompts = job["prompt"] or given.pop("input_ids").tolist()
            return oe.generate(alone, prompts, job["count"], **(given if job["prompt"] else {}))[0]
        path = alone / "onnx" / f"model{SUFFIXES[dtype]}.onnx"
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        taken = {each.name for each in session.get_inputs()}
        feed = {name: value for name, value in given.items() if name in taken}
        return session.run([job["output"]], feed)[0].flatten().tolist()


def _compute_in_floats(path: Path) -> None:
    """Make a graph compute without rounding activations. ONNX Runtime rounds them, but not in a browser."""
    model = onnx.load(path, load_external_data=False)
    for node in _nodes(model.graph):
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 0
    path.write_bytes(model.SerializeToString())


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from _nodes(attribute.g)
