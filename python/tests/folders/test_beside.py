"""Tests that a model and the files next to it are saved completely or not at all."""

import errno
import json
import os
import resource
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.11")
pytest.importorskip("transformers", minversion="5.20")
pytest.importorskip("onnxscript")

COPIED = {"config.json": "{}", "tokenizer.json": "new" * 50_000, "tokenizer_config.json": "{}"}
ENDINGS = [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), MemoryError()]


@pytest.fixture(scope="module")
def skeleton() -> Any:
    return oe.torch.skeleton(torch.nn.Linear(8, 4), (torch.ones(2, 8),))


@pytest.fixture(params=["model", "set", "apart", "variants"])
def saving(request: Any, skeleton: Any, tmp_path: Path) -> Any:
    """Return a function that saves one or two graphs, with shared or separate weights."""
    from onnx_external.torch._guards import Sizes
    from onnx_external.transformers._recording import Key
    from onnx_external.transformers._saving import Graph, Part, Saving

    source = tmp_path / "source"
    source.mkdir()
    torch.save({"weight": torch.ones(4, 8), "bias": torch.ones(4)}, source / "pytorch_model.bin")
    for name, text in COPIED.items():
        (source / name).write_text(text)
    graph = Graph(skeleton, {name: Key(name) for name in ("weight", "bias")}, Sizes())
    names = ["model"] if request.param == "model" else ["prefill", "decode"]
    suffixes = ["", "_two"] if request.param == "variants" else [""]
    parts = [Part(dict.fromkeys(names, graph), suffix) for suffix in suffixes]
    apart = request.param == "apart"
    return Saving([source], tmp_path / "out", parts, (), "onnx" if apart else "", apart)


OPTIONS = dict(progress=False, fsync=False, mapping=oe.Mapping(unmatched="skip"), files=oe.Layout())


def tree(folder: Path) -> dict[str, Any]:
    """Return the contents of a folder; None for anything but a file."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture(params=["new", "old"])
def before(request: Any, saving: Any, tmp_path: Path) -> dict[str, Any]:
    """Leave the output folder empty, or fill it with an older save of other files."""
    if request.param == "old":
        saving.save(OPTIONS)
        (saving.folder / "tokenizer.json").write_text("old")
        (saving.folder / "config.json").unlink()
    return tree(tmp_path)


def save(saving: Any) -> None:
    saving.save({**OPTIONS, "overwrite": True})


def complete(saving: Any) -> bool:
    found = tree(saving.folder)
    return all(found.get(name) == text.encode() for name, text in COPIED.items())


def test_files_are_copied_and_replaced(saving: Any, before: dict[str, Any]) -> None:
    save(saving)
    assert complete(saving) and saving.copied == sorted(COPIED)
    assert not [name for name in tree(saving.folder) if name.startswith(".")]


def occupy(place: Path, kind: str) -> None:
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    if kind == "folder":
        place.mkdir()
    elif kind == "folder with a file":
        place.mkdir()
        (place / "mine").write_text("mine")
    else:
        os.mkfifo(place)


@pytest.mark.parametrize("kind", ["folder", "folder with a file", "pipe"])
def test_what_cannot_be_replaced_is_refused_and_nothing_changes(
    saving: Any, before: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    from onnx_external._folders.preconditions import requested

    occupy(saving.folder / "tokenizer.json", kind)
    there = tree(tmp_path)
    how: dict[str, Any] = dict.fromkeys(("graphs", "task", "dtype", "quantize"))
    how |= {"layout": "single", "clients": (), "variants": (), "overwrite": True, "dry_run": False}
    with pytest.raises(oe.ExistsError, match=r"tokenizer\.json: is .*move it elsewhere"):
        requested([tmp_path / "source"], saving.folder, how)
    with pytest.raises(oe.ExistsError, match=r"tokenizer\.json"):
        saving.plan({**OPTIONS, "overwrite": True})
    with pytest.raises(oe.ExistsError, match=r"tokenizer\.json"):
        save(saving)
    assert tree(tmp_path) == there


def test_a_file_is_replaced_only_if_that_is_asked_for(saving: Any, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/tokenizer.json").symlink_to("nowhere")
    there = tree(tmp_path)
    for run in (saving.plan, saving.save):
        with pytest.raises(oe.ExistsError, match=r"tokenizer\.json: exists"):
            run(OPTIONS)
        assert tree(tmp_path) == there
    save(saving)
    assert complete(saving) and not (tmp_path / "out/tokenizer.json").is_symlink()


def test_data_that_is_found_by_its_name_keeps_it_and_old_data_goes(
    saving: Any, tmp_path: Path
) -> None:
    if not saving._apart:
        pytest.skip("the graph says where its data is")
    shards = {**OPTIONS, "layout": "shards", "files": oe.Layout(max_shard_size=100, inline_below=0)}
    place = saving.folder / "onnx"
    saving.save(shards)
    data = {path.name for path in place.glob("*_data*")}
    assert "prefill.onnx_data_1" in data and len(data) == 4
    (place / "other.onnx_data").write_text("mine")
    whole = oe.Layout(inline_below=0)
    saving.save({**shards, "layout": "single", "files": whole, "overwrite": True})
    left = {path.name for path in place.glob("*_data*")}
    assert left == {"prefill.onnx_data", "decode.onnx_data", "other.onnx_data"}
    assert oe.verify(place / "prefill.onnx", against=tmp_path / "source/pytorch_model.bin").ok


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("call", range(7))
def test_whatever_call_fails_nothing_changes(
    saving: Any,
    before: dict[str, Any],
    ending: BaseException,
    call: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []

    def failing(function: Any) -> Any:
        def run(*args: Any, **more: Any) -> Any:
            calls.append(function)
            if len(calls) == call + 1:
                raise ending
            return function(*args, **more)

        return run

    for owner, name in ((shutil, "copyfileobj"), (os, "replace"), (os, "link"), (os, "fsync")):
        monkeypatch.setattr(owner, name, failing(getattr(owner, name)))
    if isinstance(ending, OSError):
        monkeypatch.setattr(shutil, "copy2", failing(shutil.copy2))
    try:
        save(saving)
    except (oe.ReadWriteError, KeyboardInterrupt, MemoryError):
        assert tree(tmp_path) == before
    else:  # there were fewer calls, or a failed link was replaced by a copy
        assert complete(saving)


def test_a_save_that_ends_after_the_copies_takes_them_back(
    saving: Any, before: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnx_external.transformers._beside import Beside

    if saving._is_staged:
        pytest.skip("no save of the engine follows the copies")
    published = Beside.before_publish
    monkeypatch.setattr(Beside, "before_publish", lambda self: not published(self))
    with pytest.raises(oe.Error, match="cancelled before the model was put in place"):
        save(saving)
    assert tree(tmp_path) == before


def test_a_model_that_appears_in_the_end_stays_and_the_copies_go(
    saving: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnx_external.transformers._beside import Beside

    place = saving._place / next(iter(saving._graphs))
    published = Beside.before_publish

    def then_occupied(self: Beside) -> bool:
        assert published(self) and complete(saving)
        place.parent.mkdir(exist_ok=True)
        place.write_text("mine")
        return True

    monkeypatch.setattr(Beside, "before_publish", then_occupied)
    with pytest.raises(oe.ExistsError):
        saving.save(OPTIONS)
    files = {name: each for name, each in tree(saving.folder).items() if each is not None}
    assert files == {str(place.relative_to(saving.folder)): b"mine"}


def test_graphs_that_are_found_wrong_before_they_are_in_place_change_nothing(
    saving: Any, before: dict[str, Any], tmp_path: Path
) -> None:
    if not saving._is_staged:
        pytest.skip("nobody looks")

    def look(folder: Path) -> None:
        assert {path.name for path in folder.glob("*.onnx")} == set(saving._graphs)
        raise oe.ExportError("wrong")

    with pytest.raises(oe.ExportError, match="wrong"):
        saving.save({**OPTIONS, "overwrite": True}, look)
    assert tree(tmp_path) == before


def test_a_file_that_may_not_grow_any_more_leaves_nothing(saving: Any, tmp_path: Path) -> None:
    there = tree(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(oe.ReadWriteError, match=r"tokenizer\.json: cannot be written"):
            save(saving)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert tree(tmp_path) == there
    save(saving)
    assert complete(saving)


@pytest.mark.parametrize("call", range(4))
def test_a_save_that_is_killed_leaves_whole_files_and_the_next_one_clears_up(
    saving: Any, before: dict[str, Any], call: int
) -> None:
    old = before.get("out/tokenizer.json", b"")
    child = os.fork()
    if child == 0:
        calls, replace = [], os.replace

        def dying(*args: Any) -> None:
            calls.append(args)
            if len(calls) == call + 1:
                os.kill(os.getpid(), signal.SIGKILL)
            replace(*args)

        os.replace = dying
        try:
            save(saving)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    place = saving.folder / "tokenizer.json"
    assert (place.read_bytes() if place.exists() else b"") in (old, COPIED[place.name].encode())
    save(saving)
    assert complete(saving)
    assert not [name for name in tree(saving.folder) if name.startswith(".")]


SIDE_FILES = {
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "spiece.model", "tokenizer.model.v3",
    "qwen.tiktoken", "source.spm", "bpe.codes", "vocab.txt", "merges.txt", "chat_template.jinja",
    "chat_template.json", "preprocessor_config.json", "processor_config.json",
    "video_preprocessor_config.json", "modules.json", "sentence_bert_config.json",
    "config_sentence_transformers.json", "1_Pooling/config.json", "2_Dense/config.json",
    "additional_chat_templates/rag.jinja", "2_Dense/model.safetensors",
}  # fmt: skip
OTHER_FILES = {
    "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "vocab.py",
    "2_Dense/module.py", "trainer_state.json", "all_results.json", "README.md",
    "model.manifest.json", "genai_config.json", "adapter_config.json", "modeling_own.py",
    "requirements.txt", ".gitattributes", "tokenizer.bin", "other/config.json", "loss.png",
}  # fmt: skip


def test_all_files_that_a_loader_reads_are_side_files(tmp_path: Path) -> None:
    from onnx_external._folders.side_files import files_beside

    for name in SIDE_FILES | OTHER_FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    paths = ["", "1_Pooling", "2_Dense", "../other", "/etc", 3]
    modules = [{"idx": number, "path": path} for number, path in enumerate(paths)]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "large.json").write_bytes(b"")
    os.truncate(tmp_path / "large.json", 1 << 27)
    found = files_beside(tmp_path)
    assert {file.name for file in found} == SIDE_FILES
    assert all(file.path == tmp_path / file.name for file in found)
    (tmp_path / "modules.json").write_text("[[")
    assert "1_Pooling/config.json" not in {file.name for file in files_beside(tmp_path)}


def test_side_files_that_git_lfs_has_not_fetched_are_noted(tmp_path: Path) -> None:
    from onnx_external._folders.side_files import files_beside, note_on_pointers

    (tmp_path / "config.json").write_text("{}")
    assert note_on_pointers(files_beside(tmp_path)) == []
    for name in ("spiece.model", "tokenizer.json"):
        (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\nsize 12\n")
    (note,) = note_on_pointers(files_beside(tmp_path))
    assert note.startswith("spiece.model, tokenizer.json: a Git LFS pointer")


@pytest.mark.parametrize("error", ENDINGS[:1])
def test_folders_of_side_files_are_copied_and_taken_back(
    saving: Any, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnx_external.transformers import _saving

    source, out = tmp_path / "source", saving.folder
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling/config.json").write_text("pooling")
    (source / "modules.json").write_text('[{"path": "1_Pooling"}]')
    again = _saving.Saving([source], out, saving._parts[:1])
    before = tree(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing(os.replace, 2, error))
        with pytest.raises(oe.ReadWriteError):
            save(again)
    assert tree(tmp_path) == before
    save(again)
    assert (out / "1_Pooling/config.json").read_text() == "pooling"
    assert "1_Pooling/config.json" in again.copied


def failing(call: Any, at: int, error: BaseException) -> Any:
    """Return a function like `call` that fails at one of its calls."""
    count = iter(range(1, 100))

    def replaced(*args: Any, **kwargs: Any) -> Any:
        if next(count) == at:
            raise error
        return call(*args, **kwargs)

    return replaced
