"""Measure the cost of rewriting in comparison with a plain export, for a BERT with 12 layers and a small module.

usage: python tests/rewriting/cost.py [--times 3]

Each module has a twin that computes the same without tests on tensors. All are exported in this
process, in turns; the table has the medians of the seconds of the processor, which other programs
on the machine do not change much. Each layer is traced: equal ones are repeated by default, which is
faster, but not where they hold a test.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

import onnx_external as oe

LAYERS = 12


class Clamps(nn.Module):
    """A layer after which large values are clamped, as in BART."""

    def __init__(self, layer: nn.Module, tests: bool) -> None:
        super().__init__()
        self.layer, self.tests = layer, tests

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        found = self.layer(*args, **kwargs)
        states = found[0] if isinstance(found, tuple) else found
        if self.tests:
            if states.abs().max() > 100:
                states = states.clamp(-100, 100)
        else:
            states = states.clamp(-100, 100)
        return (states, *found[1:]) if isinstance(found, tuple) else states


def bert(tests: bool) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=60, hidden_size=32, intermediate_size=64, num_hidden_layers=LAYERS, num_attention_heads=2
    )
    made = BertModel(config).eval()
    made.encoder.layer = nn.ModuleList([Clamps(each, tests) for each in made.encoder.layer])
    return made, {"input_ids": torch.randint(4, 56, (2, 7))}


class Small(nn.Module):
    """A module with five conditions or none."""

    def __init__(self, tests: bool) -> None:
        super().__init__()
        self.parts = nn.ModuleList(Clamps(nn.Linear(8, 8), tests) for _ in range(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for each in self.parts:
            x = each(x)
        return x


def small(tests: bool) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    return Small(tests).eval(), {"x": torch.randn(2, 8)}


def seconds(make: Any, tests: bool) -> float:
    torch.manual_seed(0)
    module, inputs = make(tests)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        report = oe.torch.export(module, (), Path(folder) / "model.onnx", inputs, repeat=False)
        spent = time.process_time() - began
    assert bool(report.rewriting) is tests, report.rewriting
    return spent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=3)
    times = parser.parse_args().times
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print("| module | plain | rewritten | times as long |\n|---|---|---|---|")
    for name, make in (("five tests", small), (f"BERT, a test in each of {LAYERS} layers", bert)):
        seconds(make, False)  # for imports and torch's caches
        spent: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(times):
            for tests in spent:
                spent[tests].append(seconds(make, tests))
        plain, rewritten = (statistics.median(spent[tests]) for tests in (False, True))
        print(f"| {name} | {plain:.1f} s | {rewritten:.1f} s | {rewritten / plain:.1f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
