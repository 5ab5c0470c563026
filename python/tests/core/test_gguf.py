"""GGUF files: their metadata, and their tensors under the names of transformers."""

from pathlib import Path

import pytest
from gguf_files import Typed, write_gguf

import onnx_external as oe

METADATA = {
    "general.architecture": "llama",
    "a.byte": Typed("uint8", 255),
    "a.negative": Typed("int16", -3),
    "a.large": Typed("uint64", 2**63 + 1),
    "a.low": Typed("int64", -(2**63)),
    "a.flag": True,
    "a.half": 0.5,
    "a.third": Typed("float64", 1 / 3),
    "a.heads": [4, 2, 4],
    "a.signed": Typed("int32", [-1, 2]),
    "a.flags": [True, False],
    "a.floats": [0.25, -1.5],
    "a.empty": Typed("string", []),
    "tokenizer.ggml.tokens": ["a", "\u2581b", b"\xff"],
}
READ = {
    **{key: getattr(value, "value", value) for key, value in METADATA.items()},
    "tokenizer.ggml.tokens": ["a", "\u2581b", "\udcff"],
}


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("order", ["<", ">"])
def test_metadata_is_read_in_both_byte_orders(tmp_path: Path, order: str, version: int) -> None:
    path = write_gguf(tmp_path / "m.gguf", METADATA, order=order, version=version)
    read = oe.gguf_metadata(path)
    assert read == READ
    assert list(read) == list(READ)
    assert all(type(read[key]) is type(READ[key]) for key in READ)


def test_metadata_of_a_file_cut_off_anywhere_is_an_error(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", METADATA)
    whole = path.read_bytes()
    end = len(whole.rstrip(b"\0"))
    for size in range(0, end, 7):
        path.write_bytes(whole[:size])
        with pytest.raises(oe.FormatError, match=r"m\.gguf"):
            oe.gguf_metadata(path)


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(oe.NotFoundError):
        oe.gguf_metadata(tmp_path / "m.gguf")
