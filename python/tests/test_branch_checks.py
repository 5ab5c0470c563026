"""Branches that torch need not check again, since their graphs show that they are functional."""

import pytest

torch = pytest.importorskip("torch", minversion="2.11")
pytest.importorskip("onnxscript")

from onnx_external.torch.branch_checks import is_functional, seen_branches_unchecked  # noqa: E402
from onnx_external.torch.converting import converted  # noqa: E402

cond = torch.ops.higher_order.cond


def program_of(branch):
    class Decides(torch.nn.Module):
        def forward(self, x):
            return cond(x.sum() > 0, branch, branch, (x,))

    rows = {0: torch.export.Dim.DYNAMIC}
    with torch.no_grad():
        return torch.export.export(
            Decides(), (torch.ones(3, 2),), dynamic_shapes=(rows,), strict=False
        )


def branch_of(branch):
    return program_of(branch).graph_module.true_graph_0


def nested(x):
    return cond(x.max() > 1, lambda x: (x + 1,), lambda x: (x - 1,), (x,))


@pytest.mark.parametrize(
    "branch",
    [
        lambda x: (x + 1,),
        lambda x: (x.clone(),),
        lambda x: (x + 1, x.sum()),
        lambda x: (x.view(-1).cumsum(0),),
        lambda x: tuple(x.max(0)),
        nested,
    ],
)
def test_a_branch_that_makes_new_tensors_is_functional(branch):
    assert is_functional(branch_of(branch))


@pytest.mark.parametrize(
    "branch",
    [
        lambda x: (x.view(-1, 2),),
        lambda x: (x.clone().mul_(2),),
        lambda x: (torch.dropout(x, 0.5, False),),
        lambda x: ((x + 1).reshape(-1, 2),),
    ],
)
def test_a_branch_that_writes_or_may_return_an_operand_is_not(branch):
    assert not is_functional(branch_of(branch))


def test_a_result_that_is_returned_twice_is_not_new():
    graph = branch_of(lambda x: (x + 1, x + 2))
    output = graph.graph.output_node()
    first = output.args[0][0]
    output.args = ((first, first),)
    assert not is_functional(graph)


def test_a_function_of_python_is_not_known_to_be_functional():
    assert not is_functional(lambda x: x + 1)


def test_functional_branches_are_not_traced_again(monkeypatch):
    from torch._higher_order_ops import utils

    traced = []
    plain = utils.materialize_as_graph
    monkeypatch.setattr(
        utils, "materialize_as_graph", lambda *given: traced.append(given) or plain(*given)
    )
    program = program_of(nested)
    program.run_decompositions()
    assert traced
    traced.clear()
    with seen_branches_unchecked(), torch.no_grad():
        program.run_decompositions()
    assert not traced


def test_a_branch_that_writes_to_its_operand_is_still_refused():
    program = program_of(lambda x: (x + 1,))
    branch = program.graph_module.true_graph_0
    added = next(node for node in branch.graph.nodes if node.op == "call_function")
    added.target = torch.ops.aten.add_.Tensor
    branch.recompile()
    with pytest.raises(Exception, match="not functional"):
        converted(program)


def test_torch_checks_as_before_when_the_context_ends():
    from torch._higher_order_ops import utils

    before = vars(utils.HopInstance)["create"], utils._check_alias_and_mutation
    with seen_branches_unchecked():
        assert utils._check_alias_and_mutation is not before[1]
    assert (vars(utils.HopInstance)["create"], utils._check_alias_and_mutation) == before
