"""Tests of reading checkpoints, compared with torch and safetensors."""

import gc
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import onnx_external as oe


def test_a_checkpoint_is_a_mapping_of_names_to_tensors(tiny: Path) -> None:
    with oe.open_checkpoint(tiny / "checkpoint.pt") as checkpoint:
        assert checkpoint.format == "torch-zip"
        assert checkpoint.files == [str(tiny / "checkpoint.pt")]
        name = "module.transformer.wte.weight"
        assert name in checkpoint and len(checkpoint) == len(list(checkpoint)) > 10
        tensor = checkpoint[name]
        assert (tensor.dtype, tensor.shape, tensor.nbytes) == ("float32", (24, 8), 768)
        assert tensor.file == str(tiny / "checkpoint.pt") and tensor.offset
        with open(tensor.file, "rb") as stream:
            stream.seek(tensor.offset)
            assert stream.read(768) == tensor.tobytes()
        with pytest.raises(KeyError):
            checkpoint["nothing"]


@pytest.mark.parametrize("name", ["checkpoint.pt", "model.safetensors", "sharded_bin"])
def test_arrays_hold_what_torch_loads(name: str, tiny: Path) -> None:
    torch = pytest.importorskip("torch")
    with oe.open_checkpoint(tiny / "checkpoint.pt") as checkpoint:
        ours = {key: tensor.numpy() for key, tensor in checkpoint.items()}
        state = checkpoint.state_dict()
    theirs = torch.load(tiny / "checkpoint.pt", weights_only=True)
    while "state_dict" in theirs:
        theirs = theirs["state_dict"]
    assert ours.keys() == theirs.keys()
    for key, tensor in theirs.items():
        assert torch.equal(state[key], tensor)
        np.testing.assert_array_equal(ours[key], tensor.numpy())


def test_every_form_of_a_checkpoint_has_the_same_tensors(tiny: Path) -> None:
    reference = None
    for name in ("model.safetensors", "sharded_bin", "sharded_safetensors"):
        with oe.open_checkpoint(tiny / name) as checkpoint:
            tensors = {key: tensor.tobytes() for key, tensor in checkpoint.items()}
        shared = (
            tensors if reference is None else {k: tensors[k] for k in reference if k in tensors}
        )
        reference = reference or tensors
        assert shared and all(reference[key] == value for key, value in shared.items())


def test_arrays_outlive_the_checkpoint(tiny: Path) -> None:
    checkpoint = oe.open_checkpoint(tiny / "model.safetensors")
    arrays = {name: tensor.numpy() for name, tensor in checkpoint.items()}
    copies = {name: array.copy() for name, array in arrays.items()}
    tensor = next(iter(checkpoint.values()))
    checkpoint.close()
    del checkpoint
    gc.collect()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, copies[name])
    assert tensor.nbytes  # its type and shape are known, and its bytes can still be read


def test_a_closed_checkpoint_says_so(tiny: Path) -> None:
    checkpoint = oe.open_checkpoint(tiny / "checkpoint.pt")
    checkpoint.close()
    with pytest.raises(ValueError, match="closed"):
        checkpoint["module.transformer.wte.weight"]
    with pytest.raises(ValueError, match="closed"):
        _ = checkpoint.format


def test_arrays_are_read_only_and_tensors_change_no_file(tiny: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "model.safetensors"
    path.write_bytes((tiny / "model.safetensors").read_bytes())
    with oe.open_checkpoint(path) as checkpoint:
        tensor = next(t for t in checkpoint.values() if t.dtype == "float32")
        with pytest.raises(ValueError):
            tensor.numpy()[...] = 0
        mine = tensor.torch()
        mine.zero_()
        assert torch.count_nonzero(mine) == 0
    assert path.read_bytes() == (tiny / "model.safetensors").read_bytes()


def test_plain_tensors_are_mapped_not_copied(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({f"w{i}": torch.zeros(1 << 22) for i in range(8)}, tmp_path / "c.pt")
    with oe.open_checkpoint(tmp_path / "c.pt") as checkpoint:
        before = resident()
        arrays = [tensor.numpy() for tensor in checkpoint.values()]
        assert resident() - before < 8 << 20 < sum(array.nbytes for array in arrays)


def resident() -> int:
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_views_are_made_contiguous(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {
        "t": base.t(),
        "row": base[1],
        "wide": base[:1].expand(3, 4),
        "none": base[:0],
        "c": base.sum(),
    }
    torch.save(tensors, tmp_path / "c.pt")
    with oe.open_checkpoint(tmp_path / "c.pt") as checkpoint:
        for name, tensor in tensors.items():
            assert checkpoint[name].shape == tuple(tensor.shape)
            assert torch.equal(checkpoint[name].torch(), tensor)
            np.testing.assert_array_equal(checkpoint[name].numpy(), tensor.numpy())


@pytest.mark.parametrize(
    "name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
)
def test_types_that_numpy_lacks_come_from_ml_dtypes(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    tensor = torch.linspace(-2, 2, 16).to(getattr(torch, name))
    torch.save({"w": tensor}, tmp_path / "c.pt")
    with oe.open_checkpoint(tmp_path / "c.pt") as checkpoint:
        array = checkpoint["w"].numpy()
        ours = checkpoint["w"].torch()
    assert array.dtype == np.dtype(getattr(ml_dtypes, name))
    np.testing.assert_array_equal(array.astype(np.float32), tensor.float().numpy())
    assert ours.dtype == tensor.dtype and torch.equal(ours.float(), tensor.float())


def test_a_module_takes_the_tensors_as_they_are(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    trained = torch.nn.Linear(5, 3)
    torch.save(trained.state_dict(), tmp_path / "c.pt")
    module = torch.nn.Linear(5, 3)
    with oe.open_checkpoint(tmp_path / "c.pt") as checkpoint:
        module.load_state_dict(checkpoint.state_dict(), assign=True)
    x = torch.randn(2, 5)
    assert torch.equal(module(x), trained(x))
    module(x).sum().backward()  # the parameters are ordinary
    torch.optim.SGD(module.parameters(), 0.1).step()


def test_a_file_that_changed_is_refused(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes((tiny / "model.safetensors").read_bytes())
    with oe.open_checkpoint(path) as checkpoint:
        with open(path, "r+b") as stream:
            stream.truncate(100)
        with pytest.raises(oe.FormatError):
            next(iter(checkpoint.values())).numpy()


def test_hostile_files_are_errors_and_nothing_is_executed(bad: Path) -> None:
    files = [path for path in bad.rglob("*") if path.is_file()]
    refused = 0
    for path in files:
        try:
            with oe.open_checkpoint(path) as checkpoint:
                for tensor in checkpoint.values():
                    tensor.tobytes()
        except oe.Error as error:
            refused += 1
            assert error.code and str(error)
    assert files and refused > len(files) / 2


def test_a_missing_file_is_a_file_not_found_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        oe.open_checkpoint(tmp_path / "none.pt")
    assert isinstance(caught.value, oe.NotFoundError)


def test_a_nested_checkpoint_is_entered_by_its_key(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"ema": {"w": torch.ones(2)}, "model": {"w": torch.zeros(2)}}, tmp_path / "c.pt")
    with pytest.raises(oe.Error) as caught:
        oe.open_checkpoint(tmp_path / "c.pt")
    assert caught.value.code == "ambiguous"
    with oe.open_checkpoint(tmp_path / "c.pt", key="ema") as checkpoint:
        assert checkpoint["w"].numpy().tolist() == [1, 1]


# --- ownership of memory ---


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Save two matrices of 16 KiB, views of the first one, and a transposed matrix."""
    torch = pytest.importorskip("torch")
    a, b = torch.arange(4096.0).reshape(64, 64), torch.ones(64, 64)
    torch.save(
        {
            "a": a,
            "tied": a,
            "t": a.t(),
            "row": a[3],
            "b": b,
            "wide": b[:1].expand(8, 64),
            "wide2": b[:1].expand(8, 64),
            "alone": torch.ones(8, 9).t(),
        },
        tmp_path / "c.pt",
    )
    return tmp_path / "c.pt"


def test_two_state_dicts_of_one_checkpoint_share_nothing(saved: Path) -> None:
    torch = pytest.importorskip("torch")
    with oe.open_checkpoint(saved) as checkpoint:
        array, single = checkpoint["a"].numpy(), checkpoint["a"].torch()
        one, two = checkpoint.state_dict(), checkpoint.state_dict()
        for tensor in one.values():
            tensor.add_(1)
        theirs = torch.load(saved, weights_only=True)
        for name, tensor in theirs.items():
            assert torch.equal(two[name], tensor) and torch.equal(checkpoint[name].torch(), tensor)
            np.testing.assert_array_equal(checkpoint[name].numpy(), tensor.numpy())
        np.testing.assert_array_equal(array, theirs["a"].numpy())
        assert torch.equal(single, theirs["a"])
    assert torch.equal(torch.load(saved, weights_only=True)["a"], theirs["a"])


def test_every_tensor_is_its_own(saved: Path) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.load(saved, weights_only=True)
    with oe.open_checkpoint(saved) as checkpoint:
        for name in checkpoint:
            first, second = checkpoint[name].torch(), checkpoint[name].torch()
            first.mul_(0)
            assert torch.equal(second, theirs[name])
            assert torch.equal(checkpoint[name].torch(), theirs[name])


def test_tied_tensors_stay_tied_within_a_state_dict(saved: Path) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.load(saved, weights_only=True)
    with oe.open_checkpoint(saved) as checkpoint:
        ours = checkpoint.state_dict()
    for state in (theirs, ours):
        state["a"][3, 5] = -1
        assert state["tied"][3, 5] == state["t"][5, 3] == state["row"][5] == -1
        assert len({state[name].untyped_storage().data_ptr() for name in ("a", "t", "row")}) == 1
    ours["wide"][0, 0] = 7  # torch's own tensor does not allow this, because its rows share memory
    assert ours["wide2"][0, 0] == 7 and ours["wide"][1, 0] == 1 and ours["b"][0, 0] == 1
    assert ours["alone"].is_contiguous()


def test_a_state_dict_is_saved_by_torch_with_its_ties(saved: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with oe.open_checkpoint(saved) as checkpoint:
        torch.save({n: checkpoint.state_dict()[n] for n in ("a", "b")}, tmp_path / "two.pt")
        state = checkpoint.state_dict()
    torch.save({name: state[name] for name in ("a", "tied", "row")}, tmp_path / "tied.pt")
    assert (tmp_path / "tied.pt").stat().st_size < 20_000 < (tmp_path / "two.pt").stat().st_size


@pytest.mark.parametrize("name", ["legacy.pt", "compressed.zip"])
def test_copies_keep_their_ties(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    a = torch.arange(4096.0)
    state = {"odd": torch.ones(3, dtype=torch.bool), "a": a, "tied": a, "b": torch.ones(3)}
    path = tmp_path / name
    if name == "legacy.pt":
        torch.save(state, path, _use_new_zipfile_serialization=False)
    else:
        torch.save(state, tmp_path / "c.pt")
        with zipfile.ZipFile(tmp_path / "c.pt") as old, zipfile.ZipFile(path, "w") as new:
            for record in old.namelist():
                new.writestr(record, old.read(record), zipfile.ZIP_DEFLATED)
    with oe.open_checkpoint(path) as checkpoint:
        ours, others = checkpoint.state_dict(), checkpoint.state_dict()
        ours["a"].add_(1)
        assert torch.equal(ours["tied"], a + 1) and torch.equal(others["tied"], a)
        assert torch.equal(checkpoint["a"].torch(), a)


def test_many_small_tensors_take_few_mappings(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    state = {f"w{i}": torch.full((1100,), float(i)) for i in range(20_000)}
    safetensors.save_file(state, tmp_path / "c.safetensors")
    del state

    def mappings() -> int:
        return len(Path("/proc/self/maps").read_text().splitlines())

    before, descriptors = mappings(), len(os.listdir("/proc/self/fd"))
    with oe.open_checkpoint(tmp_path / "c.safetensors") as checkpoint:
        two = checkpoint.state_dict(), checkpoint.state_dict()
        assert mappings() < before + 100
        single = {name: tensor.torch() for name, tensor in checkpoint.items()}
        assert mappings() < before + 17_000
        array = checkpoint["w7"].numpy()  # maps the file, although there are many mappings
        memory = resident()
        arrays = [tensor.numpy() for tensor in checkpoint.values()]
        assert resident() - memory < 16 << 20 and len(arrays) == 20_000
        single["w7"].zero_()
        single["w19999"].zero_()
        assert array[0] == two[0]["w7"][0] == two[1]["w7"][0] == 7
        assert checkpoint["w19999"].torch()[0] == 19_999
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    del single
    gc.collect()
    assert mappings() < before + 1000


def test_writable_tensors_take_no_memory_before_they_are_written(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({f"w{i}": torch.zeros(1 << 22) for i in range(4)}, tmp_path / "c.pt")
    with oe.open_checkpoint(tmp_path / "c.pt") as checkpoint:
        before = resident()
        taken = [checkpoint.state_dict(), {n: t.torch() for n, t in checkpoint.items()}]
        assert resident() - before < 8 << 20
        taken[1]["w0"].fill_(1)
        assert resident() - before < 24 << 20


def test_read_only_arrays_cannot_be_made_writable(saved: Path) -> None:
    with oe.open_checkpoint(saved) as checkpoint:
        array = checkpoint["a"].numpy()
    with pytest.raises(ValueError):
        array.flags.writeable = True


def test_a_forked_child_has_its_own_copy_of_what_it_writes(saved: Path) -> None:
    pytest.importorskip("torch")
    with oe.open_checkpoint(saved) as checkpoint:
        tensor = checkpoint["b"].torch()
    child = os.fork()
    if child == 0:
        tensor.zero_()
        os._exit(0 if not tensor.any() else 1)
    assert os.waitpid(child, 0)[1] == 0 and tensor.all()


def test_a_type_that_a_library_lacks_is_reported_with_the_tensors_name(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    packed = torch.ones(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    safetensors.save_file({"layer.w": packed}, tmp_path / "c.safetensors")
    with oe.open_checkpoint(tmp_path / "c.safetensors") as checkpoint:
        with pytest.raises(TypeError, match=r"'layer\.w'.*float4"):
            checkpoint["layer.w"].numpy()
        assert checkpoint.state_dict()["layer.w"].dtype == packed.dtype


def test_arrays_that_live_to_the_end_of_the_process_are_not_a_leak(saved: Path) -> None:
    code = (
        "import sys, onnx_external as oe; checkpoint = oe.open_checkpoint(sys.argv[1]);"
        "state = checkpoint.state_dict(); one = checkpoint['a'].torch(), checkpoint['b'].numpy()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(saved)], capture_output=True, text=True, check=True
    )
    assert not done.stderr
