"""Modules with weights that are used twice or have one element, or with parameters of the top module."""

import torch
import torch.nn.functional as F
from torch import nn

from spec import WIDTH, ids, images, pairs, param, sequences, spec, vectors

# --- ties and reuse ----------------------------------------------------------------------------


class Tied(nn.Module):
    """A language model whose head is tied to its embedding. The names determine which one state_dict() lists first."""

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
    """A module that uses a weight unchanged and transposed. Folding keeps a copy without a key."""

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
    """A constant in the code next to a parameter of one element."""

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
    """A module with w * 0.5, which has the weight's shape and is folded like a transpose."""

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
    """A module with a parameter that is also an output, through an Identity."""

    def __init__(self):
        super().__init__()
        self.scale, self.lin = param(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.lin(x) * self.scale, self.scale
