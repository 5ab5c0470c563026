"""Exports a small Llama, saves it, verifies it, runs it on ONNX Runtime and compares with torch.

pip install torch transformers onnx onnxscript onnxruntime
python transformers_model.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import torch
import transformers

import onnx_external as oe


class Logits(torch.nn.Module):
    """The model without the cache that generation needs: token ids in, logits out."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, use_cache=False).logits


def small_llama() -> torch.nn.Module:
    """A Llama with random weights, whose embedding and output layer are tied."""
    config = transformers.LlamaConfig(
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=1000,
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).eval()


def main(folder: Path) -> None:
    model = small_llama()
    ids = torch.randint(0, 1000, (2, 7))

    # optimize=False keeps the names of all weights, so that others can be attached later.
    program = torch.onnx.export(
        Logits(model),
        (ids,),
        dynamic_shapes=({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},),
        dynamo=True,
        optimize=False,
        verbose=False,
    )

    # In the place of program.save(folder / "model.onnx"):
    report = oe.save(program, folder / "model.onnx", progress=False)
    print(f"{len(report.tensors)} tensors, {report.bytes:,} bytes, verified: {report.verified}")

    # The file against the module that it came from, byte by byte.
    weights = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    checked = oe.verify(folder / "model.onnx", against=weights)
    print(f"{checked.compared} tensors compared with the module's, ok: {checked.ok}")

    session = onnxruntime.InferenceSession(folder / "model.onnx")
    logits = session.run(None, {"input_ids": ids.numpy()})[0]
    expected = model(ids, use_cache=False).logits.detach().numpy()
    worst = np.abs(logits - expected).max() / np.abs(expected).max()
    print(f"largest difference: {worst:.1e} of the largest logit")

    # The same graph with the weights of another checkpoint, from a folder of transformers.
    torch.manual_seed(1)
    other = small_llama_with(model.config)
    other.save_pretrained(folder / "other")
    oe.save(program, folder / "other.onnx", folder / "other", progress=False)
    session = onnxruntime.InferenceSession(folder / "other.onnx")
    logits = session.run(None, {"input_ids": ids.numpy()})[0]
    expected = other(ids, use_cache=False).logits.detach().numpy()
    other_worst = np.abs(logits - expected).max() / np.abs(expected).max()
    print(f"with other weights: {other_worst:.1e}")
    if not (report.verified and checked.ok and max(worst, other_worst) <= 1e-4):
        raise SystemExit("the outputs differ")


def small_llama_with(config: transformers.LlamaConfig) -> torch.nn.Module:
    """Another model of the same kind."""
    return transformers.LlamaForCausalLM(config).eval()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
