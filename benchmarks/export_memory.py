"""Memory and time of an export from a folder, by size of the model: ours, transformers' and torch's.

usage: export_memory.py FOLDER [--sizes 0.1B,0.5B,1B,3B,8B,70B] [--theirs-up-to 1B] [--ways ours,transformers,torch]
                        [--random]

Needs torch, transformers and the installed package. FOLDER gets one Llama after the other, its
weights in bfloat16 in a sparse file, which takes no room on the disk and reads as zeros (or with
--random in one of random bytes). Ours links to it, both others load it and write its weights anew:
transformers' exporter makes the same two graphs, prefill and decode with caches; torch's makes one,
without caches.

A table of Markdown is printed: the largest RssAnon (the process's memory that belongs to no file,
of /proc/self/status), read 50 times a second from after the imports on, and seconds, of the wall
and of the process's threads.  RssAnon alone does not see files that are mapped; ours maps none.
What each step of ours took goes to stderr as JSON.
"""

import argparse
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

# width, feed-forward, layers, heads, heads of keys and values, words
SIZES = {
    "0.1B": (768, 2048, 12, 12, 4, 32_000),
    "0.5B": (1280, 3456, 20, 20, 4, 64_000),
    "1B": (2048, 5632, 20, 16, 8, 64_000),
    "3B": (3072, 8192, 26, 24, 8, 128_256),
    "8B": (4096, 14_336, 32, 32, 8, 128_256),  # Llama 3.1
    "70B": (8192, 28_672, 80, 64, 8, 128_256),  # Llama 3.1
}

BLOCK = 1 << 24  # bytes

OURS = """
import json, sys, time
import onnx_external as oe
import onnx_external.transformers
start, used = time.perf_counter(), time.process_time()
report = oe.transformers.export(sys.argv[1], sys.argv[1], layout="link", progress=False)
print(json.dumps({"seconds": time.perf_counter() - start, "cpu": time.process_time() - used,
                  "memory": report.peak_memory, "graphs": len(report.graphs),
                  "linked": sum(graph.linked_bytes for graph in report.graphs.values()),
                  "verified": all(graph.verified for graph in report.graphs.values()),
                  "steps": report.to_dict()["steps"]}))
"""
LOADED = """
import json, sys, time
import torch, transformers
from onnx_external.torch.meter import Meter
from onnx_external.transformers.inputs import sample_inputs
meter = Meter()
used = time.process_time()
with meter.step("all"):
    model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
    given = sample_inputs(model, True)
    EXPORT
step = meter.steps[0]
print(json.dumps({"seconds": step.seconds, "cpu": time.process_time() - used,
                  "memory": step.peak_memory, "graphs": GRAPHS}))
"""
TRANSFORMERS = """
    from transformers.exporters import OnnxConfig, OnnxExporter
    exported = OnnxExporter().export_for_generation(
        model, given, OnnxConfig(dynamic=True), multi_token_decode=True)
    exported.save_pretrained(sys.argv[1] + "/theirs")
"""
TORCH = """
    model.config.use_cache = False
    vary = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    program = torch.onnx.export(model, (), kwargs=given, dynamo=True, verbose=False,
                                dynamic_shapes=dict.fromkeys(given, vary))
    program.save(sys.argv[1] + "/torch.onnx")
"""
WAYS = {
    "ours": OURS,
    "transformers": LOADED.replace("EXPORT", TRANSFORMERS.strip()).replace("GRAPHS", "2"),
    "torch": LOADED.replace("EXPORT", TORCH.strip()).replace("GRAPHS", "1"),
}


def make(folder: Path, name: str, random: bool) -> int:
    """Write config and weights; returns the number of parameters."""
    import torch
    import transformers

    width, forward, layers, heads, groups, words = SIZES[name]
    config = transformers.LlamaConfig(
        hidden_size=width, intermediate_size=forward, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=groups, vocab_size=words,
        tie_word_embeddings=False, dtype=torch.bfloat16, architectures=["LlamaForCausalLM"],
    )  # fmt: skip
    with torch.device("meta"):
        state = transformers.LlamaForCausalLM(config).state_dict()
    header, end = {}, 0
    for key, value in state.items():
        size = 2 * math.prod(value.shape)
        place = [end, end + size]
        header[key] = {"dtype": "BF16", "shape": list(value.shape), "data_offsets": place}
        end += size
    text = json.dumps(header).encode()
    config.save_pretrained(folder)
    with open(folder / "model.safetensors", "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        if random:
            write_random(out, end)
        out.truncate(8 + len(text) + end)
    return end // 2


def write_random(out: BinaryIO, size: int) -> None:
    """One block of random numbers that are finite in bfloat16, again and again."""
    import torch

    block = torch.randn(BLOCK // 2).to(torch.bfloat16).view(torch.uint8).numpy().tobytes()
    for start in range(0, size, BLOCK):
        out.write(block[: size - start])


def run(program: str, folder: Path) -> dict | None:
    """What the program tells; None if it failed, for want of memory for instance."""
    command = [sys.executable, "-c", program, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(f"exit {done.returncode}: {done.stderr[-2000:]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def cell(found: dict | None) -> str:
    if found is None:
        return "failed"
    times = f"{found['seconds']:.0f} s, {found['cpu']:.0f} s of the CPU"
    return f"{found['memory'] / 2**30:.2f} GiB, {times}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", default="0.1B,0.5B,1B,3B,8B")
    parser.add_argument("--theirs-up-to", default="1B")
    parser.add_argument("--ways", default="ours,transformers,torch")
    parser.add_argument("--random", action="store_true")
    given = parser.parse_args()
    names, ways = list(SIZES), given.ways.split(",")
    print(f"| model | parameters | {' | '.join(ways)} |")
    print("|---|---|" + "---|" * len(ways), flush=True)
    for name in given.sizes.split(","):
        folder = given.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            cells = [f"{make(folder, name, given.random) / 1e9:.2f}e9"]
            small = names.index(name) <= names.index(given.theirs_up_to)
            for way in ways:
                found = run(WAYS[way], folder) if small or way == "ours" else None
                cells.append(cell(found) if small or way == "ours" else "not tried")
                print(name, way, json.dumps(found), file=sys.stderr)
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
