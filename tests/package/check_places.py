#!/usr/bin/python3
"""Checks that the places that the consumer printed contain the saved bytes.

usage: check_places.py LISTING MANIFEST LEAST_COUNT
"""
import json
import pathlib
import sys
import zlib

listing, manifest, least = sys.argv[1], sys.argv[2], int(sys.argv[3])
tensors = json.loads(pathlib.Path(manifest).read_text())['tensors']
saved = {tensor['key']: int(tensor['crc32'], 16) for tensor in tensors}
compared = 0
for line in pathlib.Path(listing).read_text().splitlines():
    path, offset, length, name = line.split('\t')
    if path == '-' or name not in saved:
        continue
    with open(path, 'rb') as file:
        file.seek(int(offset))
        data = file.read(int(length))
    if len(data) != int(length) or zlib.crc32(data) != saved[name]:
        sys.exit(f'{name}: its bytes are not at {offset} of {path}')
    compared += 1
if compared < least:
    sys.exit(f'{compared} places compared, fewer than {least}')
print(f'{compared} places hold the bytes that were saved')
