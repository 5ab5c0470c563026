"""Reading checkpoints: torch and safetensors are the oracles."""

import gc
import os
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
    assert tensor.nbytes  # its form is known; its bytes may still be read


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
    module(x).sum().backward()  # they are ordinary parameters
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
