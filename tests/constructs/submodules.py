"""Constructs with submodules, buffers, hooks and modes."""

import torch
from row import rand, row


@row("modules")
class CalledTwice(torch.nn.Module):
    """a submodule that is called twice"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(torch.relu(self.linear(x)))


@row("modules")
class ABufferThatChanges(torch.nn.Module):
    """a buffer that counts the calls"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls = self.calls + 1
        return x * 2


@row("modules")
class Parametrized(torch.nn.Module):
    """weight norm as a parametrization"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 4))

    def forward(self, x):
        return self.linear(x)


@row("modules")
class Hooked(torch.nn.Module):
    """a forward hook that changes the result"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)
        self.linear.register_forward_hook(lambda module, args, result: result * 2)

    def forward(self, x):
        return self.linear(x)


@row("modules")
class DropoutInEval(torch.nn.Module):
    """dropout, in eval mode"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def __init__(self):
        super().__init__()
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x):
        return self.dropout(x) * 2


@row("modules", "`module.eval()`")
class InTrainingMode(torch.nn.Module):
    """batch norm, in training mode"""

    sets = [(rand(4, 3),), (rand(6, 3),)]
    in_training = True

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(x)


@row("modules")
class TiedWeights(torch.nn.Module):
    """tied weights"""

    sets = [(torch.tensor([1, 2]),), (torch.tensor([4, 0, 3]),)]

    def __init__(self):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.embed(x))


@row("modules")
class OldWeightNorm(torch.nn.Module):
    """the old `torch.nn.utils.weight_norm`"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.utils.weight_norm(torch.nn.Linear(3, 4))

    def forward(self, x):
        return self.linear(x)


@row("modules")
class APreHook(torch.nn.Module):
    """a forward pre-hook that changes the arguments"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)
        self.linear.register_forward_pre_hook(lambda module, args: (args[0] * 2,))

    def forward(self, x):
        return self.linear(x)


@row("modules")
class AStateThatIsReturned(torch.nn.Module):
    """an LSTM and its state"""

    sets = [(rand(2, 4, 3),), (rand(3, 7, 3),)]

    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(3, 5, batch_first=True)

    def forward(self, x):
        return self.lstm(x)


@row("modules")
class ByAttention(torch.nn.Module):
    """`MultiheadAttention`"""

    sets = [(rand(2, 4, 8),), (rand(3, 7, 8),)]

    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x)[0]


@row("modules")
class ASequential(torch.nn.Module):
    """`Sequential`, `ModuleDict` and `ParameterList`"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleDict(
            {"a": torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())}
        )
        self.scales = torch.nn.ParameterList([rand(3), rand(3)])

    def forward(self, x):
        return self.layers["a"](x) * self.scales[0] + self.scales[1]


@row("modules")
class WithoutGradients(torch.nn.Module):
    """`torch.no_grad()` and `detach` inside"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    @torch.no_grad()
    def forward(self, x):
        with torch.no_grad():
            return (x * 2).detach()


@row("modules")
class ATensorAsAttribute(torch.nn.Module):
    """a tensor that is an attribute but not a buffer"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def __init__(self):
        super().__init__()
        self.table = rand(3)

    def forward(self, x):
        return x * self.table


@row("modules", "use the module before scripting")
class Scripted(torch.nn.Module):
    """a submodule made by `torch.jit.script`"""

    sets = [(rand(2, 3),), (rand(4, 3),)]

    def __init__(self):
        super().__init__()
        self.linear = torch.jit.script(torch.nn.Linear(3, 4))

    def forward(self, x):
        return self.linear(x)


@row("modules")
class GivesATensorOrNone(torch.nn.Module):
    """a submodule that returns a tensor or None, depending on a tensor"""

    sets = [(rand(2, 3),), (-rand(4, 3),)]

    class Part(torch.nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else None

    def __init__(self):
        super().__init__()
        self.part = self.Part()

    def forward(self, x):
        found = self.part(x)
        return x - 1 if found is None else found


@row("modules")
class HookOrNone(torch.nn.Module):
    """a forward hook that changes the result or returns None, depending on a tensor"""

    sets = [(rand(2, 3),), (-rand(4, 3),)]

    def __init__(self):
        super().__init__()
        self.part = torch.nn.ReLU()
        self.part.register_forward_hook(self.doubled)

    @staticmethod
    def doubled(module, args, result):
        if args[0].sum() < 0:
            return args[0] * 2

    def forward(self, x):
        return self.part(x) + 1
