"""Makes values for weights. Every copy of a module gets its own, so that outdated weights change the results."""

import torch
from torch import nn

# Buffers with fixed meanings: position tables, masks, rotary frequencies.
FIXED = ("position_ids", "causal_mask", "inv_freq")


def tensors_of(module: nn.Module):
    """Yield (name, tensor) of the state dict, each tensor once."""
    seen = set()
    for name, value in module.state_dict(keep_vars=True).items():
        if id(value) not in seen:
            seen.add(id(value))
            yield name, value


def train(module: nn.Module, seed: int) -> nn.Module:
    """Set all weights to random values like those of a trained model; return the module in eval mode."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in tensors_of(module):
            _fill(name.rsplit(".", 1)[-1], value, generator)
    return module.eval()


def _fill(leaf: str, value: torch.Tensor, generator: torch.Generator) -> None:
    def rand():
        return torch.rand(value.shape, generator=generator)

    if leaf in FIXED or value.numel() == 0:
        return
    if not value.is_floating_point():
        if leaf == "permutation":
            value.copy_(torch.randperm(value.numel(), generator=generator))
        elif value.dtype == torch.int8:
            value.copy_((rand() * 60 - 30).to(torch.int8))
        elif leaf == "num_batches_tracked":
            value.fill_(int(torch.randint(1, 999, (1,), generator=generator)))
        return
    if value.numel() == 1:
        value.copy_((-1 if leaf == "low" else 1) * (0.35 + 0.6 * rand()))
    elif leaf in ("running_var", "std", "scales") or (
        value.dim() == 1 and leaf in ("weight", "gamma", "scale")
    ):
        value.copy_(0.5 + rand())
    else:
        value.copy_(torch.randn(value.shape, generator=generator) * 0.5)


def ties(module: nn.Module) -> list:
    """Return the groups of two or more names that share a tensor."""
    groups = {}
    for name, value in module.state_dict(keep_vars=True).items():
        groups.setdefault(id(value), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def plain_state(module: nn.Module) -> dict:
    """Return the state dict as a plain dict; tied entries share their storage."""
    return dict(module.state_dict())
