"""`onnx-external generate FOLDER --prompt TEXT`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from .command_line import EXIT_CODES, Parser, run

__all__ = ["main"]

_WORDS = {"providers=": "--provider"}
"""Arguments of Python whose options have other names."""


def parser() -> Parser:
    """Return what parses its arguments."""
    parser = Parser(
        "generate",
        "Continue texts with the likeliest tokens, by a decoder that `onnx-external export` wrote. "
        "It needs onnxruntime and tokenizers, no torch.",
        EXIT_CODES.format("there is text", "the folder has no decoder"),
        _WORDS,
    )
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="the graphs, with tokenizer.json beside them")
    add(
        "-p",
        "--prompt",
        metavar="TEXT",
        action="append",
        required=True,
        help="the text to continue; several are continued together",
    )
    add(
        "-n",
        "--max-new-tokens",
        metavar="N",
        type=int,
        default=64,
        help="the most tokens that are added to each text (64)",
    )
    add("--provider", metavar="NAME", help="of ONNX Runtime, e.g. cuda (the CPU's by default)")
    add("--json", action="store_true", help="a JSON list of prompts and texts")
    return parser


def _work(given: argparse.Namespace) -> int:
    from ..generating import generate

    found = generate(given.folder, given.prompt, given.max_new_tokens, providers=given.provider)
    pairs = list(zip(given.prompt, found, strict=True))
    if given.json:
        documents = [{"prompt": prompt, "text": text} for prompt, text in pairs]
        print(json.dumps(documents, indent=2, ensure_ascii=False))
    else:
        for prompt, text in pairs:
            print(prompt + text)
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    return run(parser(), arguments, _work)
