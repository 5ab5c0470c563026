"""Measure the memory and time of exports from a folder by model size, for this package and others.

usage: export_memory.py FOLDER [--sizes 0.1B,0.5B,1B,3B,8B,70B] [--copies-up-to 1B] [--random]
                        [--ways link,single,transformers,torch,optimum,genai] [--python PYTHON]

Needs torch, transformers and the installed package. The script writes one Llama after the other into FOLDER. Its
bfloat16 weights are in a sparse file, which takes no space on the disk and is read as zeros, or with --random in a file
of random bytes. `link` and `single` stand for oe.transformers.export with these layouts; their models are then verified
against the checkpoint. The other ways load the model and write its weights again. The exporter of transformers makes
the same two graphs (prefill, and decode with caches), and that of torch makes one graph without caches. `optimum` (in
float32, because bfloat16 fails) and `genai`, the builder of onnxruntime-genai, make one graph each, and are only tried
on request. PYTHON may be an interpreter of another environment that has them. All ways except `link` write the weights,
so they are tried up to the size in --copies-up-to.

The Markdown table shows the largest RssAnon (memory that does not belong to a file) and the largest resident size
(which includes mapped files), read 50 times per second after the imports from /proc/self/status. It also shows wall and
CPU seconds, which include the verification for this package, and the bytes written. The cost of each step of this
package is printed to stderr as JSON.
"""

import argparse
import json
import math
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

# width, feed-forward size, layers, heads, key/value heads, vocabulary size
SIZES = {
    "0.1B": (768, 2048, 12, 12, 4, 32_000),
    "0.5B": (1280, 3456, 20, 20, 4, 64_000),
    "1B": (2048, 5632, 20, 16, 8, 64_000),
    "3B": (3072, 8192, 26, 24, 8, 128_256),
    "8B": (4096, 14_336, 32, 32, 8, 128_256),  # Llama 3.1
    "70B": (8192, 28_672, 80, 64, 8, 128_256),  # Llama 3.1
}

LLAMA_3_1 = dict(
    rope_type="llama3", rope_theta=500_000.0, factor=8.0, low_freq_factor=1.0,
    high_freq_factor=4.0, original_max_position_embeddings=8192,
)  # fmt: skip

BLOCK = 1 << 24  # bytes
Exporter = Callable[[str, Path], dict | None]

# --- one way each: imports, then a function that exports `folder` into `out` -----------------


def link() -> Exporter:
    return ours("link")


def single() -> Exporter:
    return ours("single")


def ours(layout: str) -> Exporter:
    import onnx_external.transformers
    from onnx_external._base.meter import Meter

    def export(folder: str, out: Path) -> dict:
        target = folder if layout == "link" else out
        report = oe.transformers.export(folder, target, layout=layout, graphs="two", progress=False)
        meter = Meter()
        with meter.step("verify against the checkpoint"):
            for name, graph in report.graphs.items():
                found = oe.verify(Path(target, f"{name}.onnx"), against=folder)
                weights = sum(tensor.key is not None for tensor in graph.tensors)
                compared = found.linked if layout == "link" else found.compared
                assert found.ok and compared >= weights > 100, found
        steps = [vars(step) for step in report.steps + meter.steps]
        saved = {"bytes": report.save.bytes, "linked": report.save.linked_bytes}
        return {"graphs": len(report.graphs), "steps": steps, **saved}

    oe = onnx_external
    return export


def loaded(folder: str) -> tuple:
    from onnx_external.transformers._inputs import sample_inputs
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    return model, sample_inputs(model, ("input_ids", "attention_mask"))


def transformers() -> Exporter:
    import onnx_external.transformers
    from transformers.exporters import OnnxConfig, OnnxExporter

    def export(folder: str, out: Path) -> None:
        model, given = loaded(folder)
        settings = OnnxConfig(dynamic=True)
        exported = OnnxExporter().export_for_generation(
            model, given, settings, multi_token_decode=True
        )
        exported.save_pretrained(out)

    return export


def torch() -> Exporter:
    import onnx_external.transformers
    import torch

    def export(folder: str, out: Path) -> None:
        model, given = loaded(folder)
        model.config.use_cache = False
        vary = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
        shapes = dict.fromkeys(given, vary)
        program = torch.onnx.export(
            model, (), kwargs=given, dynamo=True, verbose=False, dynamic_shapes=shapes
        )
        out.mkdir()
        program.save(out / "model.onnx")

    return export


def optimum() -> Exporter:
    from optimum.exporters.onnx import main_export

    task = "text-generation-with-past"
    return lambda folder, out: main_export(
        folder, out, task=task, dtype="fp32", do_validation=False
    )


def genai() -> Exporter:
    from onnxruntime_genai.models import builder

    def export(folder: str, out: Path) -> None:
        common = ("", folder, str(out), "bf16", "cpu", folder + "/cache")
        builder.create_model(*common, **builder.parse_extra_options(*common, []))

    return export


WAYS = {way.__name__: way for way in (link, single, transformers, torch, optimum, genai)}


def one(way: str, folder: str) -> None:
    """Export in this process, and print time and memory."""
    from onnx_external._base.meter import Meter

    export, out, meter, used = WAYS[way](), Path(folder, "out"), Meter(), time.process_time()
    with meter.step("all"):
        more = export(folder, out)
    written = sum(each.stat().st_size for each in out.rglob("*.onnx*"))
    found = {"bytes": written, "graphs": len(list(out.glob("*.onnx"))), **(more or {})}
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    cpu = time.process_time() - used
    memory, seconds = meter.steps[0].peak_memory, meter.steps[0].seconds
    times = {"seconds": seconds, "cpu": cpu, "memory": memory, "resident": resident}
    print(json.dumps({**found, **times}))


# --- the models ----------------------------------------------------------------------------------


def make(folder: Path, name: str, random: bool) -> int:
    """Write config and weights; return the number of parameters."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models

    width, forward, layers, heads, groups, words = SIZES[name]
    more = dict(rope_parameters=LLAMA_3_1, max_position_embeddings=131_072, rms_norm_eps=1e-5)
    config = transformers.LlamaConfig(
        hidden_size=width, intermediate_size=forward, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=groups, vocab_size=words,
        tie_word_embeddings=False, dtype=torch.bfloat16, architectures=["LlamaForCausalLM"],
        **(more if name in ("8B", "70B") else {}),
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
    text += b" " * (-len(text) % 8)  # as in safetensors, because models refer only to aligned data
    config.save_pretrained(folder)
    with open(folder / "model.safetensors", "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        if random:
            write_random(out, end)
        out.truncate(8 + len(text) + end)
    words = models.WordLevel({"<unk>": 0, "<s>": 1, "</s>": 2}, unk_token="<unk>")
    marks = dict(unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), **marks)
    tokenizer.save_pretrained(folder)  # genai's builder needs one
    return end // 2


def write_random(out: BinaryIO, size: int) -> None:
    """Write a block of random values that are finite in bfloat16 repeatedly."""
    import torch

    block = torch.randn(BLOCK // 2).to(torch.bfloat16).view(torch.uint8).numpy().tobytes()
    for start in range(0, size, BLOCK):
        out.write(block[: size - start])


def run(python: str, way: str, folder: Path) -> dict | None:
    """Return the program's result, or None if it failed, for example because memory ran out."""
    command = [python, __file__, str(folder), "--one", way]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(f"exit {done.returncode}: {done.stderr[-2000:]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def row(name: str, parameters: int, way: str, found: dict | None) -> str:
    start = f"| {name} | {parameters / 1e9:.2f}e9 | {way} "
    if found is None:
        return f"{start}| failed | | | | | |"
    memory = f"{found['memory'] / 2**30:.2f} | {found['resident'] / 2**30:.2f}"
    written = found["bytes"] / 1e9
    times = f"{found['seconds']:.0f} | {found['cpu']:.0f}"
    return f"{start}| {found['graphs']} | {memory} | {times} | {written:.2f} |"


def measure(name: str, folder: Path, ways: list[str], given: argparse.Namespace) -> None:
    parameters = make(folder, name, given.random)
    made = set(folder.iterdir())
    for way in ways:
        found = run(given.python, way, folder)
        print(name, way, json.dumps(found), file=sys.stderr, flush=True)
        print(row(name, parameters, way, found), flush=True)
        for each in set(folder.iterdir()) - made:
            shutil.rmtree(each) if each.is_dir() else each.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", default="0.1B,0.5B,1B,3B,8B")
    parser.add_argument("--copies-up-to", default="1B")
    parser.add_argument("--ways", default="link,single,transformers,torch")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--random", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        one(given.one, str(given.folder))
        return
    names = list(SIZES)
    columns = ["model", "parameters", "way", "graphs", "RssAnon, GiB", "resident, GiB", "seconds"]
    columns += ["of the CPU", "GB written"]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|", flush=True)
    for name in given.sizes.split(","):
        folder = given.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        small = names.index(name) <= names.index(given.copies_up_to)
        ways = [way for way in given.ways.split(",") if small or way == "link"]
        try:
            measure(name, folder, ways, given)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
