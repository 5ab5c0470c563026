"""Tests of quantized weights in torch.save files: torchao's tensor subclasses, HQQ's modules."""

import os
import random
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_external as oe

pytest.importorskip("ml_dtypes")
torch = pytest.importorskip("torch")

from graphs import saved_bytes  # noqa: E402
from quantized_folders import MAKERS, Made, write  # noqa: E402

MUTANTS = int(os.environ.get("ONNX_EXTERNAL_MUTANTS", "14"))
"""Of each layout; campaigns take 200."""

CLASSES = {
    "torchao": ("torchao.quantization", "IntxUnpackedToInt8Tensor"),
    "torchao int4": ("torchao.quantization", "Int4Tensor"),
    "torchao mxfp8 tiles": ("torchao.prototype.mx_formats.mx_tensor", "MXTensor"),
    "torchao nvfp4 tiles": ("torchao.prototype.mx_formats.nvfp4_tensor", "NVFP4Tensor"),
    "torchao cut tiles": ("torchao.prototype.mx_formats.mx_tensor", "MXTensor"),
}
HQQ = [name for name in MAKERS if name.startswith("hqq")]


def as_torch(value: Any) -> Any:
    """Return a torch tensor with the bytes of an array, also for types that numpy lacks."""
    name = value.dtype.name
    if hasattr(np, name):
        return torch.from_numpy(np.array(value))
    raw = np.array(value).view(f"i{value.itemsize}")
    return torch.from_numpy(raw).view(getattr(torch, name))


@pytest.fixture
def wrap(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes an object of a class of torchao, which is not installed."""

    def made(module: str, name: str, shape: tuple[int, ...], state: dict[str, Any]) -> Any:
        def dispatch(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise NotImplementedError(func)

        body = {"__module__": module, "__torch_dispatch__": classmethod(dispatch)}
        subclass = type(name, (torch.Tensor,), body)
        parts = module.split(".")
        for count in range(1, len(parts) + 1):
            home = types.ModuleType(".".join(parts[:count]))
            setattr(home, name, subclass)
            monkeypatch.setitem(sys.modules, home.__name__, home)
        value = torch.Tensor._make_wrapper_subclass(subclass, shape, dtype=torch.bfloat16)
        vars(value).update(state)
        return value

    return made


def torchao_state(wrap: Any, name: str, made: Made) -> dict[str, Any]:
    """Return the state dict that torchao's model would have."""
    parts = {key.removeprefix("a._weight_"): as_torch(value) for key, value in made.tensors.items()}
    shape = made.floats["a.weight"].shape
    state = {**parts, "block_size": (1, 32), "act_quant_kwargs": None}
    return {"a.weight": wrap(*CLASSES[name], shape, state), "a.bias": torch.ones(3)}


def hqq_modules(made: Made, nested: bool = False) -> dict[str, Any]:
    """Return the dict that HQQ's save_quantized() would write; `nested` as before 0.2."""
    values: dict[str, Any] = {}
    for key, value in made.tensors.items():
        name = key.removeprefix("a.")
        if name == "packing":
            values[name] = value.tobytes().decode()
        elif name == "shape":
            values[name] = torch.Size(value.tolist())
        elif value.ndim == 0:
            values[name] = bool(value) if name.startswith("quant_") else int(value)
        else:
            values[name] = as_torch(value)
    values |= {"compute_dtype": torch.float16, "view_as_float": False, "optimize": True}
    codes = values.pop("W_q")
    module = {"W_q": codes, "meta": values} if nested else {"W_q": codes, **values}
    return {"a": {**module, "bias": torch.ones(3)}, "norm": {"weight": torch.ones(4)}}


def save(folder: Path, name: str, content: Any, **how: Any) -> Path:
    folder.mkdir(exist_ok=True)
    torch.save(content, folder / name, **how)
    return folder / name


def check(path: Path, made: Made, others: list[str]) -> None:
    with oe.open_checkpoint(path) as checkpoint:
        assert sorted(checkpoint) == sorted([*made.floats, *others])
        for key, want in made.floats.items():
            assert checkpoint[key].shape == want.shape
            assert checkpoint[key].numpy().tobytes() == np.ascontiguousarray(want).tobytes()


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("name", CLASSES)
def test_a_tensor_of_torchao_is_the_floats_of_its_formula(
    name: str, zipped: bool, wrap: Any, tmp_path: Path
) -> None:
    made = MAKERS[name](np.random.default_rng(1))
    state = torchao_state(wrap, name, made)
    file = save(tmp_path / "c", "m.bin", state, _use_new_zipfile_serialization=zipped)
    check(file, made, ["a.bias"])
    check(file.parent, made, ["a.bias"])


@pytest.mark.parametrize("zero_type", ["int8", "int64"])
def test_an_affine_quantized_tensor_of_older_versions_is_read(
    zero_type: str, wrap: Any, tmp_path: Path
) -> None:
    made = MAKERS["torchao"](np.random.default_rng(1))
    codes, scales, zeros = (as_torch(value) for value in made.tensors.values())
    shape = made.floats["a.weight"].shape
    state = {
        "int_data": codes,
        "scale": scales,
        "zero_point": zeros.to(getattr(torch, zero_type)),
        "_layout": None,
    }
    plain = wrap("torchao.dtypes.uintx.plain_layout", "PlainAQTTensorImpl", shape, state)
    state = {"tensor_impl": plain, "block_size": (1, 32), "quant_min": -8, "quant_max": 7}
    affine = wrap("torchao.dtypes.affine_quantized_tensor", "AffineQuantizedTensor", shape, state)
    state = {"original_weight_tensor": affine, "quant_kwargs": {}}
    module = "torchao.quantization.linear_activation_quantized_tensor"
    linear = wrap(module, "LinearActivationQuantizedTensor", shape, state)
    check(save(tmp_path, "m.pt", {"a.weight": linear}), made, [])


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("name", HQQ)
def test_the_modules_of_hqq_are_the_floats_of_their_formula(
    name: str, nested: bool, tmp_path: Path
) -> None:
    made = MAKERS[name](np.random.default_rng(1))
    check(save(tmp_path, "qmodel.pt", hqq_modules(made, nested)), made, ["a.bias", "norm.weight"])


@pytest.mark.parametrize("name", ["torchao", "torchao int4", "hqq 4 bits"])
def test_codes_from_a_pickle_are_kept_like_those_from_safetensors(
    name: str, wrap: Any, tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx")
    made = MAKERS[name](np.random.default_rng(1))
    ((key, want),) = made.floats.items()
    rows, columns = want.shape
    graph = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        agraph (float[m, {columns}] x, float[{rows}, {columns}] w) => (float[m, {rows}] y)
        {{ t = Transpose <perm = [1, 0]> (w)  y = MatMul(x, t) }}"""
    )
    onnx.save(graph, tmp_path / "g.onnx")
    content = hqq_modules(made) if name in HQQ else torchao_state(wrap, name, made)
    pickled = save(tmp_path / "p", "m.bin", content).parent
    saved = []
    for folder in (write(tmp_path / "s", made), pickled):
        out = tmp_path / "out" / folder.name / "model.onnx"
        how = oe.Mapping(map={"w": key}, unmatched="skip")
        report = oe.save(tmp_path / "g.onnx", out, folder, mapping=how, quantize="keep")
        assert report.quantized is not None
        saved.append(saved_bytes(out))
    assert saved[0] == saved[1]
    assert "w" not in saved[1]


def damaged(state: dict[str, Any], number: int, chooser: random.Random) -> dict[str, Any]:
    """Leave a value out, or change its shape, its type or its content."""
    name = chooser.choice(list(state))
    value = state[name]
    if number % 4 == 0 or not isinstance(value, torch.Tensor):
        other = chooser.choice([None, 3, -1, "8bit_u8", torch.Size([-1, 2]), [1], torch.ones(2)])
        return {**state, name: other}
    if number % 4 == 1:
        return {key: kept for key, kept in state.items() if key != name}
    if number % 4 == 2 and value.ndim:
        return {**state, name: value[: chooser.randrange(len(value) + 1)]}
    kinds = [torch.int32, torch.uint8, torch.float64, torch.bool]
    return {**state, name: value.to(torch.float32).to(chooser.choice(kinds))}


@pytest.mark.parametrize("name", [*CLASSES, *HQQ])
def test_a_damaged_quantized_pickle_gives_an_error_or_floats(
    name: str, wrap: Any, tmp_path: Path
) -> None:
    chooser = random.Random(7)
    made = MAKERS[name](np.random.default_rng(1))
    for number in range(MUTANTS):
        if name in HQQ:
            modules = hqq_modules(made)
            content = {**modules, "a": damaged(modules["a"], number, chooser)}
        else:
            content = torchao_state(wrap, name, made)
            state = vars(content["a.weight"])
            state_now = damaged(dict(state), number, chooser)
            state.clear()
            state.update(state_now)
        file = save(tmp_path, "m.bin", content)
        if number % 5 == 4:
            flip_bytes(file, chooser)
        try:
            with oe.open_checkpoint(file) as checkpoint:
                for key in checkpoint:
                    checkpoint[key].tobytes()
        except oe.Error as error:
            assert "m.bin" in str(error)


def flip_bytes(file: Path, chooser: random.Random) -> None:
    """Change bytes of the pickle in the file."""
    content = bytearray(file.read_bytes())
    for _ in range(3):
        content[chooser.randrange(40, 1500)] = chooser.choice([0, 255, 128, 1])
    file.write_bytes(content)
