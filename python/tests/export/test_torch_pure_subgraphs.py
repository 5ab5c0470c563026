"""Tests of branches that neither write to nor return outer values."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.9")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from onnx_external.torch._pure_subgraphs import _is_pure, trusted_if_pure  # noqa: E402


def twice(x: Any) -> Any:
    y = x + 1
    return y, y


def own_view(x: Any) -> Any:
    y = x + 1
    return y, y[0]


PURE = {
    "a new tensor": lambda x: x + 1,
    "a copy that is written to": lambda x: x.clone().add_(1),
    "a view of a copy": lambda x: x.clone().view(-1),
    "parts, added": lambda x: x.split(1)[0] + x.split(1)[1],
    "largest values and their places": lambda x: x.max(0),
}
IMPURE = {
    "its input": lambda x: x,
    "a view of its input": lambda x: x.view(-1),
    "what it writes to its input": lambda x: x.add_(1),
    "a view of its input is written to": lambda x: (x.view(-1).add_(1), x + 1)[1],
    "one tensor twice": twice,
    "a tensor and a view of it": own_view,
    "two parts of a copy": lambda x: x.clone().split(1),
}


@pytest.mark.parametrize("name", [*PURE, *IMPURE])
def test_operators_show_which_branches_are_pure(name: str) -> None:
    function = PURE.get(name) or IMPURE[name]
    assert _is_pure(make_fx(function, tracing_mode="fake")(torch.rand(2, 3))) == (name in PURE)


class Nested(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        def inner(x: Any) -> Any:
            return torch.cond(x.max() > 1, lambda x: x * 2, lambda x: x + 1, (x,))

        return torch.cond(x.sum() > 0, inner, lambda x: -x, (x,))


def test_pure_branches_are_not_tried_out() -> None:
    from torch._higher_order_ops import utils

    program = torch.export.export(Nested(), (torch.rand(2, 3),), strict=False)
    check, create = utils._check_alias_and_mutation, utils.HopInstance.create
    with trusted_if_pure(program):
        assert utils._check_alias_and_mutation is not check
    assert (utils._check_alias_and_mutation, utils.HopInstance.create) == (check, create)
    branch = program.graph_module.true_graph_0.graph
    branch.find_nodes(op="output")[0].args = ([next(iter(branch.nodes))],)
    with trusted_if_pure(program):
        assert utils._check_alias_and_mutation is check
