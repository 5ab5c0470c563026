"""`onnx-external generate FOLDER --prompt TEXT`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence

from .command_line import EXIT_CODES, Parser, run
from .streams import has_unicode

_WORDS = {"providers=": "--provider"}
"""Arguments of Python whose options have other names."""


def parser() -> Parser:
    """Return what parses its arguments."""
    parser = Parser(
        "generate",
        "Continue texts with the likeliest tokens, by a decoder that `onnx-external export` wrote. "
        "Each text is printed with its prompt before it. It needs onnxruntime and tokenizers, no "
        "torch.",
        EXIT_CODES.format("there is text", "the folder has no decoder"),
        _WORDS,
    )
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="the graphs, with tokenizer.json beside them for texts")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument(
        "-p",
        "--prompt",
        metavar="TEXT",
        type=_text,
        action="append",
        help="the text to continue; several are continued together",
    )
    given.add_argument(
        "--tokens",
        metavar="ID,ID,...",
        type=_tokens,
        action="append",
        help="the ids of its tokens instead; ids are printed, and no tokenizer is needed",
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
    add(
        "--json",
        action="store_true",
        help="a JSON list of prompts and texts, these without the prompt",
    )
    return parser


def _tokens(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: expected ids, such as 1,2,3") from None


def _text(argument: str) -> str:
    """A text as it was typed, even where the locale has no Unicode."""
    try:
        return os.fsencode(argument).decode()
    except UnicodeDecodeError as error:
        raise argparse.ArgumentTypeError(f"{argument!r}: is not in UTF-8") from error


def _work(given: argparse.Namespace) -> int:
    from .._generating import generate

    prompts = given.prompt or given.tokens
    found = generate(given.folder, prompts, given.max_new_tokens, providers=given.provider)
    pairs = list(zip(prompts, found, strict=True))
    if given.json:
        what = "text" if given.prompt else "tokens"
        documents = [{"prompt": prompt, what: more} for prompt, more in pairs]
        print(json.dumps(documents, indent=2, ensure_ascii=not has_unicode()))
    else:
        for prompt, more in pairs:
            print(prompt + more if given.prompt else ",".join(map(str, prompt + more)))
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    return run(parser(), arguments, _work)
