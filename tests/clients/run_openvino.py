"""Runs graphs with OpenVINO and ONNX Runtime. usage: run_openvino.py JOBS.json ANSWERS.json (files of clients.py)

The answer is the largest difference of an output, as a fraction of its largest value.
"""

from pathlib import Path

import numpy as np
import onnxruntime
import openvino
from answering import answers

PAST = 3
ROWS_AND_TOKENS = ((1, 4), (2, 1))
"""Behind a cache, ONNX Runtime's attention takes several rows or several tokens."""
TYPES = {"tensor(int64)": np.int64, "tensor(float)": np.float32, "tensor(bool)": np.bool_}


def answer(job: dict) -> dict:
    folder = Path(job["folder"])
    return {"error_of_graphs": max(_difference(path) for path in sorted(folder.rglob("*.onnx")))}


def _difference(path: Path) -> float:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    core = openvino.Core()
    precise = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(path), "CPU", precise)
    worst = 0.0
    for rows, tokens in ROWS_AND_TOKENS:
        sizes = {
            "batch_size": rows, "sequence_length": tokens, "past_sequence_length": PAST,
            "total_sequence_length": PAST + tokens, "samples": 800, "height": 32, "width": 32,
        }  # fmt: skip
        given = {each.name: _value(each, sizes, rows > 1) for each in session.get_inputs()}
        wanted, found = session.run(None, given), compiled(given)
        for value, output in zip(wanted, session.get_outputs(), strict=True):
            if value.size:
                error = np.abs(value - found[output.name]).max()
                worst = max(worst, float(error / max(1.0, np.abs(value).max())))
    return worst


def _value(form, sizes: dict, has_cache: bool):
    random = np.random.default_rng(len(form.name))
    shape = [size if isinstance(size, int) else sizes.get(size, 5) for size in form.shape]
    if form.name == "use_cache_branch":
        return np.array([has_cache])
    if "mask" in form.name or form.name == "token_type_ids":
        return np.ones(shape, np.int64)
    if form.name == "position_ids":
        return np.broadcast_to(np.arange(shape[1]) + PAST, shape).astype(np.int64)
    kind = TYPES[form.type]
    if kind is np.int64:
        return random.integers(5, 90, shape)
    return random.standard_normal(shape).astype(kind)


answers(answer)
