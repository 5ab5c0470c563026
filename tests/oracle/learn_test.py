"""Tests --learn-map, which fills folded exports with the help of the checkpoint from which they were exported.

torch's exporter folds constants: it leaves weights in the graph transposed, under names of its own, some of them
computed. Given the old weights and new ones, save-external must make the model that torch computes, or refuse.

usage: learn_test.py --bin-dir DIR --work-dir DIR [--node-modules DIR] [--only NAME] [-v]
"""

import sys

import onnx
import torch

import runtime
import support
import zoo
from save_cases import SaveTest

# What the exporter computes from their weights is no tensor of the checkpoint: BatchNorm goes into
# the convolutions, gates of recurrent layers are reordered, positions and heads are sliced.
COMPUTED = {
    *("resnet18", "mobilenet_v2", "mobilenet_v3", "densenet", "shufflenet", "efficientnet", "mnasnet"),
    *("vgg", "lstm", "gru", "unet", "swin", "gpt_tied", "bert", "seq2seq"),
}


class Small(torch.nn.Module):
    """Equal weights, one number alone, a permutation, a tie that is folded, a constant of its own."""

    def __init__(self):
        super().__init__()
        self.emb = torch.nn.Embedding(11, 8)
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(3)])
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(8) for _ in range(3)])
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8))
        self.head = torch.nn.Linear(8, 11, bias=False)
        self.head.weight = self.emb.weight
        self.scale = torch.nn.Parameter(torch.randn(1))
        self.register_buffer("order", torch.randperm(8))
        self.mask = torch.tril(torch.ones(5, 5)) * 0.37  # no key

    def forward(self, ids):
        x = self.emb(ids)
        for block, norm in zip(self.blocks, self.norms):
            x = norm(x + block(x[..., self.order]) * self.scale)
        return self.head(self.net(self.mask @ x))


def small_case(seed: int) -> zoo.Case:
    return zoo.make_case(
        "small", Small, lambda: (torch.arange(5).reshape(1, 5),), distinct=seed > 0, seed_shift=seed
    )


class LearnTest(SaveTest):
    folder_name = "learn"

    def learn(self, label: str, old: zoo.Case, new: zoo.Case, *options):
        """Fill a folded export of `old` with `new`; return the document or the error."""
        folder = support.fresh_folder(self.folder / label)
        graph = zoo.export(old.module, old.inputs, with_weights=True, fold=True)
        onnx.save(graph, str(folder / "graph.onnx"))
        torch.save(old.state_dict, folder / "old.pt")
        torch.save(new.state_dict, folder / "new.pt")
        paths = (folder / "graph.onnx", folder / "new.pt", "-o", folder / "out")
        process = self.tools.save(*paths, "--learn-map", folder / "old.pt", *options)
        if process.returncode != 0:
            return None, process.stderr
        document = support.parse_json(process.stdout)
        self.report.check(document and document["verified"], f"{label}: says that it verified")
        self.runtime.add(label, folder / "out" / "model.onnx", new, graph)
        verified = self.tools.verify(folder / "out" / "model.onnx", "--against", folder / "new.pt")
        self.report.check(
            verified.returncode == 0, f"{label}: verify-external agrees", support.last_line(verified)
        )
        return document, None

    def test_zoo(self) -> None:
        for name in zoo.ARCHITECTURES:
            document, said = self.learn(name, zoo.build(name), zoo.build(name, seed_shift=1))
            if name in COMPUTED:
                refused = said and "the old checkpoint does not determine the mapping" in said
                self.report.check(refused, f"{name}: what is computed is refused", str(said))
            else:
                self.report.check(document, f"{name}: is filled", str(said))

    def test_small(self) -> None:
        """Test initial weights, which are zeros and ones and equal in many places."""
        document, said = self.learn("small", small_case(0), small_case(1))
        if self.report.check(document, "small: is filled", str(said)):
            turned = [t for t in document["tensors"] if t.get("recipe") == ["transpose"]]
            self.report.check(len(turned) == 6, "small: six transposed weights", str(len(turned)))

    def test_frozen(self) -> None:
        """Test a checkpoint in which only the head is new, so that computed values stay valid."""
        old, new = zoo.build("resnet18"), zoo.build("resnet18")
        with torch.no_grad():
            new.module.fc.weight.mul_(-1.5)
        new = zoo.Case(new.name, new.module, old.inputs, zoo.run_module(new.module, old.inputs))
        document, said = self.learn("frozen", old, new)
        self.report.check(document, "frozen: is filled", str(said))

    def test_wrong_old(self) -> None:
        """Test the new checkpoint given as the old one."""
        old, new = zoo.build("bert"), zoo.build("bert", seed_shift=1)
        folder = support.fresh_folder(self.folder / "wrong")
        graph = zoo.export(old.module, old.inputs, with_weights=True, fold=True)
        self.refuse("wrong", graph, new.state_dict, ["exported from"], "--learn-map", folder / "checkpoint.pt")


if __name__ == "__main__":
    parsed = support.parse_arguments(__doc__.splitlines()[0], runtime.NODE_MODULES)
    sys.exit(LearnTest(parsed).run())
