"""`python -m onnx_external save|verify|inspect ...`: the native commands of this installation."""

import os
import sys
import sysconfig
from pathlib import Path

COMMANDS = {name: f"{name}-external" for name in ("save", "verify", "inspect")}


def main() -> int:
    """Replace this process by the command."""
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        print(f"usage: python -m onnx_external {'|'.join(COMMANDS)} [arguments]", file=sys.stderr)
        return 2
    name = COMMANDS[sys.argv[1]]
    command = Path(sysconfig.get_path("scripts")) / name
    if not command.exists():
        print(f"{command}: not found; install the package with pip", file=sys.stderr)
        return 1
    os.execv(command, [name, *sys.argv[2:]])


if __name__ == "__main__":
    sys.exit(main())
