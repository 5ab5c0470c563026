"""Test which tools can read the models from each kind of export. Prints Markdown, which docs/consumers.md summarizes.

A BERT and a Llama of 2 layers are exported in every way, in the layout `single`, and the BERT by oe.torch.export in all
layouts. Each tool runs in its own process.

usage: consumers.py --work-dir DIR --bin-dir DIR [--models bert,llama] [--only TOOL,...]

Needs torch, onnxscript, transformers, onnxruntime and this package; the other tools are tried if
they can be imported:

    python -m venv --system-site-packages VENV
    VENV/bin/pip install onnxsim onnxslim
    VENV/bin/pip install --no-deps olive-ai optimum optimum-onnx onnxruntime-genai  # else another torch
    VENV/bin/pip install colorama opentelemetry-sdk optuna pandas pydantic questionary requests torchmetrics
"""

import argparse
import collections
import contextlib
import io
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

SIZES = dict(
    vocab_size=128, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=64,
)  # fmt: skip
LAYOUTS = ("single", "per-tensor", "shards", "inline", "link")
SECONDS = 240  # limit for one tool


# --- the models ----------------------------------------------------------------------------------


@contextlib.contextmanager
def quiet():
    logging.disable(logging.WARNING)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


class Subject:
    """A model, its folder, and its results."""

    def __init__(self, name: str, folder: Path):
        import torch
        import transformers

        torch.manual_seed(0)
        if name == "bert":
            self.module = transformers.BertModel(transformers.BertConfig(**SIZES)).eval()
        else:
            config = transformers.LlamaConfig(
                **SIZES, num_key_value_heads=2, tie_word_embeddings=False, use_cache=False,
                bos_token_id=1, eos_token_id=2, pad_token_id=0,
            )  # fmt: skip
            self.module = transformers.LlamaForCausalLM(config).eval()
        self.folder = folder / "saved"
        self.module.save_pretrained(self.folder)
        self.weights = self.folder / "model.safetensors"
        self.inputs = {"input_ids": torch.randint(3, 120, (2, 7)), "attention_mask": torch.ones(2, 7).long()}
        with torch.no_grad():
            self.expected = self.module(**self.inputs)[0].numpy()

    def program(self, optimize: bool):
        import torch

        batch = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
        shapes = dict.fromkeys(self.inputs, batch)
        return torch.onnx.export(
            self.module, (), kwargs=self.inputs, dynamo=True, optimize=optimize, dynamic_shapes=shapes, verbose=False
        )


def torchs(subject: Subject, out: Path, tool: Path) -> Path:
    out.mkdir(parents=True)
    subject.program(True).save(out / "model.onnx", external_data=True)
    return out / "model.onnx"


def plain(subject: Subject, out: Path, tool: Path) -> Path:
    subject.program(False).save(out.parent / "plain.onnx")
    return filled(out.parent / "plain.onnx", subject, out, tool)


def skeleton(subject: Subject, out: Path, tool: Path) -> Path:
    import torch

    import onnx_external as oe

    batch = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    made = oe.torch.skeleton(subject.module, (), subject.inputs, dict.fromkeys(subject.inputs, batch))
    made.save(out.parent / "skeleton.onnx", overwrite=True)
    return filled(out.parent / "skeleton.onnx", subject, out, tool)


def filled(graph: Path, subject: Subject, out: Path, tool: Path) -> Path:
    command = [tool, graph, subject.weights, "-o", out, "--layout", "single", "-q", "--no-fsync"]
    subprocess.run(list(map(str, command)), check=True)
    return out / "model.onnx"


def module_export(subject: Subject, out: Path, tool: Path, layout: str = "single") -> Path:
    import torch

    import onnx_external as oe

    batch = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    weights = subject.weights
    if layout == "link":
        out.mkdir(parents=True)
        weights = Path(shutil.copy(weights, out))
    more = {"files": oe.Layout(max_shard_size="100kB")} if layout == "shards" else {}
    oe.torch.export(
        subject.module, (), out / "model.onnx", subject.inputs, weights=weights,
        dynamic_shapes=dict.fromkeys(subject.inputs, batch), layout=layout, fsync=False, progress=False, **more,
    )  # fmt: skip
    return out / "model.onnx"


def folder_export(subject: Subject, out: Path, tool: Path) -> Path:
    import onnx_external as oe

    oe.transformers.export(subject.folder, out, fsync=False, progress=False)
    return out / "model.onnx"


WAYS = {
    "`torch.onnx.export`": torchs,
    "`optimize=False`, `save-external`": plain,
    "`skeleton`, `save-external`": skeleton,
    "`oe.torch.export`": module_export,
    "`oe.transformers.export`": folder_export,
}


# --- the tools -----------------------------------------------------------------------------------


def operators(model) -> collections.Counter:
    return collections.Counter(node.op_type for node in model.graph.node)


def weight_products(model) -> int:
    """Count the MatMul and Gemm nodes that read a weight, directly or through a Transpose."""
    known = {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Transpose" and node.input[0] in known:
            known.add(node.output[0])
    return sum(node.op_type in ("MatMul", "Gemm") and node.input[1] in known for node in model.graph.node)


def bytes_of(path: Path) -> int:
    """Return the bytes of a model and of its data files."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    places = {
        entry.value
        for tensor in model.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    if any(name.endswith(".safetensors") for name in places):
        return path.stat().st_size + sum(tensor_bytes(tensor) for tensor in model.graph.initializer)
    return path.stat().st_size + sum((path.parent / name).stat().st_size for name in places)


def tensor_bytes(tensor) -> int:
    return sum(int(entry.value) for entry in tensor.external_data if entry.key == "length")


def checker(path: Path, work: Path, about: dict) -> str:
    import onnx

    onnx.checker.check_model(str(path), full_check=True)
    return "ok"


def shape_inference(path: Path, work: Path, about: dict) -> str:
    import onnx

    onnx.shape_inference.infer_shapes_path(str(path), str(work / "inferred.onnx"), strict_mode=True)
    return "ok"


def symbolic(path: Path, work: Path, about: dict) -> str:
    import onnx
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    made = SymbolicShapeInference.infer_shapes(onnx.load(path), auto_merge=True)
    return "ok" if made is not None else "FAIL: nothing"


def feed_of(session, about: dict) -> dict:
    """Return the inputs of the example, with empty caches and increasing positions."""
    given = about["inputs"]
    found = {}
    for value in session.get_inputs():
        if value.name in given:
            found[value.name] = given[value.name]
        elif "position_ids" in value.name:
            found[value.name] = np.tile(np.arange(7), (2, 1))
        else:
            shape = [2 if not place else 0 if not isinstance(dim, int) else dim for place, dim in enumerate(value.shape)]
            found[value.name] = np.zeros(shape, np.float32)
    return found


def runtime(path: Path, work: Path, about: dict) -> str:
    import onnxruntime

    with tempfile.TemporaryFile() as log:
        kept = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            got = session.run(None, feed_of(session, about))[0]
        finally:
            os.dup2(kept, 2)
        log.seek(0)
        warned = log.read().count(b"[W:")
    far = float(np.abs(got - about["expected"]).max())
    return f"ok, {warned} warnings" if far < 1e-4 else f"WRONG: off by {far:.2g}"


def dynamic(path: Path, work: Path, about: dict) -> str:
    import onnx
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(str(path), str(work / "int8.onnx"))
    made = operators(onnx.load(work / "int8.onnx"))["MatMulInteger"]
    of = weight_products(onnx.load(path, load_external_data=False))
    sizes = f"{bytes_of(path) / 1e3:.0f} to {bytes_of(work / 'int8.onnx') / 1e3:.0f} kB"
    return f"{made} of {of}, {sizes}"


def prepared(path: Path, work: Path, about: dict) -> str:
    from onnxruntime.quantization import quant_pre_process

    quant_pre_process(
        str(path), str(work / "pre.onnx"),
        skip_symbolic_shape=True, save_as_external_data=True, all_tensors_to_one_file=True,
    )  # fmt: skip
    return dynamic(work / "pre.onnx", work, about)


def nbits(path: Path, work: Path, about: dict) -> str:
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    model = onnx.load(path)
    of = weight_products(model)
    quantizer = MatMulNBitsQuantizer(model, block_size=32, is_symmetric=True)
    quantizer.process()
    quantizer.model.save_model_to_file(str(work / "int4.onnx"), False)
    made = operators(onnx.load(work / "int4.onnx"))["MatMulNBits"]
    sizes = f"{bytes_of(path) / 1e3:.0f} to {bytes_of(work / 'int4.onnx') / 1e3:.0f} kB"
    return f"{made} of {of}, {sizes}"


def fusion(path: Path, work: Path, about: dict) -> str:
    from onnxruntime.transformers.optimizer import optimize_model

    kind = "bert" if about["name"] == "bert" else "gpt2"
    made = optimize_model(str(path), model_type=kind, num_heads=4, hidden_size=64, opt_level=0)
    fused = {name: count for name, count in made.get_fused_operator_statistics().items() if count}
    return f"ok, {sum(fused.values())} fused nodes"


def simplified(path: Path, work: Path, about: dict) -> str:
    import onnx
    import onnxsim

    _, right = onnxsim.simplify(onnx.load(path))
    return "ok" if right else "FAIL: its own check"


def slimmed(path: Path, work: Path, about: dict) -> str:
    import onnx
    import onnxslim

    onnx.save(onnxslim.slim(str(path)), str(work / "slim.onnx"))
    return runtime(work / "slim.onnx", work, about).split(",")[0]


def olive(path: Path, work: Path, about: dict) -> str:
    import onnx
    from olive.model import ONNXModelHandler
    from olive.passes.olive_pass import create_pass_from_dict
    from olive.passes.onnx.quantization import OnnxDynamicQuantization

    quantizer = create_pass_from_dict(OnnxDynamicQuantization, {}, disable_search=True)
    made = quantizer.run(ONNXModelHandler(str(path)), str(work / "olive"))
    found = operators(onnx.load(made.model_path, load_external_data=False))
    of = weight_products(onnx.load(path, load_external_data=False))
    return f"{found['MatMulInteger']} of {of}"


def optimum(path: Path, work: Path, about: dict) -> str:
    import torch
    from optimum.onnxruntime import ORTModelForCausalLM, ORTModelForFeatureExtraction

    if not (path.parent / "config.json").exists():
        shutil.copy(Path(about["folder"]) / "config.json", path.parent)
    inputs = {name: torch.from_numpy(value) for name, value in about["inputs"].items()}
    if about["name"] == "bert":
        model = ORTModelForFeatureExtraction.from_pretrained(path.parent, file_name=path.name)
        far = np.abs(model(**inputs)[0].numpy() - about["expected"]).max()
        return "ok" if far < 1e-4 else f"WRONG: off by {far:.2g}"
    cached = (path.parent / "genai_config.json").exists()
    model = ORTModelForCausalLM.from_pretrained(
        path.parent, file_name=path.name, use_cache=cached, use_io_binding=False
    )
    words = model.generate(**inputs, max_new_tokens=6, do_sample=False).tolist()
    return "ok, generates" if words == about["words"] else "WRONG: other words"


def genai(path: Path, work: Path, about: dict) -> str:
    import onnxruntime_genai

    if not (path.parent / "genai_config.json").exists():
        return "- (takes a decoder with a cache)"
    model = onnxruntime_genai.Model(str(path.parent))
    params = onnxruntime_genai.GeneratorParams(model)
    params.set_search_options(max_length=13, batch_size=1)
    generator = onnxruntime_genai.Generator(model, params)
    generator.append_tokens(about["inputs"]["input_ids"][:1])
    while not generator.is_done():
        generator.generate_next_token()
    right = list(map(int, generator.get_sequence(0))) == about["words"][0]
    return "ok, generates" if right else "WRONG: other words"


TOOLS = {
    "onnx.checker (full_check)": checker,
    "onnx.shape_inference (strict_mode)": shape_inference,
    "onnxruntime symbolic_shape_infer": symbolic,
    "ONNX Runtime": runtime,
    "quantize_dynamic": dynamic,
    "quant_pre_process, then quantize_dynamic": prepared,
    "MatMulNBitsQuantizer, 4 bits": nbits,
    "onnxruntime.transformers.optimizer": fusion,
    "onnxsim": simplified,
    "onnxslim": slimmed,
    "olive: OnnxDynamicQuantization": olive,
    "optimum-onnx": optimum,
    "onnxruntime-genai": genai,
}


def in_child(tool, path: Path, work: Path, about: dict) -> str:
    """Run a tool in its own process; return its message, even if the process crashes."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    answer = work.with_suffix(".txt")
    answer.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        os.chdir(work)  # some tools write into the current folder
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                text = tool(path, work, about)
        except ModuleNotFoundError as error:
            text = f"not installed ({error.name})"
        except BaseException as error:  # any exception of a tool is its result
            line = next(iter(str(error).strip().splitlines()), "")
            text = f"FAIL: {type(error).__name__}: {line[:90]}"
        answer.write_text(text)
        os._exit(0)
    os.waitpid(child, 0)
    return answer.read_text() if answer.exists() else "FAIL: the process ended"


# --- the tables ----------------------------------------------------------------------------------


def described(subject: Subject, name: str) -> dict:
    about = {
        "name": name,
        "folder": str(subject.folder),
        "inputs": {key: value.numpy() for key, value in subject.inputs.items()},
        "expected": subject.expected,
    }
    if name == "llama":
        subject.module.generation_config.use_cache = True
        about["words"] = subject.module.generate(**subject.inputs, max_new_tokens=6, do_sample=False).tolist()
    return about


def table(first: str, columns: dict, names: list) -> str:
    lines = [f"| {first} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name in names:
        cells = [columns[column].get(name, "").replace("|", "/") for column in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def tried(subject: Subject, name: str, path: Path, work: Path, tools: list) -> dict:
    about = described(subject, name)
    print(f"{path}", file=sys.stderr, flush=True)
    return {tool: in_child(TOOLS[tool], path, work, about) for tool in tools}


def versions() -> str:
    packages = (
        "torch", "transformers", "onnx", "onnxruntime", "onnxsim", "onnxslim", "olive-ai", "optimum", "optimum-onnx",
        "onnxruntime-genai",
    )  # fmt: skip
    found = []
    for package in packages:
        with contextlib.suppress(PackageNotFoundError):
            found.append(f"{package} {version(package).split('+')[0]}")
    return ", ".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work-dir", required=True, type=Path, help="its folder `consumers` is replaced")
    parser.add_argument("--bin-dir", required=True, type=Path, help="folder of the commands")
    parser.add_argument("--models", default="bert,llama")
    parser.add_argument("--only", default="", help="words of tools, separated by commas")
    arguments = parser.parse_args()
    tool = arguments.bin_dir.resolve() / "save-external"
    words = arguments.only.split(",")
    tools = [name for name in TOOLS if any(word in name for word in words)]
    root = arguments.work_dir.resolve() / "consumers"
    shutil.rmtree(root, ignore_errors=True)
    print(versions() + "\n")
    for name in arguments.models.split(","):
        folder = root / name
        folder.mkdir(parents=True)
        with quiet():
            subject = Subject(name, folder)
        columns = {}
        for number, (way, export) in enumerate(WAYS.items()):
            with quiet():
                path = export(subject, folder / f"way{number}", tool)
            columns[way] = tried(subject, name, path, folder / "work", tools)
        print(f"{name}:\n\n{table('tool', columns, tools)}", flush=True)
        if name == "bert":
            columns = {}
            for layout in LAYOUTS:
                with quiet():
                    path = module_export(subject, folder / layout, tool, layout)
                columns[layout] = tried(subject, name, path, folder / "work", tools)
            print(f"{name}, oe.torch.export, layouts:\n\n{table('tool', columns, tools)}", flush=True)
    shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
