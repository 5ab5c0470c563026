"""Small versions of real architectures, every weight distinct, and their graphs without weights.

A case is deterministic: one seed a name. The widths are cut where the constructor allows it, so that
the whole zoo exports in about a minute; ResNet-18 is the full one.
"""

import io
import warnings
from dataclasses import dataclass
from functools import partial
from typing import Callable

import onnx
import torch
import torchvision.models as tv
from torch import nn
from torch.onnx import TrainingMode
from torchvision.models.convnext import CNBlockConfig
from torchvision.models.efficientnet import MBConvConfig

OPSET = 14


# --- architectures -----------------------------------------------------------------------------


class SmallVgg(nn.Module):
    def __init__(self):
        super().__init__()
        widths, layers, previous = [8, "pool", 16, "pool", 24, 24, "pool", 32, 32, "pool"], [], 3
        for width in widths:
            if width == "pool":
                layers.append(nn.MaxPool2d(2))
            else:
                layers += [nn.Conv2d(previous, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
                previous = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(128, 64), nn.ReLU(), nn.Dropout(), nn.Linear(64, 64), nn.Linear(64, 10)
        )

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


class RecurrentClassifier(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.rnn = kind(16, 24, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(48, 5)

    def forward(self, ids):
        return self.head(self.rnn(self.embedding(ids))[0][:, -1])


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width), "c_proj": nn.Linear(width, width)})
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.heads = heads

    def attention(self, x):
        batch, length, width = x.shape
        q, k, v = self.attn["c_attn"](x).split(width, dim=2)
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.reshape(shape).transpose(1, 2) for part in (q, k, v))
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        mask = torch.triu(torch.full((length, length), -1e4), diagonal=1)
        mixed = torch.softmax(scores + mask, dim=-1) @ v
        return self.attn["c_proj"](mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class TiedGpt(nn.Module):
    """A small GPT whose output layer is its embedding: lm_head.weight is transformer.wte.weight."""

    def __init__(self, width=32, vocabulary=96, length=16, layers=2):
        super().__init__()
        blocks = nn.ModuleList(GptBlock(width, 4) for _ in range(layers))
        parts = {"wte": nn.Embedding(vocabulary, width), "wpe": nn.Embedding(length, width), "h": blocks}
        self.transformer = nn.ModuleDict({**parts, "ln_f": nn.LayerNorm(width)})
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, ids):
        body = self.transformer
        x = body["wte"](ids) + body["wpe"](torch.arange(ids.shape[1]))
        for block in body["h"]:
            x = block(x)
        return self.lm_head(body["ln_f"](x))


class UntiedGpt(TiedGpt):
    """The output layer has a weight of its own."""

    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.lm_head.weight = nn.Parameter(self.lm_head.weight.detach().clone())


class SmallBert(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings, self.position_embeddings = nn.Embedding(60, 32), nn.Embedding(16, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.pooler, self.classifier = nn.Linear(32, 32), nn.Linear(32, 4)

    def forward(self, ids):
        x = self.word_embeddings(ids) + self.position_embeddings(torch.arange(ids.shape[1]))
        return self.classifier(torch.tanh(self.pooler(self.encoder(x)[:, 0])))


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(40, 32), nn.Embedding(40, 32)
        self.transformer = nn.Transformer(32, 4, 1, 1, 64, batch_first=True)
        self.generator = nn.Linear(32, 40)

    def forward(self, source, target):
        return self.generator(self.transformer(self.source(source), self.target(target)))


def conv_pair(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
        nn.Conv2d(outside, outside, 3, padding=1),
        nn.GroupNorm(4, outside),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.bottom = conv_pair(3, 8), conv_pair(8, 16), conv_pair(16, 32)
        self.up2, self.up1 = nn.ConvTranspose2d(32, 16, 2, stride=2), nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.merge2, self.merge1 = conv_pair(32, 16), conv_pair(16, 8)
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(nn.functional.max_pool2d(first, 2))
        x = self.bottom(nn.functional.max_pool2d(second, 2))
        x = self.merge2(torch.cat([self.up2(x), second], 1))
        return self.head(self.merge1(torch.cat([self.up1(x), first], 1)))


def densenet():
    return tv.DenseNet(growth_rate=8, block_config=(2, 3, 2), num_init_features=16, num_classes=10)


def efficientnet():
    layout = [(1, 3, 1, 32, 16, 1), (6, 3, 2, 16, 24, 2), (6, 5, 2, 24, 40, 2), (6, 3, 1, 40, 80, 2)]
    settings = [MBConvConfig(*line, width_mult=0.5, depth_mult=1.0) for line in layout]
    return tv.EfficientNet(settings, dropout=0.2, num_classes=10)


def vit():
    return tv.VisionTransformer(32, 8, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=64, num_classes=10)


def swin():
    return tv.SwinTransformer([2, 2], 16, depths=[2, 2], num_heads=[2, 4], window_size=[4, 4], num_classes=10)


def convnext():
    return tv.ConvNeXt([CNBlockConfig(16, 32, 2), CNBlockConfig(32, None, 2)], num_classes=10)


def image(size=32):
    return (torch.randn(2, 3, size, size),)


def ids(limit, length=9, count=1):
    return tuple(torch.randint(0, limit, (2, length)) for _ in range(count))


# name -> (module, example inputs)
ARCHITECTURES = {
    "resnet18": (partial(tv.resnet18, num_classes=10), image),
    "mobilenet_v2": (partial(tv.mobilenet_v2, width_mult=0.25, num_classes=10), image),
    "mobilenet_v3": (partial(tv.mobilenet_v3_small, width_mult=0.5, num_classes=10), image),
    "densenet": (densenet, image),
    "squeezenet": (partial(tv.squeezenet1_1, num_classes=10), partial(image, 48)),
    "shufflenet": (partial(tv.shufflenet_v2_x0_5, num_classes=10), image),
    "efficientnet": (efficientnet, image),
    "mnasnet": (partial(tv.mnasnet0_5, num_classes=10), image),
    "vgg": (SmallVgg, image),
    "vit": (vit, image),
    "swin": (swin, image),
    "convnext": (convnext, image),
    "lstm": (partial(RecurrentClassifier, nn.LSTM), partial(ids, 50)),
    "gru": (partial(RecurrentClassifier, nn.GRU), partial(ids, 50)),
    "gpt_tied": (TiedGpt, partial(ids, 96)),
    "bert": (SmallBert, partial(ids, 60)),
    "seq2seq": (Seq2Seq, partial(ids, 40, 7, 2)),
    "unet": (UNet, image),
}


# --- weights -----------------------------------------------------------------------------------


def make_distinct(module: nn.Module, seed: int) -> None:
    """Gives every element of every float weight a value of its own, near the one that init gave."""
    generator = torch.Generator().manual_seed(seed)
    seen = set()
    for name, value in module.state_dict().items():
        if value.data_ptr() in seen and value.numel():
            continue  # a tied weight is changed once
        seen.add(value.data_ptr())
        noise = torch.rand(value.shape, generator=generator)
        with torch.no_grad():
            if name.endswith("num_batches_tracked"):
                value.fill_(len(seen))
            elif not value.is_floating_point():
                continue  # an index table means something: Swin's relative positions
            elif name.endswith("running_var") or (value.dim() == 1 and name.endswith("weight")):
                value.copy_(0.75 + 0.5 * noise)
            elif value.dim() == 1:
                value.copy_(0.2 * noise - 0.1)
            elif name.endswith("layer_scale"):
                value.copy_(0.5 + noise)
            else:
                spread = float(value.std(unbiased=False)) or 0.05
                value.add_(spread * (noise - 0.5))


@dataclass(frozen=True)
class Case:
    name: str
    module: nn.Module
    inputs: tuple
    outputs: tuple

    @property
    def state_dict(self):
        return self.module.state_dict()


def seed_of(name: str) -> int:
    return sum(byte * (index + 1) for index, byte in enumerate(name.encode()))


def run_module(module: nn.Module, inputs: tuple) -> tuple:
    result = module(*inputs)
    return tuple(t.detach() for t in (result if isinstance(result, tuple) else (result,)))


def make_case(
    name: str, make: Callable, inputs: Callable, distinct: bool = True, seed_shift: int = 0
) -> Case:
    seed = seed_of(name) + seed_shift
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = make().eval()
    if distinct:
        make_distinct(module, seed)
    example = inputs()
    outputs = run_module(module, example)
    for output in outputs:
        assert torch.isfinite(output).all() and 1e-3 < float(output.abs().max()) < 1e4, (
            name,
            output.abs().max(),
        )
    return Case(name, module, example, outputs)


def build(name: str, **options) -> Case:
    """Return the case of that name; options as make_case."""
    make, inputs = ARCHITECTURES[name]
    return make_case(name, make, inputs, **options)


# --- graphs ------------------------------------------------------------------------------------


def export(
    module, inputs: tuple, with_weights: bool = False, fold: bool = False, **options
) -> onnx.ModelProto:
    """Return the module's graph; without weights they are graph inputs named by their state-dict keys."""
    settings = dict(opset_version=OPSET, do_constant_folding=fold, export_params=with_weights)
    settings.update(keep_initializers_as_inputs=not with_weights)
    settings.update(training=TrainingMode.EVAL if fold else TrainingMode.PRESERVE)
    settings.update(options)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, inputs, buffer, **settings)
    return onnx.load_from_string(buffer.getvalue())


def user_inputs(model: onnx.ModelProto, case: Case) -> list:
    """Return the names of the graph inputs that the caller feeds: the exporter puts them first."""
    return [value.name for value in model.graph.input][: len(case.inputs)]
