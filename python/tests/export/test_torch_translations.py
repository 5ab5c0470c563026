"""Tests of operators that torch.onnx translates wrongly, or not at all."""

from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.9")
pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

AUTO = torch.export.Dim.AUTO


def right_on_all(module: Any, sets: list[Any], shapes: Any, folder: Path) -> None:
    """Export a module, and compare the graph with eager torch on all inputs."""
    path = folder / "model.onnx"
    report = oe.torch.export(
        module, sets[0], path, dynamic_shapes=shapes, input_sets=sets[1:], fsync=False
    )
    assert report.checked == len(sets)


class Distances(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        norms = (0.0, 1.0, 2.0, 2.5, float("inf"))
        return [torch.cdist(x, y, p=p) for p in norms], torch.cdist(x[None], y[None])


def test_distances_of_rows_are_right_for_any_norm(tmp_path: Path) -> None:
    sets = [(torch.randn(n, 3), torch.randn(4, 3)) for n in (2, 1, 5)]
    right_on_all(Distances(), sets, ({0: AUTO}, None), tmp_path)


class Averages(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.nn.AdaptiveAvgPool2d((3, None))

    def forward(self, x: Any) -> Any:
        pool = torch.nn.functional.adaptive_avg_pool2d
        line = torch.nn.functional.adaptive_avg_pool1d(x[0], 4)
        return pool(x, 3), pool(x, (2, 5)), pool(x, 1), self.rows(x), line


def test_averages_over_parts_follow_sizes_that_vary(tmp_path: Path) -> None:
    sets = [(torch.randn(1, 2, *sizes),) for sizes in ((8, 8), (6, 9), (13, 7))]
    right_on_all(Averages(), sets, ({2: AUTO, 3: AUTO},), tmp_path)


class Places(torch.nn.Module):
    def forward(self, among: Any, x: Any, order: Any) -> Any:
        ascending = torch.sort(x, dim=1).values
        return (
            torch.searchsorted(among, x),
            torch.searchsorted(among, x, right=True, out_int32=True),
            torch.searchsorted(ascending, x.round(), side="right"),
            torch.searchsorted(among.flip(0), x, sorter=order),
        )


def test_places_in_a_sorted_tensor_are_counted(tmp_path: Path) -> None:
    among, order = torch.tensor([-1.0, 0.0, 0.0, 2.0]), torch.tensor([3, 2, 1, 0])
    sets = [(among, torch.randn(n, 5).round(decimals=1), order) for n in (2, 1, 3)]
    right_on_all(Places(), sets, (None, {0: AUTO}, None), tmp_path)


class Copies(torch.nn.Module):
    def forward(self, x: Any, line: Any) -> Any:
        y = x.clone()
        y.copy_(line)
        return y, torch.zeros_like(x).copy_(line.sum())


def test_what_is_copied_into_a_tensor_broadcasts(tmp_path: Path) -> None:
    sets = [(torch.randn(n, 3), torch.randn(3)) for n in (2, 4)]
    right_on_all(Copies(), sets, ({0: AUTO}, None), tmp_path)


class Samples(torch.nn.Module):
    def forward(self, x: Any, grid: Any) -> Any:
        if x.sum() > 0:
            return torch.nn.functional.grid_sample(x, grid, align_corners=False)
        return torch.fft.fft(x[:, :, :3, :3]).real


def test_operators_in_branches_have_the_version_of_the_graph(tmp_path: Path) -> None:
    sets = [(torch.rand(n, 2, 4, 4) - n + 1, torch.rand(n, 3, 3, 2)) for n in (1, 2)]
    right_on_all(Samples(), sets, ({0: AUTO}, {0: AUTO}), tmp_path)


class Integers(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        div = torch.div
        rounded = [div(x, by, rounding_mode=way) for by in (7, y) for way in ("floor", "trunc")]
        sums = x.sum(), x.sum(0, keepdim=True), torch.stack([x, y]).sum((-1,)), (x > 3).sum()
        halves = div(x, 2.5, rounding_mode="floor") if x.is_floating_point() else x.int().sum()
        return rounded, torch.fmod(x, 7), torch.fmod(x, y), sums, halves, x.relu()


def test_integers_that_no_float_holds_are_calculated_exactly(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sets = [
        (torch.randint(-top, top, (n,)), torch.randint(1, 50, (n,)))
        for n, top in ((6, 100), (7, 2**30), (8, 10**12), (5, 2**60))
    ]
    right_on_all(Integers(), sets, ({0: AUTO}, {0: AUTO}), tmp_path)


class Attention(torch.nn.Module):
    def forward(self, x: Any, mask: Any) -> Any:
        attend = torch.nn.functional.scaled_dot_product_attention
        bias = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
        return attend(x, x, x, attn_mask=mask), attend(x, x, x, attn_mask=bias)


@pytest.mark.parametrize("opset", [18, 23])
def test_a_query_that_may_attend_to_nothing_gets_zero(tmp_path: Path, opset: int) -> None:
    mask = torch.rand(2, 1, 5, 5) > 0.5
    mask[0, :, 2] = False
    sets = [
        (torch.randn(2, 3, 5, 4), torch.rand(2, 1, 5, 5) > 0.5),
        (torch.randn(2, 3, 5, 4), mask),
    ]
    path, options = tmp_path / "model.onnx", {"opset_version": opset}
    report = oe.torch.export(Attention(), sets[0], path, input_sets=sets[1:], onnx_options=options)
    assert report.checked == 2
    session = onnxruntime.InferenceSession(path)
    feeds = zip((each.name for each in session.get_inputs()), sets[1], strict=True)
    results = session.run(None, {name: value.numpy() for name, value in feeds})
    assert all(not result[0, :, 2].any() for result in results)


class Pools(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        pool, resize = torch.nn.functional.avg_pool2d, torch.nn.functional.interpolate
        return (
            pool(x, 3, 1, 1, True, False, 2),
            pool(x, (4, 4), (2, 3), 1, True, False, 5),
            pool(x, 2, divisor_override=-2),
            pool(x, 4, 3, 2, True, True),
            torch.nn.functional.avg_pool3d(x[:, None], 2, 3, 1, True, True, 3),
            resize(x, (5, 7), mode="bilinear", antialias=True),
            resize(x, (5, 7), mode="nearest-exact"),
            resize(x, scale_factor=2.5, mode="nearest-exact"),
        )


def test_images_are_pooled_and_resized_with_all_flags(tmp_path: Path) -> None:
    right_on_all(Pools(), [(torch.randn(2, 3, 9, 10),)], None, tmp_path)


class Aligned(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        options = {"mode": "bilinear", "antialias": True, "align_corners": True}
        return torch.nn.functional.interpolate(x, (5, 7), **options)


def test_a_flag_that_no_graph_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        oe.ExportError, match="antialias=True with align_corners=True is not supported"
    ):
        oe.torch.export(Aligned(), (torch.randn(2, 3, 9, 10),), tmp_path / "m.onnx", check=False)


class Exact(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        resize = torch.nn.functional.interpolate
        return resize(x, size=(7, 5), mode="nearest-exact"), resize(
            x, scale_factor=1.7, mode="nearest-exact"
        )


def test_nearest_exact_follows_sizes_that_vary(tmp_path: Path) -> None:
    sets = [(torch.randn(1, 2, *sizes),) for sizes in ((8, 9), (6, 11), (13, 20))]
    right_on_all(Exact(), sets, ({2: AUTO, 3: AUTO},), tmp_path)


class FakeQuantized(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(6, 8)
        self.register_buffer("scale", torch.tensor(0.05))
        self.register_buffer("zero", torch.tensor(3, dtype=torch.int32))

    def forward(self, x: Any) -> Any:
        x = torch.fake_quantize_per_tensor_affine(x, self.scale, self.zero, 0, 255)
        scales, zeros = torch.full((8,), 0.01), torch.zeros(8, dtype=torch.int32)
        weight = torch.fake_quantize_per_channel_affine(
            self.linear.weight, scales, zeros, 0, -128, 127
        )
        return torch.nn.functional.linear(x, weight, self.linear.bias)


def test_fake_quantization_is_exported_for_sizes_that_vary(tmp_path: Path) -> None:
    sets = [(torch.randn(n, 6),) for n in (2, 4, 1)]
    right_on_all(FakeQuantized().eval(), sets, ({0: AUTO},), tmp_path)
