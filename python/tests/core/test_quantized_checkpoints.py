"""Tests that quantized checkpoints are read as the float values that their formulas define."""

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest

import onnx_external as oe

pytest.importorskip("ml_dtypes")

from quantized_folders import MAKERS, Made, gptq, nvfp4, safetensors, torchao_tiles, write

MUTANTS = int(os.environ.get("ONNX_EXTERNAL_MUTANTS", "14"))
"""Of each layout; campaigns take 200."""


def made_by(name: str, seed: int = 1) -> Made:
    return MAKERS[name](np.random.default_rng(seed))


def differing(checkpoint: oe.Checkpoint, made: Made) -> list[str]:
    """Return the weights that differ in any bit from the expected floats."""
    return [
        name
        for name, want in made.floats.items()
        if name not in checkpoint
        or checkpoint[name].shape != want.shape
        or checkpoint[name].numpy().tobytes() != np.ascontiguousarray(want).tobytes()
    ]


@pytest.mark.parametrize("name", MAKERS)
def test_a_quantized_weight_is_the_floats_of_its_formula(name: str, tmp_path: Path) -> None:
    made = made_by(name)
    with oe.open_checkpoint(write(tmp_path / "c", made)) as checkpoint:
        assert differing(checkpoint, made) == []
        others = [key for key in checkpoint if key not in made.floats]
        assert all(key.endswith("bias") for key in others), others


@pytest.mark.parametrize("says", ["gptq", "gptq_v2"])
def test_constant_zero_points_identify_the_version_of_gptq(says: str, tmp_path: Path) -> None:
    made = gptq(
        np.random.default_rng(0), version=2 if says == "gptq" else 1, says=says, symmetric=True
    )
    with oe.open_checkpoint(write(tmp_path / "c", made)) as checkpoint:
        assert differing(checkpoint, made) == []
        assert any(f'says "{says}"' in note for note in checkpoint.notes), checkpoint.notes


def test_a_scale_of_the_whole_that_makes_weights_of_thousands_is_read_the_other_way(
    tmp_path: Path,
) -> None:
    made = nvfp4(np.random.default_rng(0), divides=False, reversed_name=True)
    with oe.open_checkpoint(write(tmp_path / "c", made)) as checkpoint:
        assert any("multiplied by it instead" in note for note in checkpoint.notes), (
            checkpoint.notes
        )


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gptq 4 bits", {"checkpoint_format": "marlin"}),
        ("awq gemm", {"version": "gemv_fast"}),
        ("ct 4 bits", {"format": "marlin-24"}),
    ],
)
def test_a_layout_without_a_known_formula_is_refused_by_name(
    name: str, settings: dict[str, str], tmp_path: Path
) -> None:
    made = made_by(name)
    made.config["quantization_config"] |= settings
    folder = write(tmp_path / "c", made)
    with pytest.raises(oe.Error, match=next(iter(settings.values()))):
        oe.open_checkpoint(folder)
    assert oe.inspect(folder / "model.safetensors")


def test_tiles_of_scales_whose_padding_cannot_be_undone_are_refused(tmp_path: Path) -> None:
    made = torchao_tiles(np.random.default_rng(0), rows=160)
    folder = write(tmp_path / "c", made)
    with pytest.raises(oe.Error, match="padded to tiles of a GPU kernel"):
        oe.open_checkpoint(folder)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("mlx 4 bits", {"bits": 8}, "8 bits per code and groups of 64"),
        ("mlx 5 bits", {"bits": 4}, "4 bits per code and groups of 64"),
        ("olive", {"bits": 2}, "2 bits per code and groups of 32"),
        ("quark int8 groups", {"layer_quant_config": {"a": {"weight": {"dtype": "int2"}}}}, "int2"),
    ],
)
def test_settings_that_contradict_the_tensors_are_an_error(
    name: str, settings: dict[str, object], message: str, tmp_path: Path
) -> None:
    made = made_by(name)
    for own in made.config.values():
        own |= settings
    with pytest.raises(oe.Error, match=message):
        oe.open_checkpoint(write(tmp_path / "c", made))


def test_parts_of_weights_are_read_as_well_in_parts(tmp_path: Path) -> None:
    """Check that every range of bytes is read correctly, even if it splits elements."""
    chooser = random.Random(3)
    for name in MAKERS:
        made = made_by(name)
        with oe.open_checkpoint(write(tmp_path / name, made)) as checkpoint:
            (key, want), *_ = made.floats.items()
            whole = np.ascontiguousarray(want).tobytes()
            for _ in range(8):
                first = chooser.randrange(len(whole))
                length = chooser.randrange(1, len(whole) - first + 1)
                out = bytearray(length)
                checkpoint.core.read_into(list(checkpoint).index(key), first, out)
                assert bytes(out) == whole[first : first + length], (name, first, length)


def mutant_of(made: Made, number: int, chooser: random.Random) -> tuple[bytes, str]:
    """Change a shape, a type, values, a name or a setting, or leave a tensor out."""
    tensors = dict(made.tensors)
    settings = json.dumps(made.config)
    name = chooser.choice(list(tensors))
    value = np.ascontiguousarray(tensors[name])
    kind = number % 7
    if kind == 0:  # another shape of the same size
        first = chooser.choice([n for n in range(1, value.size + 1) if value.size % n == 0])
        tensors[name] = value.reshape(first, -1)
    elif kind == 1:
        del tensors[name]
    elif kind == 2:  # another type of the same size
        types = {1: ("uint8", "int8"), 2: ("float16",), 4: ("int32", "uint32", "float32")}
        tensors[name] = value.view(chooser.choice(types.get(value.itemsize, ("int64",))))
    elif kind == 3:
        digits = [i for i, letter in enumerate(settings) if letter.isdigit()] or [0]
        at = chooser.choice(digits)
        other = chooser.choice(["0", "-1", "7", "99999999999", "1e3", '"x"', "[]"])
        settings = settings[:at] + other + settings[at + 1 :]
    elif kind == 4 and value.ndim:
        tensors[name] = value[: chooser.randrange(len(value) + 1)]
    elif kind == 5:
        tensors[chooser.choice(list(tensors))] = value
    else:
        content = bytearray(value.tobytes())
        for _ in range(8):
            content[chooser.randrange(len(content))] = chooser.choice([0, 255, 128, 1])
        tensors[name] = np.frombuffer(bytes(content), value.dtype).reshape(value.shape)
    return safetensors(tensors), settings


@pytest.mark.parametrize("name", MAKERS)
def test_a_damaged_quantized_checkpoint_gives_an_error_or_floats(name: str, tmp_path: Path) -> None:
    chooser = random.Random(5)
    made = made_by(name)
    folder = write(tmp_path / "c", made)
    for number in range(MUTANTS):
        file, settings = mutant_of(made, number, chooser)
        (folder / "model.safetensors").write_bytes(file)
        (folder / "config.json").write_text(settings)
        try:
            with oe.open_checkpoint(folder) as checkpoint:
                for key in checkpoint:
                    checkpoint[key].tobytes()
        except oe.Error:
            pass
