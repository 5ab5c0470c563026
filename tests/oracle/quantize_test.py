"""Tests quantized matrices against the bytes of ONNX Runtime's quantizer and the results of its operators.

usage: quantize_test.py PROGRAM   (quantize_matrix, built from the source beside this file)
"""

import itertools
import subprocess
import sys
import unittest

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import matmul_nbits_quantizer as peers

PROGRAM = sys.argv.pop(1)
BLOCKS = (16, 32, 64, 128, 256)
ROWS = 37
SCALES = {"float32": np.float32, "float16": np.float16}


class Packed:
    """The program's result for a matrix of float32."""

    def __init__(self, matrix, bits, block, zero_points, rest, scales="float32"):
        (rows, columns), blocks = matrix.shape, -(-matrix.shape[1] // block)
        kind = "zero points" if zero_points else "symmetric"
        scheme = f"int{bits}/{block}, {kind}, {rest}, {scales} scales"
        command = [PROGRAM, scheme, "float32", str(columns)]
        self.out = subprocess.run(command, input=matrix.tobytes(), capture_output=True, check=True).stdout
        self.codes = self.take(np.uint8, (rows, blocks, block * bits // 8))
        self.scales = self.take(SCALES[scales], (rows, blocks))
        self.zeros = self.take(np.uint8, (rows, -(-blocks * bits // 8))) if zero_points else None
        self.floats = self.take(np.float32, (rows, columns))
        assert not self.out, f"{len(self.out)} bytes too many"

    def take(self, dtype, shape):
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        found, self.out = self.out[:size], self.out[size:]
        return np.frombuffer(found, dtype).reshape(shape)


def used(codes, bits, columns):
    """Return the codes that stand for columns: the last block may have more."""
    rows = codes.reshape(len(codes), -1)
    if bits == 4:
        rows = np.stack([rows & 15, rows >> 4], axis=-1).reshape(len(rows), -1)
    return rows[:, :columns]


def hard_matrix(columns):
    """Gaussian rows, and some of one sign, of ties, of zeros, and of large and small numbers."""
    random = np.random.default_rng(columns)
    matrix = (random.standard_normal((ROWS, columns)) * 0.02).astype(np.float32)
    matrix[1], matrix[2] = np.abs(matrix[1]), -np.abs(matrix[2])
    matrix[3] = random.integers(-16, 17, columns) * np.float32(0.5)
    matrix[4], matrix[5, ::3] = 0, 0
    matrix[6] *= np.float32(1e30)
    matrix[7] *= np.float32(1e-30)
    matrix[8] = random.standard_normal(columns) * 10.0 ** random.integers(-30, 30, columns)
    matrix[9] = matrix[9].astype(np.float16).astype(np.float32)
    return matrix


def run(nodes, initializers, feeds, outputs):
    """Return the outputs of a model of these nodes in ONNX Runtime."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in feeds.items()
    ]
    outs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    weights = [numpy_helper.from_array(value, name) for name, value in initializers.items()]
    graph = helper.make_graph(nodes, "main", inputs, outs, weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(list(outputs), feeds)


class Quantizer(unittest.TestCase):
    def test_nearest_gives_the_bytes_of_onnx_runtimes_quantizer(self):
        compared = 0
        for bits, block, zero_points in itertools.product((4, 8), BLOCKS, (True, False)):
            for columns in (block * 3, block * 2 + 13, 5):
                with self.subTest(bits=bits, block=block, zero_points=zero_points, columns=columns):
                    matrix = hard_matrix(columns)
                    ours = Packed(matrix, bits, block, zero_points, "nearest")
                    config = peers.DefaultWeightOnlyQuantConfig(block_size=block, is_symmetric=not zero_points, bits=bits)
                    quantizer = peers.DefaultWeightOnlyQuantizer(config)
                    codes, scales, zeros = quantizer.qbits_block_quant(np.ascontiguousarray(matrix.T))
                    np.testing.assert_array_equal(ours.scales.view(np.uint32), scales.view(np.uint32))
                    if columns % block:  # its codes for columns that do not exist are arbitrary
                        codes, ours.codes = (used(each, bits, columns) for each in (codes, ours.codes))
                    np.testing.assert_array_equal(ours.codes, codes)
                    if zero_points:
                        np.testing.assert_array_equal(ours.zeros, zeros)
                    compared += 1
        self.assertEqual(compared, 60)


class Layout(unittest.TestCase):
    def test_matmulnbits_multiplies_by_the_dequantized_matrix(self):
        for bits, block, zero_points in itertools.product((4, 8), BLOCKS, (True, False)):
            for columns in (block * 3, block * 2 + 13):
                with self.subTest(bits=bits, block=block, zero_points=zero_points, columns=columns):
                    packed = Packed(self.matrix(columns), bits, block, zero_points, "5 steps")
                    names = ["x", "codes", "scales"] + (["zeros"] if zero_points else [])
                    node = helper.make_node(
                        "MatMulNBits", names, ["y"], domain="com.microsoft", K=columns, N=ROWS, bits=bits, block_size=block
                    )  # fmt: skip
                    weights = {"codes": packed.codes, "scales": packed.scales, "zeros": packed.zeros}
                    weights = {name: weights[name] for name in names[1:]}
                    (found,) = run([node], weights, {"x": np.eye(columns, dtype=np.float32)}, ["y"])
                    np.testing.assert_allclose(found, packed.floats.T, rtol=1e-6, atol=0)

    def test_gatherblockquantized_gathers_dequantized_rows(self):
        for bits, block, zero_points in itertools.product((4, 8), BLOCKS, (True, False)):
            with self.subTest(bits=bits, block=block, zero_points=zero_points):
                packed = Packed(self.matrix(block * 3), bits, block, zero_points, "nearest")
                names = ["codes", "ids", "scales"] + (["zeros"] if zero_points else [])
                node = helper.make_node(
                    "GatherBlockQuantized", names, ["y"], domain="com.microsoft",
                    gather_axis=0, quantize_axis=1, bits=bits, block_size=block,
                )  # fmt: skip
                weights = {"codes": packed.codes.reshape(ROWS, -1), "scales": packed.scales, "zeros": packed.zeros}
                weights = {name: weights[name] for name in names if name != "ids"}
                (found,) = run([node], weights, {"ids": np.arange(ROWS, dtype=np.int64)}, ["y"])
                np.testing.assert_array_equal(found, packed.floats)

    def matrix(self, columns):
        """Without numbers that a product with zeros could make infinite."""
        return hard_matrix(columns)[[0, 1, 2, 3, 4, 5] + [9] * (ROWS - 6)]


unittest.main()
