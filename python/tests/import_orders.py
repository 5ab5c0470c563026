"""Imports modules in many orders, each order in one process, and saves a model in between.

usage: import_orders.py TINY WORK_DIR [--around] MODULE...      prints how many orders there were
  --around  the last module at every place among the others, in their order and in reverse

By default it is every order. The processes form a tree: each forks a child for every module that
comes next in an order, and the child imports that. A leaf has imported all of them in the order of
its branch, as a program would have; only what orders begin with in common is done once. Every
process ends as Python programs do, so that what the libraries destroy is destroyed, too.
"""

import importlib
import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

Names = tuple[str, ...]

# A process that has imported one of these must not fork, because the child would wait for threads
# that it lacks.
START_THREADS = ("onnxruntime",)


def save_and_read(onnx_external: Any, tiny: Path, folder: Path) -> None:
    onnx_external.save(
        tiny / "graph.onnx", folder, tiny / "checkpoint.pt", overwrite=True, fsync=False
    )
    assert onnx_external.verify(folder, tiny / "checkpoint.pt").ok
    with onnx_external.open_checkpoint(tiny / "checkpoint.pt") as checkpoint:
        checkpoint["module.transformer.wte.weight"].numpy()
    try:  # exceptions pass through the libraries
        onnx_external.inspect(tiny / "no such file")
    except FileNotFoundError:
        return
    raise AssertionError("no exception")


def use(name: str, tiny: Path, folder: Path) -> None:
    """Use an imported module. It must not leave any thread, because the process forks."""
    module: Any = sys.modules[name]
    if name == "onnx_external":
        save_and_read(module, tiny, folder)
    elif name == "onnx":
        module.checker.check_model(module.load(tiny / "untrained_graph.onnx"))
    elif name == "onnx_ir":
        assert module.load(tiny / "untrained_graph.onnx").graph.num_nodes() > 0
    elif name == "torch":
        weights = module.load(tiny / "checkpoint.pt")["state_dict"]
        assert float(weights["module.transformer.wte.weight"].abs().sum()) > 0


def run_saved(tiny: Path, folder: Path) -> None:
    """Check ONNX Runtime's result. This starts threads, so the process must not fork afterwards."""
    runtime: Any = sys.modules["onnxruntime"]
    expected = json.loads((tiny / "expected.json").read_text())
    session = runtime.InferenceSession(str(folder / "model.onnx"))
    inputs = {name: np.array(value) for name, value in expected["input"].items()}
    (logits,) = session.run(None, inputs)
    np.testing.assert_allclose(logits.ravel(), expected["output"]["logits"], atol=1e-4)


def import_all(done: Names, names: Names, tiny: Path, folder: Path) -> None:
    """Import `names` one after the other, and use all imported modules after each import."""
    for index, name in enumerate(names):
        importlib.import_module(name)
        for each in done + names[: index + 1]:
            use(each, tiny, folder)


def branch_off(done: Names, names: Names, left: list[Names], tiny: Path, work: Path) -> int:
    """Try all orders that begin with `done` and `names` in a child process; return their number."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        folder = work / str(os.getpid())
        import_all(done, names, tiny, folder)
        if not left and "onnxruntime" in done + names:
            run_saved(tiny, folder)
        os.write(writer, str(grow(done + names, left, tiny, work) if left else 1).encode())
        sys.exit()
    os.close(writer)
    with os.fdopen(reader) as stream:
        counted = stream.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0:
        cause = signal.Signals(-status).name if status < 0 else f"status {status}"
        sys.exit(f"import {', '.join(done + names)}: {cause}")
    return int(counted)


def grow(done: Names, orders: list[Names], tiny: Path, work: Path) -> int:
    """Try all orders behind `done`; return their number."""
    counted = 0
    for name in dict.fromkeys(order[0] for order in orders):
        left = [order[1:] for order in orders if order[0] == name]
        if name in START_THREADS or len(left) == 1:
            counted += sum(branch_off(done, (name, *rest), [], tiny, work) for rest in left)
        else:
            counted += branch_off(done, (name,), left, tiny, work)
    return counted


def around(others: Names, name: str) -> list[Names]:
    """Return the orders with a module at every place among others, and among those in reverse."""
    places = range(len(others) + 1)
    return [(*o[:place], name, *o[place:]) for o in (others, others[::-1]) for place in places]


def main() -> None:
    tiny, work, modules = Path(sys.argv[1]), Path(sys.argv[2]), tuple(sys.argv[3:])
    if modules[0] == "--around":
        orders = around(modules[1:-1], modules[-1])
    else:
        orders = list(itertools.permutations(modules))
    print(grow((), orders, tiny, work))


if __name__ == "__main__":
    main()
