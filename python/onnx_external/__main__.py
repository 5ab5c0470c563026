"""`python -m onnx_external save|verify|inspect|cut|export|validate|diagnose ...`.

The first four are the native commands of this installation; docs/python-export.md,
docs/python-validate.md and docs/python-diagnose.md have the others.
"""

import contextlib
import os
import sys

from . import __path__ as package

COMMANDS = {name: f"{name}-external" for name in ("save", "verify", "inspect", "cut")}


def _forget_here() -> None:
    """Import nothing of the current folder, which may be the one whose code is not to run.

    Python puts it first: torch and transformers would import a timm.py of it.
    """
    with contextlib.suppress(OSError):  # the folder is gone
        if not getattr(sys.flags, "safe_path", False) and sys.path[:1] == [os.getcwd()]:
            del sys.path[0]


def main() -> int:
    """Replace this process by a native command, or run one of Python's."""
    _forget_here()
    if sys.argv[1:2] == ["export"]:
        from .export_command import main as export

        return export(sys.argv[2:])
    if sys.argv[1:2] == ["validate"]:
        from .validation.command import main as validate

        return validate(sys.argv[2:])
    if sys.argv[1:2] == ["diagnose"]:
        from .diagnosis.command import main as diagnose

        return diagnose(sys.argv[2:])
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        names = "|".join([*COMMANDS, "export", "validate", "diagnose"])
        print(f"usage: python -m onnx_external {names} [arguments]", file=sys.stderr)
        return 2
    name = COMMANDS[sys.argv[1]]
    for folder in package:
        command = os.path.join(folder, "bin", name)
        if os.access(command, os.X_OK):
            os.execv(command, [name, *sys.argv[2:]])
    print(f"{name}: not found in {', '.join(package)}; install it with pip", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
