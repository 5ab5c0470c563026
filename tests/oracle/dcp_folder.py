"""Writes distributed checkpoints: every chunk by torch.save, `.metadata` as torch 2.x pickles it.

No torch that Debian has can write them, so the metadata's classes are made here, under the names that
torch gives them; docs/formats.md says where the layout comes from.
"""

import enum
import io
import itertools
import pickle
import sys
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

import torch

NEW = {
    "metadata": "torch.distributed.checkpoint.metadata",
    "properties": "torch.distributed.checkpoint.metadata",
    "encoding": "_MEM_FORMAT_ENCODING",
    "filesystem": "torch.distributed.checkpoint.filesystem",
}
OLD = {  # torch 1.13
    "metadata": "torch.distributed._shard.checkpoint.metadata",
    "properties": "torch.distributed._shard.sharded_tensor.metadata",
    "encoding": "MEM_FORMAT_ENCODING",
    "filesystem": "torch.distributed._shard.checkpoint.filesystem",
}


class Layout:
    def __reduce__(self):
        return get_layout, ("torch.strided",)


def get_layout(name):
    raise AssertionError("nothing is unpickled here")


def plain_class(module: str, name: str):
    """Return an empty class that pickles as module.name, its attributes as a dict."""
    return type(name, (), {"__module__": module})


def make(cls, **attributes):
    made = cls()
    made.__dict__.update(attributes)
    return made


class Names:
    """The classes of one version of torch."""

    def __init__(self, spelling: dict, strides: bool = False):
        metadata, filesystem = spelling["metadata"], spelling["filesystem"]
        self.metadata = plain_class(metadata, "Metadata")
        self.tensor = plain_class(metadata, "TensorStorageMetadata")
        self.bytes = plain_class(metadata, "BytesStorageMetadata")
        self.chunk = plain_class(metadata, "ChunkStorageMetadata")
        self.index = plain_class(metadata, "MetadataIndex")
        self.info = plain_class(filesystem, "_StorageInfo")
        self.properties = plain_class(spelling["properties"], "TensorProperties")
        self.encoding = enum.Enum(
            spelling["encoding"], {"TORCH_CONTIGUOUS_FORMAT": 0}, module=spelling["properties"]
        )
        self.strides = strides
        classes = [self.metadata, self.tensor, self.bytes, self.chunk, self.index, self.info]
        self.modules = {}
        for cls in [*classes, self.properties, self.encoding]:
            module = self.modules.setdefault(cls.__module__, types.ModuleType(cls.__module__))
            setattr(module, cls.__name__, cls)
        serialization = self.modules["torch.serialization"] = types.ModuleType("torch.serialization")
        serialization._get_layout = get_layout
        get_layout.__module__, get_layout.__qualname__ = "torch.serialization", "_get_layout"

    def tensor_properties(self, tensor: torch.Tensor):
        state = (tensor.dtype, Layout(), False, list(self.encoding)[0], False)
        if self.strides:  # newer versions may add the strides
            state += (tuple(tensor.stride()),)
        self.properties.__getstate__ = lambda properties: properties.state
        return make(self.properties, state=state)

    def dump(self, value, protocol: int) -> bytes:
        """Pickles with these classes standing where torch has them."""
        replaced = {name: sys.modules.get(name) for name in self.modules}
        sys.modules.update(self.modules)
        try:
            return pickle.dumps(value, protocol)
        finally:
            for name, module in replaced.items():
                if module is None:
                    del sys.modules[name]
                else:
                    sys.modules[name] = module


# --- cuts: lists of (offsets, sizes) ------------------------------------------------------------


def grid(shape, *counts) -> list:
    """Return the boxes of a mesh: dimension d in counts[d] parts of equal size, the last what is left."""
    steps = [-(-size // count) for size, count in itertools.zip_longest(shape, counts, fillvalue=1)]
    starts = [range(0, size, step) if size else [0] for size, step in zip(shape, steps)]
    return [
        (offset, tuple(min(step, size - o) for o, step, size in zip(offset, steps, shape)))
        for offset in itertools.product(*starts)
    ]


def whole(shape) -> list:
    return [((0,) * len(shape), tuple(shape))]


@dataclass
class Saved:
    """The contents of one folder: a tensor's value and its cut, the objects, where the planner found each."""

    tensors: dict  # name -> tensor
    cuts: dict = field(default_factory=dict)  # name -> boxes; else whole
    objects: dict = field(default_factory=dict)  # name -> anything
    paths: Optional[dict] = None  # planner_data
    ranks: int = 1
    spelling: dict = field(default_factory=lambda: NEW)
    strides: bool = False
    protocol: int = 4
    contiguous: bool = True  # False: a chunk is saved as the view of the whole that it is


def write(folder: Path, saved: Saved) -> Path:
    """Writes the folder; chunk number i of a tensor is rank i's, as after a scatter."""
    folder.mkdir(parents=True)
    names = Names(saved.spelling, saved.strides)
    files = [io.BytesIO() for _ in range(saved.ranks)]
    items, places = {}, {}

    def put(rank: int, value, **index):
        file = files[rank % saved.ranks]
        begin = file.tell()
        torch.save(value, file)
        place = dict(relative_path=f"__{rank % saved.ranks}_0.distcp", offset=begin, length=file.tell() - begin)
        places[make(names.index, **index)] = make(names.info, **place)

    for name, value in saved.objects.items():
        items[name] = make(names.bytes)
        put(0, value, fqn=name, offset=None, index=None)
    for name, value in saved.tensors.items():
        boxes = saved.cuts.get(name) or whole(value.shape)
        chunks = []
        for rank, (offsets, sizes) in enumerate(boxes):
            part = value[tuple(slice(o, o + n) for o, n in zip(offsets, sizes))]
            put(
                rank,
                part.clone(memory_format=torch.contiguous_format) if saved.contiguous else part,
                fqn=name,
                offset=torch.Size(offsets),
                index=rank,
            )
            chunks.append(make(names.chunk, offsets=torch.Size(offsets), sizes=torch.Size(sizes)))
        items[name] = make(
            names.tensor, properties=names.tensor_properties(value), size=value.shape, chunks=chunks
        )
    metadata = make(
        names.metadata,
        state_dict_metadata=items,
        planner_data=saved.paths if saved.paths is not None else {name: (name,) for name in items},
        storage_data=places,
    )
    for rank, file in enumerate(files):
        (folder / f"__{rank}_0.distcp").write_bytes(file.getvalue())
    (folder / ".metadata").write_bytes(names.dump(metadata, saved.protocol))
    return folder
