"""Runs models on ONNX Runtime: on its Node package with Debian's torch, on its Python package in the environment."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

ORACLE = Path(__file__).resolve().parent.parent / "oracle"
sys.path.insert(0, str(ORACLE))


class NodeRuntime:
    """Runs batches of models in a node process, which loads ONNX Runtime once."""

    def __init__(self, node_modules: Path):
        self._command = ["node", str(ORACLE / "ort_run.js"), str(node_modules)]
        self._process = None

    def run(self, folder: Path, jobs: list) -> list:
        """jobs: (model path, [{input name: tensor}]); for each a list of outputs' lists, or why it does not run."""
        listing = []
        for number, (model, feeds) in enumerate(jobs):
            for index, feed in enumerate(feeds):
                out = folder / f"out{number}.{index}"
                listing.append({"model": str(model), "inputs": self._write(out, feed), "out": str(out)})
        (folder / "jobs.json").write_text(json.dumps(listing))
        answers = self._answers(folder / "jobs.json")
        if len(answers) != len(listing):
            raise RuntimeError("node ended; its last words are above")
        results = iter(zip(listing, answers))
        return [self._gather([next(results) for _ in feeds]) for _, feeds in jobs]

    def _answers(self, jobs: Path) -> list:
        """Those that node gives before it ends: then the next jobs get another process."""
        if not self._process:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._process = subprocess.Popen(self._command, **pipes, text=True, bufsize=1)
        self._process.stdin.write(f"{jobs}\n")
        answers = []
        for line in self._process.stdout:
            if line == "\n":
                return answers
            answers.append(json.loads(line))
        self._process.wait()
        self._process = None
        return answers

    @staticmethod
    def _write(out: Path, feed: dict) -> list:
        inputs = []
        for place, (name, value) in enumerate(feed.items()):
            file = out.with_name(f"{out.name}.in{place}")
            file.write_bytes(value.numpy().tobytes())
            dtype = str(value.dtype)[6:]
            inputs.append({"name": name, "dtype": dtype, "shape": list(value.shape), "file": str(file)})
        return inputs

    @staticmethod
    def _gather(answers: list):
        sets = []
        for job, answer in answers:
            if not answer["ok"]:
                return answer["error"]
            outputs = []
            for index, facts in enumerate(answer["outputs"]):
                data = (Path(job["out"]) / f"{index}.bin").read_bytes()
                array = np.frombuffer(data, dtype=facts["dtype"]).reshape(facts["shape"])
                outputs.append(torch.from_numpy(array.copy()))
            sets.append(outputs)
        return sets


class PythonRuntime:
    """Runs models in this process."""

    def run(self, folder: Path, jobs: list) -> list:
        return [self._run(model, feeds) for model, feeds in jobs]

    @staticmethod
    def _run(model: Path, feeds: list):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
            sets = [
                session.run(None, {name: value.numpy() for name, value in feed.items()}) for feed in feeds
            ]
        except Exception as error:  # the runtime's own classes, which it does not document
            return str(error)
        return [[torch.from_numpy(np.array(array)) for array in outputs] for outputs in sets]
