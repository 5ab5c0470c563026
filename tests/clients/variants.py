"""The results of a folder's variants by ONNX Runtime, to which clients are held."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import onnx_external as oe

SUFFIXES = {"fp32": "", "q8": "_quantized", "q4": "_q4"}


def wanted(folder: Path, job: dict[str, Any], dtype: str) -> Any:
    """Return what a job has to give with the graphs of one variant.

    That of floats has to give what transformers gives.
    """
    if not SUFFIXES[dtype]:
        return job["wanted"]
    given = {
        name: np.array(each["data"], each["type"]).reshape(each["shape"]) for name, each in job["inputs"].items()
    }
    if not job["count"]:
        path = folder / "onnx" / f"model{SUFFIXES[dtype]}.onnx"
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        taken = {each.name for each in session.get_inputs()}
        feed = {name: value for name, value in given.items() if name in taken}
        return session.run([job["output"]], feed)[0].flatten().tolist()
    with tempfile.TemporaryDirectory() as place:
        alone = Path(place) / "model"
        # That of GenAI names the graph of floats.
        shutil.copytree(folder, alone, ignore=shutil.ignore_patterns("genai_config.json"))
        for graph in (alone / "onnx").glob("*.onnx"):
            if not graph.stem.endswith(SUFFIXES[dtype]):
                graph.unlink()  # oe.generate takes the plainest
        if job["prompt"]:
            return oe.generate(alone, job["prompt"], job["count"], **given)[0]
        return oe.generate(alone, given["input_ids"].tolist(), job["count"])[0]
