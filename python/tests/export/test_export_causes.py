"""Tests of the causes that an export error states before torch's own message."""

from typing import Any

import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.9")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")


class Around(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *given: Any) -> Any:
        return self.inner(*given)


def quantized() -> Any:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4)).eval()
    return torch.ao.quantization.quantize_dynamic(module, {torch.nn.Linear})


class Sparse(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, used: bool = True) -> None:
        super().__init__()
        self.used = used
        self.register_buffer("table", torch.eye(4).to_sparse())

    def forward(self, x: Any) -> Any:
        return torch.sparse.mm(self.table, x.T) if self.used else x + 1


class Packed(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.GRU(4, 4, batch_first=True)

    def forward(self, x: Any, lengths: Any) -> Any:
        pack = torch.nn.utils.rnn.pack_padded_sequence
        return self.layer(pack(x, lengths, batch_first=True, enforce_sorted=False))[1]


class WithState(torch.nn.Linear):  # type: ignore[misc,name-defined]
    def get_extra_state(self) -> Any:
        return torch.float16

    def set_extra_state(self, state: Any) -> None:
        pass


ROWS = (torch.rand(2, 4),)


@pytest.mark.parametrize(
    ("make", "args", "told"),
    [
        (quantized, ROWS, r"0 \(Linear\) is quantized by torch\.ao.*quantize_dynamic \("),
        (Sparse, ROWS, r"table has the layout torch\.sparse_coo.*to_dense"),
        (Packed, (torch.rand(2, 5, 4), torch.tensor([5, 3])), "a packed sequence.*padded tensor"),
    ],
)
def test_the_cause_comes_before_the_error_of_torch(make: Any, args: Any, told: str) -> None:
    with pytest.raises(oe.ExportError, match=rf"cannot \w+ the \w+: {told}") as caught:
        oe.torch.skeleton(make().eval(), args)
    assert "diagnose_export" not in str(caught.value)


def test_a_layer_for_one_length_is_named() -> None:
    module = Around(torch.nn.RNN(4, 4, batch_first=True)).eval()
    sets = [(torch.rand(3, 6, 4),)]
    with pytest.raises(
        oe.ExportError, match=r"inner \(RNN\) is traced for a single sequence length"
    ):
        oe.torch.skeleton(module, (torch.rand(2, 5, 4),), input_sets=sets)


def test_values_that_are_not_tensors_in_a_state_dict_are_ignored(tmp_path: Any) -> None:
    report = oe.torch.export(WithState(4, 4).eval(), ROWS, tmp_path / "a.onnx", fsync=False)
    assert report.checked == 1
    assert (
        oe.torch.export(Sparse(False).eval(), ROWS, tmp_path / "b.onnx", fsync=False).checked == 1
    )


class Scaled(torch.nn.Module):  # type: ignore[misc,name-defined]
    def forward(self, x: Any, scale: float = 1.0) -> Any:
        return x * scale


def test_a_number_that_differs_between_the_sets_is_named(tmp_path: Any) -> None:
    args, sets = {"x": torch.rand(2, 4), "scale": 2.0}, [{"x": torch.rand(3, 4), "scale": 3.0}]
    with pytest.raises(oe.ExportError, match=r"scale'\] is 3\.0 here and 2\.0 .* a tensor") as told:
        oe.torch.export(Scaled().eval(), args, tmp_path / "model.onnx", input_sets=sets)
    assert "atol" not in str(told.value)


class Casts(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.layer(x).float()


def test_a_graph_that_autocast_keeps_from_loading_says_so(tmp_path: Any) -> None:
    with pytest.raises(oe.ExportError, match=r"computes in bfloat16: .*torch\.autocast"):
        oe.torch.export(Casts().eval(), ROWS, tmp_path / "model.onnx")


class Cached(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[int, Any] = {}

    def forward(self, x: Any) -> Any:
        if x.shape[1] not in self.tables:
            self.tables[x.shape[1]] = torch.arange(x.shape[1])
        return x + self.tables[x.shape[1]]


class Drawing(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(1)

    def forward(self, x: Any) -> Any:
        return x + torch.randn(x.shape, generator=self.generator)


@pytest.mark.parametrize(
    ("make", "sets", "told"),
    [
        (Cached, [(torch.rand(2, 5),)], "cannot be a dict key.*in each call"),
        (Drawing, [], r"generator is a torch\.Generator.*without generator="),
    ],
)
def test_what_torch_raises_is_explained(make: Any, sets: list[Any], told: str) -> None:
    with pytest.raises(oe.ExportError, match=told):
        oe.torch.skeleton(make().eval(), ROWS, input_sets=sets)
