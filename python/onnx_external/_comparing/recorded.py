"""Reads and writes recorded inputs and outputs: ONNX's test_data_set_N folders, and .npz files."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._base.errors import ExistsError, FormatError, NotFoundError, ReadWriteError
from .running import Form
from .values import Value

_FILE = re.compile(r"(input|output)_(\d+)\.pb")
_SET = "test_data_set_"


def _number(path: Path) -> int:
    digits = path.name.removeprefix(_SET)
    return int(digits) if digits.isdigit() else -1


def _is_set(path: Path) -> bool:
    return path.is_dir() and any(_FILE.fullmatch(each.name) for each in path.iterdir())


def is_recorded(path: Path) -> bool:
    """Return whether a path is an .npz file, an input set, or a folder of input sets."""
    if path.suffix == ".npz":
        return path.is_file()
    return path.is_dir() and (_is_set(path) or any(map(_is_set, path.glob(f"{_SET}*"))))


def recorded_sets(path: Path) -> list[Path]:
    """Return the input sets at a path, in the order of their numbers."""
    if not path.exists():
        raise NotFoundError(f"{path}: not found")
    if path.suffix == ".npz" or _is_set(path):
        return [path]
    found = sorted(filter(_is_set, path.glob(f"{_SET}*")), key=_number)
    if not found:
        raise NotFoundError(
            f"{path}: no recorded inputs; give a folder with {_SET}0/input_0.pb, or an .npz file "
            "with the names of the model's inputs, as numpy.savez('inputs.npz', x=array) writes it"
        )
    return found


def read_set(
    path: Path, inputs: Sequence[Form], outputs: Sequence[Form]
) -> tuple[dict[str, Value], dict[str, Value]]:
    """Read the inputs and outputs of a recorded set, by the model's names.

    Args:
        path: a folder of .pb files, which are numbered by the position of the input or output, or
            an .npz file, which uses the model's names.
        inputs: the model's inputs.
        outputs: the model's outputs.
    """
    if path.suffix == ".npz":
        return _read_npz(path, inputs, outputs)
    found: dict[str, dict[str, Value]] = {"input": {}, "output": {}}
    forms = {"input": inputs, "output": outputs}
    for each in sorted(path.iterdir()):
        matched = _FILE.fullmatch(each.name)
        if matched is None:
            continue
        side, number = matched[1], int(matched[2])
        if number >= len(forms[side]):
            raise FormatError(f"{each}: the model has only {len(forms[side])} {side}s")
        form = forms[side][number]
        found[side][form.name] = _read_pb(each, form)
    return found["input"], found["output"]


def _read_npz(
    path: Path, inputs: Sequence[Form], outputs: Sequence[Form]
) -> tuple[dict[str, Value], dict[str, Value]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            values = {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise FormatError(f"{path}: cannot be read: {error}") from error
    taken, given = [form.name for form in inputs], [form.name for form in outputs]
    unknown = sorted(values.keys() - set(taken) - set(given))
    if unknown:
        raise FormatError(
            f"{path}: {', '.join(unknown)}: the model has no input or output of this name; it has "
            f"the inputs {', '.join(taken)} and the outputs {', '.join(given)}"
        )
    return (
        {name: values[name] for name in taken if name in values},
        {name: values[name] for name in given if name in values},
    )


def _array(tensor: Any) -> Any:
    from onnx import TensorProto, numpy_helper

    if tensor.data_location == TensorProto.EXTERNAL:
        raise ValueError("its data is in another file")
    return numpy_helper.to_array(tensor)


def _read_pb(path: Path, form: Form) -> Value:
    from google.protobuf.message import DecodeError
    from onnx import SequenceProto, TensorProto

    if form.type.startswith("optional("):
        raise FormatError(f"{path}: {form.name} is {form.type}, which is not supported")
    try:
        data = path.read_bytes()
        if form.type.startswith("seq("):
            return [_array(each) for each in SequenceProto.FromString(data).tensor_values]
        return _array(TensorProto.FromString(data))
    except OSError as error:
        raise ReadWriteError(f"{path}: cannot be read: {error.strerror}") from error
    except (DecodeError, ValueError, TypeError, KeyError) as error:
        raise FormatError(f"{path}: not a valid ONNX {form.type}: {error}") from error


def check_free(folder: Path, overwrite: bool) -> None:
    """Raise an error if a folder has recorded sets already, which would be mixed with new ones."""
    if folder.exists() and not folder.is_dir():
        raise ExistsError(f"{folder}: is a file; the dump needs a folder")
    taken = sorted(each.name for each in folder.glob(f"**/{_SET}*")) if folder.is_dir() else []
    if taken and not overwrite:
        raise ExistsError(f"{folder}: has {taken[0]} already; overwrite=True replaces its files")


def write_set(
    folder: Path,
    number: int,
    feed: Mapping[str, Value],
    got: Mapping[str, Value],
    want: Mapping[str, Value],
) -> Path:
    """Write an input set and its outputs in the format of ONNX's tests.

    The expected outputs are written as output_N.pb, the model's outputs as actual_N.pb.
    """
    place = folder / f"{_SET}{number}"
    try:
        place.mkdir(parents=True, exist_ok=True)
        for old in place.iterdir():
            if re.fullmatch(r"(input|output|actual)_\d+\.pb", old.name):
                old.unlink()
        for index, (name, value) in enumerate(feed.items()):
            _write_pb(place / f"input_{index}.pb", name, value)
        for index, name in enumerate(got):
            _write_pb(place / f"output_{index}.pb", name, want.get(name))
            _write_pb(place / f"actual_{index}.pb", name, got[name])
    except OSError as error:
        raise ReadWriteError(f"{place}: cannot be written: {error.strerror}") from error
    return place


def _write_pb(path: Path, name: str, value: Value) -> None:
    from onnx import numpy_helper

    if value is None:
        return
    if isinstance(value, list):
        message: Any = numpy_helper.from_list(value, name)
    else:
        message = numpy_helper.from_array(np.asarray(value), name)
    try:
        data = message.SerializeToString()
    except Exception as error:
        raise FormatError(f"{path}: {name} cannot be written as an ONNX tensor: {error}") from error
    staged = path.with_name(f".{path.name}.part")
    staged.write_bytes(data)
    os.replace(staged, path)
