"""Tests of transformers folders whose models have data-dependent control flow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.9")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")
pytest.importorskip("transformers.exporters")

import transformers  # noqa: E402

import onnx_external as oe  # noqa: E402
from onnx_external._base.errors import RewriteError  # noqa: E402
from onnx_external.transformers import _twins  # noqa: E402
from onnx_external.transformers._twins import twins  # noqa: E402


class DecidingConfig(transformers.PreTrainedConfig):  # type: ignore[misc, name-defined]
    model_type = "deciding"

    def __init__(
        self, kind: str = "value", hidden_size: int = 16, num_hidden_layers: int = 3, **more: Any
    ) -> None:
        self.kind = kind
        self.vocab_size = 64
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        super().__init__(**more)


class Layer(torch.nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.kind = config.kind
        self.linear = torch.nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        if self.kind == "value" and y.mean() > 0:
            y = torch.clamp(y, max=2.0)
        if self.kind == "size" and y.shape[1] > 10:
            y = y * 2
        if self.kind == "types" and y.mean() > 0:
            return (x > y).to(torch.int64)
        return x + y


class Deciding(transformers.PreTrainedModel):  # type: ignore[misc, name-defined]
    config_class = DecidingConfig
    main_input_name = "input_ids"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.words = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = torch.nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.post_init()

    def _init_weights(self, module: Any) -> None:
        pass

    def forward(self, input_ids: Any) -> Any:
        x = self.words(input_ids)
        for layer in self.layers:
            x = layer(x)
        return {"found": x}


@pytest.fixture(autouse=True, scope="module")
def _registered() -> Iterator[None]:
    transformers.AutoConfig.register("deciding", DecidingConfig)
    transformers.AutoModel.register(DecidingConfig, Deciding)
    try:
        yield
    finally:
        del transformers.CONFIG_MAPPING._extra_content["deciding"]
        del transformers.AutoModel._model_mapping._extra_content[DecidingConfig]


def folder(path: Path, **settings: Any) -> Path:
    torch.manual_seed(0)
    Deciding(DecidingConfig(**settings)).save_pretrained(path / "folder")
    return path / "folder"


def test_a_test_on_a_tensor_of_a_folder_s_model_is_rewritten(tmp_path: Path) -> None:
    report = oe.transformers.export(folder(tmp_path), tmp_path / "out")
    assert report.checked == {"model": 2}
    changes = report.rewriting["model"].changes
    assert [each.name for each in changes] == ["Layer.forward"]
    assert "-    if self.kind" in changes[0].diff
    assert any("a smaller model of its class" in each for each in report.notes)
    assert report.to_dict()["rewriting"]["model"]["places"][0].startswith("test_transformers_rew")


def test_a_test_on_a_size_is_rewritten_when_the_graph_turns_out_wrong(tmp_path: Path) -> None:
    report = oe.transformers.export(folder(tmp_path, kind="size"), tmp_path / "out")
    assert report.checked == {"model": 2}
    assert report.rewriting["model"]


def test_a_graph_that_was_not_checked_is_proved_on_the_small_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnx_external.transformers import _checking

    monkeypatch.setattr(_checking, "LARGEST", 1)
    report = oe.transformers.export(folder(tmp_path), tmp_path / "out")
    assert report.checked == {"model": 0}
    assert any("was right for 2 input sets" in each for each in report.notes)


def test_without_room_for_a_twin_the_model_itself_runs_without_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_twins, "_MOST", 10)
    report = oe.transformers.export(folder(tmp_path), tmp_path / "out")
    assert report.checked == {"model": 2}
    assert any("with zeros for its weights" in each for each in report.notes)


def test_what_cannot_be_rewritten_is_refused_by_its_line(tmp_path: Path) -> None:
    place = r"test_transformers_rewriting\.py:\d+:\d+: .*int64"
    with pytest.raises(RewriteError, match=place):
        oe.transformers.export(folder(tmp_path, kind="types"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_without_rewriting_the_line_of_the_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(oe.ExportError, match=r"test_transformers_rewriting\.py:\d+, in forward"):
        oe.transformers.export(folder(tmp_path), tmp_path / "out", rewrite=False)
    with pytest.raises(oe.ExportError, match=r"wrong for the inputs 'longer'.*rewriting\.py:\d+"):
        oe.transformers.export(folder(tmp_path, kind="size"), tmp_path / "out", rewrite=False)
    assert not (tmp_path / "out").exists()


def test_a_twin_has_few_layers_and_fits_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Deciding(DecidingConfig(hidden_size=64, num_hidden_layers=30))
    assert [len(each.model.layers) for each in twins(model)] == [2, 30]
    monkeypatch.setattr(_twins, "_MOST", 2_000)
    narrow = next(iter(twins(model)))
    assert narrow.model.config.hidden_size == 16
    assert "1/4 as wide" in narrow.text


def run(*arguments: Any) -> int:
    from onnx_external._commands.export import main

    return main([*map(str, arguments), "--quiet", "--no-fsync"])


def test_the_command_writes_the_diffs_into_a_new_folder(tmp_path: Path) -> None:
    source, diffs = folder(tmp_path), tmp_path / "new" / "diffs"
    assert run(source, "-o", tmp_path / "out", "--dump-rewriting", diffs) == 0
    names = sorted(each.name for each in (diffs / "model").iterdir())
    assert names == [f"test_transformers_rewriting.Layer.forward.{end}" for end in ("diff", "py")]
    assert sorted(each.name for each in diffs.parent.iterdir()) == ["diffs"]


def test_a_folder_for_the_diffs_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, full = folder(tmp_path), tmp_path / "full"
    full.mkdir()
    (full / "mine").touch()
    for diffs, words in (
        (full, "already contains files"),
        (full / "mine" / "more", "cannot be written"),
    ):
        assert run(source, "-o", tmp_path / "out", "--dump-rewriting", diffs) == 1
        assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert [each.name for each in full.iterdir()] == ["mine"]


def test_nothing_stays_of_the_diffs_if_the_export_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = folder(tmp_path, kind="types")
    options = "-o", tmp_path / "out", "--dump-rewriting", tmp_path / "diffs"
    assert run(source, *options) == 1
    assert run(source, *options, "--no-rewrite") == 1
    assert "test_transformers_rewriting.py" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


def test_a_model_with_a_state_takes_texts_of_any_length(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = dict(vocab_size=64, hidden_size=16, state_size=4, num_hidden_layers=1)
    model = transformers.MambaForCausalLM(transformers.MambaConfig(**sizes))
    model.save_pretrained(tmp_path / "folder")
    report = oe.transformers.export(tmp_path / "folder", tmp_path / "out")
    assert report.checked == {"prefill": 3, "decode": 3}
    assert report.fixed["prefill"] == []
    names = [each.name for each in report.rewriting["prefill"].changes]
    assert "mamba_selective_scan" in names
    plain = oe.transformers.export(
        tmp_path / "folder", tmp_path / "plain", rewrite=False, dry_run=True
    )
    assert "input_ids[1] = 8" in plain.fixed["prefill"]
