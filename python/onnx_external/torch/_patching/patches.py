"""Implements oe.torch.patches: temporary changes that help torch.export."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any

from torch import nn

from ..._base.argument_types import checks_types, wrong_type
from ..._base.swapping import exchanged
from ..._tracing.classes import known_classes
from .custom import MethodPatch, method_patches
from .report import AppliedPatch, Patches, nodes_marked, places_of
from .sources import patches_of
from .static_dimensions import sizes_watched
from .transformers_patches import transformers_patched


@checks_types
@contextlib.contextmanager
def patches(
    module: nn.Module | None = None,
    input_sets: Sequence[Any] = (),
    *,
    rewrite: bool = True,
    torch: bool = True,
    transformers: bool = True,
    caches: bool = True,
    classes: Iterable[type | tuple[type, Sequence[str]]] = (),
    custom: Iterable[type | ModuleType] = (),
    source: str | None = None,
    stop_if_static: bool = False,
    dump: str | None = None,
) -> Iterator[Patches]:
    """Change torch, transformers and the module temporarily so that the module can be exported.

    ```python
    with oe.torch.patches(module, [(x,), (y,)]) as patches:
        program = torch.export.export(module, (x,), dynamic_shapes=shapes, strict=False)
    print(patches.report())
    ```

    Everything is restored when the context ends, even after an exception. Contexts may be nested.
    If functions are rewritten, only one thread at a time can be in a context.

    Args:
        module: the module to export. It is needed for rewriting, and for the caches that it uses.
        input_sets: inputs that make the module take all its branches: each a tuple of positional
            inputs, a dict of inputs by name, or a pair of both. If empty, nothing is rewritten.
        rewrite: rewrite data-dependent control flow, see docs/python-rewriting.md.
        torch: trace as torch.onnx.export does: sizes of 0 and 1 may be dynamic like others, and
            LSTM and GRU become loops.
        transformers: apply the patches of transformers' own exporters, if it is installed.
        caches: register the transformers cache classes that a model uses with torch.
        classes: further classes of inputs or outputs: classes, or pairs of a class and the names of
            its attributes. Classes registered by oe.register_class() with the names of their
            attributes are also known.
        custom: classes with `_PATCHED_CLASS_` and `_PATCHES_`, or modules of such classes.
        source: "onnx_diagnostic" applies the patches of that package to transformers' classes.
            Patches that do not fit the installed transformers are skipped, as the report says.
        stop_if_static: raise a StaticDimensionError as soon as a dynamic size becomes a constant;
            it names the line of the module's code.
        dump: a folder into which the report and the diffs are written when the context ends.

    Raises:
        InvalidArgumentError: a custom patch or class does not have the required form.
        RewriteError: a condition or loop cannot be rewritten; the message names its line.
    """
    if module is not None and not isinstance(module, nn.Module):
        raise wrong_type("module", "a module of torch, or None", module)
    if not isinstance(input_sets, Sequence) or isinstance(input_sets, (str, bytes)):
        raise wrong_type("input_sets", "a list of sets, such as [(x,), (longer_x,)]", input_sets)
    made = Patches()
    methods, made.skipped = method_patches(custom)
    others, misfits = patches_of(source) if source is not None else ([], [])
    made.skipped += misfits
    with contextlib.ExitStack() as stack:
        if dump is not None:
            stack.callback(made.dump, dump)
        stack.enter_context(nodes_marked(made))
        stack.enter_context(sizes_watched(stop_if_static, made.constraints))
        if torch:
            stack.enter_context(_torch_patched(made))
        if transformers:
            stack.enter_context(transformers_patched(made.applied))
        for kind, each in (("custom", methods), (source or "", others)):
            for patch in each:
                stack.enter_context(exchanged(patch.owner, patch.method, patch.function))
                made.applied.append(_row(kind, patch))
        known = stack.enter_context(known_classes(classes, module if caches else None))
        made.applied += [AppliedPatch("class", name, "torch looks into it") for name in known]
        if rewrite and module is not None and input_sets:
            stack.enter_context(_rewritten(module, input_sets, made))
        yield made


def _row(kind: str, patch: MethodPatch) -> AppliedPatch:
    why = (patch.patch.__doc__ or f"{patch.patch.__qualname__} replaces it").strip().splitlines()[0]
    return AppliedPatch(kind, patch.name, why, places_of(patch.code))


@contextlib.contextmanager
def _torch_patched(made: Patches) -> Iterator[None]:
    from .._tracing import as_torch_onnx

    with as_torch_onnx():
        made.applied += [AppliedPatch("torch", name, why) for name, why in _OF_TORCH.items()]
        yield


_OF_TORCH = {
    "backed_size_oblivious": "sizes of 0 and 1 may vary, and broadcasting does not equate sizes",
    "lstm, gru": "they become loops over a length that may vary",
}


@contextlib.contextmanager
def _rewritten(module: nn.Module, input_sets: Sequence[Any], made: Patches) -> Iterator[None]:
    from ..._comparing.giving import call_of, with_tensors
    from ..._control_flow import Rewriter, Rewriting

    rewriter = Rewriter(module, [with_tensors(call_of(each)) for each in input_sets])
    rewriter.check()
    rewriting = Rewriting()
    try:
        with rewriter.applied() as rewriting:
            for each in rewriting.changes:
                why = f"{each.count} conditions and loops that depend on tensors are rewritten"
                place = ((each.path, each.line, each.line + each.before.count("\n") - 1),)
                made.applied.append(AppliedPatch("rewriting", each.name, why, place))
                made.diffs[each.name] = each.diff
            made.notes += [*rewriting.missing, *rewriting.unreached]
            yield
    finally:
        made.notes += rewriting.notes  # which are there when the context has ended
