"""Measure how fast exported decoders generate, in comparison with graphs from onnxruntime-genai's model builder.

    python benchmarks/decode.py FOLDER                       # a Llama of 31 million parameters
    python benchmarks/decode.py FOLDER --model medium --int4 # one of 250 million, in 4 bits
    python benchmarks/decode.py FOLDER --genai               # by onnxruntime-genai as well

The models are made from configs, with random weights. Each model is exported once for each form of attention, and once
by the builder. With --int4, all graphs have the same quantization (blocks of 32, symmetric, including the head,
accuracy level 4). All variants run in one process and take turns, so that other work on the machine affects them
equally. The order of turns is random, and no variant takes two turns in succession, because it would find its weights
in the processor's caches, which makes a small model 5 to 10 % faster. Tokens per second are medians over all rounds and
runs. The ratio to the builder is the median of the ratios of all runs, because a shared machine is faster in some runs
than in others. A graph with GroupQueryAttention uses one buffer for past and present caches, like the builder's graph.
With one thread, processor time is measured, which is reliable even if other programs are running. With more threads,
wall time is measured.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import onnx_external as oe

MODELS: dict[str, dict[str, int]] = {
    "tiny": dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=256),
    "small": dict(hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=2, vocab_size=8000),
    "medium": dict(hidden_size=1024, intermediate_size=3072, num_hidden_layers=18, num_attention_heads=16, num_key_value_heads=4, vocab_size=16000),
}
FORMS = ("traced", "fused", "lengths")
BUILDER = "builder"
INT4 = oe.Quantize("int4/32, symmetric, nearest", head="int4")
INT4_OF_BUILDER = ("int4_block_size=32", "int4_is_symmetric=true", "int4_accuracy_level=4")
LONGEST = 8192
MORE = 512
"""Tokens for which a shared buffer has room behind the prompt."""
STEPS = 4
"""Steps that one variant takes before the next one does."""


def make_model(folder: Path, name: str) -> None:
    """Make a Llama with random weights, and a tokenizer for the builder to copy."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    if (folder / "config.json").exists():
        return
    torch.manual_seed(0)
    special = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
    config = LlamaConfig(**MODELS[name], max_position_embeddings=LONGEST, tie_word_embeddings=False, **special)
    LlamaForCausalLM(config).save_pretrained(folder)
    words = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, **{f"w{i}": i for i in range(4, config.vocab_size)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>").save_pretrained(folder)


def export(source: Path, target: Path, form: str, int4: bool) -> None:
    """Export a model with one form of attention."""
    options: dict[str, Any] = {"quantize": INT4} if int4 else {}
    start = time.process_time()
    oe.transformers.export(source, target, overwrite=True, check=False, progress=False, attention=form, **options)
    print(f"{form}: exported in {time.process_time() - start:.1f} s of the processor", file=sys.stderr)


def build(source: Path, target: Path, int4: bool, cache: Path) -> None:
    """Create a graph with onnxruntime-genai's builder."""
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", source, "-o", target, "-e", "cpu", "-c", cache, "-p", "int4" if int4 else "fp32"]
    more = ["--extra_options", *INT4_OF_BUILDER] if int4 else []
    subprocess.run([*map(str, command), *more], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Plain:
    """A graph on ONNX Runtime with I/O binding, for one sequence."""

    def __init__(self, folder: Path, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        path = folder / "model.onnx"
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.given = {each.name: each for each in self.session.get_inputs()}
        self.made = [each.name for each in self.session.get_outputs()]
        self.past = [name for name in self.given if name.startswith("past_key_values.")]
        graph = onnx.load(path, load_external_data=False).graph
        self.shares = any(node.op_type == "GroupQueryAttention" for node in graph.node)
        self.nodes = len(graph.node)
        self.size = json.loads((folder / "genai_config.json").read_text())["model"]["decoder"]["head_size"]

    def prompt(self, tokens: np.ndarray) -> None:
        """Read a prompt."""
        self.total = 0
        room = tokens.shape[1] + MORE if self.shares else 0
        self.cache = {}
        for name in self.past:
            heads = self.given[name].shape[1]
            kind = np.float16 if "float16" in self.given[name].type else np.float32
            self.cache[name] = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((1, heads, room, self.size), kind))
        self._run(tokens)

    def step(self) -> None:
        """Generate a token."""
        self._run(self.logits[:, -1].argmax(-1)[:, None].astype(np.int64))

    def _run(self, tokens: np.ndarray) -> None:
        before, self.total = self.total, self.total + tokens.shape[1]
        feed = {
            "input_ids": tokens,
            "attention_mask": np.ones((1, self.total), np.int64),
            "position_ids": np.arange(before, self.total, dtype=np.int64)[None],
        }
        binding = self.session.io_binding()
        held = {name: onnxruntime.OrtValue.ortvalue_from_numpy(each) for name, each in feed.items() if name in self.given}
        for name, value in {**held, **self.cache}.items():
            binding.bind_ortvalue_input(name, value)
        for name in self.made:
            past = name.replace("present.", "past_key_values.")
            if self.shares and past in self.cache:
                binding.bind_ortvalue_output(name, self.cache[past])
            else:
                binding.bind_output(name, "cpu")
        self.session.run_with_iobinding(binding)
        found = dict(zip(self.made, binding.get_outputs(), strict=True))
        if not self.shares:
            self.cache = {name: found[name.replace("past_key_values.", "present.")] for name in self.past}
        self.logits = found["logits"].numpy()


class Genai:
    """A folder with genai_config.json on onnxruntime-genai."""

    def __init__(self, folder: Path, threads: int) -> None:
        import onnxruntime_genai

        self.genai = onnxruntime_genai
        config = onnxruntime_genai.Config(str(folder))
        config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}))
        self.model = onnxruntime_genai.Model(config)
        self.nodes = len(onnx.load(folder / "model.onnx", load_external_data=False).graph.node)

    def prompt(self, tokens: np.ndarray) -> None:
        """Read a prompt."""
        length = tokens.shape[1] + MORE
        options = self.genai.GeneratorParams(self.model)
        options.set_search_options(max_length=length, min_length=length, batch_size=1)
        self.generator = self.genai.Generator(self.model, options)
        self.generator.append_tokens(tokens.astype(np.int32))
        self.generator.generate_next_token()

    def step(self) -> None:
        """Generate a token."""
        self.generator.generate_next_token()


Runner = Plain | Genai


def open_order(folders: dict[str, Path], genai: bool) -> list[str]:
    """Return the names of the variants. Those for onnxruntime-genai come last."""
    return [*folders, *(f"{name}, genai" for name in folders if genai and name != "traced")]


def open_runners(folders: dict[str, Path], threads: int, genai: bool, chance: random.Random) -> dict[str, Runner]:
    """Load every variant. The position of weights in memory changes the speed by 5 %, so each run loads all variants
    again.
    """
    names = open_order(folders, genai)
    chance.shuffle(names)
    return {name: (Genai if name.endswith(", genai") else Plain)(folders[name.removesuffix(", genai")], threads) for name in names}


def take_turns(names: list[str], rounds: int, chance: random.Random) -> Iterator[str]:
    """Yield the names in a random order in each round, without repeating a name in succession."""
    last = ""
    for _ in range(rounds):
        order = chance.sample(names, len(names))
        if order[0] == last:
            order.reverse()
        last = order[-1]
        yield from order


def measure(runners: dict[str, Runner], length: int, rounds: int, words: int, clock: Callable[[], float], chance: random.Random) -> Iterator[tuple[str, float, list[float]]]:
    """Yield, for each variant, the time of a prompt and of the steps after it."""
    tokens = np.random.default_rng(0).integers(4, words, (1, length)).astype(np.int64)
    prompts: dict[str, float] = {}
    steps: dict[str, list[float]] = {name: [] for name in runners}
    for name, each in runners.items():
        start = clock()
        each.prompt(tokens)
        prompts[name] = clock() - start
        each.step()
    for name in take_turns(list(runners), rounds, chance):
        runners[name].step()  # fills the processor's caches
        for _ in range(STEPS):
            start = clock()
            runners[name].step()
            steps[name].append(clock() - start)
    for name in runners:
        yield name, prompts[name], steps[name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", choices=MODELS, default="small")
    parser.add_argument("--int4", action="store_true")
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--contexts", default="128,1500,4000")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--genai", action="store_true", help="by onnxruntime-genai as well")
    parser.add_argument("--no-builder", action="store_true", help="without onnxruntime-genai's builder; ratios are to the first form")
    given = parser.parse_args()
    source = given.folder / given.model
    make_model(source, given.model)
    kind = "int4" if given.int4 else "float32"
    folders = {name: given.folder / f"{given.model}-{kind}-{name}" for name in given.forms.split(",")}
    for form, target in folders.items():
        if not (target / "model.onnx").exists():
            export(source, target, form, given.int4)
    if not given.no_builder:
        folders[BUILDER] = given.folder / f"{given.model}-{kind}-{BUILDER}"
        if not (folders[BUILDER] / "model.onnx").exists():
            build(source, folders[BUILDER], given.int4, given.folder / "cache")
    clock = time.process_time if given.threads == 1 else time.perf_counter
    contexts = [int(each) for each in given.contexts.split(",")]
    found: dict[tuple[str, int], tuple[list[float], list[list[float]]]] = {}
    chance = random.Random(0)
    runners: dict[str, Runner] = {}
    for _ in range(given.runs):
        runners.clear()  # frees the memory of the last run first
        runners = open_runners(folders, given.threads, given.genai, chance)
        for length in contexts:
            for name, prompt, steps in measure(runners, length, given.rounds, MODELS[given.model]["vocab_size"], clock, chance):
                prompts, all_steps = found.setdefault((name, length), ([], []))
                prompts.append(prompt)
                all_steps.append(steps)
    print(f"{given.model}, {kind}, {given.threads} threads, {given.runs} runs of {given.rounds} rounds, ONNX Runtime {onnxruntime.__version__}\n")
    heads = [f"{length} tokens" for length in contexts]
    print(f"| | nodes | {' | '.join(heads)} | prompt of {contexts[-1]}, s |\n|---{'|---' * (len(contexts) + 2)}|")
    for name in open_order(folders, given.genai):
        each = runners[name]
        base = list(folders)[-1] if not given.no_builder else next(iter(folders))
        base = f"{base}, genai" if name.endswith("genai") else base
        cells = []
        for length in contexts:
            own, its = (found[which, length][1] for which in (name, base))
            ratio = statistics.median(statistics.median(b) / statistics.median(a) for a, b in zip(own, its, strict=True))
            cells.append(f"{1 / statistics.median(itertools.chain(*own)):.0f} ({ratio:.2f})")
        own, its = (statistics.median(found[which, contexts[-1]][0]) for which in (name, base))
        print(f"| {name} | {each.nodes} | {' | '.join(cells)} | {own:.2f} ({own / its:.2f}) |")


if __name__ == "__main__":
    main()
