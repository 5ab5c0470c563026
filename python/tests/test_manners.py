"""Saves of what is in memory beside other threads, processes and signals."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import open_graph, saved_bytes

import onnx_external as oe

torch = pytest.importorskip("torch")


def weights(count: int, elements: int) -> dict[str, Any]:
    return {f"layer.{i}.weight": torch.full((elements,), float(i)) for i in range(count)}


def graph_for(tensors: dict[str, Any]) -> Any:
    return open_graph({name: ("float32", tuple(t.shape)) for name, t in tensors.items()})


def right(folder: Path, tensors: dict[str, Any]) -> bool:
    return saved_bytes(folder) == {name: t.numpy().tobytes() for name, t in tensors.items()}


INTERRUPTED = """
import sys, torch, onnx
import onnx_external as oe
count = 24
tensors = {f"layer.{i}.weight": torch.full((1 << 23,), float(i)) for i in range(count)}
model = onnx.load(sys.argv[1])
print("go", flush=True)
oe.save(model, sys.argv[2], tensors, fsync=False)
print("saved", flush=True)
"""


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.2, 0.4])
def test_ctrl_c_during_a_save_from_memory_leaves_nothing_half_written(
    delay: float, tmp_path: Path
) -> None:
    import onnx

    graph = open_graph({f"layer.{i}.weight": ("float32", (1 << 23,)) for i in range(24)})
    onnx.save(graph, tmp_path / "graph.onnx")
    command = [sys.executable, "-c", INTERRUPTED, tmp_path / "graph.onnx", tmp_path / "out"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "go\n"
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=120)
    # A fast disk was done before the signal came, or while it came: then the whole model is there.
    assert process.returncode == 0 or process.returncode == -signal.SIGINT, errors
    if (tmp_path / "out").exists():
        assert oe.verify(tmp_path / "out" / "model.onnx").ok
    else:
        assert "saved" not in output


MANY_FILES = """
import resource, sys
import numpy as np, onnx_ir
import onnx_external as oe
folder, count = sys.argv[1], 1000
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
values, nodes = [], []
for i in range(count):
    value = onnx_ir.Value(name=f"w{i}")
    value.const_value = onnx_ir.ExternalTensor(
        f"{i}.bin", 0, 1200, onnx_ir.DataType.FLOAT, shape=onnx_ir.Shape([300]),
        name=f"w{i}", base_dir=f"{folder}/{i % 7}",
    )
    values.append(value)
    nodes.append(onnx_ir.node("Identity", [value]))
outputs = [node.outputs[0] for node in nodes]
graph = onnx_ir.Graph([], outputs, nodes=nodes, initializers=values, opset_imports={"": 21})
oe.save(onnx_ir.Model(graph, ir_version=10), f"{folder}/out", fsync=False)
"""


def test_tensors_may_lie_in_more_files_than_may_be_open(tmp_path: Path) -> None:
    pytest.importorskip("onnx_ir")
    data = {f"w{i}": np.full(300, i, np.float32).tobytes() for i in range(1000)}
    for i, (_, content) in enumerate(data.items()):
        (tmp_path / str(i % 7)).mkdir(exist_ok=True)
        (tmp_path / str(i % 7) / f"{i}.bin").write_bytes(content)
    subprocess.run([sys.executable, "-c", MANY_FILES, tmp_path], check=True)
    assert saved_bytes(tmp_path / "out") == data


def test_two_threads_may_save_the_same_tensors(tmp_path: Path) -> None:
    tensors = weights(8, 1 << 16)
    graph = graph_for(tensors)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            oe.save(graph, tmp_path / str(number), tensors, fsync=False)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert all(right(tmp_path / str(number), tensors) for number in range(4))


def test_python_goes_on_while_bytes_move(tmp_path: Path) -> None:
    tensors = weights(16, 1 << 22)
    ticks = 0
    stop = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    before = ticks
    oe.save(graph_for(tensors), tmp_path, tensors, fsync=False)
    moved = ticks - before
    stop.set()
    thread.join()
    assert moved > 0


def test_a_process_may_fork_before_and_after_a_save_from_memory(tmp_path: Path) -> None:
    tensors = weights(4, 1 << 12)
    lazy = {"layer.4.weight": np.arange(4096, dtype=np.float32)[::-1]}  # made on demand
    graph = open_graph({**dict.fromkeys([*tensors, *lazy], ("float32", (4096,)))})
    oe.save(graph, tmp_path / "parent", tensors | lazy)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            oe.save(graph, tmp_path / "child", tensors | lazy)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert saved_bytes(tmp_path / "child") == saved_bytes(tmp_path / "parent")


def test_a_save_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "onnx_external"):
        tensors = weights(2, 100)
        oe.save(graph_for(tensors), tmp_path, tensors)
    assert [record.name for record in caplog.records] == ["onnx_external"]
    assert "2 tensors" in caplog.text


def test_an_exception_of_the_callback_stops_a_save_from_memory(tmp_path: Path) -> None:
    tensors = weights(16, 1 << 22)

    def refuse(phase: str, done: int, total: int) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        oe.save(graph_for(tensors), tmp_path / "out", tensors, progress=refuse, fsync=False)
    assert not (tmp_path / "out").exists()


def test_memory_stays_flat(tmp_path: Path) -> None:
    tensors = weights(16, 1 << 22)

    def peak() -> int:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
        raise AssertionError

    try:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak until now
    except OSError:
        pytest.skip("the peak of this process cannot be reset")
    before = peak()
    oe.save(graph_for(tensors), tmp_path, tensors, fsync=False)
    assert peak() - before < 64 << 20 < sum(t.nbytes for t in tensors.values())
