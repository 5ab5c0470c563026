"""Tests of saves from memory together with other threads, processes and signals."""

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
    # If the disk was so fast that the save ended before the signal, the model is complete.
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
    lazy = {"layer.4.weight": np.arange(4096, dtype=np.float32)[::-1]}  # produced on demand
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


FORKS = """
import os, signal, sys, threading
import numpy as np, onnx
import onnx_external as oe

graph, folder = onnx.load(sys.argv[1]), sys.argv[2]
tensors = {f"layer.{i}.weight": np.full(1 << 16, i, np.float32) for i in range(4)}
stop, failure = threading.Event(), []


def save_again_and_again():
    try:
        while not stop.is_set():
            oe.save(graph, f"{folder}/parent", tensors, overwrite=True, fsync=False, progress=True)
    except BaseException as error:
        failure.append(error)


def child(number):
    signal.alarm(60)  # so that the test cannot hang
    code = 1
    try:
        oe.save(graph, f"{folder}/child{number}", tensors, fsync=False, progress=True)
        code = 0
    finally:
        if number % 2:
            os._exit(code)
        os.write(writing, bytes([code]))
        signal.pause()  # stays alive with everything inherited from its parent


thread = threading.Thread(target=save_again_and_again)
thread.start()
reading, writing = os.pipe()
children = []
for number in range(8):
    children.append(os.fork())
    if children[-1] == 0:
        child(number)
    if number % 2:
        assert os.waitstatus_to_exitcode(os.waitpid(children.pop(), 0)[1]) == 0
    else:
        assert os.read(reading, 1) == bytes(1)
stop.set()
thread.join()
for each in children:
    os.kill(each, signal.SIGKILL)
    os.waitpid(each, 0)
assert not failure, failure
"""


def test_children_that_are_forked_during_a_save_save_and_do_not_disturb_it(tmp_path: Path) -> None:
    import onnx

    pytest.importorskip("tqdm")
    names = [f"layer.{i}.weight" for i in range(4)]
    onnx.save(open_graph(dict.fromkeys(names, ("float32", (1 << 16,)))), tmp_path / "graph.onnx")
    command = [sys.executable, "-c", FORKS, tmp_path / "graph.onnx", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for folder in ("parent", *(f"child{number}" for number in range(8))):
        assert oe.verify(tmp_path / folder).ok


def test_a_bar_starts_no_thread(tmp_path: Path) -> None:
    pytest.importorskip("tqdm")
    before = threading.enumerate()
    tensors = weights(2, 100)
    oe.save(graph_for(tensors), tmp_path, tensors, progress=True)
    assert threading.enumerate() == before


def test_of_several_saves_to_one_new_folder_one_wins_and_the_others_say_why(tmp_path: Path) -> None:
    tensors = weights(2, 1 << 10)
    graph, barrier = graph_for(tensors), threading.Barrier(3)
    for number in range(20):
        ended: list[Any] = []

        def save(folder: Path, ended: list[Any] = ended) -> None:
            barrier.wait()
            try:
                ended.append(oe.save(graph, folder, tensors, fsync=False))
            except oe.Error as error:
                ended.append(str(error))

        folder = tmp_path / f"{number}" / "deep"
        threads = [threading.Thread(target=save, args=(folder,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        told = [each for each in ended if isinstance(each, str)]
        assert len(told) == 2
        assert all(
            "another save is writing" in each or "exists" in each.splitlines()[0] for each in told
        )
        assert right(folder, tensors)


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
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    except OSError:
        pytest.skip("the peak of this process cannot be reset")
    before = peak()
    oe.save(graph_for(tensors), tmp_path, tensors, fsync=False)
    assert peak() - before < 64 << 20 < sum(t.nbytes for t in tensors.values())
