"""Tensors that are more than plain numbers in a file: quantized, sparse, conjugated, complex32, numpy.

torch writes what it can, and inspect-external must print the names, types, shapes and digests of what
torch makes of it; what only newer torch versions write is put together by modern_pt.py and compared by
value.

usage: values_test.py --bin-dir DIR --work-dir DIR [-v]
"""

import sys
import warnings
from pathlib import Path

import numpy
import torch

import modern_pt
import support

warnings.filterwarnings("ignore", message="Sparse CSR")

SPARSE = ("--convert", "sparse")
INTEGERS = {torch.qint8: torch.int8, torch.quint8: torch.uint8, torch.qint32: torch.int32}


def of_array(value) -> tuple:
    """Return the entry for a numpy value."""
    array = numpy.asarray(value)
    little = numpy.ascontiguousarray(array.astype(array.dtype.newbyteorder("<")))
    return str(array.dtype.newbyteorder("=")), tuple(array.shape), support.digest(little.tobytes())


def of_tensor(value: torch.Tensor) -> tuple:
    return support.short_dtype(value), tuple(value.shape), support.digest(support.tensor_bytes(value))


def of_quantized(name: str, value: torch.Tensor) -> dict:
    """Return the expected entries of a quantized tensor: its integers, and beside them how to read them."""
    integers = value.int_repr()
    expected = {name: of_tensor(integers)}
    if value.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        scale, zero_point = torch.tensor(value.q_scale()), torch.tensor(value.q_zero_point())
    else:
        scale, zero_point = value.q_per_channel_scales(), value.q_per_channel_zero_points()
        expected[f"{name}.axis"] = of_tensor(torch.tensor(value.q_per_channel_axis()))
    expected[f"{name}.scale"] = of_tensor(scale.float())
    if not zero_point.is_floating_point():
        zero_point = zero_point.to(INTEGERS[value.dtype])
    expected[f"{name}.zero_point"] = of_tensor(zero_point)
    return expected


def global_of(name: str) -> modern_pt.Global:
    return modern_pt.Global("torch._utils", name)


def sparse_node(layout: str, *parts) -> modern_pt.Reduce:
    """Return the node that today's torch writes for a sparse tensor; the last part is the size."""
    kind = modern_pt.Reduce(modern_pt.Global("torch.serialization", "_get_layout"), (f"torch.{layout}",))
    return modern_pt.Reduce(global_of("_rebuild_sparse_tensor"), (kind, parts))


class Storages:
    """The storages of a file in the making."""

    def __init__(self):
        self.all = []

    def add(self, value: torch.Tensor) -> modern_pt.Reduce:
        data = support.tensor_bytes(value)
        key = str(len(self.all))
        self.all.append((key, data, len(data)))
        return modern_pt.tensor(support.short_dtype(value), key, value.numel(), tuple(value.shape))


class ValuesTest:
    def __init__(self, arguments):
        self.report = support.Report(arguments.verbose)
        self.tools = support.Tools(arguments.bin_dir)
        self.only = arguments.only
        self.folder = support.fresh_folder(arguments.work_dir / "values")

    def expect(self, label: str, path: Path, expected: dict, *options) -> None:
        process = self.tools.inspect(path, "--sha256", *options)
        document = support.parse_json(process.stdout)
        if not self.report.check(document, f"{label}: is read", support.last_line(process)):
            return
        found = {e["name"]: (e["dtype"], tuple(e["shape"]), e.get("sha256")) for e in document["tensors"]}
        wrong = sorted(n for n in found.keys() | expected.keys() if found.get(n) != expected.get(n))
        detail = "; ".join(f"{name!r}: {found.get(name)}, not {expected.get(name)}" for name in wrong[:3])
        self.report.check(not wrong, f"{label}: names, types, shapes, digests", detail)

    def expect_refused(self, label: str, path: Path, name: str, *words: str) -> None:
        """Listed as refused, with the reason."""
        document = support.parse_json(self.tools.inspect(path).stdout)
        reasons = {e["path"]: e["reason"] for e in document["refused_tensors"]} if document else {}
        for word in words:
            self.report.check(word in reasons.get(name, ""), f"{label}: says {word!r}", str(reasons))

    def save(self, name: str, value, **options) -> Path:
        path = self.folder / f"{name}.pt"
        torch.save(value, path, **options)
        return path

    # --- what torch writes ---

    def test_quantized(self) -> None:
        values = torch.arange(24, dtype=torch.float32).reshape(4, 6) * 0.37 - 3
        scales, zero_points = torch.tensor([0.1, 0.2, 0.3, 0.7]), torch.tensor([0, 3, 1, 2])
        state = {}
        for dtype in INTEGERS:
            name = str(dtype).replace("torch.", "")
            state[f"{name}.whole"] = torch.quantize_per_tensor(values, 0.1, 3, dtype)
            state[f"{name}.transposed"] = state[f"{name}.whole"].t()
            state[f"{name}.rows"] = torch.quantize_per_channel(values, scales, zero_points, 0, dtype)
        state["columns"] = torch.quantize_per_channel(
            values, torch.arange(1, 7) * 0.3, torch.zeros(6, dtype=torch.int64), 1, torch.qint8
        )
        state["fractions"] = torch.quantize_per_channel(values, scales, scales * 2, 0, torch.quint8)
        expected = {}
        for name, value in state.items():
            expected.update(of_quantized(name, value))
        self.expect("quantized", self.save("quantized", state), expected)
        packed = torch.quantize_per_channel(values, scales, scales, 0, torch.quint4x2)
        path = self.save("packed", {"w": packed, "plain": values})
        self.expect_refused("quantized/4 bits", path, "w", "QUInt4x2Storage", "dequantize")

    def test_quantized_model(self) -> None:
        model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
        state = model.state_dict()
        expected = {}
        for name, value in state.items():
            if torch.is_tensor(value):
                expected[name] = of_tensor(value)
            elif isinstance(value, tuple):
                expected.update(of_quantized(f"{name}.0", value[0]))
                expected[f"{name}.1"] = of_tensor(value[1])
        self.expect("quantized model", self.save("quantized_model", state), expected)

    def test_sparse(self) -> None:
        generator = torch.Generator().manual_seed(5)
        dense = torch.rand(12, 20, generator=generator)
        dense[dense < 0.7] = 0
        indices = torch.tensor([[5, 0, 5, 2, 5], [1, 3, 1, 0, 0]])
        summed = torch.tensor([1.5, 2.25, -4.125, 8.0, 0.1])
        state = {
            "coo": dense.to_sparse(),
            "coo_half": dense.half().to_sparse(),
            "coo_unordered": torch.sparse_coo_tensor(indices, summed, (6, 4)),
            "coo_ints": torch.sparse_coo_tensor(indices, summed.long(), (6, 4)),
            "coo_bytes": torch.sparse_coo_tensor(indices, torch.full((5,), 200).byte(), (6, 4)),
            "coo_complex": torch.sparse_coo_tensor(indices, torch.complex(summed, -summed), (6, 4)),
            "coo_hybrid": torch.sparse_coo_tensor(indices[:1], torch.rand(5, 3, 2), (6, 3, 2)),
            "coo_cube": torch.rand(3, 4, 5).relu().to_sparse(),
            "coo_empty": torch.sparse_coo_tensor(torch.empty(2, 0).long(), torch.empty(0), (3, 4)),
            "coo_parameter": torch.nn.Parameter(dense.to_sparse(), requires_grad=False),
            "csr": dense.to_sparse_csr(),
            "csr_narrow": torch.sparse_csr_tensor(
                torch.tensor([0, 1, 1, 3]).int(), torch.tensor([2, 0, 1]).int(), summed[:3].double(), (3, 4)
            ),
        }
        expected = {name: of_tensor(value.to_dense()) for name, value in state.items()}
        path = self.save("sparse", {**state, "plain": dense})
        self.expect("sparse", path, {**expected, "plain": of_tensor(dense)}, *SPARSE)
        for name in ("coo", "csr"):
            self.expect_refused(f"sparse/{name}", path, name, "sparse", name.upper(), "a dense tensor")

    def test_numpy(self) -> None:
        types = "f8 f4 f2 i8 i4 i2 i1 u8 u4 u2 u1 b1 c16 c8".split()
        state = {code: numpy.arange(12).reshape(3, 4).astype(code) for code in types}
        state.update({f">{code}": state[code].astype(">" + code) for code in types})
        state["fortran"] = numpy.asfortranarray(state["f4"])
        state["stepped"] = state["i8"][:, ::2]
        state["bytes"] = numpy.arange(256, dtype="u1")
        state["empty"] = numpy.zeros((0, 3))
        state["scalar"] = numpy.float32(1.5)
        state["flag"] = numpy.bool_(True)
        state["zero_d"] = numpy.array(7)
        state["shared"] = state["f4"]
        expected = {name: of_array(value) for name, value in state.items()}
        state["words"] = numpy.array(["a", "bc"])
        state["objects"] = numpy.array([None, 1], dtype=object)
        for protocol in (2, 3, 4, 5):
            path = self.save(f"numpy{protocol}", {"nested": state, "t": torch.ones(2)}, pickle_protocol=protocol)
            everything = {f"nested.{name}": value for name, value in expected.items()}
            self.expect(f"numpy/protocol {protocol}", path, {**everything, "t": of_tensor(torch.ones(2))})
            for name in ("words", "objects"):
                self.expect_refused(f"numpy/{name}", path, f"nested.{name}", "is not a type")

    def test_views_of_complex_numbers(self) -> None:
        """torch 1.13 drops the bits when it saves: what it loads again is the truth."""
        value = torch.complex(torch.rand(2, 3), torch.rand(2, 3))
        path = self.save("complex", {"conj": value.conj(), "stepped": value[:, ::2], "t": value.t()})
        loaded = torch.load(path)
        self.expect("complex", path, {name: of_tensor(tensor) for name, tensor in loaded.items()})

    # --- what newer torch writes ---

    def test_bits(self) -> None:
        value = torch.complex(torch.rand(3, 2), torch.rand(3, 2)) - 0.5
        numbers = torch.rand(4) - 0.5
        storages = Storages()

        def with_bits(tensor: torch.Tensor, **bits) -> modern_pt.Reduce:
            plain = storages.add(tensor)
            return modern_pt.Reduce(plain.function, plain.arguments + (bits,))

        state = {
            "conj": with_bits(value, conj=True),
            "neg": with_bits(numbers, neg=True),
            "both": with_bits(value, conj=True, neg=True),
            "none": with_bits(numbers, conj=False),
            "int": with_bits(torch.arange(3), neg=True),
        }
        path = self.folder / "bits.pt"
        modern_pt.write_archive(str(path), state, storages.all)
        expected = {"conj": value.conj(), "neg": -numbers, "both": -value.conj(), "none": numbers}
        self.expect("bits", path, {name: of_tensor(tensor) for name, tensor in expected.items()})
        self.expect_refused("bits/of an integer", path, "int", "negated", "int64")

    def test_complex32(self) -> None:
        halves = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
        halves = halves[: len(halves) // 2 * 2].view(torch.float16)
        halves = halves[~halves.isnan()]  # their payload is the processor's business
        pairs = halves[: halves.numel() // 2 * 2].reshape(-1, 2)
        wide = torch.view_as_complex(pairs.float().contiguous())
        storages = [("0", pairs.numpy().tobytes(), pairs.numel() * 2)]
        shape = (wide.numel(),)
        state = {"w": modern_pt.tensor("complex32", "0", wide.numel(), shape)}
        state["part"] = modern_pt.tensor("complex32", "0", wide.numel(), (7, 2), (2, 3), 5)
        path = self.folder / "complex32.pt"
        modern_pt.write_archive(str(path), state, storages)
        expected = {"w": of_tensor(wide), "part": of_tensor(wide.as_strided((7, 2), (2, 3), 5))}
        self.expect("complex32", path, expected, "--convert", "complex32")
        self.expect_refused("complex32", path, "w", "complex32", "complex64")

    def test_sparse_of_newer_torch(self) -> None:
        """The flag behind COO's size, and compressed tensors with batches and dense dimensions."""
        storages = Storages()
        indices, values = torch.tensor([[0, 2], [1, 1]]), torch.tensor([3.0, 4.0])
        size = modern_pt.Reduce(modern_pt.Global("torch", "Size"), ((3, 2),))
        state = {"coo": sparse_node("sparse_coo", storages.add(indices), storages.add(values), size, True)}
        starts = torch.tensor([[0, 1, 2], [0, 0, 2]])
        columns = torch.tensor([[2, 0], [0, 1]])
        numbers = torch.arange(1, 9, dtype=torch.float32).reshape(2, 2, 2)
        parts = [storages.add(part) for part in (starts, columns, numbers)]
        state["csr"] = sparse_node("sparse_csr", *parts, (2, 2, 3, 2))
        blocks = torch.arange(1, 25, dtype=torch.int16).reshape(2, 2, 3, 2)
        parts = [storages.add(part) for part in (starts, columns, blocks)]
        state["bsr"] = sparse_node("sparse_bsr", *parts, (2, 6, 6))
        dense = torch.rand(12, 20, dtype=torch.float64).relu() * (torch.rand(12, 20) < 0.2)
        by_columns, blocks_of_rows = dense.to_sparse_csc(), dense.to_sparse_bsr((3, 4))
        blocks_of_columns = dense.to_sparse_bsc((4, 2))
        for name, value in {"csc": by_columns, "bsc": blocks_of_columns}.items():
            parts = (value.ccol_indices(), value.row_indices(), value.values())
            state[name] = sparse_node(f"sparse_{name}", *map(storages.add, parts), tuple(value.shape))
        parts = (blocks_of_rows.crow_indices(), blocks_of_rows.col_indices(), blocks_of_rows.values())
        state["blocks"] = sparse_node("sparse_bsr", *map(storages.add, parts), (12, 20))
        path = self.folder / "sparse_modern.pt"
        modern_pt.write_archive(str(path), state, storages.all)
        coo, csr = torch.zeros(3, 2), torch.zeros(2, 2, 3, 2)
        coo[0, 1], coo[2, 1] = 3, 4
        bsr = torch.zeros(2, 6, 6, dtype=torch.int16)
        for batch in range(2):
            for row in range(2):
                for at in range(starts[batch, row], starts[batch, row + 1]):
                    column = columns[batch, at]
                    csr[batch, row, column] = numbers[batch, at]
                    bsr[batch, 3 * row : 3 * row + 3, 2 * column : 2 * column + 2] = blocks[batch, at]
        expected = {"coo": of_tensor(coo), "csr": of_tensor(csr), "bsr": of_tensor(bsr)}
        expected.update({name: of_tensor(dense) for name in ("csc", "bsc", "blocks")})
        self.expect("sparse/newer", path, expected, *SPARSE)
        for name in ("csc", "bsr", "bsc"):
            self.expect_refused(f"sparse/{name}", path, name, "sparse", name.upper(), "a dense tensor")

    def test_without_data(self) -> None:
        state = {
            "meta": modern_pt.Reduce(
                global_of("_rebuild_meta_tensor_no_storage"),
                (modern_pt.Global("torch", "float32"), (2,), (1,), False),
            ),
            "wrapper": modern_pt.Reduce(global_of("_rebuild_wrapper_subclass"), ()),
            "nested": modern_pt.Reduce(global_of("_rebuild_nested_tensor"), ()),
        }
        path = self.folder / "without_data.pt"
        modern_pt.write_archive(str(path), state, [])
        self.expect_refused("meta", path, "meta", "meta tensor", "load the weights")
        self.expect_refused("wrapper", path, "wrapper", "DTensor", "full_tensor()")
        self.expect_refused("nested", path, "nested", "nested tensor", "unbind()")

    # --- the commands ---

    def test_save(self) -> None:
        """A sparse weight goes into a model dense, and is verified; a damaged index is noticed."""
        from onnx import TensorProto, helper, save

        dense = torch.rand(30, 40).double()
        dense[dense < 0.9] = 0
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"])],
            "g",
            [value("x", TensorProto.DOUBLE, ["n", 30]), value("w", TensorProto.DOUBLE, [30, 40])],
            [value("y", TensorProto.DOUBLE, ["n", 40])],
        )
        save(helper.make_model(graph), str(self.folder / "graph.onnx"))
        checkpoint = self.save("to_save", {"w": dense.to_sparse_csr()})
        target = self.folder / "out"
        command = (self.folder / "graph.onnx", checkpoint, "-o", target)
        refused = self.tools.save(*command)
        self.report.check("--convert sparse" in refused.stderr, "save: names the option", refused.stderr)
        saved = self.tools.save(*command, *SPARSE)
        self.report.check(saved.returncode == 0, "save: densifies", support.last_line(saved))
        wrong = support.wrong_initializers(target / "model.onnx", {"w": dense})
        self.report.check(not wrong, "save: the dense values", str(wrong))
        verified = self.tools.verify(target / "model.onnx", "--against", checkpoint, *SPARSE)
        self.report.check(verified.returncode == 0, "save: is verified", verified.stdout[:300])
        data = bytearray(checkpoint.read_bytes())
        columns = support.tensor_bytes(dense.to_sparse_csr().col_indices())
        data[data.index(columns)] ^= 1
        checkpoint.write_bytes(bytes(data))
        damaged = self.tools.save(*command, *SPARSE, "--overwrite")
        self.report.check(damaged.returncode == 1, "save: a damaged index is noticed", damaged.stdout[:200])

    def run(self) -> int:
        for name in sorted(vars(ValuesTest)):
            if not name.startswith("test_") or self.only not in name:
                continue
            try:
                getattr(self, name)()
            except Exception as error:
                self.report.check(False, f"{name} runs to its end", repr(error))
            print(f"done  {name[5:]}", flush=True)
        return self.report.close()


if __name__ == "__main__":
    sys.exit(ValuesTest(support.parse_arguments(__doc__.splitlines()[0])).run())
