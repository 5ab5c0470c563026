"""Converts programs to graphs, and corrects errors of torch.onnx."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from .._base.swapping import exchanged
from .._tracing.assuming import assuming, branches_assume_tests
from .._tracing.chosen import decided_by_definitions
from .._tracing.results import results_need_no_guards
from ._complex_numbers import in_real_numbers
from ._constant_outputs import numbers_as_tensors
from ._conversions import conversions_kept
from ._corrections import torch_corrected
from ._gradients import derivative_translations, without_derivatives
from ._mending import mend
from ._pure_subgraphs import trusted_if_pure
from ._tracing import loops_of_recurrent_layers
from ._translations import translations
from ._walking import all_nodes, graphs_of

if TYPE_CHECKING:
    import onnx_ir


def converted(program: torch.export.ExportedProgram, **options: Any) -> torch.onnx.ONNXProgram:
    """Convert a program by torch.onnx.export without its optimizer, and repair the graph."""
    program = in_real_numbers(without_derivatives(program))
    with contextlib.ExitStack() as stack:
        stack.enter_context(conversions_kept())
        stack.enter_context(torch_corrected())
        stack.enter_context(one_subgraph_version())
        stack.enter_context(operators_found_once())
        stack.enter_context(branches_assume_tests())
        stack.enter_context(results_need_no_guards())
        stack.enter_context(decided_by_definitions())
        stack.enter_context(_types_promoted_under_tests())
        stack.enter_context(numbers_as_tensors(program))
        stack.enter_context(trusted_if_pure(program))
        stack.enter_context(torch.no_grad())  # or branches that use parameters do not convert
        if program.range_constraints:  # else an unrolled layer is fine, and faster
            stack.enter_context(loops_of_recurrent_layers())
        options["custom_translation_table"] = {
            **derivative_translations(),
            **translations(program, options.get("opset_version")),
            **(options.get("custom_translation_table") or {}),
        }
        graph = torch.onnx.export(
            program, (), dynamo=True, optimize=False, verbose=False, **options
        )
    assert graph is not None
    mend(graph.model)
    return graph


@contextlib.contextmanager
def _types_promoted_under_tests() -> Iterator[None]:
    """Inside the context, promote types in a branch as if its condition on sizes were true.

    For type promotion, torch.onnx runs each branch alone, and a branch may be impossible for the
    example's sizes. The outputs of a graph keep their names, by which torch.onnx finds them.
    """
    try:
        from torch.onnx._internal.exporter import _fx_passes

        promotion = _fx_passes.passes.InsertTypePromotion
    except (ImportError, AttributeError):  # another torch, which may not run them
        yield
        return

    def promote(program: torch.fx.GraphModule) -> None:
        for module, tests in _with_tests(program, ()):
            returned = module.graph.output_node().all_input_nodes
            with contextlib.ExitStack() as stack:
                for test, outcome in tests:
                    stack.enter_context(assuming(test, outcome))
                promotion(module).run()
            _exchange_names(module, returned, module.graph.output_node().all_input_nodes)

    with exchanged(_fx_passes, "insert_type_promotion_nodes", promote):
        yield


def _exchange_names(module: torch.fx.GraphModule, before: list[Any], after: list[Any]) -> None:
    """Restore the names of results after type promotion.

    If a result is computed in float32, another node casts it back to float16. The signature still
    has the name of the uncast node, so torch.onnx would return float32.
    """
    for old, new in zip(before, after, strict=True):
        if old is not new:
            old.name, new.name = new.name, old.name
    if before != after:
        module.recompile()


_Tests: TypeAlias = tuple[tuple[Any, bool], ...]


def _with_tests(module: torch.fx.GraphModule, tests: _Tests) -> Iterator[tuple[Any, _Tests]]:
    """Yield a graph module and its submodules, each with the conditions under which it runs."""
    yield module, tests
    own: dict[str, _Tests] = {}
    for node in module.graph.nodes:
        if node.target is torch.ops.higher_order.cond:
            test = node.args[0].meta.get("val") if hasattr(node.args[0], "meta") else None
            for outcome, branch in zip((True, False), node.args[1:3], strict=True):
                own[branch.target] = (*tests, (test, outcome))
    for name, each in module.named_children():
        if isinstance(each, torch.fx.GraphModule):
            yield from _with_tests(each, own.get(name, tests))


@contextlib.contextmanager
def one_subgraph_version() -> Iterator[None]:
    """Make torch.onnx.export use one opset version for all functions of control flow.

    torch.onnx imports these functions with different versions for loops and for conditions. If a
    condition is inside a loop, ONNX Runtime rejects the graph ("Opset mismatch when inlining").
    """
    try:
        from torch.onnx._internal.exporter import _constants, _ir_passes

        add, domain = _ir_passes.add_opset_imports, _constants.LOCAL_FUNCTION_DOMAIN
    except (ImportError, AttributeError):  # another torch, which may have mended it
        yield
        return

    def add_one_version(model: onnx_ir.Model) -> None:
        add(model)
        _set_version(model, domain)
        _let_versions_be_converted(model)

    with exchanged(_ir_passes, "add_opset_imports", add_one_version):
        yield


@contextlib.contextmanager
def operators_found_once() -> Iterator[None]:
    """Make torch query its dispatcher for composite operators only once inside the context.

    Each decomposition queries every namespace, which takes a sixth of the time of a small module's
    export.
    """
    from torch._export import utils

    name = "_materialize_cpp_cia_ops"
    find = getattr(utils, name, None)
    if find is None:  # another torch
        yield
        return
    with exchanged(utils, name, functools.cache(find)):
        yield


def _set_version(model: onnx_ir.Model, domain: str) -> None:
    for node in all_nodes(model):
        if node.domain == domain:
            node.version = 1
    for each in (model, *model.functions.values()):
        if domain in each.opset_imports:
            each.opset_imports[domain] = 1


def _let_versions_be_converted(model: onnx_ir.Model) -> None:
    """Extend the conversion to the requested opset version to branches and loops.

    torch.onnx already marks an If, Loop or Scan with that version, so the operators inside remain
    in version 18, in which ONNX Runtime rejects a DFT or a GridSample.
    """
    for node in all_nodes(model):
        if any(True for _ in graphs_of(node)):
            node.version = None
