"""Implements the command `onnx-external generate FOLDER --prompt TEXT`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._base.errors import FormatError, NotFoundError
from .command_line import EXIT_CODES, Parser, run
from .streams import has_unicode

_WORDS = {"providers=": "--provider"}
"""The Python arguments whose options have other names."""


def parser() -> Parser:
    """Return the parser for the command's arguments."""
    parser = Parser(
        "generate",
        "Continue texts with the likeliest tokens, using a decoder that `onnx-external export` "
        "wrote. Each prompt is printed together with its continuation. The command needs "
        "onnxruntime and tokenizers, but not torch.",
        EXIT_CODES.format("text was generated", "the folder has no decoder"),
        _WORDS,
    )
    add = parser.add_argument
    add(
        "folder",
        metavar="FOLDER",
        help="the folder with the graphs and, if prompts are text, tokenizer.json",
    )
    given = parser.add_mutually_exclusive_group()
    given.add_argument(
        "-p",
        "--prompt",
        metavar="TEXT",
        type=_text,
        action="append",
        help="the text to continue (repeatable; several texts are continued as one batch)",
    )
    given.add_argument(
        "--tokens",
        metavar="ID,ID,...",
        type=_tokens,
        action="append",
        help="the prompt as token ids; the output is also ids, and no tokenizer is needed",
    )
    add(
        "--input",
        metavar="NAME=FILE",
        type=_input,
        action="append",
        default=[],
        help="an array for an encoder (.npy), such as input_features; the prompt is then the start "
        "of the decoder's text, by default the start in the model's settings",
    )
    add(
        "-n",
        "--max-new-tokens",
        metavar="N",
        type=int,
        default=64,
        help="the maximum number of tokens to add to each text (64)",
    )
    add(
        "--provider",
        metavar="NAME",
        help="the execution provider for ONNX Runtime, e.g. cuda (default: cpu)",
    )
    add(
        "--json",
        action="store_true",
        help="print a JSON list of prompts and their continuations, without the prompt",
    )
    return parser


def _tokens(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: expected ids, such as 1,2,3") from None


def _text(argument: str) -> str:
    """Decode text from the command line as UTF-8, even if the locale uses another encoding."""
    try:
        return os.fsencode(argument).decode()
    except UnicodeDecodeError as error:
        raise argparse.ArgumentTypeError(f"{argument!r}: is not valid UTF-8") from error


def _input(text: str) -> tuple[str, str]:
    name, sign, file = text.partition("=")
    if not (name and sign and file):
        raise argparse.ArgumentTypeError(
            f"{text}: expected NAME=FILE, such as input_features=x.npy"
        )
    return name, file


def _array(file: str) -> Any:
    import numpy as np

    try:
        return np.load(file, allow_pickle=False)
    except FileNotFoundError as error:
        raise NotFoundError(f"{file}: not found") from error
    except (OSError, ValueError, EOFError) as error:
        raise FormatError(f"{file}: not a NumPy array (.npy): {error}") from error


def _work(given: argparse.Namespace) -> int:
    from .._generation.generating import generate
    from .._generation.pairs import is_pair

    if not (given.prompt or given.tokens or given.input):
        parser().error("one of the arguments -p/--prompt --tokens --input is required")
    prompts = given.prompt or given.tokens or []
    inputs = {name: _array(file) for name, file in given.input}
    words = prompts[0] if given.tokens and len(prompts) == 1 else prompts
    found = generate(
        given.folder, words, given.max_new_tokens, providers=given.provider, inputs=inputs
    )
    if is_pair(Path(given.folder)):  # the added text does not continue the prompt
        return _print_found(found, given.json)
    pairs = list(zip(prompts, found, strict=True))
    if given.json:
        what = "text" if given.prompt else "tokens"
        documents = [{"prompt": prompt, what: more} for prompt, more in pairs]
        print(json.dumps(documents, indent=2, ensure_ascii=not has_unicode()))
    else:
        for prompt, more in pairs:
            print(prompt + more if given.prompt else ",".join(map(str, prompt + more)))
    return 0


def _print_found(found: Sequence[Any], as_json: bool) -> int:
    """Print the output of an encoder-decoder model: texts, or lists of token ids."""
    if as_json:
        documents = [{"text" if isinstance(each, str) else "tokens": each} for each in found]
        print(json.dumps(documents, indent=2, ensure_ascii=not has_unicode()))
    else:
        for each in found:
            print(each if isinstance(each, str) else ",".join(map(str, each)))
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    return run(parser(), arguments, _work)
