"""Tests of several variants of a model in one folder (`--variants`)."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import commands
import numpy as np
import pytest
from test_clients import saved

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
transformers = pytest.importorskip("transformers", minversion="5.20")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

BERT = dict(
    vocab_size=40, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
    max_position_embeddings=32,
)  # fmt: skip
FILES = {"fp32": "model", "fp16": "model_fp16", "q8": "model_quantized", "q4": "model_q4"}


class Exported:
    """A BERT, its folder, and its variants."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder, self.out = folder / "given", folder / "out"
        self.model = saved(self.folder, "BertModel", **BERT)
        (self.folder / "tokenizer.json").write_text("{}")
        self.report = oe.transformers.export(
            self.folder, self.out, fsync=False, progress=False, **options
        )


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    clients, variants = ["transformers.js"], ["fp32", "fp16", "int8", "q4"]
    return Exported(tmp_path_factory.mktemp("bert"), clients=clients, variants=variants)


def locations(path: Path) -> set[str]:
    graph = onnx.load(path, load_external_data=False).graph
    entries = [entry for each in graph.initializer for entry in each.external_data]
    return {entry.value for entry in entries if entry.key == "location"}


def test_each_variant_has_its_graph_and_its_data_and_side_files_are_there_once(
    bert: Exported,
) -> None:
    expected = {
        f"{name}{end}"
        for name in FILES.values()
        for end in (".onnx", ".onnx_data", ".manifest.json")
    }
    assert {path.name for path in (bert.out / "onnx").iterdir()} == expected
    assert {path.name for path in bert.out.iterdir()} == {"onnx", "config.json", "tokenizer.json"}
    for name in FILES.values():
        assert locations(bert.out / f"onnx/{name}.onnx") == {f"{name}.onnx_data"}
        assert oe.verify(bert.out / f"onnx/{name}.onnx", against=bert.folder).ok
    sizes = [(bert.out / f"onnx/{name}.onnx_data").stat().st_size for name in FILES.values()]
    assert sizes[0] > max(sizes[1:]) and sizes[2] > sizes[3]  # embeddings stay in float32


def test_transformers_js_is_told_the_first_variant_and_where_the_data_of_each_is(
    bert: Exported,
) -> None:
    settings = json.loads((bert.out / "config.json").read_text())["transformers.js_config"]
    counts = {f"{name}.onnx": 1 for name in FILES.values()}
    assert settings == {"dtype": "fp32", "use_external_data_format": counts}


def test_each_variant_gives_what_the_model_gives_as_far_as_its_numbers_allow(
    bert: Exported,
) -> None:
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    with torch.no_grad():
        want = bert.model(input_ids=ids).last_hidden_state.numpy()
    errors = []
    for name in FILES.values():
        session = onnxruntime.InferenceSession(bert.out / f"onnx/{name}.onnx")
        feed = {each.name: np.ones((1, 5), np.int64) for each in session.get_inputs()}
        feed["input_ids"] = ids.numpy()
        feed["token_type_ids"] = np.zeros((1, 5), np.int64)
        found = session.run(["last_hidden_state"], feed)[0]
        assert found.dtype == (np.float16 if name == "model_fp16" else np.float32)
        errors.append(float(np.abs(found - want).max()))
    assert errors[0] < 1e-5 < errors[1] < 1e-2 and errors[2] < errors[3] < 2


def test_the_report_lists_the_variants_and_what_codes_lose(bert: Exported) -> None:
    report = bert.report
    assert report.variants == {variant: [name] for variant, name in FILES.items()}
    assert set(report.graphs) == set(report.inputs) == set(FILES.values())
    assert report.checked["model"] and report.checked["model_fp16"]
    assert set(report.quality) == {"model_quantized", "model_q4"}
    assert all("relative error" in each for each in report.quality.values())
    assert report.save.verified and len(report.save.models) == 4
    document = json.loads(json.dumps(report.to_dict()))
    assert document["variants"]["q8"] == ["model_quantized"]
    for name, graph in document["graphs"].items():
        assert graph["model"] == str(bert.out / f"onnx/{name}.onnx")


def test_variants_that_are_there_are_replaced_under_their_names_or_not_at_all(
    bert: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnx_external.transformers import _variants

    line = ("export", bert.folder, "-o", bert.out, "--for", "transformers.js", "--variants", "q4")
    done = commands.run(*line)
    assert done.returncode == 1 and "onnx/model_q4.onnx: exists" in done.stderr
    before = {path: path.read_bytes() for path in bert.out.rglob("*") if path.is_file()}

    def fails(*_: Any) -> Any:
        raise oe.RunError("cannot be loaded")

    options: dict[str, Any] = {"clients": "transformers.js", "overwrite": True, "progress": False}
    with monkeypatch.context() as patched:
        patched.setattr(_variants, "on_cpu", fails)
        with pytest.raises(oe.RunError, match="cannot be loaded"):
            oe.transformers.export(bert.folder, bert.out, variants="fp32,int8", **options)
    assert {path: path.read_bytes() for path in bert.out.rglob("*") if path.is_file()} == before
    oe.transformers.export(bert.folder, bert.out, variants="q4", check=False, **options)
    assert {path for path in bert.out.rglob("*") if path.is_file()} == before.keys()
    config = json.loads((bert.out / "config.json").read_text())["transformers.js_config"]
    assert config["dtype"] == "q4" and config["use_external_data_format"]["model_fp16.onnx"] == 1


def test_data_files_are_counted_and_what_no_browser_loads_is_named() -> None:
    from onnx_external.transformers import _transformers_js

    def graph(name: str, size: int, *files: str) -> Any:
        tensors = [SimpleNamespace(file=file) for file in (*files, None)]
        return SimpleNamespace(model=f"out/onnx/{name}", bytes=size, tensors=tensors)

    large = graph("model.onnx", (3 << 30) + 1, "a", "b", "b")
    planned: Any = SimpleNamespace(models=[large, graph("model_q4.onnx", 3 << 30)])
    assert _transformers_js.data_files(planned) == {"model.onnx": 2, "model_q4.onnx": 0}
    (note,) = _transformers_js.notes_on_size(planned)
    assert "model.onnx (3.2 GB)" in note and "model_q4.onnx" not in note
    planned.models.remove(large)
    assert _transformers_js.notes_on_size(planned) == []


def test_names_that_are_not_known_and_options_that_say_the_same_are_refused(
    tmp_path: Path,
) -> None:
    saved(tmp_path / "given", "BertModel", **BERT)
    for variants, more, why in (
        (
            "fp32,bnb4",
            {},
            r"'bnb4' is not one of the names for variants=: fp32, .*4 or 8 bits",
        ),
        (
            "word",
            {},
            r"'word' is not one of the names for variants=: fp32, fp16, int8, uint8",
        ),
        (["fp16"], {"dtype": "float16"}, "variants determine dtype; leave dtype= out"),
        (["q4"], {"quantize": "int4"}, "leave quantize= out"),
        (["q4"], {"layout": "link"}, "variants are copies in other types"),
    ):
        with pytest.raises(oe.InvalidArgumentError, match=why):
            oe.transformers.export(tmp_path / "given", tmp_path / "out", variants=variants, **more)
    with pytest.raises(oe.InvalidArgumentError, match="variants need several files"):
        oe.transformers.export(tmp_path / "given", tmp_path / "x.onnx", variants="fp32")
    done = commands.run("export", tmp_path / "given", "-o", tmp_path / "out", "--variants", "q1")
    assert done.returncode == 1 and "names for --variants: fp32" in done.stderr
    assert not (tmp_path / "out").exists()
