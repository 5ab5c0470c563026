"""Implements `onnx-external COMMAND ...`, also run as `python -m onnx_external COMMAND ...`.

The first four commands run the native executables of this installation. docs/python-export.md,
docs/python-validate.md and docs/python-diagnose.md describe the other commands.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from . import __path__ as package
from . import __version__

NATIVE = {
    "save": "attach a checkpoint's weights to a graph, or rearrange the weights of a model",
    "verify": "read a written model back, and compare every byte",
    "inspect": "list the contents of a checkpoint or a model",
    "cut": "cut a module out of a model, sharing its data files",
}
"""The commands that are separate executables, such as save-external."""

OURS = {
    "export": "export a transformers folder without loading its weights",
    "generate": "continue a text with an exported decoder",
    "validate": "run a model on ONNX Runtime, and compare its outputs",
    "diagnose": "name the module that is wrong, or cannot be exported",
}
"""The commands that are written in Python. Each is a module of `_commands`; the value is its
purpose."""


def help_text() -> str:
    """Return the text that --help prints."""
    rows = {**NATIVE, **OURS}
    listed = "\n".join(f"  {name:10}{what}" for name, what in rows.items())
    return f"""\
onnx-external attaches the weights of PyTorch checkpoints to ONNX graphs, verified.

usage: onnx-external COMMAND [ARGUMENTS]

commands:
{listed}

options:
  -h, --help     print this; after a COMMAND, its options
  --version      print the version

exit codes:
  0  success, and nothing is wrong
  1  failure, or something is wrong
  2  the command line is wrong; nothing was done

The first four are also separate commands: save-external, verify-external, inspect-external and
cut-external. If onnx-external is not on the PATH, run python -m onnx_external instead.
"""


def _forget_here() -> None:
    """Remove the current folder from the import path, because code in it may be unsafe to run.

    Python searches that folder first, so torch or transformers would import, for example, a file
    timm.py in it.
    """
    with contextlib.suppress(OSError):  # the folder is gone
        if not getattr(sys.flags, "safe_path", False) and sys.path[:1] == [os.getcwd()]:
            del sys.path[0]


def _become(name: str, arguments: Sequence[str]) -> int:
    """Replace this process with a native command."""
    command = f"{name}-external"
    for folder in package:
        path = os.path.join(folder, "bin", command)
        if os.access(path, os.X_OK):
            os.execv(path, [command, *arguments])
    print(f"{command}: not found in {', '.join(package)}; install it with pip", file=sys.stderr)
    return 1


def main() -> int:
    """Replace this process with a native command, or run a command that is written in Python."""
    _forget_here()
    name, arguments = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    if name in ("-h", "--help"):
        print(help_text(), end="")
        return 0
    if name == "--version":
        print(f"onnx-external {__version__}")
        return 0
    if name in NATIVE:
        return _become(name, arguments)
    if name in OURS:
        from ._commands.signals import ending_signals

        command: Callable[[Sequence[str]], int]
        with ending_signals():
            command = import_module(f"._commands.{name}", __package__).main
            return command(arguments)
    if not name:
        print(help_text(), end="", file=sys.stderr)
        return 2
    from ._commands.command_line import did_you_mean

    kind = "option" if name.startswith("-") else "command"
    known = ["--help", "--version"] if kind == "option" else [*NATIVE, *OURS]
    near = did_you_mean(kind, name, known)
    if name.removesuffix("-external") in NATIVE:  # the equivalent native command
        near = f"{name} is a separate command; here it is onnx-external {name[:-9]}"
    print(f"onnx-external: error: {near}; onnx-external --help lists all", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
