# %% [markdown]
# # Find the layer that is wrong
#
# A model was converted, and its outputs are not those of torch. Which layer is to blame? `validate`
# says that something is wrong, `diagnose` says where: it cuts every module out of the ONNX model
# and runs it by itself on what the module took in torch.

# %%
import torch

import onnx_external as oe


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(32)
        self.up, self.down = torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(100, 32)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))
        self.head = torch.nn.Linear(32, 10)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
model = Model().eval()
sets = [(torch.randint(0, 100, (2, 7)),), (torch.randint(0, 100, (3, 11)),)]
graph = oe.torch.skeleton(model, sets[0], input_sets=sets[1:])

# %% [markdown]
# A fault of the kind that a conversion script makes: the rows of one matrix come in another order.

# %%
weights = model.state_dict()
weights["blocks.1.up.weight"] = weights["blocks.1.up.weight"].flip(0)
oe.save(graph, "faulty/model.onnx", weights, overwrite=True)

# %%
validation = oe.validate("faulty/model.onnx", against=model, inputs=sets)
print("agrees:", validation.ok)
report = oe.diagnose("faulty/model.onnx", model, sets)
print(report.tree())
print(report.sentence)

# %% [markdown]
# Only `blocks.1.up` is wrong by itself ("differs"). What is around it is sound ("right itself"):
# with the right values in the place of the wrong module, it gives the right result. As a page for a
# browser:
#
#     Path("faulty.html").write_text(report.html())
