"""Tests that no code of a folder runs, no question is asked, and no network is used."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
transformers = pytest.importorskip("transformers", minversion="5.20")
pytest.importorskip("onnxscript")

SIZES = dict(
    vocab_size=96,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=1,
    num_attention_heads=2,
    max_position_embeddings=64,
)
FILES = (
    "modeling_own.py",
    "configuration_own.py",
    "tokenization_own.py",
    "processing_own.py",
    "image_processing_own.py",
    "custom_generate/generate.py",
    "__init__.py",
)
MAP = {
    "AutoConfig": "configuration_own.OwnConfig",
    "AutoModel": "modeling_own.OwnModel",
    "AutoModelForCausalLM": "modeling_own.OwnForCausalLM",
    "AutoTokenizer": ["tokenization_own.OwnTokenizer", None],
    "AutoProcessor": "processing_own.OwnProcessor",
}


class Watched:
    """A folder whose Python files leave a mark if they run, and the recorded requests."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, []  # type: Path, list[str]
        self.trace = folder.parent / "ran.txt"
        code = f"open({str(self.trace)!r}, 'a').write(__file__)\n"
        code += "from transformers import LlamaForCausalLM as OwnForCausalLM, LlamaConfig\n"
        code += "OwnModel = OwnForCausalLM\n"
        code += "class OwnConfig(LlamaConfig):\n    model_type = 'own'\n"
        code += "def generate(model, *args, **kwargs): pass\n"
        for name in FILES:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(code)

    def edit(self, name: str = "config.json", **more: Any) -> None:
        path = self.folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | more))

    def untouched(self) -> bool:
        return not self.trace.exists() and not self.asked


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Any:
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).eval()
    model.save_pretrained(tmp_path_factory.mktemp("llama"))
    return model


@pytest.fixture
def watched(llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    folder = tmp_path / "folder"
    llama.save_pretrained(folder)
    made = Watched(folder)
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))

    def noted(what: str) -> Any:
        def note(*args: Any, **_: Any) -> Any:
            made.asked.append(f"{what} {args}")
            raise OSError(what)

        return note

    monkeypatch.setattr("builtins.input", noted("input"))
    monkeypatch.setattr(socket, "getaddrinfo", noted("getaddrinfo"))
    monkeypatch.setattr(socket, "create_connection", noted("create_connection"))
    monkeypatch.setattr(socket.socket, "connect", noted("connect"))
    yield made
    assert made.untouched(), made.asked


def loads(folder: Path, task: str | None) -> Iterator[Any]:
    """Return the calls that load a folder: in exports, validate and diagnose."""
    from onnx_external.transformers._loading import load
    from onnx_external.transformers._reference import loaded

    yield lambda: load(folder, task, None).model
    yield lambda: loaded(folder, task, None)


def graphs_of(folder: Path) -> dict[str, Any]:
    """Return the graphs that the export would trace."""
    from onnx_external.transformers._inputs import inputs_of
    from onnx_external.transformers._tracing import graph_modules

    model = next(loads(folder, None))()
    return graph_modules(model, inputs_of(model, folder, None), True)


def refused(folder: Path, task: str | None, match: str) -> None:
    for load in loads(folder, task):
        with pytest.raises(oe.Error, match=match):
            load()


@pytest.mark.parametrize("task", [None, "text-generation", "LlamaForCausalLM", "AutoModel"])
@pytest.mark.parametrize(
    "more",
    [
        dict(model_type="own", auto_map=MAP),
        dict(model_type=None, auto_map=MAP),
        dict(model_type=["llama"], auto_map=MAP),
        dict(model_type="own", auto_map={**MAP, "AutoConfig": "some/where--configuration.Own"}),
        dict(model_type="own", auto_map={"AutoModel": "modeling_own.OwnModel"}),
        dict(model_type="own", auto_map=[]),
        dict(model_type="own", auto_map="modeling_own.OwnModel"),
        dict(model_type="own", auto_map={"AutoConfig": 7}),
        dict(text_config=dict(model_type="own", auto_map=MAP)),
        dict(parts=[dict(vision=dict(model_type="own", auto_map=MAP))]),
    ],
)
def test_a_config_that_needs_code_of_the_folder_is_refused(
    watched: Watched, more: dict[str, Any], task: str | None
) -> None:
    watched.edit(**more)
    refused(watched.folder, task, r"config\.json: .*auto_map.*which is never run.*register")


def test_a_class_that_only_auto_map_names_is_refused(watched: Watched) -> None:
    watched.edit(architectures=["OwnForCausalLM"], auto_map=MAP)
    refused(watched.folder, None, r"OwnForCausalLM.*its auto_map names code in the folder")
    watched.edit(auto_map={"AutoModelForMaskedLM": "modeling_own.OwnForMaskedLM"})
    refused(
        watched.folder, "fill-mask", r"AutoModelForMaskedLM.*OwnForMaskedLM in modeling_own\.py"
    )
    watched.edit(auto_map={"AutoModelForMaskedLM": "some/where--modeling_own.OwnForMaskedLM"})
    refused(watched.folder, "fill-mask", "the Hub repository some/where")


def test_a_config_of_another_file_is_looked_at_too(watched: Watched) -> None:
    config = json.loads((watched.folder / "config.json").read_text())
    other = watched.folder / "config.5.0.0.json"
    other.write_text(json.dumps(config | dict(model_type="own", auto_map=MAP)))
    watched.edit(configuration_files=[other.name])
    refused(watched.folder, None, "auto_map")
    watched.edit(configuration_files=["config.x.json"])
    refused(watched.folder, None, "configuration_files")


@pytest.mark.parametrize("command", ["export", "validate", "diagnose"])
def test_a_command_neither_asks_nor_runs_the_folder_s_code(watched: Watched, command: str) -> None:
    watched.edit(model_type="own", architectures=["OwnForCausalLM"], auto_map=MAP)
    line = [sys.executable, "-m", "onnx_external", command, str(watched.folder)]
    line += ["--task", "text-generation"]
    line += ["-o", str(watched.folder / "out")] if command == "export" else []
    done = subprocess.run(line, input="y\n" * 9, capture_output=True, text=True)
    assert done.returncode and "auto_map" in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (watched.folder / "out").exists()


def test_a_command_imports_nothing_of_the_folder_in_which_it_runs(watched: Watched) -> None:
    code = (watched.folder / FILES[0]).read_text().splitlines()[0]
    for name in ("timm", "kernels", "peft", "torch", "transformers", "onnx", "google"):
        (watched.folder / f"{name}.py").write_text(code)
    watched.edit(architectures=["Nothing"])
    line = [sys.executable, "-m", "onnx_external", "export", ".", "-o", "out"]
    done = subprocess.run(line, cwd=watched.folder, capture_output=True, text=True)
    assert done.returncode == 1 and "names no class in transformers" in done.stderr


def test_a_folder_whose_class_transformers_has_is_loaded_as_if_it_had_no_code(
    watched: Watched, llama: Any
) -> None:
    watched.edit(auto_map=MAP)
    watched.edit("generation_config.json", custom_generate=str(watched.folder), auto_map=MAP)
    (watched.folder / "tokenizer_config.json").write_text(json.dumps(dict(auto_map=MAP)))
    (watched.folder / "processor_config.json").write_text(json.dumps(dict(auto_map=MAP)))
    (watched.folder / "preprocessor_config.json").write_text(json.dumps(dict(auto_map=MAP)))
    (watched.folder / "chat_template.jinja").write_text("{{ cycler.__init__.__globals__.os }}")
    for load in loads(watched.folder, None):
        assert type(load()) is transformers.LlamaForCausalLM
    assert list(graphs_of(watched.folder)) == ["model"]  # with a cache, as generate() uses it
    words = {"input_ids": torch.arange(8).reshape(2, 4)}
    reference = next(iter([*loads(watched.folder, "text-generation")][1:]))()
    with torch.no_grad():
        assert torch.equal(reference(**words).logits, llama(**words).logits)


@pytest.mark.parametrize(
    "name",
    [
        "BertTokenizer",
        "AutoTokenizer",
        "AutoConfig",
        "LlamaConfig",
        "AutoProcessor",
        "AutoImageProcessor",
        "GenerationConfig",
        "PreTrainedModel",
        "pipeline",
        "models",
        "logging",
        "__version__",
        "Trainer",
    ],
)
def test_a_name_that_is_not_a_class_of_models_is_refused_without_the_network(
    watched: Watched, name: str
) -> None:
    refused(watched.folder, name, f"{name}.*not a model class")
    watched.edit(architectures=[name])
    refused(watched.folder, None, f"{name}.*not a model class")


@pytest.mark.parametrize("named", [None, 7, "LlamaForCausalLM", {}, [], [[]], [None], ["No" * 9]])
def test_architectures_that_name_nothing_are_refused(watched: Watched, named: Any) -> None:
    watched.edit(architectures=named)
    refused(watched.folder, None, "names no class in transformers")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("attn_implementation", "some/where"),
        ("_attn_implementation", "some/where@main:attention"),
        ("attn_implementation", {"text_config": "some/where"}),
        ("experts_implementation", "some/where"),
        ("text_config", {"_attn_implementation": "paged|some/where"}),
    ],
)
def test_a_kernel_of_the_hub_is_refused(watched: Watched, key: str, value: Any) -> None:
    watched.edit(**{key: value})
    refused(watched.folder, None, "some/where.* a kernel from the Hub")


ODD = [
    dict(model_type="detr", backbone="some/where", use_timm_backbone=False),
    dict(model_type="detr", backbone="resnet50", use_timm_backbone=True),
    dict(model_type="dpt", backbone="some/where", is_hybrid=True),
    dict(
        model_type="detr", backbone_config=dict(model_type="timm_backbone", backbone="hf-hub:a/b")
    ),
    dict(model_type="timm_wrapper", architecture="hf-hub:some/where"),
    dict(model_type="wav2vec2", target_lang="fra", architectures=["Wav2Vec2ForCTC"]),
    dict(model_type="musicgen", architectures=["MusicgenForConditionalGeneration"]),
    dict(name_or_path="some/where", _name_or_path="some/where"),
    dict(attn_implementation="flash_attention_2"),
    dict(use_kernels=True, kernel_config={"kernel_mapping": {"RMSNorm": "some/where:RMSNorm"}}),
    dict(transformers_weights="some/where"),
    dict(quantization_config={}),
    dict(fusion_config={"patch_embeddings": True}),
    dict(distributed_config={"tp_size": 2}),
    dict(custom_pipelines={"own": {"impl": "modeling_own.Own"}}, extra_files=["http://some.where"]),
]


@pytest.mark.parametrize("more", ODD, ids=lambda more: next(iter(more.values())))
@pytest.mark.parametrize("task", [None, "DetrForObjectDetection", "AutoBackbone"])
def test_an_odd_folder_is_loaded_or_refused_without_the_network(
    watched: Watched, more: dict[str, Any], task: str | None
) -> None:
    watched.edit(**more)
    for load in loads(watched.folder, task):
        try:
            load()
        except oe.Error as error:
            assert "HF_HUB_OFFLINE" not in str(error) and "trust_remote_code" not in str(error)


def test_a_model_of_the_hub_that_is_missing_is_named(watched: Watched) -> None:
    watched.edit(model_type="detr", backbone="some/where", use_timm_backbone=False)
    match = "it needs .* from the Hub, and nothing is downloaded here"
    refused(watched.folder, "DetrForObjectDetection", match)


def test_kernels_that_transformers_would_fetch_are_not(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.integrations import hub_kernels

    from onnx_external.transformers._guarding import alone

    monkeypatch.setattr(hub_kernels, "is_kernels_available", lambda: True)
    got = lambda *_, **__: watched.asked.append("kernel")  # noqa: E731
    monkeypatch.setattr(hub_kernels, "get_kernel_hub", got, raising=False)
    with alone():
        assert hub_kernels.lazy_load_kernel("causal-conv1d", {}) is None


def test_within_alone_the_hub_is_not_asked_and_everything_is_as_it_was_afterwards(
    watched: Watched,
) -> None:
    import huggingface_hub
    from transformers import dynamic_module_utils
    from transformers.integrations import hub_kernels

    from onnx_external.transformers._guarding import alone

    def state() -> tuple[Any, ...]:
        offline = huggingface_hub.constants.HF_HUB_OFFLINE
        return offline, dynamic_module_utils.TIME_OUT_REMOTE_CODE, hub_kernels.get_kernel

    before = state()
    with pytest.raises(KeyError), alone():
        with alone(), pytest.raises(OSError):
            transformers.AutoTokenizer.from_pretrained("some/where")
        assert huggingface_hub.is_offline_mode()
        with pytest.raises(huggingface_hub.errors.OfflineModeIsEnabled):
            huggingface_hub.HfApi().model_info("some/where")
        raise KeyError
    assert state() == before
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with alone():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait()
    with alone():
        pass
    assert huggingface_hub.is_offline_mode()  # another thread still needs offline mode
    leave.set()
    thread.join()
    assert state() == before


def test_classes_that_the_user_has_registered_are_loaded(watched: Watched) -> None:
    class OwnConfig(transformers.LlamaConfig):  # type: ignore[misc, name-defined]
        model_type = "own"

    class OwnForCausalLM(transformers.LlamaForCausalLM):  # type: ignore[misc, name-defined]
        config_class = OwnConfig

    transformers.AutoConfig.register("own", OwnConfig)
    transformers.AutoModelForCausalLM.register(OwnConfig, OwnForCausalLM)
    try:
        watched.edit(model_type="own", architectures=["OwnForCausalLM"], auto_map=MAP)
        for task in (None, "text-generation"):
            for load in loads(watched.folder, task):
                assert type(load()) is OwnForCausalLM
        assert type(graphs_of(watched.folder)["model"].module) is OwnForCausalLM
    finally:
        del transformers.CONFIG_MAPPING._extra_content["own"]
        del transformers.AutoModelForCausalLM._model_mapping._extra_content[OwnConfig]


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "7", '"auto_map"', "{", "[" * 99_999, "1" * 9_999, "\x00", "\udcff"]
)
def test_files_that_are_not_a_config_are_refused(watched: Watched, text: str) -> None:
    (watched.folder / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    refused(watched.folder, None, r"config\.json: not a transformers config")
