"""Checks that functions of the Python package fit on a screen. usage: python_functions_test.py ROOT

A body has at most 60 lines, and with the signature a function has at most 80; docstrings do not
count. It takes at most 14 parameters.
"""

import ast
import sys
from pathlib import Path

MOST_IN_BODY, MOST_IN_ALL, MOST_PARAMETERS = 60, 80, 14
MANY_PARAMETERS = {"validate", "diagnose_export"}
"""Functions that take more."""


def lines(first, last):
    return last.end_lineno - first.lineno + 1


def faults_of(text):
    """Yield the functions of a file that are too long."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        has_docstring = ast.get_docstring(node) is not None
        docstring = lines(node.body[0], node.body[0]) if has_docstring else 0
        body = node.body[has_docstring:]
        told = f"{node.lineno}: {node.name}() has"
        if body and lines(body[0], body[-1]) > MOST_IN_BODY:
            yield f"{told} a body of {lines(body[0], body[-1])} lines"
        if lines(node, node) - docstring > MOST_IN_ALL:
            yield f"{told} {lines(node, node) - docstring} lines"
        given = node.args
        taken = len(given.posonlyargs + given.args + given.kwonlyargs)
        if taken > MOST_PARAMETERS and node.name not in MANY_PARAMETERS:
            yield f"{told} {taken} parameters"


def planted(parameters, documented, body):
    taken = ", ".join(f"a{each}" for each in range(parameters))
    return f'def f({taken}):\n    """{"Do." + documented * chr(10)}"""\n' + "    pass\n" * body


samples = [(14, 90, 60), (0, 0, 61), (15, 0, 1)]
if [len(list(faults_of(planted(*sample)))) for sample in samples] != [0, 1, 1]:
    sys.exit("the check does not find what it looks for")
if not list(faults_of("def f(\n" + "\n" * 80 + "):\n    pass\n")):
    sys.exit("the check does not count the lines of a signature")

root = Path(sys.argv[1]) / "python/onnx_external"
files = sorted(root.rglob("*.py"))
faults = [f"{file.relative_to(root)}:{each}" for file in files for each in faults_of(file.read_text())]
print("\n".join(faults) or f"all functions of {len(files)} files fit a screen")
sys.exit(1 if faults or not files else 0)
