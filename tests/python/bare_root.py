"""Installs the repaired wheel into a root folder with only Python, and runs the main job there.

usage: bare_root.py WHEEL_DIR FIXTURES WORK_DIR PYTHON
  PYTHON  an environment that has pip; its interpreter goes into the root

The root gets the interpreter, its standard library, numpy as PyPI has it, and the shared libraries
that the interpreter and numpy need: if the wheel needed another, its import would fail. There is no
shell and no device in it. Exits with 77 where one may not change one's root.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

WHEELS, FIXTURES, WORK = (Path(argument).resolve() for argument in sys.argv[1:4])
(WHEEL,) = WHEELS.glob("*.whl")
PYTHON = sys.argv[4]
ROOT = WORK / "root"
NUMPY = ("numpy==2.4.6; python_version >= '3.11'", "numpy==2.2.6; python_version < '3.11'")

ABOUT_PYTHON = """
import json, os, sys, sysconfig, pip
print(json.dumps({"executable": os.path.realpath(sys.executable),
                  "library": sysconfig.get_path("stdlib"), "pip": os.path.dirname(pip.__file__)}))
"""

# A short version of the package's tests, which only has to work.
MAIN_JOB = """
import numpy as np
import onnx_external as oe

assert oe.save("/tiny/graph.onnx", "/out/model.onnx", "/tiny/checkpoint.pt").verified
assert oe.verify("/out/model.onnx", "/tiny/checkpoint.pt").ok
with oe.open_checkpoint("/tiny/checkpoint.pt") as torch_s, \\
        oe.open_checkpoint("/tiny/model.safetensors") as safe:
    assert len(safe) > 10
    for name, tensor in safe.items():
        assert np.array_equal(tensor.numpy(), torch_s[f"module.{name}"].numpy()), name
"""
COMMANDS = """
import json, subprocess, sys
folder = sys.argv[1]
def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
run(f"{folder}/save-external", "/tiny/graph.onnx", "/tiny/checkpoint.pt", "-o", "/by-command", "-q",
    "--overwrite")
run(f"{folder}/verify-external", "/by-command/model.onnx", "--against", "/tiny/checkpoint.pt")
listed = json.loads(run(f"{folder}/inspect-external", "/tiny/checkpoint.pt", "--json"))
assert listed == json.loads(run(sys.executable, "-m", "onnx_external", "inspect",
                                "/tiny/checkpoint.pt", "--json"))
print(len(listed["tensors"]), "tensors by the commands of", folder)
wrong = subprocess.run([f"{folder}/save-external", "--no-such-option"], stderr=subprocess.PIPE)
assert wrong.returncode == 2 and b"--no-such-option" in wrong.stderr
"""


def libraries_of(*files: Path) -> set[Path]:
    """Return the shared libraries that the files need, directly or indirectly."""
    found = set()
    for file in files:
        printed = subprocess.run(["ldd", file], check=True, capture_output=True, text=True).stdout
        found |= {Path(path) for path in re.findall(r"(/\S+) \(0x", printed)}
        assert "not found" not in printed, printed
    return found


def put(path: Path) -> None:
    """Copy a file or a folder to the same path in the root."""
    target = ROOT / path.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        leave = shutil.ignore_patterns(
            "test", "tests", "idlelib", "*-packages", "ensurepip", "config-*", "EXTERNALLY-MANAGED"
        )
        shutil.copytree(path, target, ignore=leave)
    else:
        shutil.copy(path, target)


def run_in(root: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in another root, where it has all rights but sees nothing of this system."""
    # /proc exists as usual, because programs use it to find their own path, and so their libraries.
    enter = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", f"--root={root}"]
    if os.geteuid() != 0:
        enter.append("--map-root-user")
    return subprocess.run(
        [*enter, *command],
        env={"PATH": "/usr/bin", "HOME": "/home", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def expect_success(what: str, *command: str, **environment: str) -> str:
    """Return the output of a command in the root, which must succeed."""
    result = run_in(ROOT, *command, **environment)
    if result.returncode != 0:
        raise SystemExit(f"{what} ended with {result.returncode}:\n{result.stdout}")
    print(result.stdout, end="")
    return result.stdout


def get_wheels(folder: Path) -> set[Path]:
    """Put our wheel and numpy's into the folder; return the libraries that numpy's wheel needs."""
    download = [PYTHON, "-m", "pip", "--quiet", "--disable-pip-version-check", "download"]
    download += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), *NUMPY]
    subprocess.run(download, check=True)
    (numpy,) = folder.glob("numpy-*.whl")
    shutil.copy(WHEEL, folder)
    unpacked = WORK / "numpy"
    shutil.unpack_archive(numpy, unpacked, "zip")
    needed = libraries_of(*unpacked.rglob("*.so*"))
    return {path for path in needed if not path.is_relative_to(WORK)}


def fill_root() -> str:
    """Create the root; return its interpreter."""
    printed = subprocess.run([PYTHON, "-c", ABOUT_PYTHON], check=True, capture_output=True).stdout
    about = json.loads(printed)
    executable, library = Path(about["executable"]), Path(about["library"])
    allowed = get_wheels(ROOT / "wheels") | libraries_of(executable)
    print("libraries in the root:", *sorted(path.name for path in allowed))
    for path in (executable, library, *allowed):
        put(path)
    # Leaves out modules that need further libraries (OpenSSL, ncurses, ...).
    for module in (ROOT / library.relative_to("/") / "lib-dynload").glob("*.so"):
        if not libraries_of(module) <= allowed:
            module.unlink()
    shutil.copytree(about["pip"], ROOT / "pip" / "pip")
    shutil.copytree(FIXTURES / "tiny", ROOT / "tiny")
    for folder in ("tmp", "proc"):
        (ROOT / folder).mkdir()
    return str(executable)


def check_tag() -> None:
    """Check that the wheel names a manylinux platform that this machine supports."""
    tag = re.search(r"-manylinux_(\d+)_(\d+)_[a-z0-9_]+\.whl$", WHEEL.name)
    assert tag, WHEEL.name
    ours = os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")
    assert [int(part) for part in tag.groups()] <= [int(part) for part in ours], (WHEEL.name, ours)
    print(WHEEL.name)


def main() -> None:
    probe = run_in(Path("/"), "/bin/true")
    if probe.returncode != 0:
        print("needs the right to change the root:", probe.stdout)
        sys.exit(77)
    shutil.rmtree(WORK, ignore_errors=True)
    (ROOT / "wheels").mkdir(parents=True)
    check_tag()
    python = fill_root()
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "--quiet"]
    pip += ["install", "--no-index", "--no-compile", "--find-links", "/wheels"]
    # Installed like any user would; numpy is installed as a dependency of the wheel.
    expect_success("pip", *pip, "onnx-external", PYTHONPATH="/pip")
    scripts = "import sysconfig; print(sysconfig.get_path('scripts'))"
    folder = expect_success("python", python, "-c", scripts).strip()
    expect_success("the main job", python, "-c", MAIN_JOB)
    expect_success("the commands", python, "-c", COMMANDS, folder)
    # In a home folder, where pip puts the package far from the commands.
    expect_success("pip", *pip, "--user", "--force-reinstall", "onnx-external", PYTHONPATH="/pip")
    expect_success("the commands in a home", python, "-c", COMMANDS, "/home/.local/bin")


if __name__ == "__main__":
    main()
