"""Check whether oe.validate and oe.diagnose find 5 % noise in one weight, also next to masked outputs.

Architectures of tests/zoo are exported once each. The sound graph must agree with the module, as it
is and with its first output masked: a part of the elements is replaced by a value such as -1e9 on
both sides. Then every element w of one weight becomes w * (1 + 0.05 * n), n standard normal; a seed
draws the weight. Both graphs must be found wrong. Whether the noise reaches an output is judged by
ONNX Runtime alone: a weight that does not change one by more than rounding is no fault. It is
counted, and another is drawn.

--page writes a page of the results.

usage: noise.py --work-dir DIR [--page FILE] [--only NAME,...] [--seed 1] [--jobs N]
"""

import argparse
import os
import random
import shutil
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "zoo"))

import numpy as np
import onnx
import onnxruntime
import torch
import transformers
from onnx import helper, numpy_helper

import noise_page
import onnx_external as oe
import pools
import values as zoo_values
from architectures import ARCHITECTURES
from programs import Exporter, quiet, run, save

MODELS = (
    "llama", "qwen2", "qwen3", "mistral", "gemma2", "phi3", "olmo2", "gpt2", "gpt_neox", "bloom",
    "opt", "falcon", "mixtral", "qwen3_moe", "mamba", "bert", "roberta", "distilbert", "electra",
    "albert", "modernbert", "deberta_v2", "mpnet", "xlnet", "t5", "bart", "marian", "whisper",
    "vit", "deit", "dinov2", "swin", "convnext", "resnet", "segformer", "clip", "siglip",
    "wav2vec2", "hubert", "ast",
)  # fmt: skip
NOISE = 0.05
DRAWS = 30  # the maximum, to find a weight that affects an output
ROUNDING = 1e-6  # as a fraction of the largest element of an output; a smaller change is not a fault
FILLS = {
    "lowest": float(np.finfo(np.float32).min), "-1e9": -1e9, "-1e4": -1e4, "-inf": float("-inf"),
    "+ -1e9": -1e9, "+ -1e4": -1e4,
}  # fmt: skip
SHARES = (0.25, 0.5, 0.95)

Arrays = dict[str, np.ndarray]


@dataclass
class Row:
    """One architecture."""

    model: str
    weight: str = ""
    fill: str = ""
    share: float = 0.0
    change: float = 0.0  # change of an output by the noise, as a fraction of its largest element
    rounding: float = 0.0  # likewise, the difference between the correct graph and the module
    sound: str = ""  # "ok" or the fault; in the fields below, "found" is right
    masked: str = ""
    diagnosed: str = ""
    noise: str = ""
    noise_masked: str = ""
    noise_diagnosed: str = ""
    controls: list[str] = field(default_factory=list)  # weights that affect no output
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class Mask:
    """A mask that is applied to the first output, on both sides."""

    name: str
    fill: str
    mask: np.ndarray

    def of(self, array: np.ndarray) -> np.ndarray:
        value = np.float32(FILLS[self.fill])
        return np.where(self.mask, array + value if self.fill.startswith("+") else value, array)

    def wrap(self, source: Path, target: Path) -> None:
        """Apply the mask in a graph."""
        model = onnx.load(source)
        graph = model.graph
        for node in graph.node:
            for number, name in enumerate(node.output):
                if name == self.name:
                    node.output[number] = "unmasked"
            for number, name in enumerate(node.input):
                if name == self.name:
                    node.input[number] = "unmasked"
        graph.initializer.append(numpy_helper.from_array(self.mask, "mask"))
        graph.initializer.append(numpy_helper.from_array(np.float32(FILLS[self.fill]), "fill"))
        filled = "fill"
        if self.fill.startswith("+"):
            graph.node.append(helper.make_node("Add", ["unmasked", "fill"], ["filled"]))
            filled = "filled"
        graph.node.append(helper.make_node("Where", ["mask", filled, "unmasked"], [self.name]))
        onnx.save(model, target)


class Campaign:
    """One architecture."""

    def __init__(self, name: str, folder: Path, seed: int) -> None:
        self._name, self._folder = name, folder
        self._draw = random.Random(f"{seed} {name}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        torch.manual_seed(1)
        architecture = ARCHITECTURES[name]
        self._module = architecture.make()
        zoo_values.fill(self._module, 1)
        torch.manual_seed(3)
        self._inputs = architecture.inputs(architecture.sizes)
        self._path = save(Exporter(self._module, self._inputs).program(False), folder / "sound.onnx")

    def row(self) -> Row:
        row = Row(self._name)
        sound = self._values(self._path)
        wanted = dict(zip(sound, map(_array, run(self._module, self._inputs)), strict=True))
        mask = self._mask(sound)
        row.fill, row.share = mask.fill, float(mask.mask.mean())
        row.rounding = _change(sound, wanted, mask)
        expected = {name: mask.of(each) if name == mask.name else each
                    for name, each in wanted.items()}  # fmt: skip
        noisy = self._noise(sound, mask, row)
        row.sound = self._validated(self._path, self._module)
        row.masked = self._validated(self._wrapped(mask, self._path), expected)
        row.diagnosed = self._diagnosed(self._path)
        row.noise = self._validated(noisy, self._module)
        row.noise_masked = self._validated(self._wrapped(mask, noisy), expected)
        row.noise_diagnosed = self._diagnosed(noisy)
        return row

    def _values(self, path: Path) -> Arrays:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        names = [each.name for each in session.get_outputs()]
        feed = {each.name: _array(self._inputs[each.name]) for each in session.get_inputs()}
        return dict(zip(names, session.run(names, feed), strict=True))

    def _mask(self, sound: Arrays) -> Mask:
        name = next(name for name, each in sound.items() if each.dtype == np.float32)
        share, fill = self._draw.choice(SHARES), self._draw.choice(list(FILLS))
        count = sound[name].size
        places = np.zeros(count, bool)
        places[self._draw.sample(range(count), min(count - 2, max(2, round(share * count))))] = True
        return Mask(name, fill, places.reshape(sound[name].shape))

    def _noise(self, sound: Arrays, mask: Mask, row: Row) -> Path:
        """Return the graph with noise in a weight that affects an unmasked element."""
        model = onnx.load(self._path)
        weights = [each for each in model.graph.initializer
                   if each.data_type == onnx.TensorProto.FLOAT and np.prod(each.dims) >= 4]  # fmt: skip
        path = self._folder / "noise.onnx"
        for weight in self._draw.sample(weights, min(DRAWS, len(weights))):
            kept = weight.SerializeToString()
            value = numpy_helper.to_array(weight)
            generator = np.random.default_rng(self._draw.randrange(1 << 32))
            factors = 1 + NOISE * generator.standard_normal(value.shape)
            changed = (value * factors).astype(np.float32)
            weight.CopyFrom(numpy_helper.from_array(changed, weight.name))
            onnx.save(model, path)
            weight.ParseFromString(kept)
            row.change = _change(self._values(path), sound, mask)
            if row.change > ROUNDING:
                row.weight = weight.name
                return path
            row.controls.append(weight.name)
        raise RuntimeError("no weight reaches an output")

    def _wrapped(self, mask: Mask, path: Path) -> Path:
        wrapped = self._folder / f"{path.stem}-masked.onnx"
        mask.wrap(path, wrapped)
        return wrapped

    def _validated(self, path: Path, against: object) -> str:
        report = oe.validate(path, against, self._inputs)
        return "ok" if report.ok else f"found: {report.sentence}"

    def _diagnosed(self, path: Path) -> str:
        try:
            report = oe.diagnose(path, self._module, self._inputs, strategy="failing")
        except oe.Error as error:
            return f"error: {error}"
        return "ok" if report.ok else f"found: {report.sentence}"


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy()


def _change(got: Arrays, want: Arrays, mask: Mask) -> float:
    """Return the largest change in the unmasked elements of the masked output."""
    one, other = got[mask.name][~mask.mask], want[mask.name][~mask.mask]
    return float(np.abs(one - other).max() / np.abs(want[mask.name]).max())


def work(job: tuple) -> Row:
    name, folder, seed = job
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    start = time.monotonic()
    try:
        with quiet():
            row = Campaign(name, folder, seed).row()
    except Exception:
        row = Row(name, error=traceback.format_exc())
    shutil.rmtree(folder, ignore_errors=True)
    row.seconds = time.monotonic() - start
    return row


def show(row: Row) -> None:
    verdict = "right" if noise_page.is_right(row) else "WRONG"
    print(f"{row.model:12} {verdict} {row.seconds:5.1f} s  change {row.change:.1e} (rounding {row.rounding:.1e}) of {row.weight}, "
          f"{row.fill} in {row.share:.2f}", flush=True)  # fmt: skip
    if verdict == "WRONG":
        print(f"    {row}", flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work-dir", required=True, type=Path, help="folders in it are replaced")
    parser.add_argument("--page", type=Path, help="where to write the results")
    parser.add_argument("--only", default=",".join(MODELS), help="architectures")
    parser.add_argument("--seed", type=int, default=1, help="draws other weights and masks")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 2))
    return parser.parse_args()


def main() -> int:
    given, start = parse(), time.monotonic()
    names = given.only.split(",")
    jobs = [(name, given.work_dir.resolve() / name, given.seed) for name in names]
    rows: list[Row] = []
    for row in pools.results(work, jobs, given.jobs, 8):
        show(row)
        rows.append(row)
    rows.sort(key=lambda row: row.model)
    if given.page:
        noise_page.write(given.page, rows)
    right = sum(map(noise_page.is_right, rows))
    print(f"{right} of {len(rows)} models are judged right; {time.monotonic() - start:.0f} s")
    return 0 if right == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
