"""Tests the progress bar on a terminal, and the output folder after a signal.

usage: terminal_test.py BIN_DIR WORK_DIR
"""

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import onnx
from onnx import TensorProto, helper

TENSORS, BYTES = 6, 64 << 20
MAX_TRIES = 60
PAUSE_SECONDS = 0.6


def make_input(work: Path) -> tuple:
    """Return a graph without weights, and a checkpoint of zeros."""
    names = [f"w{i}" for i in range(TENSORS)]
    shape = [BYTES // 4]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in names]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    graph = helper.make_graph([helper.make_node("Sum", names, ["y"])], "g", inputs, [output])
    onnx.save(helper.make_model(graph), work / "graph.onnx")
    entries = {
        name: {"dtype": "F32", "shape": shape, "data_offsets": [i * BYTES, (i + 1) * BYTES]}
        for i, name in enumerate(names)
    }
    header = json.dumps(entries).encode()
    with open(work / "model.safetensors", "wb") as stream:
        stream.write(struct.pack("<Q", len(header)) + header)
        for _ in range(TENSORS):  # not a hole, which would be copied at once
            stream.write(bytes(BYTES))
    return work / "graph.onnx", work / "model.safetensors"


def pause(process: subprocess.Popen) -> None:
    """Pause the process, because the bar shows no rate before 0.3 s."""
    process.send_signal(signal.SIGSTOP)
    time.sleep(PAUSE_SECONDS)
    process.send_signal(signal.SIGCONT)


def run_on_terminal(command: list, columns: int, with_stdout: bool = False) -> tuple:
    """Return the exit code and everything that was drawn. The command is paused when it begins to draw."""
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = dict(os.environ, TERM="xterm")
    stdout = terminal if with_stdout else subprocess.DEVNULL
    process = subprocess.Popen(
        command, stdout=stdout, stderr=terminal, env=environment, close_fds=True
    )
    os.close(terminal)
    drawn = b""
    while True:
        try:
            piece = os.read(main, 65536)
        except OSError:  # the other end was closed
            break
        if not piece:
            break
        if not drawn:
            pause(process)
        drawn += piece
    os.close(main)
    return process.wait(), drawn.decode()


def check_lines(drawn: str, columns: int) -> None:
    """Check that one bar for copying and verifying fits the line, does not scroll, and never goes back."""
    assert "copying" in drawn and "verifying" in drawn, repr(drawn)
    assert "\n" not in drawn, f"the bar scrolls: {drawn!r}"
    lines = [line for line in drawn.split("\r\033[K") if line]
    assert all(len(line) < columns for line in lines), lines
    parts = [int(part) for line in lines for part in re.findall(r"(\d+)%", line)]
    assert parts == sorted(parts) and parts[-1] == 100, parts
    assert max(int(re.search(r"(\d+)%", line)[1]) for line in lines if "copying" in line) <= 50, lines


def check_bar(command: list, out: Path) -> None:
    for columns in (120, 80, 40, 20):
        code, drawn = run_on_terminal([*command, "-o", str(out)], columns)
        assert code == 0, drawn
        check_lines(drawn, columns)
        assert ("GB/s" in drawn) == (columns >= 80), repr(drawn)
        shutil.rmtree(out)
    code, drawn = run_on_terminal([*command, "-o", str(out), "--quiet"], 80)
    assert (code, drawn) == (0, ""), repr(drawn)
    shutil.rmtree(out)


def check_plan(command: list) -> None:
    for columns, has_files in ((120, True), (40, False)):
        code, drawn = run_on_terminal([*command, "--dry-run"], columns, with_stdout=True)
        assert code == 0 and ("initializers/w0" in drawn) == has_files, repr(drawn)
        assert len(next(line for line in drawn.splitlines() if "slot" in line)) <= columns, drawn


def interrupted_once(command: list, out: Path, number: int, delay: float) -> bool:
    """Return whether the signal came in time. In any case, no incomplete file may remain. The signal itself must end
    the process, so that a loop in a shell also stops.
    """
    process = subprocess.Popen(
        [*command, "-o", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    time.sleep(delay)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in (0, -number), (process.returncode, errors)
    if (out / "model.onnx").exists():  # the model was published before the signal arrived
        assert errors == "", errors
        shutil.rmtree(out)
        return False
    assert process.returncode == -number, errors
    assert not out.exists(), f"left behind: {sorted(out.rglob('*'))}"
    if not errors:
        return False  # before the command handled signals
    assert errors == "save-external: error: interrupted; nothing was written\n", errors
    return True


def check_signal(command: list, out: Path, number: int) -> None:
    tries = (interrupted_once(command, out, number, 0.02 + 0.01 * i) for i in range(MAX_TRIES))
    assert any(tries), f"{signal.Signals(number).name} never came in time"


def main() -> None:
    bin_dir, work = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    graph, checkpoint = make_input(work)
    command = [str(bin_dir / "save-external"), str(graph), str(checkpoint)]
    check_plan(command)
    check_bar(command, work / "out")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        check_signal(command, work / "out", number)
    shutil.rmtree(work)
    print("a plan fits; the bar draws and goes; signals leave nothing")


main()
