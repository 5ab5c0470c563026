"""Checks that the paths and names in docs/architecture.md exist. usage: docs_table_test.py ROOT

A path is a word in backticks that begins with a folder of the repository. In tables, names in backticks
that follow a path, up to the next semicolon or bar, must occur in that file.
"""

import re
import sys
from pathlib import Path

root = Path(sys.argv[1])
FOLDERS = ("benchmarks/", "cmake/", "docs/", "fixtures/", "include/", "packaging/", "python/", "src/", "tests/", "tools/")


def faults_of(text):
    """Return the paths that do not exist, and the number of paths that were checked."""
    missing, paths = [], 0
    for line in text.splitlines():
        words = [re.findall(r"`([^`]+)`", piece) for piece in re.split(r"; |\| ", line)]
        for group in words:
            path = None
            for word in group:
                if re.fullmatch(r"[\w./-]+", word) and word.startswith(FOLDERS):
                    path, paths = root / word, paths + 1
                    missing += [] if path.exists() else [word]
                elif line.startswith("|") and path is not None and path.is_file() and re.fullmatch(r"\w+", word):
                    missing += [] if re.search(rf"\b{word}\b", path.read_text()) else [f"{word} in {group[0]}"]
    return missing, paths


sample = "| x | `src/base/try.h`: `TRY`, `NO_SUCH_NAME`; `src/no_such_file.cc` |"
if faults_of(sample)[0] != ["NO_SUCH_NAME in src/base/try.h", "src/no_such_file.cc"]:
    sys.exit("the check does not find what it looks for")
missing, paths = faults_of((root / "docs/architecture.md").read_text())
print("\n".join(f"docs/architecture.md: no {name}" for name in missing) or f"{paths} paths exist")
sys.exit(1 if missing or paths < 60 else 0)
