"""Makes random values for weights, all different, so that outdated or swapped weights change the results."""

import torch
from torch import nn


def fill(module: nn.Module, seed: int) -> None:
    """Changes the weights in place, so that programs made from the module have the new ones; ties stay ties.

    What is no weight keeps its value: tables that init computes (they are no parameter, or need no gradient).
    """
    generator = torch.Generator().manual_seed(seed)
    seen = set()
    with torch.no_grad():
        for name, value in module.state_dict(keep_vars=True).items():
            if id(value) in seen or not value.is_floating_point() or not value.numel():
                continue
            seen.add(id(value))
            noise = torch.randn(value.shape, generator=generator)
            if value.requires_grad:
                value.copy_(_parameter(name, value, noise))
            elif name.endswith("running_mean"):
                value.copy_(0.1 * noise)  # a large one would leave nothing for a rectifier to pass
            elif name.endswith("running_var"):
                value.copy_(0.6 + 0.4 * noise.sigmoid())


def _parameter(name: str, value: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Return a value as training may give it: outputs stay finite, and depend on it."""
    if value.dim() > 1 and name.endswith("weight"):
        fan_in = value[0].numel()
        return noise / fan_in**0.5
    if value.dim() > 1 and float(value.std()) < 0.2:
        return 0.2 * noise
    # Vectors, and tables whose init means something: near one or zero, or what a state space starts with.
    middle = value.mean() if value.numel() > 1 and float(value.std()) < 1e-6 else value
    return 0.8 * middle.round() + 0.1 * noise
