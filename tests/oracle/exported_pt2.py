"""Writes what torch.export.save of torch 2 writes, from a dict of tensors: the flat archive of 2.1 to 2.7,
the first PT2 archives, and today's PT2 archive (torch/export/pt2_archive/_package.py, serde/schema.py)."""

import io
import json
import zipfile

import torch

import modern_pt
import support

SCALAR_TYPES = {
    "uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float16": 6, "float32": 7, "float64": 8,
    "complex64": 10, "complex128": 11, "bool": 12, "bfloat16": 13,
}  # fmt: skip
STRIDED = 7


def saved(value) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def write_flat(path, state: dict, constants: dict, suffix: str = ".pt", inputs=((torch.ones(2),), {})) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("serialized_exported_program.json", b"{}")
        archive.writestr("serialized_state_dict" + suffix, saved(state))
        archive.writestr("serialized_constants" + suffix, saved(constants))
        archive.writestr("serialized_example_inputs.pt", saved(inputs))
        archive.writestr("version", "8.2")
        archive.writestr("extra_files/note.txt", "hello")


def storage_bytes(value: torch.Tensor) -> bytes:
    return bytes(value.detach().storage().untyped())


def sym_ints(values) -> list:
    return [{"as_int": int(value)} for value in values]


def tensor_meta(value: torch.Tensor) -> dict:
    return {
        "dtype": SCALAR_TYPES[support.short_dtype(value)],
        "sizes": sym_ints(value.shape),
        "requires_grad": value.requires_grad,
        "device": {"type": "cpu", "index": None},
        "strides": sym_ints(value.stride()),
        "storage_offset": {"as_int": value.storage_offset()},
        "layout": STRIDED,
    }


def payload_config(tensors: dict, folder: str, prefix: str, records: list) -> bytes:
    """Adds one record for each storage; the config of the tensors that view them."""
    config, known = {}, {}
    for name, value in tensors.items():
        place = value.storage().data_ptr()
        if place not in known:
            known[place] = f"{prefix}{len(known)}"
            records.append((f"{folder}/{known[place]}", storage_bytes(value)))
        config[name] = {
            "path_name": known[place],
            "is_param": isinstance(value, torch.nn.Parameter),
            "use_pickle": False,
            "tensor_meta": tensor_meta(value),
        }
    return json.dumps({"config": config}).encode()


def write_archive(path, programs: dict, old: bool = False) -> None:
    """programs: name -> (state dict, constants); old: each dict as one torch.save file."""
    records = []
    for name, (state, constants) in programs.items():
        if old:
            records.append((f"data/weights/{name}.pt", saved(state)))
            records.append((f"data/constants/{name}.pt", saved(constants)))
        else:
            weights = payload_config(state, "data/weights", f"weight_{name}_", records)
            records.append((f"data/weights/{name}_weights_config.json", weights))
            others = payload_config(constants, "data/constants", f"tensor_{name}_", records)
            records.append((f"data/constants/{name}_constants_config.json", others))
        records.append((f"models/{name}.json", b"{}"))
        records.append((f"data/sample_inputs/{name}.pt", saved(torch.ones(1))))
    records += [("archive_format", b"pt2"), ("archive_version", b"0"), ("byteorder", b"little")]
    with open(path, "wb") as file:
        archive = modern_pt.TorchZip(file)
        for name, data in records:
            archive.record(name, data)
        archive.record(".data/version", b"6\n")
        archive.close()
