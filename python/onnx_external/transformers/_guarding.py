"""Keeps transformers from running a folder's code, from prompting and from using the network."""

from __future__ import annotations

import contextlib
import re
import threading
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import transformers
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled
from transformers import dynamic_module_utils

from .._base.errors import ExportError, FormatError, InvalidArgumentError, chain
from .._base.swapping import exchanged
from .._folders.config import document_of, own_code, refuse_kernels, refuse_types

LOCAL = {"trust_remote_code": False, "local_files_only": True}
"""Keywords for every call of from_pretrained() in transformers."""


class _Alone:
    """Counts the users of the guards, which apply to the process; the last user removes them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._guards = contextlib.ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if not self._count:
                self._guards = _guards()
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._count -= 1
            if not self._count:
                self._guards.close()


_ALONE = _Alone()


def alone() -> _Alone:
    """Keep transformers from using the network, the terminal and kernels from the Hub.

    Meanwhile, huggingface_hub rejects all requests, including those of other threads.
    """
    return _ALONE


def _guards() -> contextlib.ExitStack:
    from transformers.integrations import hub_kernels

    stack = contextlib.ExitStack()
    replaced = [
        (huggingface_hub.constants, "HF_HUB_OFFLINE", True),
        (dynamic_module_utils, "TIME_OUT_REMOTE_CODE", 0),  # it asks for so many seconds
        (hub_kernels, "get_kernel", _no_kernel),
    ]
    for owner, name, value in replaced:
        if hasattr(owner, name):
            stack.enter_context(exchanged(owner, name, value))
    return stack


def _no_kernel(name: str, *_: Any, **__: Any) -> Any:
    raise FileNotFoundError(f"{name}: kernels from the Hub are not loaded here")


def not_run(error: BaseException) -> str:
    """Name the unsupported feature that caused transformers' error; return "" for other errors."""
    offline = (OfflineModeIsEnabled, LocalEntryNotFoundError)
    if any(isinstance(each, offline) for each in chain(error)):
        found = re.search(r"https?://[^/ ]+/(?:api/models/)?([^/ ]+/[^/ ]+)", str(error))
        return (
            f"it needs {found[1].rstrip(':.,') if found else 'a file'} from the Hub, and nothing "
            "is downloaded here; load it with from_pretrained, and export what save_pretrained "
            "writes"
        )
    if "trust_remote_code" in str(error):
        return "it needs code outside transformers, and code in a folder is never run"
    return ""


def registered(name: str) -> Any:
    """Return the user's class with this name that is registered with an Auto class, or None.

    A config may name no other classes outside transformers.
    """
    from transformers.models.auto import modeling_auto

    for each in vars(modeling_auto).values():
        mapping = getattr(each, "_model_mapping", None)
        for value in getattr(mapping, "_extra_content", {}).values():
            for found in value if isinstance(value, (list, tuple)) else (value,):
                if getattr(found, "__name__", None) == name:
                    return found
    return None


def usable(found: Any, name: str, place: str) -> Any:
    """Return a class if its instances are models; otherwise raise an error.

    Args:
        found: the object with the name, from transformers or from the user.
        name: the name.
        place: where the name is given, for the message.
    """
    needs = getattr(found, "_backends", None)
    if needs and ("For" in name or name.endswith(("Model", "Backbone"))):
        raise InvalidArgumentError(f"{place}: {name} needs {', '.join(needs)}; install it")
    if isinstance(found, type) and (_makes_models(found) or hasattr(found, "_model_mapping")):
        return found
    raise InvalidArgumentError(
        f"{place}: {name} in transformers {transformers.__version__} is not a model class; use a "
        "model class, such as LlamaForCausalLM, or a task, such as text-generation"
    )


def _makes_models(found: type) -> bool:
    return (
        issubclass(found, transformers.PreTrainedModel)
        and getattr(found, "config_class", None) is not None
    )


def read_config(folder: Path) -> dict[str, Any]:
    """Return the settings in config.json, after rejecting code from the folder or the Hub.

    Raises:
        NotFoundError: there is no config.json.
        FormatError: the file does not contain a JSON object.
        ExportError: the model needs code that is not run.
    """
    from transformers.configuration_utils import get_configuration_file

    path, config = folder / "config.json", document_of(folder)
    files = config.get("configuration_files")
    if isinstance(files, list):  # it names others, one for each version of transformers
        try:
            config = document_of(folder, str(get_configuration_file(files)))
        except (AttributeError, ValueError) as error:
            raise FormatError(f"{path}: configuration_files: {error}") from error
    refuse_kernels(path, config)
    refuse_types(path, config, transformers.CONFIG_MAPPING.__contains__)
    return config


def refuse_own_code(folder: Path, auto: str) -> None:
    """Raise an error if the model needs a class that only the folder's code defines."""
    advice = own_code(read_config(folder), auto)
    if advice:
        path = folder / "config.json"
        raise ExportError(f"{path}: transformers has no {auto} class for it; {advice}")
