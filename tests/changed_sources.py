"""Prints the C++ sources that the last commits may have changed, one per line: the changed sources, and those that
include a changed header directly or indirectly. Prints all sources if git does not have enough commits.

usage: changed_sources.py SOURCE_DIR
"""

import re
import subprocess
import sys
from pathlib import Path

COMMITS = 100  # more than any change has
FOLDERS = ("src", "include", "tools", "benchmarks")
ROOTS = ("src/", "include/", "tools/", "")  # the folders to which includes are relative


def changed(root: Path) -> set | None:
    """Return the files that differ from those of COMMITS commits ago, or None if git does not know."""
    command = ["git", "-C", root, "diff", "--name-only", f"HEAD~{COMMITS}", "--"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return set(done.stdout.splitlines()) if done.returncode == 0 else None


def included(root: Path) -> dict:
    """Return the headers of this project that each file includes."""
    files = [path for folder in FOLDERS for path in (root / folder).rglob("*") if path.suffix in (".cc", ".h")]
    texts = {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in files}
    names = {name: re.findall(r'#include "([^"]+)"', text) for name, text in texts.items()}
    return {
        name: [prefix + each for each in found for prefix in ROOTS if prefix + each in texts]
        for name, found in names.items()
    }


def reached(start: str, headers: dict) -> set:
    """Return the file and everything that it includes."""
    found, left = set(), [start]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += headers[name]
    return found


def main() -> None:
    root = Path(sys.argv[1])
    headers, differing = included(root), changed(root)
    for name in sorted(headers):
        if name.endswith(".cc") and (differing is None or reached(name, headers) & differing):
            print(name)


main()
