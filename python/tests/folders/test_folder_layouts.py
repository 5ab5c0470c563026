"""Tests that the files that from_pretrained() would load are read from a folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
transformers = pytest.importorskip("transformers", minversion="5.20")
onnx = pytest.importorskip("onnx")
safetensors = pytest.importorskip("safetensors.torch")

SIZES = dict(vocab_size=96, dim=4, n_layers=1, n_heads=1, hidden_dim=4, max_position_embeddings=64)
FIRST, SECOND = "model-00001-of-00002", "model-00002-of-00002"

Content = Callable[[Path], None]
"""Makes a file; each fills all tensors with a number of its own, by which it is known."""


@pytest.fixture(scope="module")
def shapes() -> dict[str, tuple[int, ...]]:
    """Return the shapes of the model's tensors."""
    model = transformers.DistilBertModel(transformers.DistilBertConfig(**SIZES))
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


ALL: dict[str, tuple[int, ...]] = {}


@pytest.fixture(autouse=True)
def _shapes(shapes: dict[str, tuple[int, ...]]) -> None:
    ALL.update(shapes)


def names(part: str) -> list[str]:
    half = len(ALL) // 2
    return {"all": list(ALL), "first": list(ALL)[:half], "second": list(ALL)[half:]}[part]


def tensors(number: float, part: str) -> dict[str, Any]:
    return {name: torch.full(ALL[name], float(number)) for name in names(part)}


def safe(number: float, part: str = "all") -> Content:
    return lambda path: safetensors.save_file(tensors(number, part), path, {"format": "pt"})


def pickled(number: float, part: str = "all") -> Content:
    return lambda path: torch.save(tensors(number, part), path)


def index(first: str, second: str, **more: Any) -> Content:
    def write(path: Path) -> None:
        placed = {name: first for name in names("first")} | {n: second for n in names("second")}
        path.write_text(json.dumps({"metadata": {}, "weight_map": placed, **more}))

    return write


def text(words: str) -> Content:
    return lambda path: path.write_text(words) and None


def config(*lines: str) -> Content:
    """Return a configuration with additional members, given as JSON text."""

    def write(path: Path) -> None:
        names = ["DistilBertModel"]
        known = transformers.DistilBertConfig(**SIZES, architectures=names).to_json_string()
        path.write_text(
            known.rstrip().rstrip("}").rstrip() + "".join(f",\n{x}" for x in lines) + "}"
        )

    return write


def weights(name: Any) -> Content:
    return config(f'"transformers_weights": {json.dumps(name)}')


def link(target: str) -> Content:
    return lambda path: path.symlink_to(target)


def folder(path: Path) -> None:
    path.mkdir()


class Layout(NamedTuple):
    """The files of a folder, and the expected result."""

    files: dict[str, Content]
    refused: str = ""
    """Part of our message; empty: the same tensors as transformers."""
    note: str = ""
    """Part of what is said about files that were not read."""
    variant: str | None = None
    subfolder: str = ""
    theirs: str = ""
    """Why we differ: what transformers does (it "loads", or "refuses") and why we do not."""


SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
BIN, BIN_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
SHARDS = {
    INDEX: index(f"{FIRST}.safetensors", f"{SECOND}.safetensors"),
    f"{FIRST}.safetensors": safe(3, "first"),
    f"{SECOND}.safetensors": safe(4, "second"),
}
BIN_SHARDS = {
    BIN_INDEX: index("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"),
    "pytorch_model-00001-of-00002.bin": pickled(5, "first"),
    "pytorch_model-00002-of-00002.bin": pickled(6, "second"),
}
HALF = {SINGLE: safe(1), SINGLE.replace(".", ".fp16."): safe(2)}
VARIANT_SHARDS = {
    "model.safetensors.index.fp16.json": index(
        "model.fp16-1.safetensors", "model.fp16-2.safetensors"
    ),
    "model.fp16-1.safetensors": safe(7, "first"),
    "model.fp16-2.safetensors": safe(8, "second"),
}
STALE = {INDEX: SHARDS[INDEX]}
STALE_BIN = {BIN_INDEX: BIN_SHARDS[BIN_INDEX]}
CACHE = "../../blobs/"

LAYOUTS = {
    # One or several of the usual files.
    "safetensors": Layout({SINGLE: safe(1)}),
    "bin": Layout({BIN: pickled(2)}),
    "safetensors before bin": Layout({SINGLE: safe(1), BIN: pickled(2)}),
    "shards": Layout(SHARDS),
    "shards before bin": Layout({**SHARDS, BIN: pickled(2)}),
    "bin shards": Layout(BIN_SHARDS),
    "shards before bin shards": Layout({**SHARDS, **BIN_SHARDS}),
    "one file before shards": Layout({SINGLE: safe(1), **SHARDS}, note=INDEX),
    "one bin before bin shards": Layout({BIN: pickled(2), **BIN_SHARDS}, note=BIN_INDEX),
    "one file before bin shards": Layout({SINGLE: safe(1), **BIN_SHARDS}),
    "all of them": Layout({SINGLE: safe(1), BIN: pickled(2), **SHARDS, **BIN_SHARDS}, note=INDEX),
    "shards of bins": Layout(
        {
            INDEX: index("a.bin", "b.bin"),
            "a.bin": pickled(3, "first"),
            "b.bin": pickled(4, "second"),
        }
    ),
    "bin index of safetensors": Layout(
        {BIN_INDEX: SHARDS[INDEX], **{name: SHARDS[name] for name in list(SHARDS)[1:]}}
    ),
    # Files left over from another save.
    "stale index": Layout(
        {SINGLE: safe(1), **STALE}, note=f"{SINGLE} is read, as in transformers; '{INDEX}'"
    ),
    "stale index with one shard left": Layout(
        {SINGLE: safe(1), **STALE, f"{FIRST}.safetensors": safe(3, "first")}, note=INDEX
    ),
    "stale bin index": Layout({BIN: pickled(2), **STALE_BIN}, note=BIN_INDEX),
    "stale bin index beside safetensors": Layout({SINGLE: safe(1), **STALE_BIN}),
    "stale index that is no JSON": Layout({SINGLE: safe(1), INDEX: text("<html>")}, note=INDEX),
    "stale index beside a bin": Layout({BIN: pickled(2), **STALE}, refused=f"{FIRST}.safetensors"),
    "shards that no index names": Layout({**SHARDS, "model-00003-of-00003.safetensors": safe(9)}),
    "old shards beside one file": Layout(
        {SINGLE: safe(1), f"{FIRST}.safetensors": safe(3, "first")}
    ),
    "a shard alone": Layout(
        {f"{FIRST}.safetensors": safe(3, "first")}, refused="one of several shards"
    ),
    "shards without an index": Layout(
        {name: SHARDS[name] for name in list(SHARDS)[1:]}, refused="several checkpoint files"
    ),
    "the last shard is gone": Layout(
        {name: SHARDS[name] for name in list(SHARDS)[:2]}, refused=f"{SECOND}.safetensors"
    ),
    "the last shard of several has a tensor": Layout(
        {**SHARDS, f"{SECOND}.safetensors": safe(4)}, note="several shards contain"
    ),
    "the first shard has all tensors": Layout({**SHARDS, f"{FIRST}.safetensors": safe(3)}),
    "a key that its shard lacks": Layout(
        {
            **SHARDS,
            f"{FIRST}.safetensors": lambda path: safetensors.save_file(
                {name: torch.ones(ALL[name]) for name in names("first")[1:]}, path, {"format": "pt"}
            ),
        },
        refused="is not in its shard",
        theirs="loads, and fills the tensor with random values",
    ),
    "an index without metadata": Layout(
        {
            **SHARDS,
            INDEX: lambda path: (
                path.write_text(
                    json.dumps(
                        {
                            "weight_map": {n: f"{FIRST}.safetensors" for n in names("first")}
                            | {n: f"{SECOND}.safetensors" for n in names("second")}
                        }
                    )
                )
                and None
            ),
        },
        theirs="refuses, and older ones load: only the total size is missing",
    ),
    "an index that names a file elsewhere": Layout(
        {INDEX: index("../a.safetensors", "b.safetensors"), "b.safetensors": safe(4)},
        refused="../a",
    ),
    # Variants.
    "a variant that is not asked for": Layout(HALF),
    "a variant": Layout(HALF, variant="fp16"),
    "only a variant, not asked for": Layout(
        {"model.fp16.safetensors": safe(2)}, refused="'model.fp16.safetensors'"
    ),
    "only a variant": Layout({"model.fp16.safetensors": safe(2)}, variant="fp16"),
    "another variant": Layout(HALF, variant="bf16", refused="for the variant 'bf16'"),
    "a variant that is not there": Layout(
        {SINGLE: safe(1)}, variant="fp16", refused="variant 'fp16'"
    ),
    "a variant in shards": Layout({SINGLE: safe(1), **VARIANT_SHARDS}, variant="fp16"),
    "only a variant in shards, not asked for": Layout(
        VARIANT_SHARDS, refused="'model.safetensors.index.fp16.json'"
    ),
    "one file of a variant before its shards": Layout(
        {"model.fp16.safetensors": safe(2), **VARIANT_SHARDS},
        variant="fp16",
        note="model.safetensors.index.fp16.json",
    ),
    "a variant as bin": Layout(
        {SINGLE: safe(1), "pytorch_model.fp16.bin": pickled(2)}, variant="fp16"
    ),
    "only a variant as bin, not asked for": Layout(
        {"pytorch_model.fp16.bin": pickled(2)}, refused="'pytorch_model.fp16.bin'"
    ),
    "a variant with a dot": Layout({"model.ema.fp16.safetensors": safe(2)}, variant="ema.fp16"),
    "a variant as bin shards": Layout(
        {
            "pytorch_model.bin.index.fp16.json": index("a.bin", "b.bin"),
            "a.bin": pickled(5, "first"),
            "b.bin": pickled(6, "second"),
        },
        variant="fp16",
    ),
    # Files that config.json names.
    "named weights": Layout(
        {"config.json": weights("c.safetensors"), "c.safetensors": safe(9), SINGLE: safe(1)}
    ),
    "named shards": Layout(
        {
            "config.json": weights("c.safetensors.index.json"),
            SINGLE: safe(1),
            "c.safetensors.index.json": index("a.safetensors", "b.safetensors"),
            "a.safetensors": safe(3, "first"),
            "b.safetensors": safe(4, "second"),
        }
    ),
    "named weights with a variant": Layout(
        {"config.json": weights("c.safetensors"), "c.safetensors": safe(9), **HALF},
        variant="fp16",
        note="for any variant",
    ),
    "named weights in a folder": Layout(
        {"config.json": weights("d/c.safetensors"), "d": folder, "d/c.safetensors": safe(9)}
    ),
    "named shards in a folder": Layout(
        {
            "config.json": weights("d/c.safetensors.index.json"),
            "d": folder,
            "d/c.safetensors.index.json": index("a.safetensors", "b.safetensors"),
            "a.safetensors": safe(3, "first"),
            "b.safetensors": safe(4, "second"),
        }
    ),
    "named weights with a dot before": Layout(
        {"config.json": weights("./c.safetensors"), "c.safetensors": safe(9)}
    ),
    "named by escapes": Layout(
        {
            "config.json": config(r'"transformers\u005fweights": "c.safetensors"'),
            "c.safetensors": safe(9),
            SINGLE: safe(1),
        }
    ),
    "named as null": Layout({"config.json": weights(None), SINGLE: safe(1)}),
    "named in a part": Layout(
        {
            "config.json": config('"more": {"transformers_weights": "c.safetensors"}'),
            SINGLE: safe(1),
        }
    ),
    "named, and not there": Layout(
        {"config.json": weights("c.safetensors"), SINGLE: safe(1)}, refused="'c.safetensors'"
    ),
    "named as bin": Layout(
        {"config.json": weights(BIN), BIN: pickled(2)}, refused="neither *.safetensors nor"
    ),
    "named as nothing": Layout({"config.json": weights(""), SINGLE: safe(1)}, refused="neither"),
    "named as a number": Layout(
        {"config.json": weights(7), SINGLE: safe(1)}, refused="not the name"
    ),
    "named as a list": Layout(
        {"config.json": weights([SINGLE]), SINGLE: safe(1)}, refused="not the name of a file"
    ),
    "named outside": Layout(
        {"config.json": weights("../c.safetensors"), SINGLE: safe(1)},
        refused="transformers_weights",
    ),
    "named outside by a link": Layout(
        {"config.json": weights("c.safetensors"), "c.safetensors": link("../outside.safetensors")},
        refused="symbolic link",
        theirs="loads: it follows links wherever they lead",
    ),
    "named by a way around": Layout(
        {"config.json": weights("d/../c.safetensors"), "d": folder, "c.safetensors": safe(9)},
        refused="..",
        theirs="loads: it works the name out; no name with .. is taken here",
    ),
    "named for some versions": Layout(
        {
            "config.json": config('"configuration_files": ["config.json", "config.5.0.0.json"]'),
            "config.5.0.0.json": weights("c.safetensors"),
            "c.safetensors": safe(9),
            SINGLE: safe(1),
        },
        refused="only some versions of transformers",
        theirs="loads: it knows its own version",
    ),
    "several configurations": Layout(
        {
            "config.json": config('"configuration_files": ["config.json", "config.5.0.0.json"]'),
            "config.5.0.0.json": config(),
            SINGLE: safe(1),
        }
    ),
    "a configuration that JSON does not have": Layout(
        {"config.json": config('"limit": [0.0, Infinity], "nothing": NaN'), SINGLE: safe(1)}
    ),
    # Entries that are not plain files.
    "a folder of the name": Layout({SINGLE: folder, BIN: pickled(2)}, note=SINGLE),
    "a broken link before shards": Layout({SINGLE: link("gone"), **SHARDS}, note=SINGLE),
    "only a broken link": Layout({SINGLE: link("gone")}, refused="was the download interrupted"),
    "a link to another folder": Layout(
        {SINGLE: link("../outside.safetensors")},
        refused="symbolic link",
        theirs="loads: it follows links wherever they lead",
    ),
    "a link inside of the folder": Layout(
        {SINGLE: link("w.safetensors"), "w.safetensors": safe(9)},
        refused="symbolic link",
        theirs="loads: it follows links wherever they lead",
    ),
    "a configuration by a link to another folder": Layout(
        {"config.json": link("../config.json"), SINGLE: safe(1)},
        refused="config.json: is a symbolic link",
        theirs="loads: it follows links wherever they lead",
    ),
    "other writing of the names": Layout({"Model.safetensors": safe(1), BIN: pickled(2)}),
    "no weights": Layout({}, refused="no checkpoint file"),
    "a file of another name": Layout(
        {"weights.safetensors": safe(9)},
        theirs="refuses; the only checkpoint of a folder is read here",
    ),
    "shards of a training": Layout(
        {SINGLE: safe(1), "shard-00001-model-00001-of-00001.safetensors": safe(9)},
        refused="shard that distributed training wrote",
        theirs="loads them, if their header says how they were cut",
    ),
    # Subfolders and caches.
    "a subfolder": Layout(
        {"part": folder, "part/config.json": config(), f"part/{SINGLE}": safe(2), SINGLE: safe(1)},
        subfolder="part",
    ),
    "a subfolder with a stale index": Layout(
        {
            "part": folder,
            "part/config.json": config(),
            f"part/{SINGLE}": safe(2),
            f"part/{INDEX}": STALE[INDEX],
        },
        subfolder="part",
        note=INDEX,
    ),
    "a cache": Layout({SINGLE: link(CACHE + "one")}),
    "a cache with shards": Layout(
        {
            INDEX: SHARDS[INDEX],
            f"{FIRST}.safetensors": link(CACHE + "first"),
            f"{SECOND}.safetensors": link(CACHE + "second"),
        }
    ),
    "a cache whose download was interrupted": Layout(
        {SINGLE: link(CACHE + "gone")}, refused="was the download interrupted"
    ),
    "a cache with its configuration": Layout(
        {"config.json": link(CACHE + "config"), SINGLE: safe(1), "c.safetensors": safe(9)}
    ),
    "a cache with a stale index": Layout({SINGLE: link(CACHE + "one"), **STALE}, note=INDEX),
    "a subfolder of a cache": Layout(
        {
            "part": folder,
            "part/config.json": config(),
            f"part/{SINGLE}": link("../" + CACHE + "one"),
        },
        subfolder="part",
    ),
}


def made(layout: Layout, base: Path) -> Path:
    """Create the folder as a snapshot in a cache, a form that every folder may have."""
    source = base / "snapshots/0a1b"
    source.mkdir(parents=True)
    (base / "blobs").mkdir()
    for name, part in (("one", "all"), ("first", "first"), ("second", "second")):
        safe(10 if part != "second" else 11, part)(base / "blobs" / name)
    weights("c.safetensors")(base / "blobs/config")
    safe(11)(source.parent / "outside.safetensors")
    safe(12)(source.parent / "c.safetensors")
    config()(source.parent / "config.json")
    for name, content in {"config.json": config(), **layout.files}.items():
        content(source / name)
    return source


def numbers(state: dict[str, Any]) -> dict[str, float]:
    for name, tensor in state.items():
        assert (tensor == tensor.flatten()[0]).all(), name
    return {name: float(tensor.flatten()[0]) for name, tensor in state.items()}


def by_transformers(source: Path, layout: Layout) -> dict[str, float] | None:
    """Return the result of from_pretrained(); None if it fails."""
    try:
        model, told = transformers.DistilBertModel.from_pretrained(
            source,
            variant=layout.variant,
            subfolder=layout.subfolder,
            local_files_only=True,
            output_loading_info=True,
        )
    except Exception:
        return None
    state = model.state_dict()
    return numbers({name: state[name] for name in state if name not in told["missing_keys"]})


def by_us(source: Path, layout: Layout) -> tuple[dict[str, float], list[str]]:
    with oe.open_checkpoint(source / layout.subfolder, variant=layout.variant) as checkpoint:
        return numbers(checkpoint.state_dict()), checkpoint.notes


def graph() -> Any:
    """Return all tensors of the model as inputs of one node, so that they can be filled."""
    make = onnx.helper
    value = make.make_tensor_value_info
    nodes = [make.make_node("Sum", [name, name], [f"{name}.out"]) for name in ALL]
    made = make.make_graph(
        nodes,
        "g",
        [],
        [value(f"{name}.out", 1, shape) for name, shape in ALL.items()],
        value_info=[value(name, 1, shape) for name, shape in ALL.items()],
    )
    return make.make_model(made, opset_imports=[make.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_folder_is_read_as_transformers_reads_it(name: str, tmp_path: Path) -> None:
    from onnx_external.transformers._loading import load
    from onnx_external.transformers._recording import Key

    layout = LAYOUTS[name]
    source = made(layout, tmp_path)
    theirs = by_transformers(source, layout)
    if layout.refused:
        assert theirs is None or len(theirs) < len(ALL) or layout.theirs.startswith("loads")
        with pytest.raises(oe.Error) as caught:
            by_us(source, layout)
        assert layout.refused in str(caught.value)
        return
    ours, notes = by_us(source, layout)
    assert ours.keys() == ALL.keys()
    if layout.theirs.startswith("refuses"):
        assert theirs is None
    else:
        assert ours == theirs
    assert len(notes) == bool(layout.note) and layout.note in " ".join(notes)
    with oe.open_checkpoint(source / layout.subfolder, variant=layout.variant) as weights:
        report = oe.save(graph(), tmp_path / "out", weights, fsync=False, progress=False)
    assert report.notes == notes
    saved = onnx.load(tmp_path / "out/model.onnx").graph.initializer
    assert {each.name: float(onnx.numpy_helper.to_array(each).flat[0]) for each in saved} == ours
    loaded = load(source / layout.subfolder, None, None, layout.variant)
    assert {name: Key(name) for name in ALL} == loaded.made


def test_the_message_about_a_variant_names_the_option(tmp_path: Path) -> None:
    source = made(LAYOUTS["only a variant, not asked for"], tmp_path)
    with pytest.raises(oe.NotFoundError) as caught:
        oe.open_checkpoint(source)
    assert [tuple(remedy[:2]) for remedy in caught.value.remedies] == [("variant", "fp16")]
    with pytest.raises(oe.InvalidArgumentError, match="is not a folder"):
        oe.open_checkpoint(source / "model.fp16.safetensors", variant="fp16")


def test_an_export_takes_the_files_of_from_pretrained_and_those_of_its_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxscript")
    from onnx_external._commands.export import main
    from onnx_external.transformers._reference import loaded

    monkeypatch.setattr(transformers.DistilBertConfig, "extra_files", ("head.safetensors", "no"))
    files = {"model.fp16.safetensors": safe(2), "head.safetensors": safe(3, "second"), **HALF}
    layout = Layout({**files, **VARIANT_SHARDS}, variant="fp16")
    source = made(layout, tmp_path)
    theirs = by_transformers(source, layout)
    assert theirs and set(theirs.values()) == {2, 3}
    assert numbers(loaded(source, None, None, "fp16").state_dict()) == theirs
    out = tmp_path / "out"
    told = ["--variant", "fp16", "--no-fsync", "--quiet", "--json"]
    assert main([str(source), "-o", str(out), *told]) == 0
    report = json.loads(capsys.readouterr().out)
    assert "model.safetensors.index.fp16.json" in " ".join(report["save"]["notes"])
    saved = [each for each in report["graphs"]["model"]["tensors"] if each["key"]]
    assert len(saved) > len(ALL) / 2
    for each in saved:
        data = (out / each["file"]).read_bytes()[each["offset"] :][: each["length"]]
        assert (torch.frombuffer(bytearray(data), dtype=torch.float32) == theirs[each["key"]]).all()
