"""Runs a test with a newer torch than Debian's: creates a virtual environment once, then executes its Python.

usage: modern_env.py FOLDER [--python PYTHON] SCRIPT [ARGUMENT...]

FOLDER holds the environment; two tests may start at once.  --python names a Python that has the packages
already.  Packages come from the registry that pip is set to.
"""

import fcntl
import os
import subprocess
import sys
import venv
from pathlib import Path

# torch comes first and alone, so that nothing else decides which of its builds is taken.
STEPS = (
    ("torch==2.13.0",),
    ("onnx==1.23.2", "onnxruntime==1.31.1", "onnxscript==0.7.2", "onnx-ir==1.1.0", "numpy==2.4.6"),
    ("transformers==5.23.0", "safetensors==0.8.0", "peft==0.21.2", "accelerate==1.15.0"),
    ("onnxruntime-genai==0.18.0",),
)


def install(folder: Path) -> Path:
    """Return the environment's Python. Create the environment if it is absent or has other versions."""
    folder.mkdir(parents=True, exist_ok=True)
    python, stamp = folder / "env" / "bin" / "python", folder / "installed"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != repr(STEPS):
            stamp.unlink(missing_ok=True)
            venv.create(folder / "env", clear=True, with_pip=True)
            for packages in STEPS:
                # Of 11,000 files a third is imported, and compiled by the first test that does.
                quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-compile"]
                subprocess.run([python, "-m", "pip", "install", *quiet, *packages], check=True, timeout=1500)
            stamp.write_text(repr(STEPS))
    return python


def main() -> int:
    arguments = sys.argv[1:]
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder, rest = Path(arguments[0]).resolve(), arguments[1:]
    if rest[0] == "--python":
        python, rest = Path(rest[1]), rest[2:]
    else:
        python = install(folder)
    os.execv(python, [str(python), *rest])
    return 1


if __name__ == "__main__":
    sys.exit(main())
