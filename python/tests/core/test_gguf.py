"""Tests of GGUF files: their metadata, and their tensors under transformers' names."""

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gguf_files import Array, Blocks, Typed, write_gguf
from gguf_models import HEADS, LAYER, TIED, make, permuted, stored

import onnx_external as oe

METADATA = {
    "general.architecture": "llama",
    "a.byte": Typed("uint8", 255),
    "a.negative": Typed("int16", -3),
    "a.large": Typed("uint64", 2**63 + 1),
    "a.low": Typed("int64", -(2**63)),
    "a.flag": True,
    "a.half": 0.5,
    "a.third": Typed("float64", 1 / 3),
    "a.heads": [4, 2, 4],
    "a.signed": Typed("int32", [-1, 2]),
    "a.flags": [True, False],
    "a.floats": [0.25, -1.5],
    "a.empty": Typed("string", []),
    "tokenizer.ggml.tokens": ["a", "\u2581b", b"\xff"],
}
READ = {
    **{key: getattr(value, "value", value) for key, value in METADATA.items()},
    "tokenizer.ggml.tokens": ["a", "\u2581b", "\udcff"],
}


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("order", ["<", ">"])
def test_metadata_is_read_in_both_byte_orders(tmp_path: Path, order: str, version: int) -> None:
    path = write_gguf(tmp_path / "m.gguf", METADATA, order=order, version=version)
    read = oe.gguf_metadata(path)
    assert read == READ
    assert list(read) == list(READ)
    assert all(type(read[key]) is type(READ[key]) for key in READ)


def test_metadata_of_a_file_cut_off_anywhere_is_an_error(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", METADATA)
    whole = path.read_bytes()
    end = len(whole.rstrip(b"\0"))
    for size in range(0, end, 7):
        path.write_bytes(whole[:size])
        with pytest.raises(oe.FormatError, match=r"m\.gguf"):
            oe.gguf_metadata(path)


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(oe.NotFoundError):
        oe.gguf_metadata(tmp_path / "m.gguf")


def read(path: Path, **how: Any) -> dict[str, Array]:
    with oe.open_checkpoint(path, **how) as checkpoint:
        return {name: tensor.numpy().copy() for name, tensor in checkpoint.items()}


def assert_equal(found: dict[str, Array], wanted: dict[str, Array]) -> None:
    assert sorted(found) == sorted(wanted)
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype, name
        assert np.array_equal(found[name], value), name


def as_read(kind: str, weights: dict[str, Array]) -> dict[str, Array]:
    """Return the weights with norms rounded as adding and subtracting 1 leaves them."""
    one = np.float32(1)
    return {
        name: (value + one) - one if kind.startswith("gemma") and "norm" in name else value
        for name, value in weights.items()
    }


@pytest.mark.parametrize("kind", LAYER)
def test_weights_have_the_names_and_layout_of_transformers(tmp_path: Path, kind: str) -> None:
    made = make(kind)
    path = write_gguf(tmp_path / "m.gguf", made.metadata, stored(kind, made.weights))
    assert_equal(read(path), as_read(kind, made.weights))
    assert_equal(read(path, raw=True), stored(kind, made.weights))


def test_experts_may_be_stored_one_by_one(tmp_path: Path) -> None:
    made = make("mixtral")
    tensors = stored("mixtral", made.weights, single_experts=True)
    path = write_gguf(tmp_path / "m.gguf", made.metadata, tensors)
    assert_equal(read(path), made.weights)
    del tensors["blk.1.ffn_up.2.weight"]
    write_gguf(path, made.metadata, tensors)
    with pytest.raises(oe.MismatchError, match="no expert 2"):
        oe.open_checkpoint(path)


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
@pytest.mark.parametrize("order", ["<", ">"])
def test_half_precision_is_read_in_any_byte_order_and_alignment(
    tmp_path: Path, order: str, alignment: int
) -> None:
    made = make("llama with biases")
    half = {
        name: value.astype(np.float16 if value.ndim > 1 else np.float32)
        for name, value in made.weights.items()
    }
    metadata = {**made.metadata, "general.alignment": alignment}
    tensors = stored("llama with biases", half)
    path = write_gguf(tmp_path / "m.gguf", metadata, tensors, order=order, alignment=alignment)
    assert_equal(read(path), half)


def test_bfloat16_stays_bfloat16(tmp_path: Path) -> None:
    made = make("qwen2")
    half = {name: value.astype(ml_dtypes.bfloat16) for name, value in made.weights.items()}
    path = write_gguf(tmp_path / "m.gguf", made.metadata, stored("qwen2", half))
    assert_equal(read(path), half)


def q8_0(values: Array) -> tuple[Blocks, Array]:
    """Quantize to blocks of 32 codes of 8 bits; also return the values that these represent."""
    blocks = values.reshape(-1, 32)
    scales = (np.abs(blocks).max(axis=1, keepdims=True) / 127).astype(np.float16)
    codes = np.rint(blocks / scales.astype(np.float32)).clip(-127, 127).astype(np.int8)
    data = b"".join(s.tobytes() + c.tobytes() for s, c in zip(scales, codes, strict=True))
    floats = scales.astype(np.float32) * codes.astype(np.float32)
    return Blocks(8, values.shape, data), floats.reshape(values.shape)


def test_blocks_are_read_as_floats_in_the_order_of_transformers(tmp_path: Path) -> None:
    made = make("llama", width=64)
    wide = made.weights
    tensors: dict[str, Any] = stored("llama", wide)
    wanted = dict(wide)
    for i in range(2):
        for letter, heads in (("q", HEADS), ("k", HEADS // 2)):
            blocks, _ = q8_0(tensors[f"blk.{i}.attn_{letter}.weight"])
            tensors[f"blk.{i}.attn_{letter}.weight"] = blocks
            name = f"model.layers.{i}.self_attn.{letter}_proj.weight"
            _, wanted[name] = q8_0(wide[name])
            assert not np.array_equal(wanted[name], permuted(wanted[name], heads))
    path = write_gguf(tmp_path / "m.gguf", made.metadata, tensors)
    assert_equal(read(path), wanted)
    inspected = oe.inspect(path)
    assert inspected.metadata["GGUF.tensor_types"] == "F32 17, Q8_0 4"
    assert inspected.metadata["general.architecture"] == "'llama'"
    assert inspected.refusal is None


# The number of the type, the values and bytes of a block, the offset of its scale, and its codes:
# (offset, bytes, count).
CODED = {
    "Q4_1": (3, 32, 20, 0, [(0, 2, 2)]),
    "Q5_1": (7, 32, 24, 0, [(0, 2, 2), (4, 4, 1)]),
    "Q8_0": (8, 32, 34, 0, [(0, 2, 1)]),
    "Q4_K": (12, 256, 144, 0, [(0, 2, 2)]),
    "Q6_K": (14, 256, 210, 208, [(208, 2, 1)]),
    "IQ4_XS": (23, 256, 136, 0, [(0, 2, 2)]),
    "MXFP4": (39, 32, 17, None, []),
}


@pytest.mark.parametrize("swaps", [True, False], ids=["as ggml", "as gguf-py"])
@pytest.mark.parametrize("kind", CODED)
def test_blocks_of_big_endian_files_are_read_in_their_own_order(
    tmp_path: Path, kind: str, swaps: bool
) -> None:
    number, values, size, scale, numbers = CODED[kind]
    made = make("llama", width=256)
    draw = np.random.default_rng(0)
    little: dict[str, Any] = stored("llama", made.weights)
    big = dict(little)
    for name in ("token_embd.weight", "blk.0.attn_q.weight", "blk.1.ffn_up.weight"):
        shape = little[name].shape
        raw = draw.integers(0, 256, (np.prod(shape) // values, size), dtype=np.uint8)
        if scale is not None:
            scales = draw.uniform(-0.02, 0.02, (len(raw), 2)).astype(np.float16)
            raw[:, scale : scale + 4] = scales.view(np.uint8)[:, : size - scale]
        little[name] = Blocks(number, shape, raw.tobytes())
        for place, width, count in numbers if swaps else []:
            for at in range(place, place + width * count, width):
                raw[:, at : at + width] = raw[:, at : at + width][:, ::-1]
        big[name] = Blocks(number, shape, raw.tobytes())
    wanted = read(write_gguf(tmp_path / "little.gguf", made.metadata, little))
    path = write_gguf(tmp_path / "big.gguf", made.metadata, big, order=">")
    assert_equal(read(path), wanted)


def write_parts(folder: Path, count: int = 3, **changed: Any) -> list[Path]:
    """Write a model as several files, the first one without tensors."""
    made = make("qwen3")
    tensors = stored("qwen3", made.weights)
    names = list(tensors)
    paths = []
    for i in range(count):
        keys = {
            "split.no": Typed("uint16", i),
            "split.count": Typed("uint16", count),
            "split.tensors.count": Typed("int32", len(tensors)),
            **changed,
        }
        own = names[i - 1 :: count - 1] if i else []
        path = folder / f"m-{i + 1:05}-of-{count:05}.gguf"
        metadata = made.metadata | keys if i == 0 else keys
        paths.append(write_gguf(path, metadata, {name: tensors[name] for name in own}))
    return paths


def test_a_model_in_several_files_is_one_checkpoint(tmp_path: Path) -> None:
    first, second, _ = write_parts(tmp_path)
    assert_equal(read(first), make("qwen3").weights)
    assert_equal(read(tmp_path), make("qwen3").weights)
    assert oe.open_checkpoint(first).format == "sharded gguf"
    with pytest.raises(oe.FormatError, match="NAME-00001-of-00003"):
        oe.open_checkpoint(second)
    second.unlink()
    with pytest.raises(oe.NotFoundError, match="m-00002-of-00003"):
        oe.open_checkpoint(first)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"split.no": Typed("uint16", 1)}, "says that it is part 2 of 3"),
        ({"split.count": Typed("uint16", 4)}, "is one of 4 files"),
        ({"split.tensors.count": Typed("int32", 3)}, "'split.tensors.count' says 3"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(
    tmp_path: Path, changed: dict[str, Any], fault: str
) -> None:
    paths = write_parts(tmp_path, **changed)
    with pytest.raises(oe.FormatError, match=re.escape(fault)):
        oe.open_checkpoint(paths[0])


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"general.architecture": "zebra"}, "the architecture 'zebra' is not supported"),
        ({"general.architecture": "llama", "general.type": "adapter"}, "a llama.cpp adapter"),
        ({"general.architecture": "clip", "general.type": "mmproj"}, "multimodal"),
        ({"general.type": "imatrix"}, "an importance matrix"),
        ({"general.architecture": "controlvector"}, "a control vector"),
        ({"general.name": "m"}, "'general.architecture' is missing"),
    ],
)
def test_what_is_not_a_model_is_named(tmp_path: Path, metadata: dict[str, Any], words: str) -> None:
    tensors = {"a.weight": np.zeros(4, np.float32)}
    path = write_gguf(tmp_path / "m.gguf", metadata, tensors)
    with pytest.raises(oe.FormatError, match=words):
        oe.open_checkpoint(path)
    inspected = oe.inspect(path)
    assert words in str(inspected.refusal)
    assert [tensor.name for tensor in inspected.tensors] == ["a.weight"]


def test_a_vocabulary_is_named(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", make("llama").metadata)
    with pytest.raises(oe.FormatError, match="a vocabulary without weights"):
        oe.open_checkpoint(path)


@pytest.mark.parametrize("kind", LAYER)
def test_no_model_is_read_without_a_part(tmp_path: Path, kind: str) -> None:
    made = make(kind)
    tensors = stored(kind, made.weights)
    path = tmp_path / "m.gguf"
    for name in tensors:
        if name != "output.weight":
            some = {other: value for other, value in tensors.items() if other != name}
            write_gguf(path, made.metadata, some)
            with pytest.raises(oe.Error, match=re.escape(name.split(".")[-2])):
                oe.open_checkpoint(path)


@pytest.mark.parametrize("kind", LAYER)
def test_every_tensor_must_have_its_shape(tmp_path: Path, kind: str) -> None:
    made = make(kind)
    tensors = stored(kind, made.weights)
    for name, value in tensors.items():
        more = np.concatenate([value, value[:1]])
        wrong = value[:, 1:] if name == "position_embd.weight" else more
        if name == "token_embd.weight" and kind in TIED:
            continue  # the rows are tokens
        path = write_gguf(tmp_path / "m.gguf", made.metadata, {**tensors, name: wrong})
        with pytest.raises(oe.Error):
            oe.open_checkpoint(path)


@pytest.mark.parametrize(
    "name",
    ["blk.0.extra.weight", "blk.7.attn_q.weight", "blk.00.attn_q.weight", "attn_q.weight"],
)
def test_surplus_tensors_are_refused(tmp_path: Path, name: str) -> None:
    made = make("llama")
    tensors = stored("llama", made.weights) | {name: np.zeros((16, 16), np.float32)}
    path = write_gguf(tmp_path / "m.gguf", made.metadata, tensors)
    with pytest.raises(oe.MismatchError, match=re.escape(name)):
        oe.open_checkpoint(path)


def test_numbers_of_the_config_are_not_weights(tmp_path: Path) -> None:
    made = make("llama")
    factors = {"rope_freqs.weight": np.ones(2, np.float32)}
    path = write_gguf(tmp_path / "m.gguf", made.metadata, stored("llama", made.weights) | factors)
    assert_equal(read(path), made.weights)
    assert "rope_freqs.weight" in read(path, raw=True)


def test_fused_attention_is_taken_apart(tmp_path: Path) -> None:
    made = make("llama with biases")
    tensors = stored("llama with biases", made.weights)
    for i in range(2):
        for kind in ("weight", "bias"):
            parts = [tensors.pop(f"blk.{i}.attn_{letter}.{kind}") for letter in "qkv"]
            tensors[f"blk.{i}.attn_qkv.{kind}"] = np.concatenate(parts)
    path = write_gguf(tmp_path / "m.gguf", made.metadata, tensors)
    assert_equal(read(path), made.weights)


def test_scales_of_experts_are_multiplied_in(tmp_path: Path) -> None:
    made = make("mixtral", width=64)
    tensors: dict[str, Any] = stored("mixtral", made.weights)
    scales = np.array([0.5, 3, 0.1], np.float32)
    wanted = dict(made.weights)
    blocks, floats = q8_0(tensors["blk.1.ffn_up_exps.weight"])
    tensors |= {"blk.1.ffn_up_exps.weight": blocks, "blk.1.ffn_up_exps.scale": scales}
    for expert, scale in enumerate(scales):
        name = f"model.layers.1.block_sparse_moe.experts.{expert}.w3.weight"
        wanted[name] = floats[expert] * scale
    path = write_gguf(tmp_path / "m.gguf", made.metadata, tensors)
    assert_equal(read(path), wanted)
    tensors["blk.1.ffn_up_exps.scale"] = scales[:2]
    write_gguf(path, made.metadata, tensors)
    with pytest.raises(oe.FormatError, match="does not contain one float32 for each"):
        oe.open_checkpoint(path)
