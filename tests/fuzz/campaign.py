"""Fuzz every kind of input, and write the coverage to BUILD_DIR/page.md.

usage: campaign.py BUILD_DIR [--seconds S | --executions N] [--jobs J] [--only NAME ...]
                   [--work DIR] [--coverage DIR] [--no-page]

BUILD_DIR is made with clang and -DONNX_EXTERNAL_BUILD_FUZZERS=ON -DCMAKE_BUILD_TYPE=Release. Each
target runs for S seconds (default 60) or N executions, J of them at a time. What is found new stays
in DIR/corpus (default: BUILD_DIR/campaign), from which the next campaign goes on; findings lie in
DIR/findings. Counts add up in tests/fuzz/executions.json. --coverage DIR builds there once more, with
clang's source-based coverage, reads the corpus and 10,000 mutants of it, and writes how many lines of
each reader were reached.
Ends with 1 when something was found.
"""

import argparse
import concurrent.futures
import datetime
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COUNTS = HERE / "executions.json"

# The kind of input, its maximum length, and the dictionary.
TARGETS = {
    "dcp": ("`.metadata` of a distributed checkpoint", 4096, "pickle"),
    "entries": ("external-data entries", 256, "entries"),
    "exported": ("the config of an exported program", 2048, "json"),
    "gguf": ("GGUF", 4096, "gguf"),
    "index": ("shard index", 512, "json"),
    "legacy": ("legacy torch file, plain pickle", 4096, "pickle"),
    "manifest": ("manifest of a saved model", 1536, "json"),
    "map": ("map file", 512, "json"),
    "onnx": ("ONNX model", 8192, "onnx"),
    "pickle": ("pickle", 2048, "pickle"),
    "quantized": ("quantized weights and their config", 2048, "json"),
    "record": ("record of a killed save", 1024, "json"),
    "safetensors": ("safetensors", 1024, "json"),
    "script": ("pickles and code of a TorchScript archive", 4096, "pickle"),
    "tar": ("torch 0.1 tar file", 8192, "pickle"),
    "values": ("sparse, quantized, nested values, numpy arrays", 4096, "pickle"),
    "zip": ("torch zip file", 8192, "zip"),
}

# The readers, which take the bytes of a file apart.
READERS = re.compile(
    r"base/(byte_reader\.h|inflate|json|safe_path)|"
    r"checkpoint/(?!naming/(cache_classes|choose_state_dict|class_flattening)|checkpoint\.|open_checkpoint)|"
    r"onnx/(?!attach|placeholder)|mapping/map_file|save/(record|manifest)\.|verify/external_entry")

# The readers that parse a format. The others make tensors and names from the results.
PARSERS = re.compile(
    r"base/(byte_reader|inflate|json)|mapping/map_file|save/(record|manifest)\.|"
    r"onnx/(external_data|wire_reader|wire_scan|cut_tensors)|checkpoint/(container/|pickle/|dcp/|gguf/gguf_(cursor|file)|torch/(legacy_file|pickle_bytes)|"
    r"formats/(pickle_file|safetensors|shard_index|torch_(legacy|tar|script)|exported_program))")

ALLOWED_MIB = 256  # in addition to the needs of the sanitizers and libFuzzer
SLOW_SECONDS = 1
# Stack traces of allocations, and keeping freed memory for long, would halve the speed.
ENVIRONMENT = {"ASAN_OPTIONS": "quarantine_size_mb=8:malloc_context_size=4", "UBSAN_OPTIONS": "print_stacktrace=1"}


def sources() -> str:
    """Return an identifier of the code that is fuzzed."""
    digest = hashlib.sha256()
    for path in sorted(path for top in ("include", "src") for path in (ROOT / top).rglob("*.[hc]*")):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


class Counts:
    """The number of executions so far, in all campaigns and with these sources."""

    def __init__(self):
        self.lock = threading.Lock()
        self.all = {}
        self.sources = sources()
        self.read()

    def read(self) -> None:
        self.all = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}

    def add(self, target: str, run: dict) -> None:
        with self.lock, COUNTS.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # other campaigns may run at the same time
            self.read()
            row = self.all.setdefault(target, {"executions": 0, "seconds": 0, "peak_mib": 0})
            if row.get("sources") != self.sources:
                row.update(sources=self.sources, executions_of_these_sources=0, found=0)
            row["executions"] += run["executions"]
            row["executions_of_these_sources"] += run["executions"]
            row["seconds"] += run["seconds"]
            row["found"] += len(run["found"])
            row["peak_mib"] = max(row["peak_mib"], run["peak_mib"])
            COUNTS.write_text(json.dumps(self.all, indent=1, sort_keys=True) + "\n")


def stat(text: str, name: str) -> int:
    found = re.findall(rf"stat::{name}:\s*(\d+)", text)
    return int(found[-1]) if found else 0


class Campaign:
    def __init__(self, build: Path, work: Path):
        self.binaries = build / "tests/fuzz"
        self.work = work
        self.seeds = work / "seeds"
        self.findings = work / "findings"
        self.environment = {**os.environ, **ENVIRONMENT}
        if Path("/dev/shm").is_dir():
            self.environment["TMPDIR"] = "/dev/shm"  # some targets create a folder there
        self.findings.mkdir(parents=True, exist_ok=True)
        subprocess.run([self.binaries / "fuzz_seeds", self.seeds], check=True)

    def corpus(self, target: str) -> Path:
        folder = self.work / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def call(self, target: str, *words) -> subprocess.CompletedProcess:
        command = [self.binaries / f"fuzz_{target}", *words]
        return subprocess.run([str(word) for word in command], env=self.environment, stderr=subprocess.PIPE,
                              stdout=subprocess.DEVNULL, text=True, errors="replace")

    def own_mib(self, target: str) -> int:
        """Return the memory that the process needs without any large input."""
        done = self.call(target, "-runs=1000", "-print_final_stats=1", "-print_funcs=0", self.corpus(target),
                         self.seeds / target)
        return stat(done.stderr, "peak_rss_mb")

    def run(self, target: str, limit: str) -> dict:
        _, max_len, dictionary = TARGETS[target]
        before = set(self.findings.iterdir())
        done = self.call(
            target, limit, "-print_final_stats=1", "-print_funcs=0", "-entropic=0", "-timeout=60",
            f"-report_slow_units={SLOW_SECONDS}", f"-malloc_limit_mb={ALLOWED_MIB}",
            f"-rss_limit_mb={self.own_mib(target) + ALLOWED_MIB}",
            f"-max_len={max_len}", f"-dict={HERE / dictionary}.dict", f"-artifact_prefix={self.findings}/{target}-",
            self.corpus(target), self.seeds / target)
        (self.work / f"{target}.log").write_text(done.stderr)
        seconds = re.findall(r"Done \d+ runs in (\d+) second", done.stderr)
        rate = stat(done.stderr, "average_exec_per_sec")
        executions = stat(done.stderr, "number_of_executed_units")
        new = [path for path in set(self.findings.iterdir()) - before if path.name.startswith(f"{target}-")]
        found = [path for path in new if not self.is_false_alarm(target, path)]
        if done.returncode != 0 and not new:
            found = [self.work / f"{target}.log"]
        return {"executions": executions, "peak_mib": stat(done.stderr, "peak_rss_mb"), "found": found,
                "seconds": int(seconds[-1]) if seconds else executions // max(rate, 1), "rate": rate}

    def is_false_alarm(self, target: str, path: Path) -> bool:
        """Return whether an input is not really slow. libFuzzer measures wall time, but only processor time counts."""
        if not path.name.startswith((f"{target}-slow-unit", f"{target}-timeout")):
            return False
        process = subprocess.Popen([self.binaries / f"fuzz_{target}", path], env=self.environment,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0 or usage.ru_utime + usage.ru_stime >= SLOW_SECONDS:
            return False
        path.unlink()
        return True

    def minimize(self, target: str) -> None:
        """Keep one input for each feature that the corpus covers."""
        old = self.corpus(target)
        new = old.with_name(f"{target}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        if self.call(target, "-merge=1", "-print_funcs=0", f"-max_len={TARGETS[target][1]}", new, old).returncode == 0:
            shutil.rmtree(old)
            new.rename(old)


def coverage(build: Path, campaign: Campaign) -> list:
    """Return (file, lines, lines reached) for each reader and for all readers together."""
    flags = "-fprofile-instr-generate -fcoverage-mapping"
    subprocess.run(["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", "-DCMAKE_CXX_COMPILER=clang++-14",
                    "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0", f"-DCMAKE_CXX_FLAGS={flags}",
                    "-DONNX_EXTERNAL_BUILD_BENCHMARKS=OFF"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", build, "--target", "fuzz"], check=True, stdout=subprocess.DEVNULL)
    programs = [build / "tests/fuzz" / f"fuzz_{target}" for target in TARGETS]
    profiles = [campaign.work / f"{target}.profraw" for target in TARGETS]

    def read(target: str, program: Path, profile: Path) -> None:
        subprocess.run([program, "-runs=10000", campaign.corpus(target), campaign.seeds / target], check=True,
                       stdout=subprocess.DEVNULL, env={**campaign.environment, "LLVM_PROFILE_FILE": str(profile)})

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(read, TARGETS, programs, profiles))
    merged = campaign.work / "coverage.profdata"
    subprocess.run(["llvm-profdata-14", "merge", "-o", merged, *profiles], check=True)
    objects = [word for program in programs[1:] for word in ("-object", program)]
    command = ["llvm-cov-14", "export", "-summary-only", f"-instr-profile={merged}", programs[0], *objects]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = []
    for file in json.loads(answer)["data"][0]["files"]:
        name = os.path.relpath(file["filename"], ROOT / "src")
        lines = file["summary"]["lines"]
        if READERS.match(name) and lines["count"]:
            rows.append((name, lines["count"], lines["covered"]))
    return sorted(rows)


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"


def counts_table(counts: Counts) -> list:
    lines = ["| target | what is read | executions | of these sources | most memory |", "|---|---|---|---|---|"]
    everything = here = 0
    for target, (what, _, _) in TARGETS.items():
        row = counts.all.get(target)
        if row is None:
            continue
        same = row["executions_of_these_sources"] if row["sources"] == counts.sources else 0
        everything, here = everything + row["executions"], here + same
        lines.append(f"| {target} | {what} | {row['executions']:,} | {same:,} | {row['peak_mib']} MiB |")
    return [*lines, f"| all | | **{everything:,}** | **{here:,}** | |"]


def reached(rows: list) -> str:
    whole, hit = sum(row[1] for row in rows), sum(row[2] for row in rows)
    return f"**{percent(hit, whole)}** ({hit:,} of {whole:,})"


def coverage_table(rows: list) -> list:
    parsers = [row for row in rows if PARSERS.match(row[0])]
    lines = [f"Lines of the parsers that the corpus and 10,000 mutants of it for each target reach: {reached(parsers)};",
             f"with the code that makes tensors and names of what they find: {reached(rows)}.", "",
             "| file | lines | reached | | file | lines | reached |", "|---|---|---|---|---|---|---|"]
    half = (len(rows) + 1) // 2
    cells = [f"{name} | {count} | {percent(hit, count)}" for name, count, hit in rows] + [" | | "]
    return lines + [f"| {cells[i]} | | {cells[min(half + i, len(cells) - 1)]} |" for i in range(half)]


def write_page(page: Path, counts: Counts, rows: list) -> None:
    found = sum(row["found"] for row in counts.all.values() if row["sources"] == counts.sources)
    lines = [f"Last campaign: {datetime.date.today().isoformat()}. Found in the sources as they are: **{found}**.", "",
             *counts_table(counts), "", *(coverage_table(rows) if rows else [])]
    page.write_text("\n".join(lines).rstrip() + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--executions", type=int)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--work", type=Path)
    parser.add_argument("--coverage", type=Path)
    parser.add_argument("--no-page", action="store_true")
    arguments = parser.parse_args()
    campaign = Campaign(arguments.build.resolve(), (arguments.work or arguments.build / "campaign").resolve())
    counts = Counts()
    limit = f"-runs={arguments.executions}" if arguments.executions else f"-max_total_time={arguments.seconds}"

    def attack(target: str) -> list:
        run = campaign.run(target, limit)
        counts.add(target, run)
        campaign.minimize(target)
        print(f"{target:12} {run['executions']:12,} executions, {run['rate']:7,} a second, {run['peak_mib']} MiB, "
              f"found: {', '.join(map(str, run['found'])) or 'nothing'}", flush=True)
        return run["found"]

    found = []
    if arguments.seconds or arguments.executions:
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            found = [path for paths in pool.map(attack, arguments.only) for path in paths]
    rows = coverage(arguments.coverage.resolve(), campaign) if arguments.coverage else []
    for name, count, hit in rows:
        print(f"{name:40} {hit:5} of {count:5} {percent(hit, count)}")
    if not arguments.no_page:
        counts.read()
        write_page(arguments.build / "page.md", counts, rows)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
