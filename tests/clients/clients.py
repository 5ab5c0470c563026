"""Opens exported folders with the programs in docs/consumers.md, and compares their results with transformers.

usage: clients.py --work-dir DIR [--client NAME,...] [--model NAME,...] [--together] [--keep] [--page FILE]

Each client runs in an environment of its own, which is made in DIR. A folder is exported with the
usual names, and if a client does not take that, for the client (--for). --together: one export for
all clients, which must take it. --keep: open what an earlier run has exported. --page: renew these
cells in the table of docs/consumers.md.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from environments import HERE, VERSIONS, InstallError, node_modules, python_of
from models import MODELS, SPECIAL, Model, make, new_tokens, text_of
from table import WRONG, renew
from variants import SUFFIXES, wanted

import onnx_external as oe

TOLERANCE = 2e-5
IN_BROWSER = {"transformers.js-browser": "transformers.js", "onnxruntime-web": "onnxruntime-web"}
"""By client, what the page of examples/browser runs the graphs with."""
OF_BROWSER = ("bert_classes", "llama", "t5", "whisper")
"""Models that are opened in a browser, in all variants."""
WITH_STATES = ("lfm2", "granite_hybrid", "falcon_h1", "qwen3_next", "qwen3_5", "olmo_hybrid")
"""Models whose usual graphs are two, which only some clients could take."""
WITH_FOLDER = "transformers.js"
"""It looks for graphs in a folder of their own, and so never takes the usual folder."""
FOR = dict.fromkeys(IN_BROWSER, "transformers.js")
"""What --for is told for a client, if that is not its name."""


def is_for(client: str, name: str, about: Model) -> bool:
    """Return whether a client can be tested with this model."""
    if client == "openvino":
        return True
    if name in WITH_STATES:
        return client == "transformers.js"
    if client in ("sentence-transformers", "fastembed") or name == "sentences":
        return client in ("sentence-transformers", "fastembed", "openvino") and name == "sentences"
    if client == "genai":
        return about.auto in ("CausalLM", "SpeechSeq2Seq")
    if client in IN_BROWSER:
        return name in OF_BROWSER
    return client != "optimum" or name not in ("yolos", "detr", "clip")


def difference(job: dict[str, Any], answer: dict[str, Any]) -> str:
    """Return how an answer differs from transformers', or "" if it does not differ."""
    if "error" in answer:
        return answer["error"]
    if "error_of_graphs" in answer:
        worst = answer["error_of_graphs"]
        return "" if worst <= TOLERANCE else f"off by {worst:.2g}"
    wanted = job["wanted"]
    if job["count"]:
        prompt = job["prompt"][0] if job["prompt"] else []
        if job["auto"] == "CausalLM":
            prompt = job["inputs"]["input_ids"]["data"]
        row = answer["new_tokens"] if "new_tokens" in answer else answer["tokens"][0]
        if job["auto"] == "Seq2SeqLM" and "tokens" in answer:
            row = row[1:]  # without the first token
        found = new_tokens(row, prompt)
        if found != wanted:
            return f"other tokens: {found}, not {wanted}"
        if "texts" not in answer:
            return ""
        said = answer["texts"][0]
        for word in SPECIAL:
            said = said.replace(word, "")
        return "" if said.strip().endswith(text_of(wanted).strip()) else f"another text: {said!r}"
    flat = [each for row in wanted for each in row] if job["texts"] else wanted
    if len(flat) != len(answer["values"]):
        return f"{len(answer['values'])} values, not {len(flat)}"
    scale = max(1.0, *map(abs, flat))
    worst = max(abs(one - two) for one, two in zip(flat, answer["values"], strict=True)) / scale
    return "" if worst <= TOLERANCE else f"off by {worst:.2g}"


class Campaign:
    """Models, their exported folders, and the answers of the clients."""

    def __init__(self, work: Path, names: list[str], clients: list[str], keep: bool) -> None:
        self.work, self.clients = work, clients
        self._variants = tuple(SUFFIXES)
        self._environments = work / "environments"
        shutil.rmtree(work / "models", ignore_errors=True)
        if not keep:
            shutil.rmtree(work / "folders", ignore_errors=True)
        self.jobs = {name: make(name, work / "models" / name) for name in names}
        self.cells: dict[tuple[str, str], str] = {}
        self._refused: dict[tuple[str, str], str] = {}

    def export(self, name: str, way: str, clients: list[str]) -> Path | None:
        """Export a model; return None if it is rejected."""
        out = self.work / "folders" / way / name
        if not out.exists() and (name, way) not in self._refused:
            more: dict[str, Any] = {"task": "sentence-similarity"} if name == "sentences" else {}
            if name in OF_BROWSER and "transformers.js" in clients:
                more["variants"] = list(self._variants)
            try:
                oe.transformers.export(
                    self.work / "models" / name, out, clients=clients, fsync=False, progress=False, **more
                )
            except oe.Error as error:
                self._refused[name, way] = str(error)
        return out if out.exists() else None

    def ask(self, client: str, names: list[str], way: str, asked: list[str]) -> dict[str, str]:
        """Let a client open folders; return the fault for each model, or "" if the answer is right."""
        found, jobs, given = {}, [], []
        for name in names:
            folder = self.export(name, way, asked)
            if folder is None:
                found[name] = f"refused: {self._refused[name, way]}"
                continue
            job = {**self.jobs[name], "folder": str(folder)}
            for dtype in self._variants if client in IN_BROWSER and asked else (None,):
                more = {"dtype": dtype, "wanted": wanted(folder, job, dtype)} if dtype else {}
                jobs.append({**job, **more})
                given.append(name)
        for name, job, each in zip(given, jobs, self._run(client, jobs) if jobs else [], strict=True):
            wrong = difference(job, each)
            wrong = f"{job['dtype']}: {wrong}" if wrong and "dtype" in job else wrong
            found[name] = found.get(name) or wrong
        return found

    def _run(self, client: str, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        jobs_file, answers = self.work / f"{client}.jobs.json", self.work / f"{client}.answers.json"
        jobs_file.write_text(json.dumps(jobs))
        answers.unlink(missing_ok=True)
        last: list[Any] = []
        if client in IN_BROWSER:
            modules = node_modules(self._environments)
            script, last = [sys.executable, HERE / "run_in_browser.py"], [modules, IN_BROWSER[client]]
        elif client == "transformers.js":
            script = ["node", HERE / "run_transformers_js.mjs", node_modules(self._environments)]
        else:
            script = [python_of(client, self._environments), HERE / f"run_{client.replace('-', '_')}.py"]
        rest = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment = {**rest, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        done = subprocess.run(
            [*script, jobs_file, answers, *last], env=environment, capture_output=True, text=True, timeout=1800
        )
        if not answers.is_file():
            said = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return [{"error": f"it ended with {done.returncode}: {said}"} for _ in jobs]
        return json.loads(answers.read_text())

    def run(self) -> None:
        """Fill the table. Each client gets the usual folder, and its own folder for models that it rejects."""
        for client in self.clients:
            names = [name for name in self.jobs if is_for(client, name, MODELS[name])]
            wanted = FOR.get(client, client)
            usual = {} if wanted == WITH_FOLDER else self.ask(client, names, "usual", [])
            left = [name for name in names if usual.get(name, "not asked")]
            again = self.ask(client, left, wanted, [wanted])
            for name in names:
                cell = f"`--for {wanted}`" if name in left else "as it stands"
                cell = f"{WRONG}{again[name]}" if again.get(name) else cell
                self.tell(client, name, cell)

    def run_together(self) -> None:
        """Let all clients open one folder of each model."""
        asked = sorted({FOR.get(client, client) for client in self.clients})
        self._variants = self._variants[:1]  # the other variants take long
        for client in self.clients:
            names = [name for name in self.jobs if is_for(client, name, MODELS[name])]
            for name, wrong in self.ask(client, names, "together", asked).items():
                self.tell(client, name, f"{WRONG}{wrong}" if wrong else "right")

    def tell(self, client: str, name: str, cell: str) -> None:
        self.cells[client, name] = cell
        print(f"{client}: {name}: {cell}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--work-dir", required=True, type=Path)
    parser.add_argument("--client", default=",".join(VERSIONS))
    parser.add_argument("--model", default=",".join(MODELS))
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    start, clients = time.monotonic(), given.client.split(",")
    if shutil.which("chromium") is None and IN_BROWSER.keys() & set(clients):
        clients = [each for each in clients if each not in IN_BROWSER]
        print("skipped: chromium is not installed")
    try:
        campaign = Campaign(given.work_dir.resolve(), given.model.split(","), clients, given.keep)
        (campaign.run_together if given.together else campaign.run)()
    except InstallError as error:
        print(f"clients: error: {error}", file=sys.stderr)
        return 1
    if given.page:
        cells = {(VERSIONS[one], MODELS[name].label): cell for (one, name), cell in campaign.cells.items()}
        renew(given.page, cells, list(VERSIONS.values()), [each.label for each in MODELS.values()])
    wrong = sum(cell.startswith(WRONG) for cell in campaign.cells.values())
    took = time.monotonic() - start
    print(f"{len(campaign.cells) - wrong} passed, {wrong} failed in {took:.0f} s")
    return 1 if wrong and given.together else 0


if __name__ == "__main__":
    sys.exit(main())
