"""Runs the Python commands in this process, because another process would import torch again."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any
from unittest import mock

from onnx_external.__main__ import main


def run(*arguments: Any) -> subprocess.CompletedProcess[str]:
    """Return the output of `onnx-external ARGUMENTS` and its exit code."""
    line = ["onnx-external", *map(str, arguments)]
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", line),
        mock.patch.object(sys, "path", [*sys.path]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            code = main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return subprocess.CompletedProcess(line, code, out.getvalue(), err.getvalue())
