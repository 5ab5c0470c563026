"""Modules with buffers, colliding or misleading names, types, attention, and parts that a graph does not use."""

import torch
import torch.nn.functional as F
from torch import nn

from modules_sharing import Tied
from spec import WIDTH, ids, images, pairs, param, sequences, spec, vectors

# --- buffers -----------------------------------------------------------------------------------


@spec(vectors)
class permuted(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("permutation", torch.arange(WIDTH))
        self.lin = nn.Linear(WIDTH, 4)

    def forward(self, x):
        return self.lin(x[:, self.permutation])


@spec(vectors)
class quantized(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("qweight", torch.randint(-9, 9, (4, WIDTH), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(4, 1))

    def forward(self, x):
        return F.linear(x, self.qweight.float() * self.scales)


@spec(sequences)
class buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("shift", torch.randn(WIDTH))
        self.register_buffer("inv_freq", 1.0 / torch.arange(1, WIDTH + 1), persistent=False)
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.lin(x + self.shift) * self.inv_freq


@spec(sequences)
class rotary(nn.Module):
    """A module in which inv_freq is persistent, as in old checkpoints, and equal in every copy."""

    def __init__(self):
        super().__init__()
        self.rotary_emb = nn.Module()
        self.rotary_emb.register_buffer("inv_freq", 1.0 / 100.0 ** (torch.arange(0, WIDTH, 2) / WIDTH))
        self.q_proj = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        angles = torch.arange(x.shape[1])[:, None] * self.rotary_emb.inv_freq
        angles = torch.cat([angles, angles], -1)
        q = self.q_proj(x)
        turned = torch.cat([-q[..., WIDTH // 2 :], q[..., : WIDTH // 2]], -1)
        return q * angles.cos() + turned * angles.sin()


class Masked(nn.Module):
    """Attention with a causal mask that is a buffer."""

    def __init__(self, persistent, boolean=False):
        super().__init__()
        mask = torch.ones(4, 4).tril()
        self.register_buffer("causal_mask", mask.bool() if boolean else mask, persistent=persistent)
        self.qkv, self.proj, self.boolean = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), boolean

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / WIDTH**0.5
        if self.boolean:
            scores = scores.masked_fill(~self.causal_mask, -1e4)
        else:
            scores = scores + (1 - self.causal_mask) * -1e4
        return self.proj(torch.softmax(scores, -1) @ v)


@spec(sequences)
def masked():
    return Masked(persistent=True)


@spec(sequences)
def masked_hidden():
    return Masked(persistent=False)


@spec(sequences)
def masked_boolean():
    return Masked(persistent=True, boolean=True)


@spec(ids(length=4))
class positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("position_ids", torch.arange(4)[None])
        self.word, self.position = nn.Embedding(11, WIDTH), nn.Embedding(4, WIDTH)

    def forward(self, ids):
        return self.word(ids) + self.position(self.position_ids)


# --- names that collide or mislead -------------------------------------------------------------


@spec(lambda: (torch.randn(3, WIDTH), torch.rand(3, WIDTH)))
class mask_and_mask(nn.Module):
    """A module whose input has the name of a parameter, so torch renames one of them."""

    def __init__(self):
        super().__init__()
        self.mask, self.lin = param(3, WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, x, mask):
        return self.lin(x * mask + self.mask)


@spec(
    lambda: (torch.randint(0, 11, (2, 4)), torch.randint(0, 4, (2, 4))),
    input_names=("input_ids", "position_ids"),
)
class given_positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("position_ids", torch.arange(4)[None])
        self.word, self.position = nn.Embedding(11, WIDTH), nn.Embedding(4, WIDTH)

    def forward(self, ids, position_ids):
        return self.word(ids) + self.position(position_ids) + self.position(self.position_ids)


@spec(vectors)
class dots_and_underscores(nn.Module):
    def __init__(self):
        super().__init__()
        self.a_b, self.a = nn.Module(), nn.Module()
        self.a_b.c, self.a.b_c = param(WIDTH), param(WIDTH)

    def forward(self, x):
        return torch.sin(x * self.a_b.c) + self.a.b_c


class Encoder(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(WIDTH, 5), nn.ReLU(), nn.Linear(5, 4))


@spec(pairs)
class twins(nn.Module):
    """A query encoder and a key encoder of the same shapes, so the checkpoint of a single encoder fits both."""

    def __init__(self):
        super().__init__()
        self.q, self.k = Encoder(), Encoder()

    def forward(self, a, b):
        return self.q(a) @ self.k(b).t()


@spec(sequences)
class gammas(nn.Module):
    """Layer scales that are equal before training, so one is replaced by an Identity."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        for block in self.blocks:
            block.gamma = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        for block in self.blocks:
            x = x + block.gamma * torch.tanh(block(x))
        return x


@spec(pairs)
class two_inputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(WIDTH, 4), nn.Linear(WIDTH, 4, bias=False)

    def forward(self, a, b):
        return self.left(a) * torch.sigmoid(self.right(b))


@spec(pairs, input_names=("a", "b"), dynamic=True)
def two_dynamic_inputs():
    return two_inputs()


@spec(lambda: (torch.randn(3, WIDTH), torch.rand(WIDTH)))
class input_like_a_bias(nn.Module):
    """A module whose second input has the shape of the parameters."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, offset):
        return self.lin(x) + offset


# --- what a graph does not use -----------------------------------------------------------------


@spec(vectors)
class with_decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, WIDTH))

    def forward(self, x):
        return self.encoder(x)


@spec(images)
class with_auxiliary_head(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4))
        self.head, self.aux_head = nn.Linear(4, 3), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


@spec(vectors)
class with_spare_parameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, 4)
        self.lin.spare = param(3)

    def forward(self, x):
        return self.lin(x)


# --- types -------------------------------------------------------------------------------------


class Narrow(nn.Module):
    """Weights of a narrow type that are used as float32, so every runtime computes the same."""

    def __init__(self, dtype):
        super().__init__()
        self.lin, self.norm = nn.Linear(WIDTH, 4), nn.LayerNorm(4)
        self.to(dtype)

    def forward(self, x):
        x = F.linear(x, self.lin.weight.float(), self.lin.bias.float())
        return F.layer_norm(x, (4,), self.norm.weight.float(), self.norm.bias.float())


@spec(vectors)
def half():
    return Narrow(torch.float16)


@spec(vectors)
def bfloat16():
    return Narrow(torch.bfloat16)


@spec(vectors, legacy=False, tolerance=2e-2)
def half_computed():
    """Return a module that also computes in half precision."""

    class HalfMlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, 4)).half()

        def forward(self, x):
            return self.net(x.half()).float()

    return HalfMlp()


@spec(ids(), legacy=False, tolerance=2e-2)
def tied_half():
    class HalfTied(Tied):
        def __init__(self):
            super().__init__("wte", "lm_head")
            self.half()

        def forward(self, ids):
            return super().forward(ids).float()

    return HalfTied()


# --- attention ---------------------------------------------------------------------------------


@spec(sequences)
class attention(nn.Module):
    """Four square matrices of one shape: q, k, v, o."""

    def __init__(self):
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            self.add_module(name, nn.Linear(WIDTH, WIDTH, bias=name == "o_proj"))

    def forward(self, x):
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        return self.o_proj(torch.softmax(q @ k.transpose(1, 2) / WIDTH**0.5, -1) @ v)


@spec(sequences)
class multihead(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(WIDTH), nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 8), nn.GELU(), nn.Linear(8, WIDTH))

    def forward(self, x):
        x = self.norm(x)
        x = x + self.attn(x, x, x, need_weights=True)[0]
        return x + self.mlp(x)


@spec(ids(length=4), input_names=("input_ids",), dynamic=True)
class gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {"wte": nn.Embedding(11, WIDTH), "wpe": nn.Embedding(4, WIDTH), "ln_f": nn.LayerNorm(WIDTH)}
        )
        self.transformer["h"] = nn.ModuleList(Masked(persistent=True) for _ in range(2))
        self.lm_head = nn.Linear(WIDTH, 11, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, ids):
        x = self.transformer["wte"](ids) + self.transformer["wpe"](torch.arange(4))
        for block in self.transformer["h"]:
            x = x + block(x)
        return self.lm_head(self.transformer["ln_f"](x))


@spec(vectors)
class with_lora(nn.Module):
    """Adapters that are part of the module, and therefore of the graph."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(WIDTH, 4)
        self.lora_A, self.lora_B = nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, 4, bias=False)

    def forward(self, x):
        return self.base(x) + self.lora_B(self.lora_A(x)) * 2.0


@spec(sequences)
class float_keys(nn.Module):
    """Cross attention with learned keys and values at the top level."""

    def __init__(self):
        super().__init__()
        self.keys, self.values_ = param(5, WIDTH), param(5, WIDTH)

    def forward(self, x):
        return torch.softmax(x @ self.keys.t(), -1) @ self.values_
