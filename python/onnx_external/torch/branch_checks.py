"""What torch checks of the branches of a torch.cond, and their graphs show at once.

Before a program is decomposed, torch traces both branches twice more, with all that is nested in
them, to see that they write to no operand and return none. Operators that make new tensors do
neither, and the graph of a branch says which operators those are.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from ..patching.swapping import exchanged
from ..rewriting.runtime.assuming import branch_function

__all__ = ["is_functional", "seen_branches_unchecked"]


@contextlib.contextmanager
def seen_branches_unchecked() -> Iterator[None]:
    """Within it torch.cond takes branches as they are whose graphs show that they are functional.

    The other branches are traced and checked as before.
    """
    try:
        from torch._higher_order_ops import utils

        instance, check = utils.HopInstance, utils._check_alias_and_mutation
        create: Callable[..., Any] = instance.create
    except (ImportError, AttributeError):  # another torch, which checks in another way
        yield
        return

    def created(called: Any, *given: Any, **options: Any) -> Any:
        if called is not torch.ops.higher_order.cond or not all(map(is_functional, given[1:3])):
            return create(called, *given, **options)
        return instance(called, SimpleNamespace(is_mutable=False))

    def checked(branch: Any, *rest: Any) -> None:
        if not is_functional(branch):
            check(branch, *rest)

    with (
        exchanged(instance, "create", staticmethod(created)),
        exchanged(utils, "_check_alias_and_mutation", checked),
    ):
        yield


def is_functional(branch: Any) -> bool:
    """Return whether a branch is a graph that writes to nothing and returns new tensors alone."""
    graph = branch_function(branch)
    if not isinstance(graph, GraphModule):
        return False
    parts = [each for each in graph.modules() if isinstance(each, GraphModule)]
    if not all(_writes_nothing(node) for each in parts for node in each.graph.nodes):
        return False
    results = pytree.tree_leaves(graph.graph.output_node().args)
    made = [_source(each) for each in results if isinstance(each, Node)]
    return len(set(made)) == len(made) and all(_is_new(node) for node, _ in made)


def _writes_nothing(node: Node) -> bool:
    if isinstance(node.target, torch._ops.OpOverload):
        return not node.target._schema.is_mutable
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return node.target in _FUNCTIONAL
    # Functions of Python compute with sizes here.
    return node.op not in ("call_method", "call_module")


_FUNCTIONAL = (
    torch.ops.higher_order.cond,
    torch.ops.higher_order.while_loop,
    torch.ops.higher_order.scan,
)
"""Operators that write to nothing if the graphs that they are given do not."""


def _source(node: Node) -> tuple[Node, Any]:
    """What makes a value, and which of its results that is."""
    if node.target is operator.getitem and isinstance(node.args[0], Node):
        return node.args[0], node.args[1]
    return node, None


def _is_new(node: Node) -> bool:
    """Whether what makes a result returns no memory that anything else has."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        # What is made of other operators may return what it is given, as dropout does.
        composite = torch._C.DispatchKey.CompositeImplicitAutograd
        aliases = any(each.alias_info is not None for each in target._schema.returns)
        return not aliases and not target.has_kernel_for_dispatch_key(composite)
    return target is torch.ops.higher_order.cond  # which is checked itself
