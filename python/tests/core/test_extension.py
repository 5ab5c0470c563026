"""Tests that the extension coexists with others: it exports one symbol, in any order of imports."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import onnx_external._core as core

MODULES = ("torch", "onnx", "onnxruntime", "onnx_ir", "onnx_external")


def test_one_symbol_is_exported() -> None:
    lines = subprocess.run(
        ["nm", "-D", "--defined-only", core.__file__], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    # Lower case marks local symbols, to which nothing can bind.
    names = [line.split()[-1] for line in lines if line.split()[-2].isupper()]
    assert names == ["PyInit__core"]


def test_no_openmp_is_needed() -> None:
    # The process may have loaded torch's libgomp, which has the same name.
    needed = subprocess.run(
        ["readelf", "-d", core.__file__], check=True, capture_output=True, text=True
    ).stdout
    assert "NEEDED" in needed
    assert "gomp" not in needed and "libomp" not in needed


def test_a_save_without_threads_is_the_work_of_the_calling_one(tiny: Path, tmp_path: Path) -> None:
    program = """
import resource, sys
from pathlib import Path
import onnx_external as oe
import os
if os.geteuid() == 0:  # the limit does not apply to root
    os.chmod(sys.argv[2], 0o777)
    os.setgid(61235), os.setuid(61235)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
import threading
try:
    threading.Thread(target=print).start()
except RuntimeError:
    print("no thread")
seen = []
graph, checkpoint = Path(sys.argv[1], "graph.onnx"), Path(sys.argv[1], "checkpoint.pt")
report = oe.save(graph, Path(sys.argv[2], "out"), checkpoint, progress=lambda *at: seen.append(at))
print(report.verified, bool(seen))
"""
    home = tmp_path / "home"
    home.mkdir()
    for folder in [tmp_path, *tmp_path.parents][:3]:  # pytest creates these for one user only
        folder.chmod(folder.stat().st_mode | 0o011)
    result = subprocess.run(
        [sys.executable, "-c", program, tiny, home], capture_output=True, text=True
    )
    assert result.stdout.split("\n")[:2] == ["no thread", "True True"], result.stderr


def test_imports_before_and_behind_others_work(tiny: Path, tmp_path: Path) -> None:
    for name in MODULES:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    script = Path(__file__).parents[1] / "import_orders.py"
    orders = subprocess.run(
        [sys.executable, script, tiny, tmp_path, "--around", *MODULES],
        capture_output=True,
        text=True,
    )
    assert (orders.stdout, orders.returncode) == ("10\n", 0), orders.stderr


def test_what_few_programs_use_is_imported_when_it_is_asked_for() -> None:
    program = (
        "import sys, onnx_external as oe;"
        "print([name for name in sys.modules if name.startswith('onnx_external.')"
        " and name.split('.')[1] in ('_diagnosis', '_validation')]);"
        "import onnx_external._diagnosis;"
        "print(callable(oe.validate), callable(oe.diagnose), oe.Status.OK.name)"
    )
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert printed.stdout.decode().split("\n")[:2] == ["[]", "True True OK"]


def test_importing_takes_numpy_and_nothing_else() -> None:
    program = (
        "import sys, numpy; before = set(sys.modules); import onnx_external;"
        "unasked = {'torch', 'onnx', 'onnxruntime', 'tqdm', 'ml_dtypes', 'shutil'};"
        "print(unasked & (set(sys.modules) - before))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert result.stdout.strip() == "set()"


def test_dir_lists_what_the_package_offers_and_nothing_else() -> None:
    pytest.importorskip("torch")
    import onnx_external as oe

    names = {name for name in dir(oe) if not name.startswith("__")}
    assert names == {*oe.__all__, "torch", "transformers"} - {"__version__"}
    assert {"validate", "diagnose", "diagnose_export", "save"} <= names
    assert all(hasattr(oe, name) for name in names - {"torch", "transformers"})


def test_packages_that_are_not_public_have_underscores() -> None:
    import onnx_external as oe

    folder = Path(oe.__file__).parent
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert {name for name in packages if name[0] != "_"} == {"torch", "transformers"}
    pytest.importorskip("transformers")
    for package in (oe.torch, oe.transformers):
        names = {name for name in dir(package) if not name.startswith("__")}
        assert names == set(package.__all__)
