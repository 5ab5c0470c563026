"""Runs a case: saves a checkpoint into a graph with save-external, and judges the result with torch and ONNX
Runtime.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import onnx

import truth

# The possible outcomes of a case. The first five are right for a strict tool.
RIGHT = "right"
REFUSED = "refused, as torch"
REFUSED_FIT = "refused, undecidable"
ASKED = "right, confirmed"
LEARNED = "right, learned"
EXPORTER = "exporter is wrong"
# These fail the test.
LOST = "REFUSED, DECIDABLE"
ACCEPTED = "WRONG: ACCEPTED"
NUMBERS = "WRONG: NUMBERS"
BROKEN = "WRONG: NO RUN"
UNVERIFIED = "WRONG: VERIFY"
ADVICE = "WRONG: ADVICE"
CRASHED = "CRASH"
CLASSES = (
    RIGHT, ASKED, LEARNED, REFUSED, REFUSED_FIT, EXPORTER, LOST, ACCEPTED, NUMBERS, BROKEN, UNVERIFIED, ADVICE, CRASHED,
)  # fmt: skip
FAILURES = CLASSES[6:]


@dataclass
class Case:
    """The facts about a case before the tool runs, and the verdict."""

    label: str
    mode: str
    damage: str
    graph_path: Path
    checkpoint: Path
    old: Path  # the checkpoint that the graph was exported from
    folder: Path  # of the written model
    study: object  # decidable.Graph
    refusal: str  # why no save may succeed, or ''
    must_succeed: bool
    must_learn: bool  # bytes decide, once the old checkpoint is given
    certain_inputs: bool  # nobody has to confirm the caller's inputs
    expected: list  # outputs for each input set
    feeds: list
    tolerance: float
    positions: dict = field(default_factory=dict)  # integers of the module that the checkpoint lacks
    options: list = field(default_factory=list)
    verdict: str = ""
    detail: str = ""

    @property
    def model(self) -> Path:
        return self.folder / "model.onnx"

    def feed_positions(self) -> None:
        """Position ids that the checkpoint lacks may be the caller's input, as integers are: then they are given."""
        if self.positions:
            inputs = {value.name for value in onnx.load(self.model, load_external_data=False).graph.input}
            given = {name: value for name, value in self.positions.items() if name in inputs}
            self.feeds = [{**feed, **given} for feed in self.feeds]

    def decide(self, verdict: str, detail: str = "") -> None:
        self.verdict, self.detail = verdict, " ".join(detail.split())[:600]


class Tool:
    """Runs the commands, only with the options that their messages ask a user to confirm."""

    def __init__(self, bin_dir: Path, known_options: str, extra: tuple = ()):
        self._bin, self._known, self._extra = bin_dir, known_options, list(extra)

    def _run(self, name: str, *arguments):
        command = [str(self._bin / name), *map(str, arguments), "--json", "--threads", "1", *self._extra]
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120)

    def save(self, case: Case) -> None:
        """Save with default options, then with the old checkpoint; judge the case if the save fails."""
        refusal = self._try(case)
        if refusal and not case.verdict and not case.must_succeed and self._can_learn(case):
            case.options = ["--learn-map", str(case.old)]
            refusal = self._try(case)
        if refusal and not case.verdict:
            self._decide_refusal(case, refusal)

    def _can_learn(self, case: Case) -> bool:
        return case.study.has_data and "--learn-map" in self._known

    def _try(self, case: Case) -> str:
        """Run save-external until it succeeds or asks for nothing that is true; return its error."""
        for _ in range(4):
            process = self._run(
                "save-external", case.graph_path, case.checkpoint, "-o", case.folder, "--no-fsync",
                *case.options,
            )  # fmt: skip
            text = process.stderr + process.stdout
            if process.returncode == 0:
                return ""
            if process.returncode != 1:
                case.decide(CRASHED, f"exit {process.returncode}: {text}")
                break
            if not case.refusal and not self._offers_inputs(case, text):
                case.decide(ADVICE, text)
                break
            if not self._confirm(case, text):
                break
        return text

    def _confirm(self, case: Case, text: str) -> bool:
        """Add an option for which the message asks, if it is true."""
        true_answers = [("--dtype", "slot"), ("--inputs", ",".join(case.study.inputs))]
        # A single number is a constant without being asked for, unless the keys are those of a part.
        numbers = case.study.numbers if case.damage == "a bare submodule" else []
        if case.study.constants + numbers and "--keep" in self._known:
            true_answers.insert(1, ("--keep", ",".join(case.study.constants + numbers)))
        for option, value in true_answers:
            if option in text and option not in case.options:
                case.options += [option] if value is None else [option, value]
                return True
        return False

    @staticmethod
    def _offers_inputs(case: Case, text: str) -> bool:
        """Check that a refusal with lists for --inputs contains the true one."""
        lists = re.findall(r"--inputs[ =]'?([\w.:/,-]+)", text)
        lists = [set(names.rstrip(".,").split(",")) for names in lists if not names.isupper()]
        return not lists or set(case.study.inputs) in lists

    @staticmethod
    def _decide_refusal(case: Case, text: str) -> None:
        reason = first_error(text)
        if case.refusal:
            case.decide(REFUSED, reason)
        elif case.must_succeed or (case.must_learn and "--learn-map" in case.options):
            case.decide(LOST, text)
        else:
            case.decide(REFUSED_FIT, f"{reason} [{'; '.join(case.study.undecidable[:2])}]")

    def verify(self, case: Case) -> str | None:
        # What was learned stands in the manifest, which answers where no option maps anew.
        options = [] if "--learn-map" in case.options else case.options
        process = self._run("verify-external", case.model, "--against", case.checkpoint, *options)
        return None if process.returncode == 0 else process.stderr + process.stdout


def first_error(text: str) -> str:
    for line in text.splitlines():
        if "error" in line:
            return line
    return text[:200]


def difference(outputs, expected: list) -> float:
    """Return the largest difference for all input sets, or infinity if the runtime did not run the model."""
    if isinstance(outputs, str) or any(len(g) != len(w) for g, w in zip(outputs, expected)):
        return float("inf")
    return max(truth.distance(got, want) for got, want in zip(outputs, expected))


def judge_numbers(case: Case, outputs, tool: Tool) -> None:
    """Judge a case that was saved. outputs: ONNX Runtime's for each input set, or why it does not run."""
    if case.study.broken:
        case.decide(EXPORTER)
        return
    if case.refusal:
        case.decide(ACCEPTED, case.refusal)
        return
    if isinstance(outputs, str):
        case.decide(BROKEN, outputs)
        return
    far = difference(outputs, case.expected)
    if not far <= case.tolerance:
        case.decide(NUMBERS, f"off by {far:.3g}; {'; '.join(case.study.undecidable[:3])}")
        return
    complaint = tool.verify(case)
    if complaint:
        case.decide(UNVERIFIED, complaint)
    elif case.must_succeed and case.certain_inputs and "--inputs" in case.options:
        case.decide(LOST, "--inputs was asked for, although the caller's inputs are certain")
    elif "--learn-map" in case.options:
        case.decide(LEARNED)
    else:
        case.decide(ASKED if case.options else RIGHT, " ".join(case.options))


def keep(case: Case, folder: Path) -> None:
    """Copy the files of a failed case, with a command to reproduce it."""
    place = folder / re.sub(r"[^\w]+", "_", f"{case.verdict} {case.label} {case.mode} {case.damage}")
    place.mkdir(parents=True, exist_ok=True)
    shutil.copy(case.graph_path, place / "graph.onnx")
    shutil.copy(case.checkpoint, place)
    shutil.copy(case.old, place)
    command = ["save-external", "graph.onnx", case.checkpoint.name, "-o", "out", *case.options]
    (place / "README").write_text(f"{' '.join(command)}\n\n{case.verdict}\n{case.detail}\n")
