"""Installs the programs that open exported folders, each into its own environment."""

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
# Their packages besides the torch, onnx and ONNX Runtime of tests/strict/modern_env.py.
PACKAGES = {
    "fastembed": ("fastembed==0.9.1",),
    "openvino": ("openvino==2026.4.1",),
    "optimum": ("optimum==2.1.0", "optimum-onnx==0.1.0", "transformers==4.57.6"),
    "sentence-transformers": (
        "sentence-transformers==5.7.0",
        "optimum==2.1.0",
        "optimum-onnx==0.1.0",
        "transformers==4.57.6",
    ),
}
VERSIONS = {
    "fastembed": "fastembed 0.9.1",
    "genai": "onnxruntime-genai 0.18.0",
    "openvino": "OpenVINO 2026.4.1",
    "optimum": "optimum-onnx 0.1.0",
    "sentence-transformers": "sentence-transformers 5.7.0",
    "transformers.js": "transformers.js 4.3.2 in Node",
    "transformers.js-browser": "the same in Chromium",
    "onnxruntime-web": "onnxruntime-web 1.31 in Chromium",
}


class InstallError(Exception):
    """Raised if a registry cannot be reached or lacks a package."""


def python_of(client: str, folder: Path) -> Path:
    """Return the Python interpreter that has a client. Install the client with pip if it is absent."""
    if client not in PACKAGES:
        return Path(sys.executable)
    place = folder / client
    stamp = place / "installed"
    with locked(place):
        if not stamp.exists() or stamp.read_text() != repr(PACKAGES[client]):
            stamp.unlink(missing_ok=True)
            env = place / "env"
            shutil.rmtree(env, ignore_errors=True)
            carry_out([sys._base_executable, "-m", "venv", env], place)
            # pip finds the packages of this Python, and installs only packages that are missing or have another
            # version.
            (packages,) = env.glob("lib/python*/site-packages")
            (packages / "modern.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
            quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-compile"]
            carry_out([env / "bin/python", "-m", "pip", "install", *quiet, *PACKAGES[client]], place)
            stamp.write_text(repr(PACKAGES[client]))
    return place / "env/bin/python"


def node_modules(folder: Path) -> Path:
    """Return the folder with transformers.js. Install it with npm if it is absent.

    The packages contain their libraries, so no install script has to run.
    """
    place = folder / "node"
    wanted = (HERE / "package.json").read_text()
    with locked(place):
        stamp = place / "installed"
        if not stamp.exists() or stamp.read_text() != wanted:
            stamp.unlink(missing_ok=True)
            shutil.copy(HERE / "package.json", place)
            quiet = ["--no-package-lock", "--no-audit", "--no-fund", "--silent"]
            carry_out(["npm", "install", "--ignore-scripts", *quiet], place)
            stamp.write_text(wanted)
    return place / "node_modules"


def carry_out(command: list, place: Path) -> None:
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=900)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise InstallError(f"{' '.join(map(str, command))}: {said}; is the registry reached?")


class locked:
    """A lock that prevents two runs from installing at the same time."""

    def __init__(self, place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self._file = open(place / "lock", "w")

    def __enter__(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()
