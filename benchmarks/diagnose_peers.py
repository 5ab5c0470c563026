"""Compare oe.diagnose with other tools that locate the fault in a wrong model.

usage: diagnose_peers.py FOLDER [--layers 8] [--hidden 512] [--seed 1]
                         [--kinds element,...] [--tools ours,...] [--python PYTHON]

The script writes a BERT with random weights into FOLDER, its graph from torch.onnx.export, and a copy of the graph for
each kind of fault in tests/diagnose, planted in a place drawn by the seed. (`overflow` is left out, because its values
are so large that the absolute tolerances of other tools are meaningless.) Each tool searches for each fault:

    ours     oe.diagnose: the model file and the module of torch
    verify   torch.onnx.verification.verify_onnx_program(compare_intermediates=True): the same;
             with the ExportedProgram, whose names the graph has
    marked   `polygraphy run --onnx-outputs mark all`: the model file and a sound one, since
             Polygraphy knows no torch; the sound one's outputs are computed before
    reduced  `polygraphy debug reduce --mode bisect`: likewise

The Markdown table shows what the tool reports (the module, the first value that differs, or the remaining nodes) and
whether the report is right. It also shows wall and CPU seconds, the largest RssAnon of all processes, and the bytes
written. The times are those of the call for `ours` and `verify`, and of the command for the others. PYTHON is an
interpreter in an environment that has Polygraphy and onnx_graphsurgeon.

Needs torch, transformers, onnx, onnxruntime and the package. Linux.
"""

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from diagnose_memory import memory, mib

TESTS = Path(__file__).resolve().parent.parent / "tests" / "diagnose"
sys.path.append(str(TESTS))

INPUTS, GOLDEN, RATIO = "inputs.json", "golden.json", 2.0
TOLERANCE = ["--atol", "1e-3", "--rtol", "1e-3"]
SET = Path("sound", "inputs.npz")


def module_and_inputs(folder: Path) -> tuple:
    import torch
    import transformers

    torch.manual_seed(2)
    ids = torch.randint(4, 1000, (2, 24))
    model = transformers.BertForMaskedLM.from_pretrained(folder / "saved").eval()
    return model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def exported(folder: Path) -> tuple:
    import torch

    model, given = module_and_inputs(folder)
    program = torch.onnx.export(model, (), kwargs=given, dynamo=True, verbose=False)
    return model, given, program


# --- the tools of Python, each in a process of its own: what is there, then the call ---------


def ours(folder: Path, model: Path) -> Callable[[], dict]:
    import onnx_external as oe

    module, given = module_and_inputs(folder)

    def call() -> dict:
        report = oe.diagnose(model, module, given)
        return {"module": None if report.first is None else report.first.name}

    return call


def verify(folder: Path, model: Path) -> Callable[[], dict]:
    import onnx_ir
    from torch.onnx.verification import verify_onnx_program

    _, given, program = exported(folder)

    def call() -> dict:
        program.model = onnx_ir.external_data.load_to_model(onnx_ir.load(model))
        found = verify_onnx_program(program, (), given, compare_intermediates=True)
        wrong = {each.name for each in found if not each.max_abs_diff <= 1e-3}
        order = [v.name for node in program.model.graph for v in node.outputs]
        return {"value": next((name for name in order if name in wrong), None)}

    return call


PROGRAMS = {"ours": ours, "verify": verify}


def one(tool: str, folder: Path, model: Path) -> None:
    call = PROGRAMS[tool](folder, model)
    print("ready", flush=True)
    sys.stdin.readline()
    before, start, used = written_by(os.getpid()), time.perf_counter(), time.process_time()
    found = call()
    found["seconds"], found["cpu"] = time.perf_counter() - start, time.process_time() - used
    found["written"] = written_by(os.getpid()) - before
    print(json.dumps(found), flush=True)


def written_by(process: int) -> int:
    """Return the bytes that a process and its ended children have written."""
    lines = Path(f"/proc/{process}/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("wchar")).split()[1])


# --- the model and its faults ----------------------------------------------------------------


def make(folder: Path, layers: int, hidden: int, seed: int, kinds: list[str]) -> dict[str, dict]:
    """Return the correct model, a folder for each fault, and the expected location of each fault."""
    import numpy as np
    import torch
    import transformers
    from faults import KINDS
    from graphs import Graph, beyond

    torch.manual_seed(seed)
    config = transformers.BertConfig(
        hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=layers,
        num_attention_heads=hidden // 64, vocab_size=30_000,
    )  # fmt: skip
    model = transformers.BertForMaskedLM(config)
    model.save_pretrained(folder / "saved")
    _, given, program = exported(folder)
    (folder / "sound").mkdir()
    program.save(folder / "sound" / "model.onnx", external_data=True)
    feed = {name: value.numpy() for name, value in given.items()}
    np.savez(folder / SET, **feed)
    sound = Graph(folder / "sound" / "model.onnx")
    values = sound.run(feed)
    expected = {"sound": {"module": None, "place": "", "values": []}}
    for kind in kinds:
        draw = random.Random(f"{seed} {kind}")
        while kind not in expected:
            fault = KINDS[kind](sound, draw, [values])
            shutil.rmtree(folder / kind, ignore_errors=True)
            shutil.copytree(folder / "sound", folder / kind)
            fault.plant(Graph(folder / kind / "model.onnx"))
            try:
                got = Graph(folder / kind / "model.onnx").run(feed)
            except Exception:  # raised by ONNX Runtime if the graph is no longer valid
                continue
            first = fault.modules[0]
            far = [beyond(got[n], values[n]) for n in first.outputs if n in values]
            ends = [value.name for value in sound.model.graph.output]
            if max(far, default=0) > RATIO and beyond(got[ends[0]], values[ends[0]]) > RATIO:
                inside = [v for n in sound.nodes if first.name in _scopes(n) for v in n.output]
                expected[kind] = {"module": first.name, "place": fault.place, "values": inside}
    return expected


def _scopes(node: object) -> list[str]:
    from graphs import scopes

    return scopes(node)


# --- measuring -------------------------------------------------------------------------------


def watched(process: subprocess.Popen) -> int:
    peak = 0
    while process.poll() is None:
        peak = max(peak, memory(process.pid)[0])
        time.sleep(0.02)
    return peak


def program(tool: str, folder: Path, model: Path) -> dict:
    line = [sys.executable, __file__, str(folder), "--one", tool, "--model", str(model)]
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    for text in process.stdout:
        if text == "ready\n":
            break
    process.stdin.write("\n")
    process.stdin.flush()
    peak = watched(process)
    lines = process.stdout.read().splitlines()
    if process.returncode or not lines:
        return {"failed": f"exit {process.returncode}"}
    return {"memory": peak, **json.loads(lines[-1])}


def command(line: list, folder: Path) -> dict:
    """Return a command inside a shell, whose written bytes are read when the command has ended."""
    shell = 'log=$1; shift; "$@" >"$log" 2>&1; code=$?; cat /proc/$$/io; exit $code'
    start, used = time.perf_counter(), cpu_of_children()
    process = subprocess.Popen(
        ["sh", "-c", shell, "sh", folder / "log", *line],
        stdout=subprocess.PIPE, text=True, cwd=folder,
    )  # fmt: skip
    peak = watched(process)
    assert process.stdout is not None
    io = dict(each.split(": ") for each in process.stdout.read().splitlines())
    if process.returncode not in (0, 1):  # 1 means that Polygraphy has found differences
        raise SystemExit(f"{line}: exit {process.returncode}, see {folder / 'log'}")
    times = {"seconds": time.perf_counter() - start, "cpu": cpu_of_children() - used}
    return {"memory": peak, **times, "written": int(io["wchar"])}


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Polygraphy:
    """The commands of Polygraphy. `golden` computes the values of the correct model once."""

    def __init__(self, python: str, folder: Path) -> None:
        self._program, self._folder = Path(python).with_name("polygraphy"), folder
        self._script = folder / "inputs.py"
        self._script.write_text(
            f"import numpy\n\ndef load_data():\n    yield dict(numpy.load({str(folder / SET)!r}))\n"
        )

    def _run(self, model: Path | str, *more: str) -> list:
        line = [self._program, "run", model, "--onnxrt", "--data-loader-script", self._script]
        return [*line, *more]

    def golden(self) -> dict:
        more = ("--onnx-outputs", "mark", "all", "--save-outputs", GOLDEN)
        return command(self._run(self._folder / "sound" / "model.onnx", *more), self._folder)

    def marked(self, model: Path) -> dict:
        more = ("--onnx-outputs", "mark", "all", "--load-outputs", GOLDEN, *TOLERANCE)
        found = command(self._run(model, *more), self._folder)
        text = (self._folder / "log").read_text(errors="replace")
        failed = [line.split("'")[1] for line in text.splitlines()
                  if "FAILED | Output: '" in line]  # fmt: skip
        return {**found, "value": failed[0] if failed else None}

    def reduced(self, model: Path) -> dict:
        target = self._folder / "reduced.onnx"
        target.unlink(missing_ok=True)
        check = self._run("polygraphy_debug.onnx", "--load-outputs", GOLDEN, *TOLERANCE)
        line = [self._program, "debug", "reduce", model, "-o", target, "--mode", "bisect"]
        found = command([*line, "--check", *check], self._folder)
        if not target.exists():
            return {**found, "value": None}
        import onnx

        nodes = onnx.load(target, load_external_data=False).graph.node
        values = [value for node in nodes for value in node.output]
        return {**found, "value": values[-1] if values else None, "nodes": len(nodes)}


def row(tool: str, kind: str, found: dict, expected: dict) -> str:
    if "failed" in found:
        return f"| {tool} | {kind} | {found['failed']} | | | | | |"
    if "module" in found:
        name, right = found["module"], found["module"] == expected["module"]
    else:
        name = found["value"]
        right = name in expected["values"] if expected["module"] else name is None
        if found.get("nodes"):
            name = f"{name}, {found['nodes']} nodes"
    told = f"{name or 'nothing'} | {'yes' if right else 'no'} | {found['seconds']:.1f}"
    told += f" | {found['cpu']:.1f}"
    return f"| {tool} | {kind} | {told} | {mib(found['memory'])} | {found['written'] / 1e6:,.1f} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="is made, and removed at the end")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default="element,swap,transpose,setting,operator")
    parser.add_argument("--tools", default="ours,verify,marked,reduced")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    folder = given.folder.resolve()
    if given.one:
        one(given.one, folder, given.model)
        return 0
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    expected = make(folder, given.layers, given.hidden, given.seed, given.kinds.split(","))
    size = sum(path.stat().st_size for path in (folder / "sound").iterdir())
    print(f"{given.layers} layers of {given.hidden}, {size / 1e6:.0f} MB\n", flush=True)
    for kind, about in expected.items():
        print(f"- {kind}: {about['place']}, in {about['module']}")
    print("\n| tool | fault | names | right | s | s of the CPU | RssAnon, MiB | MB written |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    tools, polygraphy = given.tools.split(","), None
    if {"marked", "reduced"} & set(tools):
        polygraphy = Polygraphy(given.python, folder)
        print(row("golden", "sound", {"value": None, **polygraphy.golden()}, expected["sound"]))
    for tool in tools:
        for kind, about in expected.items():
            if tool == "reduced" and kind == "sound":
                continue  # it cannot be reduced any further
            model = folder / kind / "model.onnx"
            work = program if tool in PROGRAMS else None
            found = work(tool, folder, model) if work else getattr(polygraphy, tool)(model)
            print(row(tool, kind, found, about), flush=True)
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
