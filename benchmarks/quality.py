"""Measure the quality loss of a small language model for each quantization scheme: KL divergence, agreement, size.

    python benchmarks/quality.py                       # trains the model first: some minutes
    python benchmarks/quality.py --model FOLDER --text FILE
    python benchmarks/quality.py --architectures       # the error of logits, of 16 small models

Without --model, the script trains a Llama with 3.7 million parameters on texts that every Python installation has: the
help of pydoc and the sources of the standard library. All schemes are measured on a held-out part. The first row is the
default of ONNX Runtime GenAI's model builder.

With --architectures, the script uses the models in tests/quantize/coverage.py (two layers of width 128, random weights)
and compares the logits of quantized graphs with those of the float graphs.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

import onnx_external as oe

DEFAULT_OF_GENAI = oe.Quantize("int4/32, symmetric, nearest", head="int4")
# Not larger than GenAI's default, because larger blocks do the least harm in the first layers of the MLPs.
SINGLE_WEIGHTS = {
    "*.gate_proj.*": "int4/128",
    "*.up_proj.*": "int4/128",
    "*.embed_tokens.*": "int8/128",
}
SCHEMES: dict[str, Any] = {
    "GenAI's default (head int4)": DEFAULT_OF_GENAI,
    "int4/32, symmetric, nearest": "int4/32, symmetric, nearest",
    "int4/32, zero points, nearest": "int4/32, nearest",
    "int4/32": "int4/32",
    "int4/64, zero points, nearest": "int4, nearest",
    "**int4** (64, zero points, 5 steps)": "int4",
    "int4, gate and up in blocks of 128": oe.Quantize("int4", weights=SINGLE_WEIGHTS),
    "int4/128": "int4/128",
    "int8/32": "int8/32",
    "**int8** (128, symmetric)": "int8",
}
OF_ARCHITECTURES = ("int8", "int4", "int4/32", "int4/32, nearest", "int4/32, symmetric, nearest")
LEVELS = (0, 4)
WORDS = 2048
LENGTH = 256
ROWS = 8


def texts() -> tuple[str, str]:
    """Return a text for training and a text for evaluation."""
    from pydoc_data import topics

    root = Path(sysconfig.get_paths()["stdlib"])
    sources = [each.read_text("utf-8", "ignore") for each in sorted(root.glob("*.py"))]
    parts = [*topics.topics.values(), *sources]
    held = parts[::20]
    return "\n".join(each for each in parts if each not in held), "\n".join(held)


def train(folder: Path, text: str, seconds: float) -> None:
    """Train a Llama and its tokenizer, and save both."""
    import torch
    from tokenizers import ByteLevelBPETokenizer
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(text.splitlines(keepends=True), vocab_size=WORDS)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer)
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=WORDS, hidden_size=256, intermediate_size=768, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
        tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    ids = torch.tensor(tokenizer.encode(text).ids)
    steps = torch.optim.AdamW(model.parameters(), lr=1e-3)
    start, loss, count = time.monotonic(), None, 0
    while loss is None or time.monotonic() - start < seconds:
        places = torch.randint(0, len(ids) - LENGTH, (ROWS,))
        batch = torch.stack([ids[place : place + LENGTH] for place in places])
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        steps.step()
        steps.zero_grad()
        count += 1
    print(f"trained {count} steps of {ROWS * LENGTH} tokens, last loss {float(loss):.3f}")
    model.to(torch.bfloat16).save_pretrained(folder)


def row(name: str, scheme: Any, folder: Path, text: Path, out: Path) -> dict[str, Any]:
    """Measure one scheme."""
    oe.transformers.export(folder, out, quantize=scheme, check=False, progress=False)
    report = oe.validate(out, folder, text=text, max_kl=1e9, progress=False)
    quality = report.graphs[0].quality
    assert quality is not None
    size = sum(each.stat().st_size for each in out.glob("*.onnx_data"))
    return {"scheme": name, "bytes": size, **vars(quality)}


def errors_of_architecture(coverage: Any, name: str, folder: Path) -> dict[tuple[str, int], float]:
    """Return the largest relative error of a model's logits, for each scheme and level."""
    exported, sets = coverage.export(name, folder), folder / "sets"
    oe.validate(exported, folder / "model", dump=sets, progress=False)
    graphs = sorted(exported.glob("*.onnx"))
    errors: dict[tuple[str, int], float] = {}
    for graph in graphs:
        inputs = sets if len(graphs) == 1 else sets / graph.stem
        for scheme in OF_ARCHITECTURES:
            for level in LEVELS:
                how = oe.Quantize(scheme, accuracy_level=level)  # type: ignore[arg-type]
                made = folder / "quantized" / graph.name
                oe.save(graph, made, quantize=how, overwrite=True, fsync=False, progress=False)
                report = oe.validate(made, graph, inputs, max_error=1e9, progress=False)
                quality = report.graphs[0].quality
                if quality is not None and quality.has_logits and quality.error is not None:
                    key = scheme, level
                    errors[key] = max(errors.get(key, 0.0), quality.error)
    return errors


def print_errors(names: list[str], work: Path) -> None:
    """Print the errors of each architecture, and the largest ones."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "quantize"))
    coverage = importlib.import_module("coverage")
    columns = [(scheme, level) for scheme in OF_ARCHITECTURES for level in LEVELS]
    print("| |", " | ".join(f"{scheme}; level {level}" for scheme, level in columns), "|")
    print("|---|" + "---|" * len(columns))
    most: dict[tuple[str, int], float] = {}
    for name in names or coverage.MODELS:
        errors = errors_of_architecture(coverage, name, work / name)
        most = {each: max(most.get(each, 0.0), errors[each]) for each in columns}
        print(f"| {name} |", " | ".join(f"{errors[each]:.2%}" for each in columns), "|", flush=True)
    print("| largest |", " | ".join(f"{most[each]:.2%}" for each in columns), "|")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, help="a folder of transformers with a tokenizer")
    parser.add_argument("--text", type=Path, help="what it was not trained on")
    parser.add_argument("--train", type=float, default=300, metavar="SECONDS")
    parser.add_argument("--characters", type=int, default=40_000, help="of the text")
    parser.add_argument("--architectures", nargs="*", metavar="NAME", help="no name: all")
    parser.add_argument("--json", type=Path, help="write all figures")
    given = parser.parse_args()
    if (given.model is None) != (given.text is None):
        parser.error("--model and --text go together")
    with tempfile.TemporaryDirectory() as temporary:
        work, rows = Path(temporary), []
        if given.architectures is not None:
            print_errors(given.architectures, work)
            return
        folder, text = given.model or work / "model", work / "held-out.txt"
        if given.model is None:
            learned, held = texts()
            train(folder, learned, given.train)
        else:
            held = given.text.read_text("utf-8")
        text.write_text(held[: given.characters], "utf-8")
        for number, (name, scheme) in enumerate(SCHEMES.items()):
            rows.append(row(name, scheme, folder, text, work / f"out{number}"))
        first = rows[0]
        print(f"{first['tokens']} tokens, perplexity in float {first['reference_perplexity']:.2f}")
        print("| scheme | KL, nats | x GenAI's | same best token | perplexity | bytes |")
        print("|---|---|---|---|---|---|")
        for each in rows:
            print(
                f"| {each['scheme']} | {each['kl']:.5f} | {each['kl'] / first['kl']:.2f} | "
                f"{each['agreement']:.2%} | {each['perplexity']:.3f} | {each['bytes']:,} |"
            )
        if given.json:
            given.json.write_text(json.dumps(rows, default=vars, indent=1), "utf-8")


if __name__ == "__main__":
    main()
