#!/usr/bin/python3
"""A file under src/ includes only its own floor and lower ones; threads are started in one file.

usage: floors_test.py SOURCE_DIR
"""
import pathlib
import re
import sys

FLOORS = {'base': 1, 'tensor': 2, 'checkpoint': 3, 'onnx': 3, 'mapping': 4, 'evidence': 5,
          'save': 6, 'verify': 7}
PUBLIC = {'result': 1, 'dtype': 2, 'tensor': 2, 'progress': 1, 'version': 1, 'checkpoint': 3,
          'class_flattening': 3, 'recipe': 2, 'test_data': 6,
          'model': 3, 'mapping': 4, 'evidence': 5, 'learn': 5, 'plan': 6, 'writer': 6, 'team': 6, 'verify': 7,
          'save_external': 8}
PEERS = [{'checkpoint', 'onnx'}]  # floors of the same height that must not know each other
OWNER = {'checkpoint': 'checkpoint', 'class_flattening': 'checkpoint', 'model': 'onnx'}  # public header -> folder it belongs to


def includes(path):
    for line in path.read_text().splitlines():
        if found := re.match(r'#include "([^"]+)"', line):
            yield found[1]


def target_of(include):
    """(floor, folder) of an include, or None for a file of the same folder or outside."""
    top, _, rest = include.partition('/')
    if top == 'onnx_external':
        name = rest.removesuffix('.h')
        return PUBLIC[name], OWNER.get(name)
    return (FLOORS[top], top) if top in FLOORS else None


def faults(root):
    for path in sorted((root / 'src').rglob('*.[ch]*')):
        if path.suffix not in ('.cc', '.h'):
            continue
        relative = path.relative_to(root / 'src')
        folder = relative.parts[0] if len(relative.parts) > 1 else None
        floor = FLOORS[folder] if folder else 8
        for include in includes(path):
            target = target_of(include)
            if target is None:
                continue
            if target[0] > floor:
                yield f'{relative} (floor {floor}) includes {include} (floor {target[0]})'
            if any({folder, target[1]} == pair for pair in PEERS):
                yield f'{relative} includes {include}: these two floors must not know each other'
        starts = re.search(r'pragma omp|std::j?thread\b|std::async|pthread_create', path.read_text())
        if starts and str(relative) != 'base/parallel.cc':
            yield f'{relative} has {starts.group()}; only base/parallel.cc starts threads'
    for path in sorted((root / 'include').rglob('*.h')):
        own = PUBLIC[path.stem]
        for include in includes(path):
            target = target_of(include)
            if target and target[0] > own:
                yield f'{path.name} (floor {own}) includes {include} (floor {target[0]})'


found = list(faults(pathlib.Path(sys.argv[1])))
print('\n'.join(found) or 'every include points down')
sys.exit(1 if found else 0)
