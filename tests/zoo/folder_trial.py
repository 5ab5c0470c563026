"""Exports the folder of an architecture without weights in memory, and compares each graph with the loaded model."""

import copy
import inspect
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from torch import nn
from transformers import DynamicCache
from transformers.exporters.utils import decompose_for_generation, get_leaf_tensors

import checkpoints
import memory
import onnx_external as oe
import values
from architectures import Architecture
from onnx_external.transformers._batches import attention_of, by_rows
from onnx_external.transformers._naming import input_names, output_name
from judge import TOLERANCE, TRANSPOSED, initializers_of
from programs import bytes_of, quiet
from trial import LAYOUTS, REFUSED, RIGHT, WRONG


@dataclass(frozen=True)
class Extent:
    """The sizes of the inputs that are dynamic. The export uses 2 rows of 8 tokens."""

    rows: int
    length: int  # of a text
    side: int  # of an image
    samples: int  # of a sound


EXTENTS = (Extent(3, 11, 32, 400), Extent(1, 5, 48, 640))


@dataclass(frozen=True)
class Outcome:
    """The verdict on a graph. `why` is a refusal or a fault, `far` the largest difference from torch."""

    graph: str
    verdict: str
    why: str = ""
    far: float = 0.0
    fixed: tuple = ()  # dimensions of its inputs that do not vary


class FolderTrial:
    def __init__(self, architecture: Architecture, folder: Path, dtype: str = "float32"):
        """dtype: of the folder; what is computed is always compared in float32."""
        self._architecture, self._folder, self._dtype = architecture, folder, dtype
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        torch.manual_seed(1)
        module = architecture.make()
        values.fill(module, 1)
        self._saved = checkpoints.folder(module.to(getattr(torch, dtype)), folder / "saved")
        with oe.open_checkpoint(self._saved) as checkpoint:
            self._keys = set(checkpoint)
        number = sum(map(ord, architecture.name))
        self._layout = LAYOUTS[number % len(LAYOUTS)]

    def run(self) -> list:
        try:
            if self._dtype == "float32":
                return self._judged("out", None, compute=True)
            return self._judged("bytes", None, compute=False) + self._judged(
                "out", "float32", compute=True
            )
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _judged(self, name: str, dtype: str | None, compute: bool) -> list:
        """The outcomes of one export: of the bytes of its weights, and if ONNX Runtime can compute it, of numbers."""
        out = self._folder / name
        try:
            report = self._export(out, dtype)
        except oe.Error as error:
            return [self._refused(out, error)]
        loaded = self._loaded(dtype or self._dtype)
        return [self._graph(graph, report, loaded, compute) for graph in report.graphs]

    def _export(self, out: Path, dtype: str | None) -> oe.transformers.ModelReport:
        layout = memory.arguments(self._layout)
        torch.manual_seed(3)
        check = None if "float32" in (dtype, self._dtype) else False  # the runtime cannot load it
        return oe.transformers.export(
            self._saved,
            out,
            dtype=dtype,
            check=check,
            fsync=False,
            threads=1,
            progress=False,
            **layout,
        )

    @staticmethod
    def _refused(out: Path, error: oe.Error) -> Outcome:
        why = str(error)
        if out.exists():
            return Outcome("", WRONG, f"refused, but something is left in the output folder: {why}")
        if "\n" in why:
            return Outcome("", WRONG, f"a refusal of several lines: {why}")
        return Outcome("", REFUSED, why)

    def _loaded(self, dtype: str) -> nn.Module:
        """Return the model with its weights as transformers loads it."""
        import transformers

        with quiet():
            made = getattr(transformers, self._architecture.model)
            model = made.from_pretrained(self._saved, dtype=getattr(torch, dtype)).eval()
        model.config.use_cache = True
        if model.can_generate():
            model.generation_config.use_cache = True
        return model

    # ---- one graph

    def _graph(
        self, name: str, report: oe.transformers.ModelReport, loaded: nn.Module, compute: bool
    ) -> Outcome:
        path, fixed = Path(report.graphs[name].model), tuple(report.fixed[name])
        try:
            saved = report.graphs[name]
            if not report.save.verified or saved.slots_left:
                return Outcome(
                    name, WRONG, f"not verified, or without data: {saved.slots_left[:4]}"
                )
            module = loaded.get_encoder() if name == "encoder_model" else loaded
            why = _other_bytes(path, module, report.sources[name], self._keys)
            if why:
                return Outcome(name, WRONG, why)
            if not compute:
                return Outcome(name, RIGHT, fixed=fixed)
            return self._numbers(name, path, report, loaded)
        except (
            Exception
        ) as error:  # of torch, transformers or the runtime, none of which may fail here
            return Outcome(name, WRONG, f"{type(error).__name__}: {str(error)[:300]}")

    def _numbers(
        self, name: str, path: Path, report: oe.transformers.ModelReport, loaded: nn.Module
    ) -> Outcome:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        worst = 0.0
        # ONNX Runtime's fused attention takes several words behind a cache for one row only.
        alone = attention_of(onnx.load(path, load_external_data=False).graph).takes_one_row
        for extent in EXTENTS:
            for module, given in _in_rows(self._calls(name, report, loaded, extent), alone):
                far, why = _difference(session, module, given)
                if why:
                    return Outcome(name, WRONG, f"{extent.rows} rows: {why}", far)
                worst = max(worst, far)
        if not _sees_other_weights(session, loaded, module, given):
            return Outcome(name, WRONG, "the judge does not see other weights")
        return Outcome(name, RIGHT, "", worst, tuple(report.fixed[name]))

    def _calls(
        self, name: str, report: oe.transformers.ModelReport, loaded: nn.Module, extent: Extent
    ) -> list:
        """Return modules and inputs for a graph, which are those of the first steps of generate(), and of two steps at
        once.
        """
        given = self._inputs(report, loaded, extent)
        if name == "model":
            return _calls_of_decoder(loaded, given) if loaded.can_generate() else [(loaded, given)]
        if name == "encoder_model":
            encoder = loaded.get_encoder()
            names = (loaded.main_input_name, "attention_mask")
            return [(encoder, {each: given[each] for each in names if each in given})]
        torch.manual_seed(5)
        one_only = loaded._is_stateful or "input_ids[1] = 1" in report.fixed[name]
        is_prompt = name in ("prefill", "decoder_model")
        steps = [False] if is_prompt or one_only else [False, True]
        with quiet():
            called = "prefill" if is_prompt else "decode"
            return [
                decompose_for_generation(loaded, given, multi_token_decode=many)[called]
                for many in steps
            ]

    def _inputs(
        self, report: oe.transformers.ModelReport, loaded: nn.Module, extent: Extent
    ) -> dict:
        """Return inputs of generate() or forward(), in sizes that the graphs allow."""
        fixed = _fixed(report)
        made = {}
        torch.manual_seed(extent.rows)
        for name, tensor in self._architecture.inputs(self._architecture.sizes).items():
            if name == "decoder_input_ids" and loaded.can_generate():
                continue
            shape = _resized(name, tensor.shape, extent)
            shape = [int(fixed.get(f"{name}[{place}]", size)) for place, size in enumerate(shape)]
            made[name] = self._random(tensor, shape)
        if "input_ids" in made and "attention_mask" in inspect.signature(loaded.forward).parameters:
            mask = torch.ones_like(made["input_ids"])
            mask[-1, 0] = 0
            made["attention_mask"] = mask
        if "token_type_ids" in report.inputs.get("model", {}):
            made["token_type_ids"] = torch.randint(0, 2, made["input_ids"].shape)
        return made

    def _random(self, tensor: torch.Tensor, shape: list) -> torch.Tensor:
        if tensor.is_floating_point():
            return torch.rand(shape) if float(tensor.min()) >= 0 else torch.randn(shape)
        return torch.randint(4, self._architecture.sizes.words - 4, shape)


def _in_rows(calls: list, alone: bool) -> list:
    """Yield the calls with single rows if a graph accepts only one row."""
    if not alone:
        return calls
    return [(module, each) for module, given in calls for _, each in by_rows("", given)]


def _calls_of_decoder(loaded: nn.Module, given: dict) -> list:
    """Modules and inputs for the one graph of a decoder, whose cache keeps all words: a step, two at once, a prompt."""
    taken = inspect.signature(loaded.forward).parameters
    name = "cache" if "cache" in taken else "past_key_values"
    calls = []
    for many in (False, True):
        words = {**given, name: DynamicCache()}
        torch.manual_seed(5)
        with quiet():
            parts = decompose_for_generation(loaded, words, multi_token_decode=many)
        calls.append(parts["decode"])
    module, prompt = parts["prefill"]
    cache = copy.deepcopy(calls[0][1][name])
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys[:, :, :0], layer.values[:, :, :0]
    return [*calls, (module, {**prompt, name: cache})]


def _fixed(report: oe.transformers.ModelReport) -> dict:
    """Return the sizes that do not vary; what a step of decoding takes is not generate()'s, apart from the rows."""
    fixed = {}
    has_encoder = "encoder_model" in report.fixed
    for name, found in report.fixed.items():
        dims = dict(each.split(" = ") for each in found)
        steps = name == "decode" or (has_encoder and name.startswith("decoder"))
        fixed |= {dim: size for dim, size in dims.items() if not steps or dim.endswith("[0]")}
    return fixed


def _resized(name: str, shape: torch.Size, extent: Extent) -> list:
    rest = list(shape[1:])
    if name == "input_ids":
        rest = [extent.length]
    elif name == "decoder_input_ids":
        rest = [extent.length - 2]
    elif name == "pixel_values":
        rest[1:] = [extent.side, extent.side]
    elif name == "input_values" and len(rest) == 1:
        rest = [extent.samples]
    return [extent.rows, *rest]


def _other_bytes(path: Path, module: nn.Module, sources: dict, keys: set) -> str:
    """Return the parameter whose bytes in the graph differ from the checkpoint."""
    found, _ = initializers_of(path)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    shared = found.keys() & parameters.keys()
    sources = {name.removesuffix(TRANSPOSED): source for name, source in sources.items()}
    for name in sorted(shared):
        if sources[name].origin != "checkpoint" and name in keys:
            return f"{name} is not the checkpoint's: {sources[name]}"
        if found[name].data != bytes_of(parameters[name]):
            return f"{name} has other bytes"
    return "" if shared else "the graph has no parameter"


def _sees_other_weights(
    session: onnxruntime.InferenceSession, loaded: nn.Module, module: nn.Module, given: dict
) -> bool:
    """Return whether the graph shows other weights in a module; the module is a part of the loaded one."""
    before = {name: value.clone() for name, value in loaded.state_dict().items()}
    values.fill(loaded, 2)
    _, why = _difference(session, module, given)
    loaded.load_state_dict(before)
    return bool(why)


def _difference(session: onnxruntime.InferenceSession, module: nn.Module, given: dict) -> tuple:
    """Return the largest difference to torch, as a part of the output's largest value, and what is wrong."""
    with torch.no_grad(), quiet():
        results = get_leaf_tensors(module(**copy.deepcopy(given)))
    wanted = {output_name(path).removeprefix("output."): value for path, value in results.items()}
    found = get_leaf_tensors(given)
    leaves = {name: found[path].numpy() for path, name in input_names(found).items()}
    feed = {
        each.name: leaves[each.name.removeprefix("input.")]
        for each in session.get_inputs()
        if each.name.removeprefix("input.") in leaves
    }
    names = [each.name.removeprefix("output.") for each in session.get_outputs()]
    got = dict(zip(names, session.run(None, feed), strict=True))
    if not got or got.keys() - wanted.keys():
        return 0.0, f"outputs are {sorted(got)[:4]}, not {sorted(wanted)[:4]}"
    if not _tells_rows_apart(got):
        return 0.0, "the outputs do not depend on the inputs"
    worst = 0.0
    for name, value in got.items():
        want = wanted[name].numpy()
        if value.shape != want.shape:
            return 0.0, f"{name} has the shape {value.shape}, not {want.shape}"
        if not want.size or want.dtype.kind != "f":
            if not np.array_equal(value, want):
                return 0.0, f"{name} is another"
            continue
        far = float(np.abs(value.astype(np.float64) - want).max() / max(np.abs(want).max(), 1e-6))
        if not far <= TOLERANCE:
            return far, f"{name} is off by {far:.3g}"
        worst = max(worst, far)
    return worst, ""


def _tells_rows_apart(got: dict) -> bool:
    """Else most weights could be wrong unseen: those before a rectifier that gives zeros only."""
    several = [
        value for value in got.values() if value.ndim and len(value) > 1 and value.dtype.kind == "f"
    ]
    return not several or any(
        np.ptp(value, axis=0).max() > TOLERANCE * np.abs(value).max() for value in several
    )
