"""Provides the options, messages, exit codes and JSON errors that the Python commands share.

These options, messages and codes work as in the native commands (docs/cli.md). The exit codes are:
0, success and nothing is wrong; 1, failure or something is wrong; 2, the command line is wrong and
nothing was done.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import re
import shlex
import signal
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from .. import _core
from .._base.errors import Error, Remedy
from .._base.packages import pip_name
from .._base.pages import Paged
from .streams import standard_streams

_Report = TypeVar("_Report", bound=Paged)

EXIT_CODES = """\
exit codes:
  0  {0}
  1  {1}, or the command failed
  2  the command line is wrong"""
TASK = "the task of the model, e.g. text-generation, or the name of a transformers class"
"""The help for the option --task."""
VARIANT = "the variant of the weights, e.g. fp16 for model.fp16.safetensors"
"""The help for the option --variant."""


class UsageError(Error):
    """An error in the command line, such as options that cannot be combined."""


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Writes "-o, --output OUT" where argparse would write "-o OUT, --output OUT"."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=100)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


class Parser(argparse.ArgumentParser):
    """Parses the arguments of one command, and reports invalid ones as the native commands do."""

    def __init__(
        self, name: str, description: str, epilog: str = "", words: Mapping[str, str] | None = None
    ) -> None:
        """Make the parser.

        Args:
            name: the name of the command, such as "export".
            description: the purpose of the command.
            epilog: the text below the options.
            words: for Python arguments whose options have other names, such as "dynamic=False", the
                options.
        """
        super().__init__(
            prog=f"onnx-external {name}",
            description=textwrap.fill(description, 100),
            epilog=epilog,
            formatter_class=_Formatter,
            allow_abbrev=False,
        )
        self.words = words or {}
        self.arguments: Sequence[str] = ()
        self.wants_json = False

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse and return the arguments; if they are wrong, end the process with exit code 2."""
        self.arguments, self.wants_json = arguments, "--json" in arguments
        for each in arguments:
            if each == "--":
                break
            name = each.partition("=")[0]
            if name.startswith("--") and name not in self._option_string_actions:
                self.error(did_you_mean("option", name, self._option_string_actions))
        return self.parse_args(arguments)

    def error(self, message: str) -> NoReturn:
        """Report an error in the command line, and end the process."""
        self.tell(f"{message}; {self.prog} --help lists the options", "usage")
        sys.exit(2)

    def tell(self, message: str, code: str, error: Error | None = None) -> None:
        """Write an error to stderr and, with --json, as a document to stdout."""
        remedies = () if error is None else error.remedies
        found = [each for each in map(self._option_of, remedies) if each is not None]
        if self.wants_json:
            file = message.partition(": ")[0]
            document = {
                "code": code,
                "kind": "" if error is None else error.kind,
                "file": file if file in self.arguments or os.path.lexists(file) else "",
                "message": message,
                "lists": [] if error is None else list(_lists_of(error)),
                "remedies": [each._asdict() for each in found],
            }
            with contextlib.suppress(OSError), standard_streams():
                print(json.dumps({"error": document}, indent=2))
        lines = [f"{self.prog}: error: {message}"]
        for option, value, when in found:
            way_out = f"  --{option} {value}".rstrip()
            lines.append(f"{way_out}: {when}" if when else way_out)
        with contextlib.suppress(OSError):
            print("\n".join(lines), file=sys.stderr)

    def refuse(self, error: Error) -> None:
        """Report an error of the package, together with the options that may help."""
        message = self.in_options(str(error.args[0]))
        self.tell(message, error.code, error)

    def in_options(self, text: str) -> str:
        """Replace the Python arguments in a message with options of the command."""
        text = _CALL.sub(_typed, text)
        text = re.sub(r"\b(?:mapping|files)=oe\.(?:Mapping|Layout)\(([^()]*)\)", r"\1", text)
        return _ARGUMENT.sub(self._spelled, text)

    def _spelled(self, match: re.Match[str]) -> str:
        name, value = match["name"], match["value"] or ""
        for word in (match[0], f"{name}="):
            if word in self.words:
                return self.words[word]
        if value == "False":
            return self._option_named(f"no_{name}") or match[0]
        option = self._option_named(name)
        if option is None or value == "True":
            return option or match[0]
        return f"{option} {value.strip(QUOTES)}".rstrip()

    def _option_named(self, name: str) -> str | None:
        option = f"--{name.replace('_', '-')}"
        return option if option in self._option_string_actions else None

    def _option_of(self, remedy: Remedy) -> Remedy | None:
        """Return the remedy with this command's name for its option, or None if there is none."""
        option = self._option_named(remedy.option)
        return None if option is None else remedy._replace(option=option[2:])


def _lists_of(error: Error) -> Iterator[dict[str, Any]]:
    """Yield the lists of an error as the native commands print them, one list for each owner."""
    for kind, every in error.lists.items():
        for owner in dict.fromkeys(item.owner for item in every):
            items = [item._asdict() for item in every if item.owner == owner]
            for item in items:
                del item["owner"]
            title = _core.list_title(kind, owner)
            yield {"kind": kind, "owner": owner, "title": title, "items": items}


_CALL = re.compile(
    r"\boe\.(?P<name>verify|validate|diagnose|generate)\((?P<model>'[^']*'|\.{3})"
    r"(?:, (?P<against>'[^']*')|, \[(?P<tokens>[0-9, ]*)\])?(?P<more>, \.{3})?\)"
)
"""Matches a Python call that a command can also make: oe.verify('model.onnx', 'checkpoint.pt')."""


def _typed(match: re.Match[str]) -> str:
    """Return the command line that is equivalent to a Python call."""
    words = ["onnx-external", match["name"], match["model"]]
    words += ["--against", match["against"]] if match["against"] else []
    words += ["--tokens", match["tokens"].replace(" ", "")] if match["tokens"] else []
    words = [shlex.quote(each[1:-1]) if each[0] in QUOTES else each for each in words]
    return " ".join([*words, *(["..."] if match["more"] else [])])


QUOTES = "'\""
_ARGUMENT = re.compile(
    r"\b(?P<name>[a-z_]+)=(?P<value>True\b|False\b|'[^']*'|\"[^\"]*\"|\{[^{}]*\}|[A-Z0-9]+\b)?(?!=)"
)
"""Matches an argument as messages write it: dynamic=False, layout='link', max_iterations=N,
inputs=."""


def did_you_mean(kind: str, given: str, known: Iterable[str]) -> str:
    """Return a message about an unknown name, with the closest known name as a suggestion."""
    near = difflib.get_close_matches(given, list(known), n=1)
    return f"unknown {kind} {given!r}" + (f"; did you mean {near[0]}?" if near else "")


def reported(
    given: argparse.Namespace, work: Callable[[], _Report], title: str | None = None
) -> _Report:
    """Do the work, write its report as --html and --json request, and return the report.

    Args:
        given: the options, with --html, --overwrite and --json.
        work: a function that does the work and returns the report.
        title: the title of the page; None for the report's default title.
    """
    _core.check_page(given.html or "", given.overwrite)
    report = work()
    if given.html:
        _core.write_page(given.html, report.html(title), given.overwrite)
    if given.json:
        print(json.dumps(report.to_dict(), indent=2))
    return report


def run(parser: Parser, arguments: Sequence[str], work: Callable[[argparse.Namespace], int]) -> int:
    """Parse the arguments, do the work, and return the exit code.

    Args:
        parser: a parser that has an option --json.
        arguments: the arguments of the command line.
        work: a function that takes the parsed arguments and returns 0 or 1.
    """
    given = parser.parse(arguments)
    try:
        with standard_streams():
            return work(given)
    except KeyboardInterrupt as error:
        parser.tell("cancelled; incomplete files were removed", "cancelled")
        return 128 + getattr(error, "number", signal.SIGINT)
    except UsageError as error:
        parser.error(str(error.args[0]))
    except Error as error:
        parser.refuse(error)
    except ModuleNotFoundError as error:
        parser.tell(f"{error}; pip install {pip_name(error.name or '')}", "unsupported")
    except OSError as error:  # of stdout
        parser.tell(str(error), "io")
    return 1


def man_page(front: str, parsers: Iterable[Parser], version: str) -> str:
    """Return the manual page of onnx-external in troff format.

    Args:
        front: the output of `onnx-external --help`.
        parsers: the parsers of the Python commands.
        version: the version of the package.
    """
    name, _, what = front.partition(" ")
    what, _, body = what.partition(".\n")
    lines = [
        f'.TH ONNX\\-EXTERNAL 1 "" "onnx\\-external {version}" "User Commands"',
        f".SH NAME\n{_plain(name)} \\- {_plain(what)}",
        f".SH DESCRIPTION\n.nf\n{_plain(body.strip())}\n.fi",
    ]
    for parser in parsers:
        lines.append(f".SH {_plain(parser.prog.upper())}\n.nf")
        lines.append(_plain(parser.format_help().strip()) + "\n.fi")
    others = ", ".join(f"{each}-external(1)" for each in ("save", "verify", "inspect", "cut"))
    return "\n".join([*lines, f".SH SEE ALSO\n{_plain(others)}", ""])


def _plain(text: str) -> str:
    """Escape text for troff: backslashes, dashes, and lines that look like requests."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^([.'])", r"\\&\1", text)
