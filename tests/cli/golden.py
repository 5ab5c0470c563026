"""Runs the commands in a .golden file and compares their output with the file.

usage: golden.py BIN_DIR FIXTURES_DIR WORK_DIR CASE.golden

A golden file contains commands and, below each command, its exact output:

    # a remark
    $ verify-external out/model.onnx        run by sh in a fresh folder, with BIN_DIR on the PATH
    | a line of stdout
    ! a line of stderr
    [1]                                     the exit code, when it is not 0

The folder holds copies of fixtures/tiny and fixtures/bad. Times and rates are masked as <...>.
REBLESS=1 in the environment rewrites the golden file with what the commands print now; read the
difference before committing it.
"""

import difflib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

MASKS = (
    (r'"seconds": [0-9.e+-]+', '"seconds": <seconds>'),
    (r"\b[0-9]+\.[0-9]{2} s(, [0-9]+\.[0-9]{2} GB/s)?", "<speed>"),
    (r"sandbox: .*$", "sandbox: <what the kernel has>"),
    (r"[0-9.]+ [kMG]B peak memory", "<size> peak memory"),
    # The versions of libraries depend on the machine, and builds may lack mimalloc.
    (r"^mimalloc [0-9].*\n", ""),
    (r"^(OpenMP [0-9].*|C\+\+ threads)$", "<threads>"),
    (r"^(protobuf|onnx|zlib|libdeflate|OpenSSL|CLI11|fmt|nlohmann-json) [0-9].*$", r"\1 <version>"),
)


def masked(text: str) -> str:
    for pattern, mask in MASKS:
        text = re.sub(pattern, mask, text, flags=re.MULTILINE)
    return text


def marked(mark: str, text: str) -> list:
    if not text:
        return []
    lines = [f"{mark} {line}".rstrip(" ") for line in masked(text).split("\n")]
    return lines[:-1] if text.endswith("\n") else lines[:-1] + [lines[-1] + " (no newline)"]


def printed(command: str, folder: Path, bin_dir: Path) -> list:
    """Return the command's current output as golden lines."""
    environment = {**os.environ, "PATH": f"{bin_dir}:{os.environ['PATH']}", "LC_ALL": "C"}
    process = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=120,
        stdin=subprocess.DEVNULL,
    )
    lines = marked("|", process.stdout) + marked("!", process.stderr)
    return lines + ([f"[{process.returncode}]"] if process.returncode else [])


def main() -> int:
    bin_dir, fixtures, work_dir, case = (Path(argument).resolve() for argument in sys.argv[1:5])
    folder = work_dir / case.stem
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("tiny", "bad"):
        shutil.copytree(fixtures / name, folder / name)

    golden = case.read_text().splitlines()
    now = []
    for line in golden:
        if line.startswith("$ "):
            now += [line, *printed(line[2:], folder, bin_dir)]
        elif not line.startswith(("|", "!", "[")):
            now.append(line)
    if os.environ.get("REBLESS"):
        if "[127]" in now:  # the shell did not find the command, so this is not its output
            print(f"{case}: a command is not built: left as it is")
            return 1
        case.write_text("\n".join(now) + "\n")
        return 0
    if now == golden:
        return 0
    print("\n".join(difflib.unified_diff(golden, now, str(case), "what the commands print", lineterm="")))
    return 1


if __name__ == "__main__":
    sys.exit(main())
