"""Runs a round, which exports one module in some modes, saves some checkpoints, and judges the results."""

import itertools
import random
import shutil
from dataclasses import replace

import onnx
import torch

import cases
import damage
import decidable
import exporters
import modules
import random_modules
import runtimes
import truth
import weights

MODES = 4  # that a round takes of each module
FITTING = ("fit", "shuffled", "nested", "safetensors")  # checkpoints that name all keys as OLD does
FRESH = 12  # random modules among those of a round


class Round:
    """One module, some modes and some checkpoints, which are created, saved and judged in a folder."""

    def __init__(self, spec, number: int, settings, tamper=None):
        """tamper: damages a written model's folder before it is judged."""
        self.spec, self.number, self.settings, self.tamper = spec, number, settings, tamper
        self.random = random.Random(f"{settings.seed} {spec.name} {number}")
        self.folder = settings.work_dir / f"{spec.name}.{number}"
        self.label = f"{spec.name}.{number}"
        self.tool = settings.tool()

    def module(self, seed: int, trained=True):
        torch.manual_seed(1)  # the structure; values come from the seed
        module = self.spec.make().eval()
        return weights.train(module, seed) if trained else module

    def run(self) -> list:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        try:
            found = self._run()
            for case in found:
                if case.verdict in cases.FAILURES:
                    cases.keep(case, self.settings.failed_dir)
            return [(c.label, c.mode, c.damage, c.verdict, c.detail) for c in found]
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self) -> list:
        base = self.random.randrange(1 << 30)
        self.old = self.module(base, trained=self.random.random() < 0.6)
        self.new = self.module(base + 1)
        torch.manual_seed(base)
        self.inputs = [self.spec.inputs() for _ in range(2)]
        torch.save(weights.plain_state(self.old), self.folder / "old.pt")
        other = {k: v.clone() for k, v in self.module(base + 2).state_dict().items()}
        with torch.no_grad():
            self.matter = truth.keys_that_matter(self.new, other, self.inputs)
        self.groups = weights.ties(self.new)
        damages = damage.Maker(self.new, self.matter, f"{self.label} {base}").all()
        planned = list(self._plan(damages))
        for case in planned:
            self.tool.save(case)
            if self.tamper and not case.verdict:
                self.tamper(case.folder)
        saved = [case for case in planned if not case.verdict]
        for case in saved:
            case.feed_positions()
        whole = [(path, study) for path, study in self.whole if any(c.study is study for c in saved)]
        jobs = [(path, self._feeds(study)) for path, study in whole] + [(c.model, c.feeds) for c in saved]
        answers = self.settings.runtime.run(self.folder, jobs)
        original = [truth.run(self.old, inputs) for inputs in self.inputs]
        for (_, study), outputs in zip(whole, answers):
            study.broken = not cases.difference(outputs, original) <= self.spec.tolerance
        for case, outputs in zip(saved, answers[len(whole) :]):
            cases.judge_numbers(case, outputs, self.tool)
        return planned

    def _feeds(self, study) -> list:
        return [dict(zip(study.inputs, inputs)) for inputs in self.inputs]

    def _plan(self, damages: dict):
        """Yield the cases of this round; each checkpoint is written once."""
        make = exporters.LegacyExporter if self.settings.exporter == "legacy" else exporters.ModernExporter
        opset = self.random.choice((13, 17))
        old, new = (make(self.spec, module, self.inputs[0], opset) for module in (self.old, self.new))
        modes = self._share([m for m in make.modes if self.settings.mode in m.name], MODES)
        written, verdicts, self.whole = {}, {}, []
        for place, mode in enumerate(modes):
            graph_path = self.folder / f"graph{place}.onnx"
            graph, full = old.graph(mode), old.full(mode)
            onnx.save(graph, str(graph_path))
            onnx.save(full, str(self.folder / f"full{place}.onnx"))
            study = decidable.study(
                graph, full, lambda m=mode: new.full(m), self.old, self.matter, self.groups,
                len(self.inputs[0]),
            )  # fmt: skip
            self.whole.append((self.folder / f"full{place}.onnx", study))
            names = [n for n in damages if n != "fit" and self.settings.damage in n]
            fit = ["fit"] if self.settings.damage in "fit" else []
            for name in fit + self.random.sample(names, min(len(names), self.settings.checkpoints - 1)):
                if name not in written:
                    folder = self.folder / f"checkpoint{len(written)}"
                    folder.mkdir()
                    written[name] = damages[name].write(folder)
                    verdicts[name] = self._verdict(damages[name])
                yield self._case(mode, graph_path, study, damages[name], written[name], verdicts[name])

    def _share(self, modes: list, size: int) -> list:
        """Return the modes for this round. The rounds of a module go through all modes in its own order."""
        order = list(modes)
        random.Random(f"{self.settings.seed} {self.spec.name}").shuffle(order)
        start = self.number * size
        return [order[(start + i) % len(order)] for i in range(min(size, len(order)))]

    def _verdict(self, what):
        verdict = truth.load(self.module(99), what.state)
        refusal = "" if what.lenient else truth.must_refuse(verdict, what.state, self.matter)
        expected = [truth.run(verdict.module, inputs) for inputs in self.inputs]
        return verdict, refusal, expected

    def _verdict_without_shapes(self, what, verdict, study):
        """Judge by the results, because without the shapes of weights, [6] and [1, 6] cannot be distinguished."""
        same = truth.without_ones(verdict, what.state) if set(verdict.misshaped) <= study.unshaped else {}
        return self._verdict(replace(what, state=same)) if same else None

    def _case(self, mode, graph_path, study, what, checkpoint, judged) -> cases.Case:
        unstated = self._verdict_without_shapes(what, judged[0], study)
        verdict, refusal, expected = unstated or judged
        place = self.folder / f"case {graph_path.stem} {checkpoint.parent.name}"
        must = not refusal and not unstated and not what.lenient and not study.undecidable
        must = must and self._is_enough(verdict, what.state, study)
        return cases.Case(
            label=self.label,
            mode=mode.name,
            damage=what.name,
            graph_path=graph_path,
            checkpoint=checkpoint,
            old=self.folder / "old.pt",
            folder=place,
            study=study,
            refusal=refusal,
            must_succeed=must,
            must_learn=study.learnable and what.name in FITTING,
            certain_inputs=self._certain_inputs(mode, study),
            expected=expected,
            feeds=self._feeds(study),
            positions=truth.positions_missing(verdict),
            tolerance=self.spec.tolerance,
        )

    def _certain_inputs(self, mode, study) -> bool:
        """Return whether the caller's inputs can be recognized: they are marked, single, integers, or dynamic."""
        first = self.inputs[0]
        if isinstance(mode, exporters.ModernMode):
            return True
        if study.integer_inputs:
            return False
        return self.spec.dynamic or len(first) == 1 or not any(v.is_floating_point() for v in first)

    def _is_enough(self, verdict, state: dict, study) -> bool:
        """Return whether the graph's needs are met, and all that is left over belongs to unused modules."""
        for names in self.groups:
            given = [name for name in names if name in state]
            if given and not any(name in study.named for name in given):
                if not any(study.tells_tie(n, g) for n in names if n in study.named for g in given):
                    return False
        if any(not key.endswith("num_batches_tracked") for key in verdict.missing) or verdict.misshaped:
            return False
        own = verdict.module.state_dict()
        left = [k for k, v in state.items() if v.is_floating_point() and k not in study.named]
        left = [k for k in left if k in verdict.unexpected or k in own]
        return not any(state[key].numel() in study.sizes for key in left)


class Settings:
    """The settings that all rounds share, which each worker creates again."""

    def __init__(self, arguments):
        self.exporter, self.seed = arguments.exporter, arguments.seed
        self.mode, self.damage = arguments.mode, arguments.damage
        self.checkpoints = checkpoints_per_mode(arguments)
        self.work_dir = arguments.work_dir.resolve() / f"strict_{arguments.exporter}"
        self.failed_dir = self.work_dir / "failed"
        self._bin = arguments.bin_dir.resolve()
        self._known = arguments.known_options
        self._sabotage = tuple(arguments.sabotage.split())
        if arguments.exporter == "legacy":
            self.runtime = runtimes.NodeRuntime(arguments.node_modules)
        else:
            self.runtime = runtimes.PythonRuntime()

    def tool(self) -> cases.Tool:
        return cases.Tool(self._bin, self._known, self._sabotage)


def specs_of(arguments) -> list:
    specs = [s for s in modules.SPECS.values() if getattr(s, arguments.exporter)]
    return [s for s in specs if arguments.only in s.name]


def checkpoints_per_mode(arguments) -> int:
    """Return a number for which the first round, with all modules, makes up most of a short run."""
    return max(3, min(8, arguments.cases // (MODES * (len(specs_of(arguments)) + FRESH))))


def plan(arguments):
    """Yield (spec, round number) without end: all modules, then random ones, then all again in other modes."""
    specs = specs_of(arguments)
    for number in itertools.count():
        first = arguments.seed * 1000003 + number * FRESH
        fresh = [random_modules.spec(first + i) for i in range(FRESH)]
        yield from ((s, number) for s in specs + fresh if arguments.only in s.name)
