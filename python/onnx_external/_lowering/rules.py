"""Holds the rules that lower operators, by operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import onnx_ir

from .nodes import Maker

Results: TypeAlias = Sequence[onnx_ir.Value] | None
"""The values that replace the outputs of a node; None if the node stays."""
Rule: TypeAlias = Callable[[onnx_ir.Node, Maker], Results]
"""A function that changes a node, or makes nodes that replace it."""

RULES: dict[str, list[tuple[int, Rule]]] = {}
"""For each operator, rules with the opset below which they apply."""


def rule(below: int, *kinds: str) -> Callable[[Rule], Rule]:
    """Register a rule for operators, for opsets below a version."""

    def register(function: Rule) -> Rule:
        for kind in kinds:
            RULES.setdefault(kind, []).append((below, function))
            RULES[kind].sort(key=lambda each: -each[0])
        return function

    return register
