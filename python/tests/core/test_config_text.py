"""Tests of configs that a text editor has damaged, which transformers cannot read either."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import onnx_external as oe
from onnx_external._folders.config import document_of
from onnx_external._folders.side_files import files_beside

pytest.importorskip("torch", minversion="2.11")
pytest.importorskip("transformers", minversion="5.20")

_TEXT = json.dumps({"model_type": "bert"}).encode()
_CHANGED = {
    "a byte order mark": (b"\xef\xbb\xbf" + _TEXT, "begins with a byte order mark; save it as"),
    "UTF-16": (_TEXT.decode().encode("utf-16"), "it is UTF-16, as PowerShell's > writes"),
    "a comment in front": (b"// mine\n" + _TEXT, "line 1 has a comment, which JSON does not"),
    "a comment inside": (b'{"a": 1,\n # mine\n "b": 2}', "line 2 has a comment"),
    "a comma too many": (b'{"a": [1, 2,\n]}', "line 2 has a comma after the last entry"),
    "half of it": (_TEXT[:5], "line 1 column"),
}


@pytest.mark.parametrize("what", _CHANGED)
def test_a_changed_config_is_named_with_its_fault(what: str, tmp_path: Path) -> None:
    data, words = _CHANGED[what]
    (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(oe.FormatError, match=r"config\.json: not a transformers config") as caught:
        document_of(tmp_path)
    assert words in str(caught.value)


@pytest.mark.parametrize("what", ["a byte order mark", "UTF-16", "a comment in front"])
def test_an_export_names_it_and_no_server(what: str, tmp_path: Path) -> None:
    data, words = _CHANGED[what]
    (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(oe.FormatError) as caught:
        oe.transformers.export(tmp_path, tmp_path / "out")
    assert words in str(caught.value)
    assert "server" not in str(caught.value)


def test_settings_of_generate_that_are_not_json_are_left_out(tmp_path: Path) -> None:
    for name in ("config.json", "generation_config.json"):
        (tmp_path / name).write_text("{}")
    assert [file.name for file in files_beside(tmp_path)] == [
        "config.json",
        "generation_config.json",
    ]
    (tmp_path / "generation_config.json").write_text("{")
    assert [file.name for file in files_beside(tmp_path)] == ["config.json"]
