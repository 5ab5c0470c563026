"""Checks a model's folder and its config.json without importing torch.

A config that refers to custom code is rejected early. Otherwise, transformers would ask on the
terminal whether to run this code, and then import it.
"""

from __future__ import annotations

import codecs
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import _core
from .._base.errors import Error, ExportError, FormatError, InvalidArgumentError, NotFoundError

ADAPTER = "adapter_config.json"
GENERATION = "generation_config.json"
_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")
_MOST_BYTES = 1 << 24
"""The maximum size of a config.json in bytes; the largest known, with 21,000 labels, has 2 MB."""
_WAY_OUT = (
    "import and register a class that you trust (AutoConfig.register, "
    "{auto}.register), or pass an instance of it to oe.torch.export"
)
_KERNELS = ("attn_implementation", "experts_implementation")


def require_folder(path: Path) -> None:
    """Raise an error if the path to export is not a folder.

    Raises:
        NotFoundError: no such folder exists.
    """
    if not path.is_dir():
        raise NotFoundError(
            f"{path}: not a folder; export takes a folder with config.json and weights, or a "
            "GGUF file"
        )


def check_folder(folder: Path) -> list[str]:
    """Check a model's folder, and return notes on parts of the model that its graphs will lack.

    Quantized weights are read as floats; their quantization method is checked when the checkpoint
    is opened.

    Raises:
        InvalidArgumentError: the folder has an adapter, or a model for another library.
        NotFoundError: the folder has no config.json.
    """
    facts = _core.folder_facts(folder) if folder.is_dir() else []
    refused = [text for kind, text in facts if kind in ("foreign", "adapter")]
    path = folder / "config.json"
    if not path.is_file():
        known = f"; {refused[0]}" if refused else ""
        raise NotFoundError(
            f"{path}: not found; it should be in the model's folder, next to the weights{known}"
        )
    if refused:
        raise InvalidArgumentError(f"{folder}/{refused[0]}")
    return [text for kind, text in facts if kind == "part"]


def document_of(folder: Path, name: str = "config.json") -> dict[str, Any]:
    """Return the JSON object in a config file.

    Raises:
        NotFoundError: no such file exists.
        FormatError: the file does not contain a JSON object.
    """
    path = folder / name
    if not path.is_file():
        raise NotFoundError(
            f"{path}: not found; it should be in the model's folder, next to the weights"
        )
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"it has {path.stat().st_size} bytes")
        found = parse(path)
        if not isinstance(found, dict):
            raise ValueError(f"it is a {type(found).__name__} instead of an object")
    except RecursionError as error:
        raise FormatError(f"{path}: not a transformers config: nested too deeply") from error
    except (ValueError, OSError) as error:
        raise FormatError(f"{path}: not a transformers config: {error}") from error
    return found


def parse(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        ValueError: the content is not JSON or not UTF-8; the message names typical mistakes.
        OSError: the file cannot be read.
    """
    data = path.read_bytes()
    if data.startswith(codecs.BOM_UTF8):
        raise ValueError("it begins with a byte order mark; save it as UTF-8 without one")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError("it is UTF-16, as PowerShell's > writes; save it as UTF-8")
    text = data.decode("utf-8")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        rest, before = text[error.pos :], text[: error.pos].rstrip()
        if rest.startswith(("//", "/*", "#")):
            fault = "a comment, which JSON does not have; remove it"
        elif before.endswith(",") and rest.startswith(("}", "]")):
            fault = "a comma after the last entry; remove it"
        else:
            raise
        raise ValueError(f"line {error.lineno} has {fault}") from error


def read_leniently(folder: Path, name: str = "config.json") -> dict[str, Any]:
    """Return the JSON object in a config file, or an empty dict if the file cannot be read.

    Faults of the file are reported elsewhere.
    """
    try:
        return document_of(folder, name)
    except Error:
        return {}


def modules_of(folder: Path) -> list[dict[str, Any]]:
    """Return the modules that modules.json lists; none if there is no such file with a list."""
    path = folder / "modules.json"
    try:
        if path.stat().st_size > _MOST_BYTES:
            return []
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def is_adapter(folder: Path) -> bool:
    """Return whether a folder contains a peft adapter and no model of its own."""
    if not (folder / ADAPTER).is_file():
        return False
    weights = (each for name in _WEIGHTS for each in folder.glob(name))
    return not (folder / "config.json").is_file() or next(weights, None) is None


def base_of(folder: Path, given: Path | None) -> Path:
    """Return the folder of an adapter's base model.

    The folder is `given` or, if that is None, the one that adapter_config.json names.

    Raises:
        NotFoundError: the folder does not exist, or has no config.json.
    """
    named = document_of(folder, ADAPTER).get("base_model_name_or_path")
    places = [given] if given is not None else []
    if given is None and isinstance(named, str) and named:
        # A path of the machine that trained it, or a name of the Hub: the folder may be a sibling.
        own = Path(os.path.expanduser(named))
        places = [own, folder / own, folder.parent / own, folder.parent / own.name]
    for place in places:
        if (place / "config.json").is_file():
            return place
    where = str(given) if given is not None else f"beside {folder}"
    raise NotFoundError(
        f"{folder}/{ADAPTER}: an adapter for {named!r}, which is not {where}; give the folder of "
        "the base model with base= (nothing is downloaded)"
    )


def refuse_at_once(folder: Any) -> None:
    """Raise an error, before importing torch, for folders with own code or without a plain model.

    The import of torch takes seconds, so faults are reported before it. If transformers is already
    imported, classes may have been registered, and the check is left to transformers.
    """
    path = Path(folder) / "config.json"
    if not path.is_file():
        return
    check_folder(path.parent)
    spec = None if "transformers" in sys.modules else importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        return
    mappings = Path(spec.origin).parent / "models/auto"
    names = ("auto_mappings.py", "configuration_auto.py")
    texts = [(mappings / name).read_text() for name in names if (mappings / name).is_file()]
    if texts:
        known = "\n".join(texts)
        refuse_types(path, document_of(path.parent), lambda kind: f'"{kind}"' in known)


def _parts(config: Any, where: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the config and the configs nested in it, each with its path: "", "text_config."."""
    if isinstance(config, dict):
        yield where, config
        for name, value in config.items():
            if name != "auto_map":
                yield from _parts(value, f"{where}{name}.")
    elif isinstance(config, list):
        for number, value in enumerate(config):
            yield from _parts(value, f"{where}{number}.")


def refuse_kernels(path: Path, config: dict[str, Any]) -> None:
    """Raise an error if a config names a kernel from the Hub."""
    for where, part in _parts(config):
        for name in (each for own in _KERNELS for each in (own, f"_{own}")):
            for value in _strings(part.get(name)):
                if "/" in value:
                    raise ExportError(
                        f"{path}: {where}{name} is {value!r}, a kernel from the Hub, whose code is "
                        "not run; remove the line to export transformers' own implementation"
                    )


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


def refuse_types(path: Path, config: dict[str, Any], known: Callable[[str], bool]) -> None:
    """Raise an error if a config, or one nested in it, needs a class from the folder's own code."""
    for where, part in _parts(config):
        kind = part.get("model_type")
        if "auto_map" in part and not (isinstance(kind, str) and known(kind)):
            raise ExportError(
                f"{path}: transformers does not know the model_type {kind!r:.80}; "
                f"{own_code(part, 'AutoConfig', where)}"
            )


def own_code(config: Mapping[str, Any], auto: str, where: str = "") -> str:
    """Return a sentence that auto_map's code is not run, and what to do; "" without an auto_map.

    Args:
        config: the content of config.json.
        auto: the name of the Auto class that would load the model.
        where: the path of a nested config inside config.json: "text_config.".
    """
    if "auto_map" not in config:
        return ""
    named = config["auto_map"]
    named = named if isinstance(named, dict) and named else {"": named}
    models = [name for name in named if name.startswith("AutoModel")]
    reference = next(_strings(named.get(auto) or named[[*models, *named][0]]), "?")
    place, _, name = reference.rpartition("--")
    file, _, made = name.rpartition(".")
    of = f"the Hub repository {place}" if place else "the folder"
    register = auto if auto.startswith("AutoModel") else [*models, "AutoModel"][0]
    return (
        f"its {where}auto_map names code in {of} ({made} in {file or '?'}.py), which is never run; "
        f"{_WAY_OUT.format(auto=register)}"
    )
