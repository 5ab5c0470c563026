"""Small modules, one for each way in which a weight reaches a graph under another name, value or form.

A Spec makes a module and its inputs; both draw from torch's generator, so a seed decides everything.
Outputs are float32 tensors.  Buffers whose last name is in weights.FIXED mean something and are the same in
every copy of a module; all else is random.
"""

from dataclasses import dataclass
from typing import Callable, Optional

import torch
import torch.nn.functional as F
from torch import nn

WIDTH = 6  # of most modules; small enough that a thousand saves take seconds


@dataclass(frozen=True)
class Spec:
    """make() gives the module, inputs() its caller's tensors.

    input_names: what torch.onnx.export is told; None leaves the naming to the exporter.
    dynamic: the first dimension of every input is the caller's.
    legacy, modern: which exporters know the module's operators.
    """

    name: str
    make: Callable
    inputs: Callable
    input_names: Optional[tuple] = None
    dynamic: bool = False
    legacy: bool = True
    modern: bool = True
    tolerance: float = 2e-4  # of the outputs, relative to the largest value


SPECS = {}


def spec(inputs, **settings):
    """Registers a class, or a function that makes a module, under its name."""

    def register(make):
        SPECS[make.__name__] = Spec(make.__name__, make, inputs, **settings)
        return make

    return register


def rows(*shape):
    """An input maker: one float tensor of this shape."""
    return lambda: (torch.randn(*shape),)


def ids(limit=11, length=5):
    return lambda: (torch.randint(0, limit, (2, length)),)


def param(*shape):
    return nn.Parameter(torch.randn(*shape) * 0.4)


images = rows(2, 3, 8, 8)
vectors = rows(3, WIDTH)
sequences = rows(2, 4, WIDTH)
pairs = lambda: (torch.randn(3, WIDTH), torch.randn(3, WIDTH))  # noqa: E731


# --- plain layers ------------------------------------------------------------------------------


@spec(vectors)
def mlp():
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, 4))


@spec(sequences)
def mlp_of_sequences():
    """Inputs of rank 3: exporters write MatMul with a transposed weight instead of Gemm."""
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.GELU(), nn.Linear(8, WIDTH))


@spec(sequences)
def linear_without_bias():
    return nn.Linear(WIDTH, 4, bias=False)


@spec(sequences)
def square_linears():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH, bias=False))


@spec(sequences)
def layer_norm():
    return nn.LayerNorm(WIDTH)


@spec(sequences)
def layer_norms():
    """All scales are one before training: exporters merge equal weights."""
    return nn.Sequential(
        nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3)
    )


@spec(rows(2, 4, 5, 5))
def group_norm():
    return nn.Sequential(nn.GroupNorm(2, 4), nn.Conv2d(4, 4, 1), nn.GroupNorm(4, 4))


@spec(rows(2, 4, 5, 5))
def instance_norm():
    return nn.InstanceNorm2d(4, affine=True)


@spec(vectors)
def batch_norm():
    return nn.BatchNorm1d(WIDTH)


@spec(rows(2, 3, 5, 5))
def batch_norms():
    return nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.BatchNorm2d(3))


@spec(ids())
def embedding():
    return nn.Sequential(nn.Embedding(11, WIDTH, padding_idx=0), nn.Linear(WIDTH, 3))


@spec(lambda: (torch.randint(0, 11, (3, 4)), torch.arange(0, 12, 4)[:3]), modern=False)
class embedding_bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(11, WIDTH, mode="sum")

    def forward(self, ids, unused):
        return self.bag(ids) + unused[:, None]


# --- convolutions ------------------------------------------------------------------------------


@spec(images)
def conv():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3, bias=False))


@spec(images)
def conv_bn():
    return nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU())


@spec(images)
class conv_bias_bn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x)))


@spec(rows(2, 3, 9))
def conv1d_bn():
    return nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4))


@spec(rows(2, 4, 6, 6))
def depthwise_bn():
    return nn.Sequential(nn.Conv2d(4, 4, 3, groups=4, bias=False), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1))


@spec(rows(2, 4, 4, 4))
def conv_transpose_bn():
    return nn.Sequential(nn.ConvTranspose2d(4, 3, 2, stride=2), nn.BatchNorm2d(3))


@spec(images, input_names=("image",))
class residual_cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.downsample = nn.Sequential(nn.Conv2d(3, 4, 1, bias=False), nn.BatchNorm2d(4))
        self.fc = nn.Linear(4, 5)

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return self.fc(torch.relu(y + self.downsample(x)).mean((2, 3)))


@spec(images)
class normalized_images(nn.Module):
    """Mean and std are persistent buffers: keys of the checkpoint."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.randn(1, 3, 1, 1))
        self.register_buffer("std", torch.rand(1, 3, 1, 1) + 0.5)
        self.conv = nn.Conv2d(3, 2, 3)

    def forward(self, x):
        return self.conv((x - self.mean) / self.std)


# --- recurrent ---------------------------------------------------------------------------------


class Recurrent(nn.Module):
    def __init__(self, kind, **settings):
        super().__init__()
        self.rnn = kind(WIDTH, 5, batch_first=True, **settings)
        self.head = nn.Linear(10 if settings.get("bidirectional") else 5, 3)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


@spec(sequences)
def lstm():
    return Recurrent(nn.LSTM)


@spec(sequences)
def lstm_both_ways():
    return Recurrent(nn.LSTM, bidirectional=True, num_layers=2)


@spec(sequences)
def gru():
    return Recurrent(nn.GRU)


@spec(sequences)
def rnn():
    return Recurrent(nn.RNN)


# --- ties and reuse ----------------------------------------------------------------------------


class Tied(nn.Module):
    """A language model whose head is its embedding; the names decide which one state_dict() lists first."""

    def __init__(self, first, last, vocabulary=11, assign_head=True):
        super().__init__()
        embedding, head = nn.Embedding(vocabulary, WIDTH), nn.Linear(WIDTH, vocabulary, bias=False)
        if assign_head:
            head.weight = embedding.weight
        else:
            embedding.weight = head.weight
        self.first, self.last = first, last
        self.add_module(first, embedding)
        self.norm = nn.LayerNorm(WIDTH)
        self.add_module(last, head)

    def forward(self, ids):
        return getattr(self, self.last)(self.norm(getattr(self, self.first)(ids)))


@spec(ids())
def tied_wte():
    return Tied("wte", "lm_head")


@spec(ids())
def tied_embed():
    return Tied("embed", "a_head", assign_head=False)


@spec(ids(WIDTH))
def tied_square():
    return Tied("embed_tokens", "output", vocabulary=WIDTH)


@spec(sequences)
class used_twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared, self.after = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.after(self.shared(torch.relu(self.shared(x))))


@spec(sequences)
class encode_and_decode(nn.Module):
    """The weight as it is and transposed: folding keeps a copy that no key names."""

    def __init__(self, outside=4):
        super().__init__()
        self.weight, self.bias = param(outside, WIDTH), param(outside)

    def forward(self, x):
        return torch.relu(F.linear(x, self.weight, self.bias)) @ self.weight


@spec(sequences)
def encode_and_decode_square():
    return encode_and_decode(WIDTH)


@spec(sequences)
class transposed_products(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel, self.w = param(WIDTH, 4), param(5, 4)

    def forward(self, x):
        return (x @ self.kernel) @ self.w.t()


@spec(vectors)
class conv1d_of_gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Module()
        self.c_attn.weight, self.c_attn.bias = param(WIDTH, 9), param(9)

    def forward(self, x):
        return torch.addmm(self.c_attn.bias, x, self.c_attn.weight)


@spec(sequences)
class experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, 3, bias=False), param(3, WIDTH, 4)

    def forward(self, x):
        each = torch.einsum("bsi,eio->bseo", x, self.up)
        return (torch.softmax(self.gate(x), -1)[..., None] * each).sum(2)


@spec(vectors)
class weight_normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight_g, self.weight_v = param(4, 1), param(4, WIDTH)

    def forward(self, x):
        return F.linear(x, self.weight_v * (self.weight_g / self.weight_v.norm(dim=1, keepdim=True)))


# --- parameters of one element -----------------------------------------------------------------


@spec(vectors)
def prelu():
    return nn.PReLU()


@spec(images)
def prelus():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.PReLU(), nn.Conv2d(4, 4, 3), nn.PReLU(4), nn.PReLU())


@spec(sequences)
class scaled_residual(nn.Module):
    """A constant of the code beside a parameter of one element."""

    def __init__(self):
        super().__init__()
        self.lin, self.gate = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x + torch.tanh(self.gate) * self.lin(x) * 0.5


@spec(vectors)
class clipped(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, 4)
        self.low, self.high = nn.Parameter(torch.tensor(-0.5)), nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        return torch.clamp(self.lin(x), self.low, self.high)


@spec(vectors)
class filled(nn.Module):
    def __init__(self):
        super().__init__()
        self.fill, self.temperature = nn.Parameter(torch.zeros(())), nn.Parameter(torch.ones(1))

    def forward(self, x):
        return torch.where(x > 0, x, self.fill.expand(x.shape)) / self.temperature


@spec(pairs)
class clip(nn.Module):
    """Two encoders of the same shapes, and a logit scale."""

    def __init__(self):
        super().__init__()
        self.visual, self.text = nn.Linear(WIDTH, 4), nn.Linear(WIDTH, 4)
        self.logit_scale = nn.Parameter(torch.tensor(1.2))

    def forward(self, image, text):
        a, b = F.normalize(self.visual(image), dim=-1), F.normalize(self.text(text), dim=-1)
        return self.logit_scale.exp() * a @ b.t()


@spec(vectors)
class scaled_weight(nn.Module):
    """w * 0.5 has the weight's shape, and is folded as a transpose would be."""

    def __init__(self):
        super().__init__()
        self.weight, self.scale = param(WIDTH, WIDTH), nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x @ (self.weight * 0.5) * self.scale


# --- parameters at the top ---------------------------------------------------------------------


@spec(images, input_names=("x",))
class vision_transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.cls_token, self.pos_embed = param(1, 1, WIDTH), param(1, 17, WIDTH)
        self.patch_embed = nn.Conv2d(3, WIDTH, 2, stride=2)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1) + self.pos_embed
        return self.head(self.norm(x).mean(1))


@spec(vectors)
class top_level(nn.Module):
    def __init__(self):
        super().__init__()
        self.cls_token, self.w0, self.w1 = param(1, WIDTH), param(WIDTH, 4), param(4)

    def forward(self, x):
        return torch.tanh(x + self.cls_token) @ self.w0 + self.w1


@spec(vectors)
class expanded(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.lin = param(1, 2, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.query.expand(3, -1, -1) @ self.lin(x)[..., None]


@spec(vectors)
class lists(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = nn.ParameterList([param(WIDTH) for _ in range(3)])
        self.table = nn.ParameterDict({"a": param(WIDTH), "b": param(WIDTH)})

    def forward(self, x):
        for step in self.steps:
            x = torch.sin(x + step)
        return x * self.table["a"] + self.table["b"]


@spec(vectors)
class returned(nn.Module):
    """A parameter is an output, too: an Identity stands behind it."""

    def __init__(self):
        super().__init__()
        self.scale, self.lin = param(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.lin(x) * self.scale, self.scale


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
    """inv_freq is persistent, as in old checkpoints, and the same in every copy."""

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
    """The input is called as the parameter; torch renames one of the two."""

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
    """A query and a key encoder of the same shapes: a bare encoder's checkpoint fits both."""

    def __init__(self):
        super().__init__()
        self.q, self.k = Encoder(), Encoder()

    def forward(self, a, b):
        return self.q(a) @ self.k(b).t()


@spec(sequences)
class gammas(nn.Module):
    """Layer scales that are equal before training; one is merged away behind an Identity."""

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
    """The caller's second input has the shape of the parameters."""

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
    """Weights of a narrow type, used as float32: every runtime computes the same."""

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
    """Computes in half precision, too."""

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
    """Adapters that are part of the module, and so of the graph."""

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
