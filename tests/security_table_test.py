"""Checks that every test named in docs/security.md exists in the sources. usage: security_table_test.py ROOT"""

import re
import sys
from pathlib import Path

root = Path(sys.argv[1])
known = set()
for source in (root / "tests").rglob("*.cc"):
    known.update(f"{suite}.{name}" for suite, name in
                 re.findall(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", source.read_text()))
for listing in (root / "tests").rglob("CMakeLists.txt"):
    text = listing.read_text()
    known.update(re.findall(r"add_test\(NAME ([\w.]+)", text))
    known.update(f"FaultMachine.{name}" for name in re.findall(r"^onnx_external_experiment\((\w+)", text, re.M))
known.update(f"Command.Golden.{golden.stem}" for golden in (root / "tests/cli").glob("*.golden"))

rows = [line.split("|") for line in (root / "docs/security.md").read_text().splitlines()
        if re.match(r"\| [A-Z]\d \|", line)]
missing = []
for row in rows:
    tests = re.findall(r"`([^`]+)`", row[5])
    missing += [f"{row[1].strip()}: {test}" for test in tests if test not in known]
    missing += [] if tests else [f"{row[1].strip()}: names no test"]
if len(rows) < 32:
    missing.append(f"the table has {len(rows)} rows, and the threat model 32")
print("\n".join(missing) or f"{len(rows)} rows, all tests exist")
sys.exit(1 if missing else 0)
