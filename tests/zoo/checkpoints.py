"""Writes the weights of a model in common forms: a folder of shards, a torch file, a distributed checkpoint."""

from pathlib import Path

import torch
import torch.distributed.checkpoint as distributed
from torch import nn
from transformers.core_model_loading import revert_weight_conversion

from programs import quiet


def folder(module: nn.Module, path: Path) -> Path:
    """Save like transformers, which spells the keys of some architectures as in earlier versions."""
    return _shards(module, path)


def own_folder(module: nn.Module, path: Path) -> Path | None:
    """Save with the module's own keys; return None if folder() does the same."""
    with quiet():
        original = revert_weight_conversion(module, module.state_dict())
    if original.keys() == module.state_dict().keys():
        return None
    return _shards(module, path, save_original_format=False)


def _shards(module: nn.Module, path: Path, **settings) -> Path:
    with quiet():
        module.save_pretrained(path, max_shard_size="20KB", **settings)
    return path


def torch_file(module: nn.Module, path: Path) -> Path:
    path = path.with_suffix(".bin")
    torch.save(module.state_dict(), path)
    return path


def distributed_folder(module: nn.Module, path: Path) -> Path:
    writer = distributed.FileSystemWriter(path)
    with quiet():
        distributed.save({"model": module.state_dict()}, storage_writer=writer, no_dist=True)
    return path


KINDS = {"folder": folder, "own folder": own_folder, "bin": torch_file, "dcp": distributed_folder}
