"""Tests that an export leaves nothing behind, except for what the docs list of other packages."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", minversion="2.11")
pytest.importorskip("transformers", minversion="5.20")
pytest.importorskip("onnxscript")

DOCS = Path(__file__).resolve().parents[3] / "docs/python-export.md"

SCRIPT = """
import logging, os, signal, sys, threading, warnings
from pathlib import Path

import huggingface_hub.constants, torch, torch.onnx, tqdm, transformers
from transformers import dynamic_module_utils
from transformers.exporters import exporter_dynamo, exporter_onnx, utils
from transformers.integrations import hub_kernels
import onnx_external as oe
import onnx_external.transformers

def loggers():
    yield "root", logging.getLogger()
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger):
            yield name, logger

def state():
    nodes = torch.utils._pytree.SUPPORTED_NODES
    return {
        "pytree": {each for each in nodes if not each.__module__.startswith("transformers.")},
        "handlers": {(name, str(h)) for name, each in loggers() for h in each.handlers},
        "levels": {name: each.level for name, each in loggers() if each.level},
        "threads": {each.name for each in threading.enumerate()},
        "warnings": [str(each) for each in warnings.filters],
        "environment": dict(os.environ),
        "signals": [signal.getsignal(each) for each in (signal.SIGALRM, signal.SIGINT)],
        "transformers": (
            transformers.logging.get_verbosity(), transformers.logging.is_progress_bar_enabled(),
            dynamic_module_utils.TIME_OUT_REMOTE_CODE, hub_kernels.get_kernel),
        "hub": huggingface_hub.constants.HF_HUB_OFFLINE,
        "tqdm": tqdm.tqdm.monitor_interval,
        "torch": (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_default_device(),
                  torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()),
        "modules": dict(vars(torch.nn.Module)),
        "functions": dict(vars(torch.nn.functional)),
        "tensors": {name: value for name, value in vars(torch.Tensor).items()
                    if value is not getattr(torch._C.TensorBase, name, None)},
        "streams": (sys.stdin, sys.stdout, sys.stderr, sys.excepthook),
        "path": list(sys.path),
        "files": sorted(map(str, Path(".").rglob("*"))),
    }

sizes = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
             num_attention_heads=4, max_position_embeddings=64)
transformers.logging.disable_progress_bar()  # otherwise save_pretrained() would start tqdm's thread
transformers.BertForMaskedLM(transformers.BertConfig(**sizes)).save_pretrained("bert")
transformers.logging.enable_progress_bar()
linear, given = torch.nn.Linear(4, 4), (torch.ones(2, 4),)
weights = linear.state_dict()

class Fails(torch.nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x

def trial(run):
    try:
        run()
    except oe.Error as error:
        return type(error).__name__
    return "done"

trials = {
    "a folder": lambda: oe.transformers.export("bert", "o", dry_run=True, progress=True),
    "a task": lambda: oe.transformers.export("bert", "o", task="text-classification"),
    "no class": lambda: oe.transformers.export("bert", "o", task="BertTokenizer"),
    "inputs": lambda: oe.transformers.export("bert", "o", inputs={"x": torch.ones(1)}),
    "a module": lambda: oe.torch.skeleton(linear, given),
    "a module that fails": lambda: oe.torch.skeleton(Fails(), given),
}
before, nodes, methods = state(), {*torch.utils._pytree.SUPPORTED_NODES}, {*vars(torch.Tensor)}
print([trial(run) for run in trials.values()])
after = state()
for what, value in before.items():
    if after[what] != value:
        print("LEFT", what, value if len(str(value)) < 999 else "", "->", str(after[what])[:999])
if nodes < set(torch.utils._pytree.SUPPORTED_NODES):
    print("STAYS pytree")
if methods < set(vars(torch.Tensor)):
    print("STAYS torch.Tensor")
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    line = [sys.executable, "-c", SCRIPT]
    folder = tmp_path_factory.mktemp("exports")
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_after_an_export_everything_is_as_it_was(printed: list[str]) -> None:
    first, *left = printed
    assert first == str(
        [
            "done",
            "MappingError",
            "InvalidArgumentError",
            "InvalidArgumentError",
            "done",
            "TraceError",
        ]
    )
    assert not [line for line in left if line.startswith("LEFT")]


def test_the_docs_list_what_torch_and_transformers_leave(printed: list[str]) -> None:
    text = DOCS.read_text().split("## What stays behind")[1].split("\n## ")[0]
    stays = [line.removeprefix("STAYS ") for line in printed if line.startswith("STAYS")]
    assert stays == ["pytree", "torch.Tensor"]
    assert "Two changes stay." in text
    assert all(name in text for name in (*stays, "transformers.exporters"))
