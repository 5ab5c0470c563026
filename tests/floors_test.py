#!/usr/bin/python3
"""Checks that files under src/ include only their own floor and lower ones, that one file starts threads, and that
protobuf's reflection is not used.

usage: floors_test.py SOURCE_DIR
"""
import pathlib
import re
import sys

# Lowest first. A file may include its own floor and lower ones.
FLOORS = ['base', 'tensor', 'tensor/quantize',
          'checkpoint/container', 'checkpoint/pickle', 'checkpoint/storage', 'checkpoint/torch',
          'checkpoint/naming', 'checkpoint/assembly', 'checkpoint/formats', 'checkpoint/dcp',
          'checkpoint/quantized', 'checkpoint/gguf', 'checkpoint', 'onnx', 'mapping', 'evidence', 'save', 'cut', 'verify', 'inspect', 'jobs', 'options',
          'reports']
APART = [{'checkpoint', 'onnx'}]  # these must not include each other

# The floor of each public header, which is the lowest floor that implements or uses its declarations.
PUBLIC = {'result': 'base', 'error_kinds': 'base', 'progress': 'base', 'version': 'base',
          'dtype': 'tensor', 'tensor': 'tensor', 'recipe': 'tensor', 'quantize': 'tensor/quantize',
          'checkpoint': 'checkpoint/container', 'provided_tensors': 'checkpoint', 'class_flattening': 'checkpoint/container', 'derived': 'checkpoint',
          'model': 'onnx', 'mapping': 'mapping', 'evidence': 'evidence', 'learn': 'evidence',
          'plan': 'save', 'writer': 'save', 'team': 'save', 'test_data': 'save',
          'cut': 'cut', 'verify': 'verify', 'save_external': 'jobs', 'onnx_external': 'jobs'}


def includes(path):
    for line in path.read_text().splitlines():
        if found := re.match(r'#include "([^"]+)"', line):
            yield found[1]


def floor_of(include):
    """Return the floor of an include, or None for a file outside src and include."""
    folder, _, name = include.rpartition('/')
    if folder == 'onnx_external':
        return PUBLIC[name.removesuffix('.h')]
    return folder if folder in FLOORS else None


def include_faults(name, floor, path):
    for include in includes(path):
        target = floor_of(include)
        if '/' not in include:
            yield f'{name} includes {include} without its folder'
        if target is None:
            continue
        if FLOORS.index(target) > FLOORS.index(floor):
            yield f'{name} (floor {floor}) includes {include} (floor {target})'
        if {floor.split('/')[0], target.split('/')[0]} in APART:
            yield f'{name} includes {include}: these two floors must not know each other'


def faults(root):
    for path in sorted((root / 'src').rglob('*.[ch]*')):
        if path.suffix not in ('.cc', '.h'):
            continue
        name = str(path.relative_to(root / 'src'))
        floor = name.rpartition('/')[0]
        if floor not in FLOORS:
            yield f'{name}: its folder is no floor'
            continue
        yield from include_faults(name, floor, path)
        starts = re.search(r'pragma omp|std::j?thread\b|std::async|pthread_create', path.read_text())
        if starts and name != 'base/parallel.cc':
            yield f'{name} has {starts.group()}; only base/parallel.cc starts threads'
        # Generated code for protobuf-lite has none of these. Creating descriptors ends the process if an allocation
        # fails.
        if reflection := re.search(r'GetReflection|protobuf/(?:message|descriptor|reflection)\.h',
                                   path.read_text()):
            yield f'{name} uses reflection of protobuf: {reflection.group()}'
    for path in sorted((root / 'include').rglob('*.h')):
        yield from include_faults(path.name, PUBLIC[path.stem], path)


found = list(faults(pathlib.Path(sys.argv[1])))
print('\n'.join(found) or 'every include points down')
sys.exit(1 if found else 0)
