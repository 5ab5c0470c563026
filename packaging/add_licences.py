"""Adds the licences of what a repaired wheel brings to the wheel, from this Debian machine.

usage: add_licences.py WHEEL

That is each library in NAME.libs, and what was compiled into the extension and the commands. A
library whose package or licence is not found is an error.
"""

import base64
import hashlib
import importlib.metadata
import re
import subprocess
import sys
import zipfile
from pathlib import Path

# Libraries that are headers only, by their Debian packages.
COMPILED_IN = ("libcli11-dev", "libexpected-dev", "nlohmann-json3-dev", "robin-map-dev")
COMMON = re.compile(r"/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])")


def package_of(library: str) -> str:
    """Return the Debian package of a library that auditwheel renamed: libfmt-4f700944.so.9.1.0."""
    original = re.sub(r"-[0-9a-f]{8}(\.so)", r"\1", Path(library).name)
    found = subprocess.run(
        ["dpkg", "--search", f"*/{original}"], capture_output=True, text=True, check=False
    )
    packages = {line.split(":")[0] for line in found.stdout.splitlines()}
    if len(packages) != 1:
        raise SystemExit(f"{library}: {original} is in {sorted(packages) or 'no package'}")
    return packages.pop()


def licences_of(packages: set[str]) -> dict[str, bytes]:
    """File names and texts: each package's copyright file, and the licences that it refers to."""
    texts = {}
    for package in packages:
        text = Path("/usr/share/doc", package, "copyright").read_bytes()
        texts[f"{package}.txt"] = text
        for name in COMMON.findall(text.decode()):
            texts[f"common-licenses/{name}"] = Path("/usr/share/common-licenses", name).read_bytes()
    for file in importlib.metadata.files("nanobind") or ():
        if file.name == "LICENSE":
            texts["nanobind.txt"] = file.locate().read_bytes()
    if "nanobind.txt" not in texts:
        raise SystemExit("nanobind: it has no LICENSE")
    return texts


def record_line(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def main() -> None:
    wheel = Path(sys.argv[1])
    partial = wheel.with_suffix(".partial")
    with (
        zipfile.ZipFile(wheel) as old,
        zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new,
    ):
        libraries = [name for name in old.namelist() if re.search(r"\.libs/[^/]+$", name)]
        packages = {package_of(library) for library in libraries} | set(COMPILED_IN)
        (record,) = (name for name in old.namelist() if name.endswith(".dist-info/RECORD"))
        folder = record.removesuffix("RECORD") + "licenses/bundled/"
        lines = old.read(record).decode()
        for entry in old.infolist():
            if entry.filename != record and not entry.is_dir():
                new.writestr(entry, old.read(entry), zipfile.ZIP_DEFLATED)
        for name, text in sorted(licences_of(packages).items()):
            new.writestr(folder + name, text)
            lines += record_line(folder + name, text)
        new.writestr(record, lines)
    partial.replace(wheel)


if __name__ == "__main__":
    main()
