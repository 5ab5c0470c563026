"""Measure the memory of oe.diagnose for a Llama with weights that should not be in memory all at once.

usage: diagnose_memory.py FOLDER [--layers 32] [--hidden 1536] [--words 32000] [--graph model]

The model is written into FOLDER layer by layer, with random float32 weights, and exported by oe.transformers.export
with the layout `link`. Then another process runs oe.diagnose on one graph. After its imports, the largest RssAnon
(memory that does not belong to a file) and RSS (which includes mapped files) of the process and its children are read
50 times per second from /proc/PID/status. The Markdown table shows these, the memory after the imports, the seconds,
and the largest size of temporary files. It also shows the size of all weights, the size of the largest piece (a layer,
the embedding, lm_head), and the limit, which is the largest piece plus 512 MiB. The exit code is 1 if the limit is
exceeded, or if the correct graph is reported as wrong.

Needs torch, transformers, onnx, onnxruntime, safetensors and the package. Linux.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ALLOWED = 512 << 20  # beyond the largest piece


def make(folder: Path, layers: int, hidden: int, words: int) -> dict[str, int]:
    """Write the model; return the sizes of its largest piece and of all weights."""
    import torch
    import transformers
    from safetensors.torch import save_file

    config = transformers.LlamaConfig(
        hidden_size=hidden, intermediate_size=hidden * 8 // 3, num_hidden_layers=layers,
        num_attention_heads=hidden // 64, num_key_value_heads=hidden // 64, vocab_size=words,
        tie_word_embeddings=False, dtype=torch.float32, architectures=["LlamaForCausalLM"],
    )  # fmt: skip
    config.save_pretrained(folder)
    with torch.device("meta"):
        shapes = {n: v.shape for n, v in transformers.LlamaForCausalLM(config).state_dict().items()}
    pieces: dict[str, list[str]] = {}
    for name in shapes:
        parts = name.split(".")
        piece = ".".join(parts[:3] if parts[1] == "layers" else parts[:-1])
        pieces.setdefault(piece, []).append(name)
    places, sizes = {}, {}
    for piece, names in pieces.items():
        tensors = {}
        for name in names:
            value = torch.randn(shapes[name])
            tensors[name] = value / hidden**0.5 if value.dim() > 1 else 1 + 0.1 * value
        sizes[piece] = sum(4 * value.numel() for value in tensors.values())
        save_file(tensors, folder / f"{piece}.safetensors", {"format": "pt"})
        places |= dict.fromkeys(names, f"{piece}.safetensors")
    total = sum(sizes.values())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return {"largest": max(sizes.values()), "total": total}


def work(folder: str, graph: str) -> None:
    """Export unless there is a graph, then diagnose when the parent process gives the signal."""
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401
    import torch
    import transformers  # noqa: F401

    import onnx_external as oe
    import onnx_external.transformers
    from onnx_external._diagnosis import diagnosing  # noqa: F401

    if graph == "export":
        oe.transformers.export(folder, folder, layout="link", progress=False)
        return
    torch.set_num_threads(2)
    print("ready", flush=True)
    sys.stdin.readline()
    start = time.monotonic()
    report = oe.diagnose(f"{folder}/{graph}.onnx", folder)
    seconds = time.monotonic() - start
    found = {"ok": report.ok, "sentence": report.sentence, "seconds": seconds}
    print(json.dumps(found), flush=True)


def tree(process: int) -> list[int]:
    """Return a process and its children."""
    found = [process]
    for each in found:
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                found += map(int, task.read_text().split())
            except OSError:
                pass
    return found


def memory(process: int) -> tuple[int, int]:
    """Return RssAnon and RSS."""
    anonymous = resident = 0
    for each in tree(process):
        try:
            lines = Path(f"/proc/{each}/status").read_text().splitlines()
        except OSError:
            continue
        found = dict(line.split(":", 1) for line in lines)
        anonymous += int(found.get("RssAnon", "0 kB").split()[0]) << 10
        resident += int(found.get("VmRSS", "0 kB").split()[0]) << 10
    return anonymous, resident


def room(folder: Path) -> int:
    found = 0
    for path in folder.rglob("*"):
        try:
            found += path.stat().st_blocks * 512
        except OSError:
            pass
    return found


def measure(folder: Path, graph: str) -> dict:
    temporary = folder / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, __file__, str(folder), "--work", graph],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(temporary), "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert process.stdout is not None and process.stdin is not None
    if process.stdout.readline() != "ready\n":
        raise RuntimeError("the process ended before it began")
    before = memory(process.pid)
    peaks, disk, number = list(before), 0, 0
    process.stdin.write("\n")
    process.stdin.flush()
    while process.poll() is None:
        peaks = [max(each) for each in zip(peaks, memory(process.pid), strict=True)]
        if number % 50 == 0:
            disk = max(disk, room(temporary))
        number += 1
        time.sleep(0.02)
    lines = process.stdout.read().splitlines()
    if process.returncode or not lines:
        raise RuntimeError(f"exit {process.returncode}")
    found = {"before": before, "anonymous": peaks[0], "resident": peaks[1], "disk": disk}
    return found | json.loads(lines[-1])


def mib(size: int) -> str:
    return f"{size / 2**20:,.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="is made, and removed at the end")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=1536)
    parser.add_argument("--words", type=int, default=32_000)
    parser.add_argument("--graph", default="model")
    parser.add_argument("--keep", action="store_true", help="use, and leave, the folder's model")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    folder = given.folder.resolve()
    if given.work:
        work(str(folder), given.work)
        return 0
    sizes_file = folder / "sizes.json"
    if not (given.keep and sizes_file.exists()):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        sizes = make(folder, given.layers, given.hidden, given.words)
        command = [sys.executable, __file__, str(folder), "--work", "export"]
        subprocess.run(command, check=True)
        sizes_file.write_text(json.dumps(sizes))
    sizes = json.loads(sizes_file.read_text())
    shutil.rmtree(folder / "tmp", ignore_errors=True)
    found = measure(folder, given.graph)
    if not given.keep:
        shutil.rmtree(folder)
    allowed = sizes["largest"] + ALLOWED
    used = found["anonymous"] - found["before"][0]
    print(f"{given.layers} layers, {given.graph}: {found['sentence']}")
    for name, value in {
        "weights, MiB": mib(sizes["total"]),
        "largest piece, MiB": mib(sizes["largest"]),
        "allowed: it and 512 MiB": mib(allowed),
        "RssAnon at most, MiB": mib(found["anonymous"]),
        "of which after the imports, MiB": mib(found["before"][0]),
        "RSS at most, MiB": mib(found["resident"]),
        "temporary files at most, MiB": mib(found["disk"]),
        "seconds": f"{found['seconds']:.1f}",
    }.items():
        print(f"| {name} | {value} |")
    return 0 if found["ok"] and used <= allowed else 1


if __name__ == "__main__":
    sys.exit(main())
