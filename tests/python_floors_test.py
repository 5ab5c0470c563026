#!/usr/bin/python3
"""Checks that modules of the Python package import only their own floor and lower ones, without cycles.

Imports in functions and for type checkers count like any other import. What needs numpy alone imports nothing else
before it is asked for it, and control flow is entered by its door.

usage: python_floors_test.py SOURCE_DIR
"""
import ast
import pathlib
import sys
import tempfile

PACKAGE = 'onnx_external'

# Lowest first. A module may import its own floor and lower ones.
FLOORS = ['_core', '_base', '_sources', '_saving', '_folders',
          '_tracing', '_repeating', '_fusing', '_lowering', '_control_flow', '_comparing', '_generation',
          'torch', '_attention', 'transformers', '_validation', '_diagnosis', '_commands',
          '']
ROOT = {'__init__': '', '__main__': ''}  # the modules outside of folders

# At import, these import only numpy. Functions import other packages, for objects of the caller.
NUMPY_ALONE = {'_core', '_base', '_sources', '_saving', '_folders', '_commands', ''}
# These run without torch: at import, only the listed modules import torch.
WITHOUT_TORCH = {'_comparing': {'reruns', 'second_calls'}, '_generation': set(), '_validation': set(),
                 '_diagnosis': {'attempts', 'capturing', 'custom_operators', 'export_diagnosing'}}
OTHERS = {'torch', 'transformers', 'onnx', 'onnx_ir', 'onnxscript', 'onnxruntime', 'ml_dtypes', 'tqdm', 'sympy'}

# Floors that other floors may import only through their __init__.
DOORS = {'_control_flow'}

# Exceptions: imports that point up, each with its reason.
ALLOWED: dict[tuple[str, str], str] = {}


class Module:
    """A module, with its name in the package ("torch._exporting"), its floor and its imports."""

    def __init__(self, root, path):
        parts = list(path.relative_to(root).with_suffix('').parts)
        self.is_package = parts[-1] == '__init__' and len(parts) > 1
        self.name = '.'.join(parts[:-1] if self.is_package else parts)
        self.floor = ROOT.get(self.name, parts[0])
        self.tree = ast.parse(path.read_text())

    def imports(self, known):
        """Yield each import: a module of the package or None, another package or None, and whether it happens at
        import.
        """
        package = self.name.split('.') if self.is_package else self.name.split('.')[:-1]
        for node, at_once in _imports(self.tree, True):
            if isinstance(node, ast.Import):
                for first, *rest in (each.name.split('.') for each in node.names):
                    own = first == PACKAGE
                    yield '.'.join(rest) or '__init__' if own else None, None if own else first, at_once
                continue
            base = node.module.split('.') if node.module else []
            if node.level:
                base = package[:len(package) - node.level + 1] + base
            elif base[0] == PACKAGE:
                base = base[1:]
            else:
                yield None, base[0], at_once
                continue
            for each in node.names:
                whole = '.'.join([*base, each.name])
                yield whole if whole in known or whole == '_core' else '.'.join(base) or '__init__', None, at_once


def _imports(node, at_once):
    """Yield the imports in a tree. Those in functions and for type checkers do not happen at import."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, at_once
        else:
            later = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            later |= isinstance(child, ast.If) and 'TYPE_CHECKING' in ast.unparse(child.test)
            yield from _imports(child, at_once and not later)


def modules_in(package):
    found = [Module(package, path) for path in sorted(package.rglob('*.py'))]
    return {each.name: each for each in found}


def import_faults(module, target, known):
    """Return the faults of an import of a module of the package."""
    floor = known[target].floor if target in known else target.partition('.')[0]
    if floor not in FLOORS:
        yield f'{module.name} imports {target}, which is on no floor'
    elif FLOORS.index(floor) > FLOORS.index(module.floor) and (module.name, target) not in ALLOWED:
        yield f'{module.name} (floor {module.floor}) imports {target} (floor {floor})'
    elif floor in DOORS and floor != module.floor and target != floor:
        yield f'{module.name} imports {target}: what is in {floor} is for itself; import from its __init__'


def package_faults(module, other, at_once):
    """Return the faults of an import of another package."""
    name = module.name.rpartition('.')[2]
    if at_once and module.floor in NUMPY_ALONE and other in OTHERS:
        yield f'{module.name} imports {other} when it is imported; on its floor only functions may'
    if at_once and other == 'torch' and name not in WITHOUT_TORCH.get(module.floor, {name}):
        yield f'{module.name} imports torch when it is imported; on its floor only functions may'


def circles(edges):
    """Return the sets of modules that import each other, found by Tarjan's algorithm."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            circle = []
            while not circle or circle[-1] != node:
                circle.append(stack.pop())
            if len(circle) > 1 or node in edges.get(node, ()):
                found.append(sorted(circle))

    for each in sorted(edges):
        if each not in index:
            visit(each)
    return found


def faults(root):
    known = modules_in(root / 'python' / PACKAGE)
    edges = {}
    used = set()
    for module in known.values():
        if module.floor not in FLOORS:
            yield f'{module.name}: its folder is not a floor'
            continue
        for target, other, at_once in module.imports(known):
            if target is None:
                yield from package_faults(module, other, at_once)
                continue
            yield from import_faults(module, target, known)
            used.add((module.name, target))
            if (module.name, target) not in ALLOWED:
                edges.setdefault(module.name, set()).add(target)
    for path in sorted((root / 'python/tests').glob('test_*.py')):
        yield f'{path.name}: put it into a folder of python/tests, each of which is a test of tests/python'
    for circle in circles(edges):
        yield f'circle: {", ".join(circle)}'
    for pair in ALLOWED.keys() - used:
        yield f'{pair[0]} no longer imports {pair[1]}: remove it from ALLOWED'


# Faults, each as the text of a module, with a word that the message must contain.
PLANTED = {
    '_base/errors.py': ('from ..torch._exporting import export', 'floor torch'),
    '_saving/save.py': ('def save():\n    from .._diagnosis import reports', 'floor _diagnosis'),
    '_folders/config.py': ('import onnxruntime', 'imports onnxruntime'),
    '_comparing/values.py': ('import torch', 'imports torch'),
    'torch/_programs.py': ('from .._control_flow.rewriter import Rewriter', 'is for itself'),
    '_validation/one.py': ('from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import other', 'circle'),
    '_validation/other.py': ('def two():\n    from .one import two', 'circle'),
}


def check_itself():
    """Check that a fault of every kind is found."""
    with tempfile.TemporaryDirectory() as folder:
        package = pathlib.Path(folder, 'python', PACKAGE)
        for name, (text, _) in {**PLANTED, '_control_flow/rewriter.py': ('', ''), 'torch/_exporting.py': ('', ''),
                                '_diagnosis/reports.py': ('', '')}.items():
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            (package / name).write_text(text)
        found = list(faults(pathlib.Path(folder)))
    for name, (_, word) in PLANTED.items():
        module = name.removesuffix('.py').replace('/', '.')
        if not any(module in each and word in each for each in found):
            sys.exit(f'the fault in {name} was not found ({word}): {found}')


if __name__ == '__main__':
    check_itself()
    found = list(faults(pathlib.Path(sys.argv[1])))
    print('\n'.join(found) or 'every import points down')
    sys.exit(1 if found else 0)
