"""Tests of the process of a command: signals, standard streams, temporary folders."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe
from onnx_external import __main__ as front
from onnx_external._base.temporary import temporary_folder
from onnx_external._commands.signals import Ended, ending_signals
from onnx_external._commands.streams import standard_streams

ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]

WORK = """
import sys, time
from pathlib import Path
from onnx_external._commands.command_line import Parser, run
from onnx_external._commands.signals import ending_signals
from onnx_external._base.temporary import temporary_folder

def work(_):
    with temporary_folder() as one, temporary_folder(Path("."), ".merged-adapter-") as other:
        (one / "copy").write_text("x")
        (other / "weights").write_text("x")
        print("ready", flush=True)
        time.sleep(60)
    return 0

with ending_signals():
    sys.exit(run(Parser("export", "x"), [], work))
"""

SPEAKS = """
import sys
from onnx_external._commands.command_line import Parser, run

def work(_):
    print("gr\\u00f6\\u00dfe " * int(sys.argv[1]))
    return 0

sys.exit(run(Parser("generate", "x"), [], work))
"""


def begun(folder: Path, **options: Any) -> Any:
    """Start a process that creates two temporary folders and waits."""
    given = {**os.environ, "TMPDIR": str(folder)}
    process = subprocess.Popen(
        [sys.executable, "-c", WORK],
        cwd=folder,
        env=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    assert len(list(folder.iterdir())) == 2
    return process


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_ends_a_command_once_it_has_cleaned_up(number: int, tmp_path: Path) -> None:
    process = begun(tmp_path)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -number  # like the native commands
    assert "cancelled; incomplete files were removed" in err and "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    process = begun(tmp_path, preexec_fn=ignore)  # like nohup
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM


def test_handlers_are_those_of_before_after_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [signal.getsignal(each) for each in ENDING]
    with ending_signals():
        assert [signal.getsignal(each) for each in ENDING] != before
    assert [signal.getsignal(each) for each in ENDING] == before
    at_exit: list[Callable[[], None]] = []  # not registered in this process
    monkeypatch.setattr("atexit.register", at_exit.append)
    with pytest.raises(Ended), ending_signals():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:  # a second signal would end the process at once
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert [signal.getsignal(each) for each in ENDING] == before
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr("os.kill", lambda *each: sent.append(each))
    at_exit.pop()()
    signal.signal(signal.SIGTERM, before[ENDING.index(signal.SIGTERM)])
    assert sent == [(os.getpid(), signal.SIGTERM)] and not at_exit


def test_a_handler_of_the_caller_is_left_alone() -> None:
    def own(*_: Any) -> None:
        pass

    before = signal.signal(signal.SIGTERM, own)
    try:
        with ending_signals():
            assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_next_call_removes_what_a_killed_process_left_and_nothing_else(tmp_path: Path) -> None:
    alive = begun(tmp_path)
    kept = {each.name for each in tmp_path.iterdir()}
    killed = subprocess.Popen(
        [sys.executable, "-c", WORK],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert killed.stdout is not None and killed.stdout.readline() == "ready\n"
    killed.kill()
    killed.communicate()
    others = [".onnx-external-mine", ".onnx-external-abcdefgh.tmp.txt", ".merged-adapter-old"]
    for name in others:
        (tmp_path / name).mkdir()
    (tmp_path / ".onnx-external-abcdefgi.tmp").symlink_to(tmp_path / others[0])
    assert len(list(tmp_path.iterdir())) == 8
    with temporary_folder(tmp_path) as one, temporary_folder(tmp_path, ".merged-adapter-") as other:
        own = {one.parent.name, other.parent.name}
        left = {each.name for each in tmp_path.iterdir()}
        assert left == {*kept, *own, *others, ".onnx-external-abcdefgi.tmp"}
    alive.kill()
    alive.communicate()


def test_a_full_disk_of_temporary_files_names_tmpdir(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(oe.ReadWriteError, match="No space left on device; set TMPDIR"):
        with temporary_folder():
            raise OSError(28, "No space left on device")
    with pytest.raises(oe.ReadWriteError, match="x: the save needs 2 GB; set TMPDIR"):
        with temporary_folder() as folder:
            raise oe.ReadWriteError(f"{folder}/x: the save needs 2 GB")
    with pytest.raises(oe.ReadWriteError) as elsewhere, temporary_folder():
        raise oe.ReadWriteError("out: the save needs 2 GB")
    assert str(elsewhere.value) == "out: the save needs 2 GB"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(oe.ReadWriteError, match=r"none: No such file.*; set TMPDIR"):
        with temporary_folder():
            pass


def spoken(times: int, **options: Any) -> Any:
    line = [sys.executable, "-c", SPEAKS, str(times)]
    return subprocess.run(line, stderr=subprocess.PIPE, text=True, timeout=60, **options)


def test_characters_that_stdout_lacks_are_escaped() -> None:
    for more in ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}):
        given = {**os.environ, "PYTHONUTF8": "0", **more}
        done = spoken(1, env=given, stdout=subprocess.PIPE)
        assert (done.returncode, done.stdout) == (0, "gr\\xf6\\xdfe \n")


@pytest.mark.parametrize("times", [1, 10_000])
def test_a_stdout_that_takes_nothing_is_an_error_without_a_traceback(times: int) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = spoken(times, stdout=pipe)
    assert done.returncode == 1
    assert "error: [Errno 32] Broken pipe" in done.stderr and done.stderr.count("\n") == 1
    with Path("/dev/full").open("wb") as full:
        done = spoken(times, stdout=full)
    assert done.returncode == 1
    assert "error: [Errno 28] No space left" in done.stderr and done.stderr.count("\n") == 1


def test_a_stream_that_is_not_a_file_is_used_directly(capsys: pytest.CaptureFixture[str]) -> None:
    with standard_streams(), contextlib.redirect_stdout(sys.stderr):
        print("größe")
    assert capsys.readouterr().err == "größe\n"


@pytest.mark.parametrize(
    "words",
    [
        ["generate", ".", "--tokens", "9" * 23],
        ["generate", ".", "--tokens", "1", "--max-new-tokens", "9" * 23],
        ["generate", ".", "--prompt", os.fsdecode(b"\xff\xfe")],
    ],
)
def test_numbers_and_texts_of_no_kind_are_refused_without_a_traceback(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["onnx-external", *words])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with contextlib.suppress(SystemExit):
        assert front.main() == 1
