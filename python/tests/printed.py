"""Runs programs and the steps of pages, and masks the parts of their output that vary."""

import contextlib
import io
import os
import re
import runpy
import subprocess
from pathlib import Path
from typing import Any

import onnx_external

_NUMBER = re.compile(r"\d+\.\d+(e[+-]?\d+)?|\d+e-\d+|(?<![\w.\[,|])0(?=\s)")
_STEP = re.compile(
    r"^```python\n(?P<program>.*?)^```\n(?:\n```text\n(?P<printed>.*?)^```\n)?"
    r"|^```console\n(?P<session>.*?)^```\n",
    re.MULTILINE | re.DOTALL,
)


def masked(text: str) -> str:
    """Return the text without the parts that vary between runs: fractional numbers and spaces."""
    return re.sub(r"\s+\n", "\n", re.sub(r"[ -]+", " ", _NUMBER.sub("#", text)))


def output_of(path: Path) -> str:
    """Return the output of a program."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(path), run_name="__main__")
    return printed.getvalue()


def run_page(text: str) -> tuple[str, int]:
    """Run the steps of a page; return the page with their current output, and the number of steps.

    A step is a program, or a session of commands that begin with "$ ". Later programs can use the
    names that earlier ones define. All steps run in the current folder.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    steps = 0

    def run(step: re.Match[str]) -> str:
        nonlocal steps
        steps += 1
        if step["program"] is None:
            return f"```console\n{_session(step['session'])}```\n"
        source = Path(f"step{steps}.py")  # rewriting reads the source from a file
        source.write_text(step["program"])
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(step["program"], str(source.resolve()), "exec"), names)
        page = f"```python\n{step['program']}```\n"
        found = printed.getvalue()
        return page + (f"\n```text\n{found.rstrip()}\n```\n" if found else "")

    return _STEP.sub(run, text), steps


def _session(text: str) -> str:
    commands = Path(onnx_external.__file__).parent / "bin"
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    settings = {**os.environ, "PATH": path, "COLUMNS": "80", "LC_ALL": "C.UTF-8"}
    done = ""
    for line in re.findall(r"^\$ (.*)\n", text, re.MULTILINE):
        result = subprocess.run(
            line,
            shell=True,
            env=settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        done += f"$ {line}\n{result.stdout}"
    return done
