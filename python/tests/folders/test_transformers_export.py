"""Tests of exports from transformers folders, and of the conversions at loading."""

import copy
import inspect
import io
import json
import subprocess
import sys
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
transformers = pytest.importorskip("transformers", minversion="5.20")
sympy = pytest.importorskip("sympy")
pytest.importorskip("onnxscript")
runtime = pytest.importorskip("onnxruntime")

from onnx_external.transformers._naming import (  # noqa: E402
    PAST,
    SEQUENCE,
    TOTAL,
    _simplified,
    input_names,
    output_name,
)

SIZES = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
)


def random_weights(model: Any) -> Any:
    torch.manual_seed(7)
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(torch.randn(value.shape) * 0.3 + (1.0 if value.dim() == 1 else 0.0))
    return model.eval()


def saved(folder: Path, name: str, **more: Any) -> Any:
    """Save a small model, and return it."""
    made = getattr(transformers, name)
    model = random_weights(made(made.config_class(**{**SIZES, **more})))
    model.save_pretrained(folder)
    return model


def run(path: Path, given: Any) -> dict[str, np.ndarray[Any, Any]]:
    from transformers.exporters.utils import get_leaf_tensors

    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found = get_leaf_tensors(given)
    leaves = {name: found[path].numpy() for path, name in input_names(found).items()}
    feed = {each.name: leaves[each.name] for each in session.get_inputs()}
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(None, feed), strict=True))


def difference(path: Path, model: Any, given: Any) -> float:
    """Return the largest difference from torch, as a fraction of the largest value."""
    from transformers.exporters.utils import get_leaf_tensors

    with torch.no_grad():
        results = get_leaf_tensors(model(**copy.deepcopy(given)))
    want = {output_name(path): each for path, each in results.items()}
    got = run(path, given)
    assert got
    return max(
        float(np.abs(value - want[name].numpy()).max() / want[name].abs().max())
        for name, value in got.items()
    )


def cache_of(model: Any) -> str:
    """Return forward()'s argument for the cache; newer versions of transformers renamed it."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def text(rows: int, length: int) -> dict[str, Any]:
    mask = torch.ones(rows, length, dtype=torch.int64)
    mask[-1, 0] = 0
    return {"input_ids": torch.randint(4, 90, (rows, length)), "attention_mask": mask}


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_an_encoder_s_folder_becomes_a_model_that_links_to_it(tmp_path: Path) -> None:
    model = saved(tmp_path, "BertForMaskedLM")
    before = files_of(tmp_path)
    report = oe.transformers.export(tmp_path, tmp_path, layout="link", fsync=False)
    assert list(report.graphs) == ["model"] and report.save.verified
    assert report.checked == {"model": 2}
    assert report.save.linked_bytes > 0
    assert before < files_of(tmp_path)
    for rows, length in ((2, 8), (3, 13)):
        kinds = torch.randint(0, 2, (rows, length))
        given = {**text(rows, length), "token_type_ids": kinds}
        assert difference(tmp_path / "model.onnx", model, given) < 1e-4
    assert {source.origin for source in report.sources["model"].values()} > {"checkpoint"}
    assert any("scaled_dot_product_attention" in patch for patch in report.patches)
    steps = ["load", "inputs", "trace model", "optimize model", "plan", "check", "save"]
    assert [step.name for step in report.steps] == steps
    assert report.peak_memory is None or report.peak_memory > 0
    assert {"torch", "transformers", "onnx-ir"} <= report.versions.keys()
    json.dumps(report.to_dict())


def test_a_folder_with_an_odd_layer_is_traced_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.bert.modeling_bert import BertSelfAttention

    plain = BertSelfAttention.forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        found, *rest = plain(self, *args, **kwargs)
        return (found * 2 if self.layer_idx == 4 else found, *rest)

    monkeypatch.setattr(BertSelfAttention, "forward", forward)
    saved(tmp_path, "BertForMaskedLM", num_hidden_layers=6)
    report = oe.transformers.export(tmp_path, tmp_path / "out", dynamic=False, fsync=False)
    assert report.repeated == [] and report.checked == {"model": 1}
    (note,) = report.notes
    assert note.startswith("model: traced in full, not repeated: bert.encoder.layer.4 differs")


@pytest.mark.parametrize("graphs", ["model", "prefill decode"])
def test_a_decoder_s_folder_becomes_one_graph_or_two(graphs: str, tmp_path: Path) -> None:
    model = saved(
        tmp_path / "llama", "LlamaForCausalLM", num_key_value_heads=2, tie_word_embeddings=True
    )
    (tmp_path / "llama/tokenizer_config.json").write_text("{}")
    settings = json.loads((tmp_path / "llama/generation_config.json").read_text())
    settings |= {"num_beams": 4, "do_sample": True, "temperature": 0.0}  # no graph depends on them
    (tmp_path / "llama/generation_config.json").write_text(json.dumps(settings))
    line = ["export", tmp_path / "llama", "-o", tmp_path / "out", "--no-fsync", "--json"]
    done = commands.run(*line, *(["--graphs", "two"] if graphs != "model" else []))
    report = json.loads(done.stdout)
    assert list(report["graphs"]) == graphs.split()
    for graph in report["graphs"]:  # a Gather also reads the embedding, which is stored once
        assert report["left"][graph] == {"Transpose of a weight": 1}
    assert report["save"]["bytes"] == weights_of(tmp_path / "llama")
    assert ("genai_config.json" in files_of(tmp_path / "out")) == (graphs == "model")
    assert "generation_config.json: num_beams, temperature ignored" in report["notes"][0]
    assert {"config.json", "tokenizer_config.json"} <= files_of(tmp_path / "out")
    first = text(2, 9)
    with torch.no_grad():
        cache = model(**first, use_cache=True).past_key_values
    prompt = started(model, first) if graphs == "model" else with_places(first)
    prefill, decode = (tmp_path / f"out/{graphs.split()[place]}.onnx" for place in (0, -1))
    assert difference(prefill, model, prompt) < 1e-4
    for length in (1, 4):
        more = text(2, length)
        more["attention_mask"] = torch.cat([first["attention_mask"], more["attention_mask"]], 1)
        more["attention_mask"][:, 9:] = 1
        before = copy.deepcopy(cache)
        if length > 1:  # after a cache, fused attention needs a single row for several tokens
            more = {name: value[1:] for name, value in more.items()}
            before.batch_select_indices(torch.tensor([1]))
        given = with_places(more, length) | {cache_of(model): before}
        assert difference(decode, model, given) < 1e-4


def emptied(cache: Any) -> Any:
    """Return an empty cache."""
    found = copy.deepcopy(cache)
    for layer in found.layers:
        layer.keys, layer.values = layer.keys[:, :, :0], layer.values[:, :, :0]
    return found


def started(model: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return a prompt, with the empty cache that a decoder's single graph expects."""
    with torch.no_grad():
        cache = model(**given, use_cache=True).past_key_values
    return with_places(given) | {cache_of(model): emptied(cache)}


def test_an_encoder_and_decoder_become_three_graphs(tmp_path: Path) -> None:
    sizes = dict(d_model=32, d_ff=48, d_kv=8, num_layers=2, num_heads=4, decoder_start_token_id=0)
    model = saved(tmp_path / "t5", "T5ForConditionalGeneration", use_cache=False, **sizes)
    report = oe.transformers.export(tmp_path / "t5", tmp_path / "out", fsync=False, progress=False)
    assert list(report.graphs) == ["encoder_model", "decoder_model", "decoder_with_past_model"]
    stored = sum(path.stat().st_size for path in (tmp_path / "out").glob("*_data"))
    assert stored == report.save.bytes
    assert weights_of(tmp_path / "t5") <= stored < 1.1 * weights_of(tmp_path / "t5")
    places = [
        {(tensor.file, tensor.offset) for tensor in graph.tensors if tensor.key == "shared.weight"}
        for graph in report.graphs.values()
    ]
    assert places[0] == places[1] == places[2] and len(places[0]) == 1
    given = text(3, 11)
    assert difference(tmp_path / "out/encoder_model.onnx", model.get_encoder(), given) < 1e-4
    with torch.no_grad():
        encoded = model.get_encoder()(**given)
        first = dict(attention_mask=given["attention_mask"], encoder_outputs=encoded)
        start = first | {"decoder_input_ids": torch.zeros(3, 1, dtype=torch.int64)}
        cache = model(**start, use_cache=True).past_key_values
    assert difference(tmp_path / "out/decoder_model.onnx", Cached(model), start) < 1e-4
    more = first | {"decoder_input_ids": torch.full((3, 1), 7), cache_of(model): cache}
    assert difference(tmp_path / "out/decoder_with_past_model.onnx", Cached(model), more) < 1e-4
    expect_its_texts(model, tmp_path / "out")


def expect_its_texts(model: Any, out: Path) -> None:
    """Check that oe.generate() equals generate() for prompts of several lengths."""
    rows = [[5, 6, 7, 8, 9, 1], [15, 16, 1]]
    ids = torch.tensor([rows[0], [*rows[1], 0, 0, 0]])
    with torch.no_grad():
        found = model.generate(input_ids=ids, attention_mask=ids > 0, max_new_tokens=6)
    wanted = [row[: row.index(1)] if 1 in row else row for row in found[:, 1:].tolist()]
    assert oe.generate(out, rows, 6) == wanted


def weights_of(folder: Path) -> int:
    """Return the bytes of a checkpoint's tensors."""
    with oe.open_checkpoint(folder) as checkpoint:
        return sum(tensor.nbytes for tensor in checkpoint.values())


@pytest.fixture
def traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the exports of one model in a test share their trace; all later steps run for each."""
    from onnx_external.transformers._rewritten import FolderWays

    trace, traced = FolderWays.graph, {}

    def graph(self: FolderWays, name: str, part: Any) -> Any:
        if name not in traced:
            traced[name] = trace(self, name, part)
        return traced[name]

    monkeypatch.setattr(FolderWays, "graph", graph)


@pytest.mark.usefixtures("traced_once")
def test_the_graphs_of_a_decoder_share_one_copy_of_its_weights(tmp_path: Path) -> None:
    model = saved(tmp_path / "llama", "LlamaForCausalLM", num_key_value_heads=2)
    for layout in ("single", "per-tensor", "shards"):
        expect_one_copy(model, tmp_path / "llama", tmp_path / layout, layout)


def expect_one_copy(model: Any, folder: Path, out: Path, layout: str) -> None:
    options: dict[str, Any] = dict(layout=layout, fsync=False, progress=False, graphs="two")
    planned = oe.transformers.export(folder, out, dry_run=True, **options)
    report = oe.transformers.export(folder, out, **options)
    data = [name for name in files_of(out) if not name.endswith((".onnx", ".json"))]
    stored = sum((out / name).stat().st_size for name in data)
    assert weights_of(folder) <= stored < 1.1 * weights_of(folder)
    assert stored == report.save.bytes == planned.save.bytes and report.save.verified
    places = [
        {tensor.slot: (tensor.file, tensor.offset) for tensor in graph.tensors if tensor.key}
        for graph in report.graphs.values()
    ]
    assert len(places) == 2 and places[0] == places[1]
    names = {name.removesuffix(".transposed") for name in places[0]}
    assert names == {*model.state_dict()}
    assert report.left == {
        "prefill": {},
        "decode": {},
    }  # no weight is read by a Transpose
    for sources in report.sources.values():
        assert sources["lm_head.weight.transposed"].key == "lm_head.weight"
        assert {source.origin for source in sources.values()} > {"checkpoint", "init"}
    assert oe.verify(out / "decode.onnx", against=folder).ok
    assert difference(out / "prefill.onnx", model, with_places(text(2, 9))) < 1e-4


@pytest.mark.usefixtures("traced_once")
def test_a_graph_that_is_refused_leaves_none_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path / "llama", "LlamaForCausalLM")
    out = tmp_path / "out"
    out.mkdir()
    (out / "decode.onnx").write_text("mine")
    with pytest.raises(oe.ExistsError, match=r"decode\.onnx") as caught:
        oe.transformers.export(tmp_path / "llama", out, fsync=False, graphs="two")
    with pytest.raises(oe.InvalidArgumentError, match="a layout other than inline"):
        oe.transformers.export(
            tmp_path / "llama", tmp_path / "other", layout="inline", graphs="two"
        )
    with pytest.raises(oe.InvalidArgumentError, match="several graphs"):
        oe.transformers.export(tmp_path / "llama", tmp_path / "other.onnx", graphs="two")
    assert "--overwrite" in refusal_of_the_command(caught.value)
    assert files_of(out) == {"decode.onnx"} and not (tmp_path / "other").exists()


def test_a_model_in_bfloat16_says_what_makes_it_run_on_a_cpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from onnx_external._commands.export import main

    saved(tmp_path / "bert", "BertModel", num_hidden_layers=1)
    out = str(tmp_path / "out")
    more = ["--static", "--no-check", "--no-fsync"]
    assert main([str(tmp_path / "bert"), "-o", out, "--dtype", "bfloat16", *more]) == 0
    told, early = capsys.readouterr()
    place = early.index("note: the model computes in bfloat16, ")
    assert place < early.index("import torch and transformers ...")
    assert "CPU provider lacks operators: leave --dtype bfloat16 out to compute in" in early
    assert "computes in bfloat16, " not in told
    again = f"  onnx-external export {tmp_path / 'bert'} -o {out} --overwrite"
    assert told.splitlines()[-1] == again
    why = r"model computes in bfloat16.* export it with dtype=\"float32\" .*NOT_IMPLEMENTED"
    with pytest.raises(oe.RunError, match=why) as caught:
        oe.validate(out, tmp_path / "bert")
    assert caught.value.kind == "no-bfloat16-kernel"


def refusal_of_the_command(error: oe.Error) -> str:
    """Return the message of `onnx-external export`, which has options instead of arguments."""
    from onnx_external._commands.export import parser

    told = io.StringIO()
    with redirect_stderr(told):
        parser().refuse(error)
    text = told.getvalue()
    assert "=True" not in text and "='" not in text
    return text


def test_the_command_helps_and_refuses_without_torch(tmp_path: Path) -> None:
    block = "import sys; sys.modules['torch'] = None; import runpy; sys.argv = sys.argv[:1] + {}; "
    block += "runpy.run_module('onnx_external', run_name='__main__')"

    def told(*arguments: str) -> Any:
        command = [sys.executable, "-c", block.format(["export", *arguments])]
        return subprocess.run(command, capture_output=True, text=True)

    assert told("--help").returncode == 0 and "decoder_model.onnx" in told("--help").stdout
    (tmp_path / "config.json").write_text('{"model_type": "bert", "architectures": ["BertModel"]}')
    refused = told(str(tmp_path), "-o", str(tmp_path / "out"))
    assert refused.returncode == 1 and "pip install torch" in refused.stderr
    assert "Traceback" not in refused.stderr


class Cached:
    """A model that returns its cache even if its config disables it."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __call__(self, **given: Any) -> Any:
        return self._model(**given, use_cache=True)


def with_places(given: dict[str, Any], last: int = 0) -> dict[str, Any]:
    places = (given["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    return given | {"position_ids": places[:, -last:]}


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    saved(tmp_path / "bert", "BertForMaskedLM")
    report = oe.transformers.export(tmp_path / "bert", tmp_path / "out", dry_run=True)
    assert report.dry_run and report.graphs["model"].bytes > 0 and report.copied == []
    assert not (tmp_path / "out").exists()


def test_a_head_that_the_checkpoint_lacks_is_missing(tmp_path: Path) -> None:
    saved(tmp_path / "bert", "BertForMaskedLM")
    with pytest.raises(oe.MappingError, match="random values") as caught:
        oe.transformers.export(tmp_path / "bert", tmp_path / "out", task="text-classification")
    assert "classifier.weight" in caught.value.missing
    assert not (tmp_path / "out").exists()


def test_folders_without_config_or_a_known_class_are_refused(tmp_path: Path) -> None:
    with pytest.raises(oe.NotFoundError, match=r"config\.json"):
        oe.transformers.export(tmp_path, tmp_path / "out")
    (tmp_path / "config.json").write_text('{"architectures": ["NoSuchModel"]}')
    with pytest.raises(oe.InvalidArgumentError, match="NoSuchModel"):
        oe.transformers.export(tmp_path, tmp_path / "out")
    with pytest.raises(oe.InvalidArgumentError, match=r"dancing.*text-generation"):
        oe.transformers.export(tmp_path, tmp_path / "out", task="dancing")
    assert files_of(tmp_path) == {"config.json"}


def evaluated(made: Any, state: dict[str, Any], dtype: Any) -> Any:
    """Return the result of a recipe, computed by torch."""
    from onnx_external.transformers._recording import Join, Key

    if isinstance(made, Key):
        return state[made.name]
    if isinstance(made, Join):
        join = torch.cat if made.name == "concat" else torch.stack
        return join([evaluated(part, state, dtype) for part in made.of], made.dim)
    of = evaluated(made.of, state, dtype)
    if made.name == "cast":
        return of.to(dtype)
    if made.name == "slice":
        dim, start, stop = made.numbers
        return of.narrow(dim, start, stop - start)
    return of.permute(made.numbers) if made.name == "permute" else of.reshape(made.numbers)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("MixtralForCausalLM", dict(num_local_experts=4, num_key_value_heads=2)),
        ("LlamaForCausalLM", dict(tie_word_embeddings=True)),
        ("Qwen2MoeForCausalLM", dict(num_experts=4, moe_intermediate_size=8)),
        ("ViTForImageClassification", dict(image_size=16, patch_size=8)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_recipes_make_what_transformers_loads(
    name: str, more: dict[str, Any], dtype: str, tmp_path: Path
) -> None:
    from onnx_external.transformers._loading import load

    saved(tmp_path, name, **more)
    loaded = load(tmp_path, None, dtype)
    want = getattr(transformers, name).from_pretrained(tmp_path, dtype=getattr(torch, dtype))
    with oe.open_checkpoint(tmp_path) as checkpoint:
        state = checkpoint.state_dict()
        parameters = dict(want.named_parameters(remove_duplicate=False))
        assert parameters.keys() <= loaded.made.keys()
        for slot, value in parameters.items():
            got = evaluated(loaded.made[slot], state, value.dtype)
            assert got.shape == value.shape and torch.equal(got.to(value.dtype), value)
    for slot, value in want.named_buffers():
        assert torch.equal(loaded.model.get_buffer(slot), value)
    assert {value.data_ptr() for value in loaded.model.parameters()}.isdisjoint({0})


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_experts_that_are_joined_become_derived_tensors(dtype: str | None, tmp_path: Path) -> None:
    from onnx_external.transformers._loading import load
    from onnx_external.transformers._recipes import map_document

    saved(tmp_path, "MixtralForCausalLM", num_local_experts=2, num_key_value_heads=2)
    document = map_document(load(tmp_path, None, dtype).made)
    slot = "model.layers.0.mlp.experts.gate_up_proj"
    experts = "model.layers.0.block_sparse_moe.experts"
    parts = [
        {"stack": [f"{experts}.{number}.{name}.weight" for number in range(2)], "dim": 0}
        for name in ("w1", "w3")
    ]
    assert document["derived"][slot] == {"concat": parts, "dim": 1}
    entry = document["map"][slot]
    assert entry == (slot if dtype is None else {"key": slot, "recipe": ["cast"]})


@pytest.mark.parametrize("dtype", [None, "float16"])
@pytest.mark.parametrize("equal", [True, False])
def test_a_tied_head_that_is_stored_as_well_is_loaded_in_any_type(
    dtype: str | None, equal: bool, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    from onnx_external.transformers._loading import load

    saved(tmp_path, "LlamaForCausalLM", tie_word_embeddings=True)
    file, table = tmp_path / "model.safetensors", "model.embed_tokens.weight"
    state = load_file(file)
    state["lm_head.weight"] = state[table].clone() if equal else state[table] + 1
    save_file(state, file, metadata={"format": "pt"})
    made = load(tmp_path, None, dtype).made
    assert (made.get("lm_head.weight", made[table]) == made[table]) is equal


def test_derived_tensors_of_several_graphs_are_one_if_they_are_equal() -> None:
    from onnx_external.transformers._recipes import map_of_set
    from onnx_external.transformers._recording import Join, Key

    one = Join("stack", 0, (Key("a"), Key("b")))
    other = Join("concat", 0, (Key("a"), Key("b")))
    graphs = {"encoder.onnx": {"w": one}, "decode.onnx": {"encoder.w": one, "w": other}}
    assert map_of_set(graphs) == {
        "derived": {
            "w": {"stack": ["a", "b"], "dim": 0},
            "decode.w": {"concat": ["a", "b"], "dim": 0},
        },
        "models": {
            "encoder.onnx": {"w": "w"},
            "decode.onnx": {"encoder.w": "w", "w": "decode.w"},
        },
    }


def test_a_mixture_of_experts_computes_what_torch_computes(tmp_path: Path) -> None:
    model = saved(
        tmp_path / "moe", "MixtralForCausalLM", num_local_experts=4, num_key_value_heads=2
    )
    report = oe.transformers.export(tmp_path / "moe", tmp_path / "out", fsync=False, progress=False)
    assert report.save.derived
    assert weights_of(tmp_path / "moe") <= report.save.bytes < 1.2 * weights_of(tmp_path / "moe")
    assert difference(tmp_path / "out/model.onnx", model, started(model, text(2, 9))) < 1e-4


def test_what_link_cannot_refer_to_is_refused_with_a_layout_that_can(tmp_path: Path) -> None:
    saved(tmp_path / "moe", "MixtralForCausalLM", num_local_experts=2, num_key_value_heads=2)
    before = files_of(tmp_path)
    with pytest.raises(oe.Error, match=r"(?s)assembled.*layout='single'") as caught:
        oe.transformers.export(tmp_path / "moe", tmp_path / "moe", layout="link", fsync=False)
    assert caught.value.kind == "not-linked"
    assert any(remedy[:2] == ("layout", "single") for remedy in caught.value.remedies)
    assert "--layout single" in refusal_of_the_command(caught.value)
    assert files_of(tmp_path) == before


@pytest.mark.usefixtures("traced_once")
def test_a_cache_of_the_hub_is_linked_only_beside_its_blobs(tmp_path: Path) -> None:
    saved(tmp_path / "made", "BertForMaskedLM")
    snapshot, blobs = tmp_path / "models--bert/snapshots/0a1b", tmp_path / "models--bert/blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate((tmp_path / "made").iterdir()):
        file.rename(blobs / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    before = files_of(tmp_path)
    with pytest.raises(oe.Error, match=r"layout='single'"):
        oe.transformers.export(snapshot, snapshot, layout="link", fsync=False)
    assert files_of(tmp_path) == before
    report = oe.transformers.export(snapshot, blobs.parent, layout="link", fsync=False)
    assert report.save.linked_bytes > 0 and report.save.verified
    report = oe.transformers.export(snapshot, tmp_path / "out", fsync=False)
    assert report.save.linked_bytes == 0 and report.save.verified
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())


def test_an_operation_without_a_recipe_is_named(tmp_path: Path) -> None:
    from onnx_external.transformers._recording import Recorder

    recorder = Recorder(lambda first, second: False)
    weight = recorder.key("a.weight", (4, 4), torch.float32)
    with recorder:
        scaled = (weight * 2).t()
        assert scaled.shape == (4, 4) and recorder.refused == []
        assert str(recorder.made(scaled)).startswith("aten.t.default on a.weight")
        scaled.normal_()
        assert recorder.refused == []
        with pytest.raises(NotImplementedError, match=r"aten\.mul_.*a\.weight"):
            weight *= 2
    assert recorder.refused == ["aten.mul_.Tensor on a.weight"]


def test_a_parameter_that_is_computed_while_loading_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import conversion_mapping, core_model_loading

    class Double(core_model_loading.ConversionOps):
        def convert(
            self, tensors: Any, source_patterns: Any, target_patterns: Any, **_: Any
        ) -> Any:
            return {target_patterns[0]: 2 * next(iter(tensors.values()))[0]}

    double = core_model_loading.WeightConverter("norm.weight", "norm.weight", [Double()])
    saved(tmp_path, "LlamaForCausalLM")
    name = "get_model_conversion_mapping"
    for module in (conversion_mapping, transformers.modeling_utils):
        monkeypatch.setattr(module, name, lambda *_, **__: [double])
    with pytest.raises(oe.ExportError, match=r"norm\.weight.*aten\.mul"):
        oe.transformers.export(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_in_the_way_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    saved(tmp_path / "bert", "BertForMaskedLM")
    out = tmp_path / "out"
    out.mkdir()
    (out / "config.json").write_text("mine")
    with pytest.raises(oe.ExistsError, match=r"config\.json.*overwrite=True") as caught:
        oe.transformers.export(tmp_path / "bert", out, fsync=False)
    assert "--overwrite" in refusal_of_the_command(caught.value)
    assert files_of(out) == {"config.json"} and (out / "config.json").read_text() == "mine"


def test_errors_name_the_class_the_step_and_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.bert import modeling_bert
    from transformers.models.gpt2 import modeling_gpt2

    def broken(*_: Any, **__: Any) -> Any:
        raise IndexError("index 7 is out of range")

    saved(tmp_path / "bert", "BertForMaskedLM")
    saved(tmp_path / "gpt2", "GPT2LMHeadModel", n_embd=32, n_layer=2, n_head=4)
    monkeypatch.setattr(modeling_bert.BertEncoder, "forward", broken)
    monkeypatch.setattr(modeling_gpt2.GPT2Model, "forward", broken)
    with pytest.raises(
        oe.ExportError, match=r"BertForMaskedLM \(model\): .*index 7.*dynamic=False"
    ):
        oe.transformers.export(tmp_path / "bert", tmp_path / "out")
    with pytest.raises(oe.ExportError, match=r"GPT2LMHeadModel\.generate\(\).*index 7.*inputs="):
        oe.transformers.export(tmp_path / "gpt2", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_config_that_is_invalid_is_refused(tmp_path: Path) -> None:
    for text in ("{", "[1]", '{"quantization_config": 7}'):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(oe.FormatError, match=r"config\.json: not a transformers config"):
            oe.transformers.export(tmp_path, tmp_path / "out")
    saved(tmp_path, "BertForMaskedLM")
    with pytest.raises(oe.InvalidArgumentError, match="no class for bert"):
        oe.transformers.export(tmp_path, tmp_path / "out", task="automatic-speech-recognition")


def test_an_image_s_size_is_a_number_where_no_other_fits(tmp_path: Path) -> None:
    saved(tmp_path / "eye", "SiglipVisionModel", image_size=16, patch_size=8)
    report = oe.transformers.export(tmp_path / "eye", tmp_path / "out", dry_run=True)
    assert report.fixed["model"] == [
        f"pixel_values[{n}] = {size}" for n, size in ((1, 3), (2, 16), (3, 16))
    ]


def test_a_dry_run_of_the_command_tells_the_plan(tmp_path: Path) -> None:
    saved(tmp_path / "bert", "BertForMaskedLM")
    done = commands.run("export", tmp_path / "bert", "-o", tmp_path / "out", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "would write" in done.stdout and "optimize model" in done.stdout
    assert not (tmp_path / "out").exists()


def test_the_command_gives_single_weights_schemes_of_their_own(tmp_path: Path) -> None:
    saved(tmp_path / "bert", "BertForMaskedLM", hidden_size=64, intermediate_size=64)
    line = ("export", tmp_path / "bert", "-o", tmp_path / "out", "--no-check", "--no-fsync")
    weights = ("--quantize-weights", "*=int8/32", "--quantize-weights", "*.output.dense.*=int4/16")
    done = commands.run(*line, *weights)
    assert done.returncode == 1
    assert "--quantize-weights: requires --quantize" in done.stderr
    assert commands.run(*line, "--keep-float", "*").returncode == 1
    done = commands.run(*line, "--quantize", "int4", *weights, "--json")
    assert done.returncode == 0, done.stderr
    found = {
        each["weight"]: each["scheme"][:7] for each in json.loads(done.stdout)["save"]["quantized"]
    }
    assert {found[name] for name in found if ".output.dense." in name} == {"int4/16"}
    assert {found[name] for name in found if ".output.dense." not in name} == {"int8/32"}


def test_dimensions_that_the_trace_fixes_are_numbers(tmp_path: Path) -> None:
    import onnx

    class Loop(torch.nn.Module):
        def forward(self, given: Any) -> Any:
            steps = [given[:, place] for place in range(given.shape[1])]
            return torch.stack(steps).sum(0)

    vary = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    graph = oe.torch.skeleton(Loop(), (torch.ones(2, 5),), dynamic_shapes=(vary,))
    dims = onnx.load_from_string(graph.SerializeToString()).graph.input[0].type.tensor_type.shape
    assert dims.dim[0].dim_param and not dims.dim[1].dim_param and dims.dim[1].dim_value == 5


def test_one_size_has_one_name_in_whatever_order_torch_writes_it() -> None:
    symbols = {name: sympy.Symbol(name, integer=True) for name in (PAST, SEQUENCE, TOTAL)}
    for text in (f"{PAST} + {SEQUENCE}", f"{SEQUENCE} + {PAST}"):
        assert _simplified(text, symbols) == TOTAL
    assert _simplified(f"{PAST} + 1", symbols) == f"{PAST} + 1"
    assert _simplified("s44 +", symbols) == "s44 +"


@pytest.mark.parametrize(
    ("how", "dry"),
    [
        ({}, [False, False]),
        ({"quantize": "int8"}, [True, False, False]),
        ({"dry_run": True}, [True]),
    ],
)
def test_the_checked_export_of_a_folder_plans_only_what_a_check_cannot_show(
    how: dict[str, Any], dry: list[bool], tmp_path: Path, jobs: list[bool]
) -> None:
    saved(tmp_path / "bert", "BertModel", hidden_size=64)
    report = oe.transformers.export(tmp_path / "bert", tmp_path / "out", **how)
    assert report.checked == ({} if "dry_run" in how else {"model": 2})
    assert any(".transposed" in tensor.slot for tensor in report.save.tensors)
    assert jobs == dry
