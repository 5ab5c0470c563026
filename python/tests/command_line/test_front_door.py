"""Tests of `onnx-external` and `python -m onnx_external`: help, wrong options, JSON errors."""

import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe
from onnx_external import __main__ as front
from onnx_external import _core
from onnx_external._base.errors import Item, MappingError, Remedy
from onnx_external._commands.command_line import Parser, did_you_mean, man_page
from onnx_external._commands.command_line import run as run_command
from onnx_external._commands.diagnose import parser as diagnose
from onnx_external._commands.export import parser as export
from onnx_external._commands.generate import parser as generate
from onnx_external._commands.validate import parser as validate

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "packaging/onnx-external.1"
PARSERS = {"export": export, "generate": generate, "validate": validate, "diagnose": diagnose}


def run(*arguments: object, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str, str]:
    """Return a function that runs a command; it returns exit code, stdout and stderr."""
    monkeypatch.setattr(sys, "argv", ["onnx-external", *map(str, arguments)])
    monkeypatch.setattr(sys, "path", list(sys.path))
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = front.main()
        except SystemExit as end:
            code = int(end.code or 0)
    return code, out.getvalue(), err.getvalue()


def test_help_and_version_are_results_and_nothing_at_all_is_a_wrong_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code, out, err = run("--help", monkeypatch=monkeypatch)
    assert code == 0 and not err
    assert all(f"\n  {name} " in out for name in [*front.NATIVE, *front.OURS])
    assert run("-h", monkeypatch=monkeypatch) == (0, out, "")
    assert run("--version", monkeypatch=monkeypatch) == (0, f"onnx-external {oe.__version__}\n", "")
    assert run(monkeypatch=monkeypatch) == (2, "", out)


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["exprt"], "'exprt'; did you mean export?"),
        (["save-external", "x"], "here it is onnx-external save;"),
        (["--hlep"], "'--hlep'; did you mean --help?"),
        (["export", "--layot", "link"], "'--layot'; did you mean --layout?"),
        (["validate", "m.onnx", "--agianst=x"], "'--agianst'; did you mean --against?"),
        (["diagnose", "--zzzzz"], "unknown option '--zzzzz'; onnx-external diagnose --help"),
        (["validate"], "required: model"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2_and_names_what_is_near(
    words: list[str], near: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(*words, monkeypatch=monkeypatch)
    assert code == 2 and not out
    assert near in err and len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (["export", "nope", "-o", "x"], 1, "not-found"),
        (["validate", "nope.onnx"], 1, "not-found"),
        (["diagnose", "nope", "--exporter", "export"], 1, "not-found"),
        (["validate", "nope.onnx", "--layot", "link"], 2, "usage"),
    ],
)
def test_an_error_is_a_document_if_it_is_asked_for(
    words: list[str],
    code: int,
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    got, out, err = run(*words, "--json", monkeypatch=monkeypatch)
    error = json.loads(out)["error"]
    assert (got, error["code"]) == (code, kind)
    assert error["message"] in err and f"onnx-external {words[0]}: error: " in err
    assert {"code", "kind", "file", "message", "lists", "remedies"} == error.keys()
    if kind == "not-found":
        assert error["file"] == words[1]


def test_messages_have_the_options_of_the_command() -> None:
    for parser, text, told in [
        (export(), "a/b: exists; overwrite=True replaces it", "--overwrite replaces it"),
        (export(), "dynamic=False fixes all sizes, and check=False", "--static fixes all sizes"),
        (export(), "optimize=False skips it", "--no-optimize skips it"),
        (export(), "layout='link' refers to", "--layout link refers to"),
        (export(), "give max_iterations=N", "give --max-iterations N"),
        (export(), 'asserts="omit" leaves', "--asserts omit leaves"),
        (export(), "files=oe.Layout(transpose_weights=True): x", "--transpose-weights: x"),
        (validate(), "give against= (a module", "give --against (a module"),
        (validate(), "dims={name: size} says", "--dim says"),
        (validate(), "strict=True traces it", "strict=True traces it"),
    ]:
        assert told in parser.in_options(text)


def test_remedies_are_the_options_that_the_command_has() -> None:
    parser, err = export(), io.StringIO()
    error = MappingError("it fails")
    error.remedies += [
        Remedy("max_shard_size", "2GB", "for small files"),
        Remedy("ignore", "^ema", "it is not a weight"),
    ]
    with redirect_stderr(err):
        parser.refuse(error)
    assert err.getvalue().splitlines() == [
        "onnx-external export: error: it fails",
        "  --max-shard-size 2GB: for small files",
    ]


def test_lists_are_documents_by_kind_and_graph(capsys: pytest.CaptureFixture[str]) -> None:
    parser = export()
    parser.wants_json = True
    error = MappingError("it fails")
    error.kind = "missing"
    error.lists["missing"] = [
        Item("w", "FLOAT [2]", "", ["v"], "a.onnx"),
        Item("w", "", "", [], "b.onnx"),
    ]
    error.lists["unused"] = [Item("v", "", "", [])]
    parser.refuse(error)
    found = json.loads(capsys.readouterr().out)["error"]
    assert found["kind"] == "missing"
    lists = [(each["kind"], each["owner"], each["title"]) for each in found["lists"]]
    assert lists == [
        (kind, owner, _core.list_title(kind, owner))
        for kind, owner in [("missing", "a.onnx"), ("missing", "b.onnx"), ("unused", "")]
    ]
    item = {"name": "w", "form": "FLOAT [2]", "note": "", "candidates": ["v"]}
    assert found["lists"][0]["items"] == [item]


def test_what_is_far_from_every_word_has_no_suggestion() -> None:
    assert did_you_mean("option", "--zzz", ["--help"]) == "unknown option '--zzz'"


def test_every_option_of_every_command_is_explained() -> None:
    for name, make in PARSERS.items():
        for action in make()._actions:
            assert action.help, f"{name} {action.option_strings}"


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="each argparse writes help otherwise")
def test_the_manual_page_is_what_the_commands_say() -> None:
    made = man_page(front.help_text(), [make() for make in PARSERS.values()], oe.__version__)
    if os.environ.get("REBLESS"):
        PAGE.write_text(made)
    assert PAGE.read_text() == made


def completed(folder: Path, *words: str) -> list[str]:
    """Return the completions that bash offers for the last word."""
    command = folder / "onnx-external"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m onnx_external "$@"\n')
    command.chmod(0o755)
    script = (
        'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        '_onnx_external "$1"; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    bash = ["bash", "--norc", "-c", script, str(ROOT / "packaging/completions.bash")]
    done = subprocess.run([*bash, str(command), *words], capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.split()


def test_bash_completes_commands_options_and_choices(tmp_path: Path) -> None:
    assert set(completed(tmp_path, "")) == {*front.NATIVE, *front.OURS, "--help", "--version"}
    assert completed(tmp_path, "ex") == ["export"]
    options = {option for action in validate()._actions for option in action.option_strings}
    offered = set(completed(tmp_path, "validate", "--"))
    assert offered == {each for each in options if each.startswith("--")}
    text = (ROOT / "packaging/completions.bash").read_text()
    choices = dict(re.findall(r"^    (--[a-z-]+)\) words=\"([^\"]*)\"", text, re.MULTILINE))
    for name, make in PARSERS.items():
        for action in make()._actions:
            if action.choices and action.option_strings:
                option = action.option_strings[-1]
                given = set(map(str, action.choices))
                assert set(choices[option].split()) == given, f"{name} {option}"


def test_a_step_is_a_line_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    from onnx_external._base.progress import StepLines

    lines: Any = StepLines()
    for done in (0, 5, 10):
        lines("copy", done, 10)
    lines("verify", 0, 0)
    lines.close()
    assert capsys.readouterr().err == "copy ...\nverify ...\n"
    lines = StepLines(counted=True)
    lines("layers.0", 1, 2)
    lines("", 2, 2)
    lines.close()
    assert capsys.readouterr().err == "1/2 layers.0\n2/2 the model itself\n"


def test_a_step_that_takes_long_says_so_though_stderr_is_another_one_meanwhile(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from onnx_external._base.progress import StepLines

    lines: Any = StepLines()
    lines._every = 0.05
    before = threading.active_count()
    with redirect_stderr(io.StringIO()):
        lines("trace model", 0, 0)
        time.sleep(0.3)
    lines.close()
    assert threading.active_count() == before
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first == "trace model ..." and re.fullmatch(r"trace model \.\.\. \d+ s", second)


def test_the_options_of_a_parser_are_its_own() -> None:
    parser = Parser("new", "does nothing")
    assert parser.in_options("overwrite=True") == "overwrite=True"


def test_ctrl_c_ends_with_130_and_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    def work(_: Any) -> int:
        raise KeyboardInterrupt

    parser = Parser("validate", "x")
    parser.add_argument("--json", action="store_true")
    assert run_command(parser, ["--json"], work) == 130
    printed = capsys.readouterr()
    assert "cancelled; incomplete files were removed" in printed.err
    assert json.loads(printed.out)["error"]["code"] == "cancelled"
