"""Modules with one or a few layers: linear, norms, embeddings, convolutions, recurrent layers."""

import torch
from torch import nn

from spec import WIDTH, ids, images, rows, sequences, spec, vectors

# --- plain layers ------------------------------------------------------------------------------


@spec(vectors)
def mlp():
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, 4))


@spec(sequences)
def mlp_of_sequences():
    """Return an MLP for inputs of rank 3, which exporters write as MatMul with a transposed weight instead of Gemm."""
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
    """Return norms whose scales are all one before training, because exporters merge equal weights."""
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
    """A module in which mean and std are persistent buffers, so they are keys of the checkpoint."""

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
