"""Tests of exported decoders that are run with oe.generate and onnxruntime-genai."""

import inspect
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import commands
import numpy as np
import pytest

import onnx_external as oe
from onnx_external._generation.decoder import Decoder

torch = pytest.importorskip("torch", minversion="2.11")
transformers = pytest.importorskip("transformers", minversion="5.20")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

import generation_cases as cases  # noqa: E402

needs_genai = pytest.mark.skipif(
    find_spec("onnxruntime_genai") is None, reason="onnxruntime-genai is not installed"
)


class Exported:
    """An architecture, its folder and its graphs."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.out = folder / name, folder / f"{name}-onnx"
        self.model = cases.save(name, self.folder)
        self.report = oe.transformers.export(self.folder, self.out, fsync=False, progress=False)


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def exported(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported(tmp_path_factory.mktemp("decoders"), request.param)


ROWS = [cases.rows_of(1, True), cases.rows_of(3, True), cases.rows_of(3, False)]


@pytest.mark.parametrize("rows", ROWS, ids=["one", "three", "three lengths"])
def test_generate_gives_the_tokens_of_transformers(exported: Exported, rows: Any) -> None:
    found, wanted = cases.by_ours(exported.out, rows), cases.wanted(exported.model, rows)
    assert cases.same_until_the_end(found, wanted)


@needs_genai
@pytest.mark.parametrize("rows", ROWS, ids=["one", "three", "three lengths"])
def test_genai_gives_the_tokens_of_transformers(exported: Exported, rows: Any) -> None:
    if cases.has_window(exported.model) and len({*map(len, rows)}) > 1:
        pytest.skip("GenAI pads on the right, where a window counts the padding")
    assert cases.by_genai(exported.out, rows) == cases.wanted(exported.model, rows)


@needs_genai
def test_a_chat_of_several_turns_with_genai_gives_the_tokens_of_transformers(
    exported: Exported,
) -> None:
    import onnxruntime_genai as genai

    parameters = genai.GeneratorParams(genai.Model(str(exported.out)))
    parameters.set_search_options(max_length=cases.TOTAL, min_length=cases.TOTAL, do_sample=False)
    generator = genai.Generator(genai.Model(str(exported.out)), parameters)
    text: list[int] = []
    for turn in cases.rows_of(3, False):
        if text:
            generator.rewind_to(len(text) - 1)  # GenAI has not run the model on the last token
        generator.append_tokens(np.array([*text[-1:], *turn], np.int32))
        text += turn
        for _ in range(4):
            generator.generate_next_token()
            with torch.no_grad():
                logits = exported.model(torch.tensor([text])).logits[0, -1]
            logits[cases.EOS] = -torch.inf
            text.append(int(logits.argmax()))
        assert generator.get_sequence(0).tolist() == text


def test_a_decoder_is_one_graph_whose_names_tell_what_they_are(exported: Exported) -> None:
    report = exported.report
    assert list(report.graphs) == ["model"] and report.checked == {"model": 9}
    inputs, outputs = report.inputs["model"], report.outputs["model"]
    assert inputs["input_ids"] == inputs["position_ids"] == "int64[batch_size, sequence_length]"
    assert inputs["attention_mask"] == "int64[batch_size, total_sequence_length]"
    layers = [f"{layer}.{side}" for layer in range(2) for side in ("key", "value")]
    caches = {
        f"past_key_values.{layer}": "float32[batch_size, 2, past_sequence_length, 16]"
        for layer in layers
    }
    assert inputs.items() - caches.items() == {
        (name, inputs[name]) for name in ("input_ids", "attention_mask", "position_ids")
    }
    longer = {
        f"present.{layer}": "float32[batch_size, 2, total_sequence_length, 16]" for layer in layers
    }
    assert outputs == {"logits": "float32[batch_size, sequence_length, 320]", **longer}


def test_the_settings_for_genai_are_those_of_the_model(exported: Exported) -> None:
    found = json.loads((exported.out / "genai_config.json").read_text())
    decoder = found["model"]["decoder"]
    assert decoder["filename"] == "model.onnx" and decoder["num_hidden_layers"] == 2
    assert (decoder["head_size"], decoder["num_key_value_heads"]) == (16, 2)
    ends = {name: found["model"][f"{name}_token_id"] for name in ("bos", "eos", "pad")}
    assert ends == {"bos": cases.BOS, "eos": cases.EOS, "pad": cases.PAD}
    assert found["model"]["vocab_size"] == cases.WORDS and found["search"]["do_sample"] is False


def test_the_command_continues_a_text_without_torch(exported: Exported) -> None:
    block = "import sys; sys.modules['torch'] = sys.modules['transformers'] = None; import runpy; "
    block += "runpy.run_module('onnx_external', run_name='__main__')"
    line = [sys.executable, "-c", block, "generate", str(exported.out), "--prompt", "the cat"]
    line += ["--max-new-tokens", "5", "--json"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported.folder)
    rows = [tokenizer("the cat").input_ids]
    wanted = cases.wanted(exported.model, rows)[0][:5]
    wanted = wanted[: wanted.index(cases.EOS)] if cases.EOS in wanted else wanted
    whole = tokenizer.decode(rows[0] + wanted, skip_special_tokens=True)
    assert whole.startswith("the cat")
    text = whole.removeprefix("the cat")
    assert json.loads(done.stdout) == [{"prompt": "the cat", "text": text}]
    assert oe.generate(exported.out, "the cat", 5) == [text]


def test_what_cannot_generate_says_what_is_missing(exported: Exported, tmp_path: Path) -> None:
    with pytest.raises(oe.NotFoundError, match=r"tokenizer\.json: not found.*save_pretrained"):
        oe.generate(tmp_path, "the cat")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(oe.FormatError, match=r"tokenizer\.json: not a tokenizer"):
        oe.generate(tmp_path, "the cat")
    (tmp_path / "tokenizer.json").write_bytes((exported.out / "tokenizer.json").read_bytes())
    with pytest.raises(oe.NotFoundError, match=r"neither model\.onnx, nor prefill\.onnx"):
        oe.generate(tmp_path, "the cat")
    with pytest.raises(oe.InvalidArgumentError, match="pass a prompt"):
        oe.generate(exported.out, [])
    with pytest.raises(oe.InvalidArgumentError, match="returns no tokens for ''"):
        oe.generate(exported.out, "")


def test_a_text_ends_where_it_ends_though_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = Decoder.__new__(Decoder)
    decoder.ends = {9}
    monkeypatch.setattr(decoder, "_steps", lambda *_: iter([[1, 9], [2, 3], [9, 4], [5, 6]]))
    assert decoder.generate([[0], [0]], 4) == [[1, 2], []]


def test_the_export_prints_a_working_way_to_run_a_decoder(capsys: Any) -> None:
    from onnx_external._commands.export import _print_next

    def told(copied: list[str]) -> str:
        graphs = {"model": SimpleNamespace(model="out/model.onnx")}
        forms = {"model": {"present.0.key": "float32"}}
        report = SimpleNamespace(
            path="out",
            graphs=graphs,
            inputs=forms,
            outputs=forms,
            copied=copied,
            omitted_inputs=[],
            variants={},
        )
        _print_next(report, "folder")
        return str(capsys.readouterr().out)

    text = told(["tokenizer.json"])
    assert 'generate out --prompt "Once' in text and "--tokens" not in text
    text = told(["config.json"])
    assert "generate out --tokens 1,2,3" in text and "[1, 2, 3])" in text and "Once" not in text


def test_ids_of_tokens_need_no_tokenizer(exported: Exported, tmp_path: Path) -> None:
    for file in exported.out.iterdir():
        if file.name != "tokenizer.json":
            (tmp_path / file.name).hardlink_to(file)
    rows = [[5, 6, 7], [8, 9, 10]]
    wanted = [row[:4] for row in cases.wanted(exported.model, rows)]
    wanted = [row[: row.index(cases.EOS)] if cases.EOS in row else row for row in wanted]
    assert oe.generate(tmp_path, rows, 4) == oe.generate(tmp_path, np.array(rows), 4) == wanted
    assert oe.generate(tmp_path, rows[0], 4) == wanted[:1]
    given = ["--tokens", "5,6,7", "--tokens", "8,9,10", "-n", "4"]
    done = commands.run("generate", tmp_path, *given)
    both = [",".join(map(str, row + more)) for row, more in zip(rows, wanted, strict=True)]
    assert done.stdout.splitlines() == both
    done = commands.run("generate", tmp_path, *given, "--json")
    assert [each["tokens"] for each in json.loads(done.stdout)] == wanted
    done = commands.run("generate", tmp_path, "--prompt", "the cat")
    assert f"need no tokenizer: onnx-external generate {tmp_path} --tokens 1,2,3" in done.stderr
    done = commands.run("generate", tmp_path / "model.onnx", *given)
    assert f"the folder with the graphs: onnx-external generate {tmp_path} ..." in done.stderr
    assert commands.run("generate", tmp_path, "--tokens", "1,,2").returncode == 2
    for wrong in ([[]], [-1]):
        with pytest.raises(oe.InvalidArgumentError, match="below the size of the vocabulary"):
            oe.generate(tmp_path, wrong)
    with pytest.raises(oe.InvalidArgumentError, match=r"99999 is not a token id; .* are 0 to "):
        oe.generate(tmp_path, [5, 99999])
    for neither in (None, [1.5], [[1], "a"]):
        with pytest.raises(TypeError, match="expected a text, token ids"):
            oe.generate(tmp_path, neither)


def test_a_decoder_that_treats_a_prompt_differently_is_two_graphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check this without running the graph; the trace states what it assumed of the cache."""
    from transformers.models.llama.modeling_llama import LlamaForCausalLM

    forward = LlamaForCausalLM.forward

    def doubled(self: Any, *args: Any, **given: Any) -> Any:
        cache = given.get("cache", given.get("past_key_values"))
        words = 0 if cache is None else cache.get_seq_length()
        found = forward(self, *args, **given)
        if words == 0:
            found.logits = found.logits * 2
        return found

    doubled.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    cases.save("llama", tmp_path / "llama")
    monkeypatch.setattr(LlamaForCausalLM, "forward", doubled)
    options = dict(dry_run=True, check=False, rewrite=False, progress=False)
    report = oe.transformers.export(tmp_path / "llama", tmp_path / "out", **options)
    assert list(report.graphs) == ["prefill", "decode"]
    assert any(
        "two graphs: the graph with a cache cannot read a prompt" in note for note in report.notes
    )
    with pytest.raises(oe.ExportError, match=r"graphs='one'.* cannot read a prompt"):
        oe.transformers.export(tmp_path / "llama", tmp_path / "out", graphs="one", **options)
