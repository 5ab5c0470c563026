"""Loads a transformers model from its folder, with parameters that take no memory."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers

from .._base.errors import Error, ExportError, FormatError, InvalidArgumentError, Item, MappingError
from .._base.progress import no_monitor, only_errors
from .._folders.config import check_folder, own_code
from .._folders.gguf.folder import is_made, notes_of, weights_of
from .._sources.checkpoint import Checkpoint, open_checkpoint
from .._tracing.exporter_reasons import kind_of_reason
from ..torch._programs import first_line
from ..torch._untouched import tensors_of
from ._disagreeing import of_other_sizes, quantized_fact, quantized_text
from ._generation import plain_generation, without_checked_settings
from ._guarding import LOCAL, alone, not_run, read_config, refuse_own_code, registered, usable
from ._recording import Key, Made, Recorder, Unknown
from ._sentences import TASK, with_sentences
from ._sizes import Sizes
from ._switches import without_switches
from ._widening import computing_type, narrow_keys

_MOST = 800
"""The maximum length of a message, which may quote the contents of a file."""


@dataclass
class Loaded:
    """A model as from_pretrained() makes it, except that its parameters have no values."""

    model: Any
    made: dict[str, Made]
    """The keys and operations that make each parameter and buffer that the checkpoint fills."""
    weights: list[Path]
    """The files of the checkpoint: its folder or file, and further files that the class reads."""
    unused: list[str] = field(default_factory=list)
    """Keys that transformers does not load into this class."""
    notes: list[str] = field(default_factory=list)
    """Remarks on parts of the folder that the graphs do not include."""
    dtype: str | None = None
    """The type in which the model computes; None if transformers chose it."""
    narrow: dict[str, str] = field(default_factory=dict)
    """The types, by ONNX's names, of keys whose weights keep their type in float32 graphs."""
    quantized: list[str] = field(default_factory=list)
    """The keys whose floats are computed from codes in the checkpoint."""


@contextlib.contextmanager
def told(
    what: str, way_out: str = "", reason: Callable[[BaseException], str] = first_line
) -> Iterator[None]:
    """Convert errors of transformers to ExportError, and suppress its terminal output.

    The code inside the context also runs inside alone().

    Args:
        what: the message for a failure, to which the reason is appended.
        way_out: advice for the message.
        reason: a function that returns the reason of an error in one line.
    """
    bars = transformers.logging.is_progress_bar_enabled()
    transformers.logging.disable_progress_bar()
    try:
        nowhere = contextlib.redirect_stdout(io.StringIO())
        with nowhere, alone(), no_monitor(), only_errors("transformers"):
            yield
    except Error:
        raise
    except Exception as error:
        advice = f"; {way_out}" if way_out else ""
        text = (not_run(error) or reason(error))[:_MOST]
        made = ExportError(f"{what}: {text}{advice}")
        made.kind = kind_of_reason(text)
        raise made from error
    finally:
        if bars:
            transformers.logging.enable_progress_bar()


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Make transformers load in this thread, in which operations are recorded."""
    name = "HF_DEACTIVATE_ASYNC_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def model_class(folder: Path, task: str | None) -> Any:
    """Return the class of the model: that of the task or, without a task, the config's."""
    path, config = folder / "config.json", read_config(folder)
    if not isinstance(config.get("quantization_config") or {}, dict):
        raise FormatError(
            f"{path}: not a transformers config: quantization_config is not an object"
        )
    if task is not None:
        return _class_of_task(task)
    named = config.get("architectures")
    for name in named if isinstance(named, list) else []:
        found = registered(name) or getattr(transformers, str(name), None)
        if found is not None:
            return usable(found, str(name), f"{path}: architectures")
    advice = own_code(config, "AutoModel")
    if advice:
        raise ExportError(f"{path}: transformers has no class {named}; {advice}")
    raise InvalidArgumentError(
        f"{path}: names no class in transformers {transformers.__version__} "
        f"({config.get('architectures')}); give task="
    )


def _class_of_task(task: str) -> Any:
    """Return the Auto class for one of the Hub's tasks, or the transformers class of this name."""
    name = task if hasattr(transformers, task) else _TASKS.get(task, "")
    if not name:
        raise InvalidArgumentError(
            f"task: {task!r} is not one of {', '.join(sorted(_TASKS))}, nor a transformers class"
        )
    return usable(getattr(transformers, name), name, "task")


def sizes_of(folder: Path, checkpoint: Checkpoint) -> Sizes:
    """Return the sizes in a checkpoint, after checking that the config agrees with them.

    Raises:
        MismatchError: the config contradicts the checkpoint.
    """
    shapes = {name: tensor.shape for name, tensor in checkpoint.items()}
    found = Sizes(folder / "config.json", read_config(folder), shapes)
    found.check()
    return found


def chosen(folder: Path, made_by: Any) -> tuple[Any, Any]:
    """Return the actual class of a folder's model (not an Auto class) and its config."""
    with told(f"{folder}: transformers cannot read its config"):
        config = transformers.AutoConfig.from_pretrained(folder, **LOCAL)
    if getattr(config, "fusion_config", None) is not None:
        config.fusion_config = None  # it would replace classes of transformers, for good
    if getattr(config, "quantization_config", None) is not None:
        del config.quantization_config  # the checkpoint gives floats; no library is needed
    if getattr(config, "rescale_every", 0):
        # RWKV would halve weights of later layers in place when it runs first, and the states that
        # they are added to in between: the results are the same without, but for halves.
        config.rescale_every = 0
    if hasattr(made_by, "_model_mapping"):
        if type(config) not in made_by._model_mapping:
            refuse_own_code(folder, made_by.__name__)
            raise InvalidArgumentError(
                f"{folder}: {made_by.__name__} has no class for {config.model_type}; give a task "
                "for which the model was made, or a transformers class"
            )
        made_by = made_by._model_mapping[type(config)]
        made_by = made_by[0] if isinstance(made_by, tuple) else made_by
    return made_by, config


_TASKS = {
    "text-generation": "AutoModelForCausalLM",
    "text2text-generation": "AutoModelForSeq2SeqLM",
    "automatic-speech-recognition": "AutoModelForSpeechSeq2Seq",
    "feature-extraction": "AutoModel",
    TASK: "AutoModel",
    "fill-mask": "AutoModelForMaskedLM",
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "image-classification": "AutoModelForImageClassification",
    "object-detection": "AutoModelForObjectDetection",
    "audio-classification": "AutoModelForAudioClassification",
}


def _equality(checkpoint: Checkpoint) -> Any:
    """Return a function that compares the bytes of two keys.

    The bytes are memory-mapped, so they take no memory.
    """

    def equal(first: str, second: str) -> bool:
        one, other = checkpoint[first], checkpoint[second]
        if one.file is not None and (one.file, one.offset) == (other.file, other.offset):
            return True
        return one.dtype == other.dtype and bool(torch.equal(one.torch(), other.torch()))

    return equal


class Opened(NamedTuple):
    """The checkpoint of a folder, with the class and config of its model."""

    made_by: Any
    config: Any
    sizes: Sizes
    weights: list[Path]
    """The files of the checkpoint: the folder or file, and further files that the class reads."""
    checkpoint: Checkpoint


@contextlib.contextmanager
def opened(folder: Path, made_by: Any, variant: str | None) -> Iterator[Opened]:
    """Open the checkpoint of a folder, after checking that the config agrees with it."""
    with contextlib.ExitStack() as stack:
        given = weights_of(folder)
        checkpoint = stack.enter_context(open_checkpoint(given, variant=variant))
        sizes = sizes_of(folder, checkpoint)
        made_by, config = chosen(folder, made_by)
        names = getattr(type(config), "extra_files", ())  # such as those of heads
        weights = [*given, *(folder / name for name in names if (folder / name).is_file())]
        if len(weights) > len(given):
            whole = open_checkpoint(weights, variant=variant, overlay=True)
            checkpoint = stack.enter_context(whole)
            sizes = sizes_of(folder, checkpoint)
        yield Opened(made_by, config, sizes, weights, checkpoint)


def load(folder: Path, task: str | None, dtype: str | None, variant: str | None = None) -> Loaded:
    """Make the model in a folder from its checkpoint, or from a variant of the checkpoint.

    transformers' own loader runs, so it decides on renaming, prefixes, ties, merged and split
    tensors, types and buffers. Only the bytes of the weights are not loaded.

    Raises:
        MappingError: the checkpoint lacks parameters, which transformers would initialize randomly.
        ExportError: transformers cannot load the model, or uses operations that cannot be recorded.
    """
    notes = check_folder(folder) + notes_of(folder)
    made_by = model_class(folder, task)
    if dtype is not None and not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise InvalidArgumentError(f"dtype: torch has no {dtype!r}; use 'float32', for example")
    with opened(folder, made_by, variant) as (made_by, config, sizes, weights, checkpoint):
        notes += [*without_checked_settings(config), *without_switches(config, made_by)]
        recorder = Recorder(_equality(checkpoint))
        with torch.no_grad():
            state = {
                name: recorder.key(name, tensor.shape, getattr(torch, tensor.dtype))
                for name, tensor in checkpoint.items()
            }
        narrow = narrow_keys(state, halves=is_made(folder)) if dtype is None else {}
        codes = checkpoint.core.quantized_names()
        if codes and dtype is None:
            dtype = "float32"  # the type of a quantized config is that of the library's kernels
        dtype = dtype or computing_type(config, state)
        try:
            loading = told(f"{folder}: transformers cannot load {made_by.__name__}")
            with loading, sizes.bounding():
                model, info = _from_pretrained(made_by, config, state, dtype, recorder)
        except ExportError as error:
            if recorder.refused:
                raise _unknown(folder, recorder) from error
            raise
        quantized = checkpoint.core.quantization()
    if info["mismatched_keys"]:
        raise of_other_sizes(folder, model, info["mismatched_keys"])
    made = _all_made(model, recorder)
    if recorder.refused:
        raise _unknown(folder, recorder)
    missing, unused = sorted(info["missing_keys"]), sorted(info["unexpected_keys"])
    told_by = quantized_text(folder, quantized, unused)
    if missing:
        raise _missing(folder, model, missing, told_by or quantized_fact(folder))
    if told_by:
        raise InvalidArgumentError(f"{folder}: {told_by}")
    if unused and is_made(folder):  # its config was made to take all of them
        raise MappingError(
            f"{folder}: has {len(unused)} tensors that {type(model).__name__} does not use: "
            f"{', '.join(unused[:8])}; without these tensors, it would be a different model"
        )
    if task == TASK:
        notes = [note for note in notes if "modules.json" not in note]
        model = with_sentences(model, folder)
    if model.can_generate():
        notes += plain_generation(model, folder)
    return Loaded(model, made, weights, unused, notes, dtype, narrow, codes)


def _from_pretrained(
    made_by: Any, config: Any, state: dict[str, Any], dtype: str | None, recorder: Recorder
) -> tuple[Any, Mapping[str, Any]]:
    with _one_thread(), recorder:
        model, info = made_by.from_pretrained(
            None,
            config=config,
            state_dict=state,
            dtype=dtype or "auto",
            output_loading_info=True,
            **LOCAL,
            ignore_mismatched_sizes=True,  # load() says more of them
        )
    return model.eval().requires_grad_(False), info


def _unknown(folder: Path, recorder: Recorder) -> ExportError:
    return ExportError(
        f"{folder}: transformers {transformers.__version__} changes tensors while it loads them in "
        f"a way that no recipe describes: {recorder.refused[0]}; load the model with "
        "from_pretrained, save it with save_pretrained(..., save_original_format=False), and "
        "export that folder"
    )


def _missing(folder: Path, model: Any, names: list[str], told_by: str) -> MappingError:
    error = MappingError(
        f"{folder}: the checkpoint lacks {len(names)} tensors of {type(model).__name__}, which "
        f"transformers would fill with random values: {', '.join(names[:8])}; "
        + (told_by or "give the task that the model was trained for")
    )
    error.code, error.kind = "not-found", "missing"
    error.lists["missing"] = [Item(name, "", "", []) for name in names]
    return error


def _all_made(model: Any, recorder: Recorder) -> dict[str, Made]:
    found: dict[str, Made] = {}
    for name, tensor in tensors_of(model):
        made = recorder.made(tensor.detach())
        if isinstance(made, Unknown):
            recorder.refused.append(f"{name} would be {made}")
        elif made is not None:
            found[name] = made
        elif not tensor.numel():
            found[name] = Key(name)
    return found
