"""Compare the tokens of int4 decoders with those that torch generates from the dequantized weights.

usage: tokens.py WORK_DIR [NAME...]

The decoders are those of python/tests/generation_cases.py. Each is exported with `quantize="int4"`
at accuracy level 0. The checkpoint then gets the values of the codes, by the keys and recipes that
the manifest records, and transformers' generate() runs it. Exit code 1 if a token differs.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from safetensors.torch import load_file, save_file

import onnx_external as oe

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python" / "tests"))
from generation_cases import ARCHITECTURES, by_ours, rows_of, same_until_the_end, save, wanted


def values_of(parts: dict[str, np.ndarray], record: dict[str, Any]) -> torch.Tensor:
    """Return the values that codes represent, by the rule of docs/quantize.md."""
    scheme, rows, columns = record["scheme"], record["rows"], record["columns"]
    bits, block = scheme["bits"], scheme["block"]
    blocks = -(-columns // block)

    def unpacked(data: np.ndarray) -> np.ndarray:
        data = data.reshape(rows, -1)
        return data if bits == 8 else np.stack([data & 15, data >> 4], -1).reshape(rows, -1)

    codes = unpacked(parts["codes"]).reshape(rows, blocks, block).astype(np.float32)
    zeros: Any = 2 ** (bits - 1)
    if "zero_points" in parts:
        zeros = unpacked(parts["zero_points"])[:, :blocks, None].astype(np.float32)
    scales = parts["scales"].reshape(rows, blocks, 1).astype(np.float32)
    return torch.from_numpy(((codes - zeros) * scales).reshape(rows, -1)[:, :columns].copy())


def places_of(key: Any, places: dict[str, torch.Tensor], derived: dict[str, Any]) -> torch.Tensor:
    """Return the position of each element of a key or a derived tensor among all weights."""
    given = {"key": key} if isinstance(key, str) else key
    if "key" in given:
        name = given["key"]
        found = places[name] if name in places else places_of(derived[name], places, derived)
    else:
        kind = "stack" if "stack" in given else "concat"
        parts = [places_of(each, places, derived) for each in given[kind]]
        found = (torch.stack if kind == "stack" else torch.cat)(parts, given["dim"])
    for step in given.get("recipe", []):
        if step == "transpose":
            found = found.t()
        elif step != "cast":
            ((kind, numbers),) = step.items()
            if kind == "slice":
                dim, start, stop = numbers
                found = found.narrow(dim, start, stop - start)
            else:
                found = getattr(found, kind)(*numbers)
    return found


def dequantize(model: Path, checkpoint: Path) -> int:
    """Write the dequantized values of a model into a checkpoint; return the number of matrices."""
    manifest = json.loads(model.with_suffix(".manifest.json").read_text())
    tensors = {each.name: each for each in onnx.load(model).graph.initializer}
    weights = load_file(checkpoint)
    flat = torch.cat([each.flatten() for each in weights.values()])
    places, start = {}, 0
    for name, each in weights.items():
        places[name] = torch.arange(start, start + each.numel()).reshape(each.shape)
        start += each.numel()
    parts: dict[str, dict[str, np.ndarray]] = {}
    records = [each for each in manifest["tensors"] if "quantize" in each]
    for record in records:
        matrix, _, _ = record["slot"].rpartition(".")
        part = record["quantize"]["part"]
        parts.setdefault(matrix, {})[part] = numpy_helper.to_array(tensors[record["slot"]])
    heads = [each for each in records if each["quantize"]["part"] == "scales"]
    derived = manifest.get("options", {}).get("derived", {})
    for record in heads:
        matrix, _, _ = record["slot"].rpartition(".")
        given = {"key": record["key"], "recipe": record.get("recipe", [])}
        at = places_of(given, places, derived)
        stored = parts[matrix]
        if "codes" not in stored:
            raise SystemExit(f"{record['slot']}: no codes among {sorted(stored)}")
        values = values_of(stored, record["quantize"])
        flat[at.reshape(values.shape)] = values
    made = {name: flat[at].contiguous() for name, at in places.items()}
    save_file(made, checkpoint, metadata={"format": "pt"})
    return len(heads)


def judge(name: str, folder: Path) -> str:
    """Return the difference, or nothing."""
    given, out = folder / "model", folder / "out"
    model = save(name, given)
    how = oe.Quantize("int4/32", accuracy_level=0)
    oe.transformers.export(given, out, quantize=how, overwrite=True, check=False, progress=False)
    count = dequantize(out / "model.onnx", given / "model.safetensors")
    torch_model = type(model).from_pretrained(given).eval()
    rows = rows_of(3, True)
    found, expected = by_ours(out, rows), wanted(torch_model, rows)
    pairs = zip(found, expected, strict=True)
    equal = sum(same_until_the_end([one], [two]) for one, two in pairs)
    changed = wanted(model, rows) != expected
    print(f"{name}: {count} matrices, {equal} of {len(rows)} rows equal", end="")
    print("" if changed else "; the float weights give the same tokens", flush=True)
    return "" if equal == len(rows) else name


def main() -> None:
    """Compare all decoders, and print those that differ."""
    work = Path(sys.argv[1])
    differ = [each for each in sys.argv[2:] or ARCHITECTURES if judge(each, work / each)]
    if differ:
        sys.exit(f"tokens differ: {', '.join(differ)}")


if __name__ == "__main__":
    main()
