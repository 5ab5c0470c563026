"""Makes checkpoints that fit, or in which something is missing, renamed, retyped or added."""

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

import truth
from weights import ties

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "oracle"))
import safetensors_file


@dataclass
class Damage:
    """A checkpoint. state: what torch's strict loading is asked about, prefixes undone.

    lenient: a save need not succeed although torch accepts, or may although it refuses; its numbers count.
    """

    name: str
    state: dict
    write: Callable  # folder -> path
    lenient: bool = False


def pt(payload):
    def write(folder: Path) -> Path:
        torch.save(payload, folder / "checkpoint.pt")
        return folder / "checkpoint.pt"

    return write


def safetensors(state: dict, metadata=None):
    def write(folder: Path) -> Path:
        path = folder / "checkpoint.safetensors"
        entries = []
        for name, value in state.items():
            flat = value.detach().contiguous().reshape(-1)
            data = flat.view(torch.int16) if flat.dtype == torch.bfloat16 else flat
            entries.append((name, str(value.dtype)[6:], tuple(value.shape), data.numpy().tobytes()))
        safetensors_file.save(str(path), entries, metadata)
        return path

    return write


def prefixed(state: dict, prefix: str) -> dict:
    return {prefix + key: value for key, value in state.items()}


def is_end(name: str, of: str) -> bool:
    """Return whether a name ends with the components of another, where dots and underscores are equal."""
    return ("_" + of.replace(".", "_")).endswith("_" + name.replace(".", "_"))


def plain(name: str, state: dict, lenient=False) -> Damage:
    return Damage(name, state, pt(state), lenient)


class Maker:
    """Makes all checkpoints for one trained module. Keys are drawn with its own random generator."""

    def __init__(self, module: nn.Module, matter: set, seed: str):
        self._random = random.Random(seed)
        self._module = module
        self._state = {key: value.clone() for key, value in module.state_dict().items()}
        for names in ties(module):
            for name in names[1:]:
                self._state[name] = self._state[names[0]]
        self._ties, self._matter = ties(module), matter
        tied = {name for names in self._ties for name in names}
        self._floats = sorted(k for k in matter if self._state[k].is_floating_point())
        self._single = [k for k in self._floats if k not in tied] or self._floats

    def all(self) -> dict:
        """Return each Damage by name, without those for which the module has no suitable key."""
        found = {}
        for make in (self._fitting, self._tied, self._lacking, self._retyped, self._adding, self._parts):
            for damage in make():
                found[damage.name] = damage
        return found

    # --- drawing ---

    def _key(self, want=lambda value: True, keys=None):
        fitting = [k for k in (keys or self._single) if want(self._state[k])]
        return self._random.choice(fitting) if fitting else None

    def _noise(self, *shape):
        seed = self._random.randrange(1 << 30)
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed))

    def _without(self, *keys):
        return {k: v for k, v in self._state.items() if k not in keys}

    # --- kinds ---

    def _fitting(self):
        state = self._state
        yield plain("fit", state)
        for prefix in ("module.", "model."):
            yield Damage("prefix " + prefix[:-1], state, pt(prefixed(state, prefix)))
        yield Damage("nested", state, pt({"epoch": 3, "state_dict": state}))
        yield Damage("lightning", state, pt({"global_step": 7, "state_dict": prefixed(state, "model.")}))
        yield Damage("safetensors", state, safetensors(state))
        yield plain("shuffled", dict(self._random.sample(sorted(state.items()), len(state))))
        buffer = {k: v for k, v in state.items() if not k.endswith("num_batches_tracked")}
        if len(buffer) < len(state):
            yield plain("no counters", buffer)

    def _tied(self):
        if not self._ties:
            return
        clones = {k: v.clone() for k, v in self._state.items()}
        yield plain("ties cloned", clones)
        yield Damage("ties cloned, safetensors", clones, safetensors(clones))
        for index in (0, -1):
            gone = [names[index] for names in self._ties]
            yield plain(("first" if index == 0 else "last") + " of a tie absent", self._without(*gone))
        names = self._random.choice(self._ties)
        yield plain("whole tie missing", self._without(*names))
        broken = dict(clones)
        broken[names[0]] = broken[names[0]] + 0.5
        yield plain("tie broken", broken, lenient=True)

    def _lacking(self):
        key, other = self._key(keys=self._floats), self._key()
        if not key:
            return
        yield plain("one missing", self._without(key))
        head, _, leaf = other.rpartition(".")
        renames = [(head + "." if head else "") + ("kernel" if leaf == "weight" else leaf + "_new")]
        if head:
            renames += ["new_" + other, other.replace(".", "_x.", 1), leaf]
        new_name = self._random.choice(renames)
        if new_name not in self._state:
            renamed = {new_name if k == other else k: v for k, v in self._state.items()}
            # The only key of a checkpoint may have lost or got components before its own (rule 4 of
            # docs/mapping.md): no other key and no other slot is there to be meant.
            if len(self._state) == 1 and (is_end(new_name, of=other) or is_end(other, of=new_name)):
                yield Damage("one renamed", self._state, pt(renamed), lenient=True)
            else:
                yield plain("one renamed", renamed)
        parent = truth.module_of(other)
        rest = {k: v for k, v in self._state.items() if not k.startswith(parent)}
        if parent and rest:
            yield plain("a module missing", rest)
        integers = [k for k, v in self._state.items() if not v.is_floating_point()]
        integers = [k for k in integers if not k.endswith("num_batches_tracked")]
        if integers:
            yield plain("an integer missing", self._without(self._random.choice(integers)))
        if len(self._floats) > 2:
            some = self._random.sample(self._floats, len(self._floats) // 2)
            yield plain("half missing", self._without(*some))

    def _retyped(self):
        def convert(dtype, only=None):
            made = {}
            for k, v in self._state.items():
                made[k] = v.to(dtype) if v.is_floating_point() and only in (None, k) else v
            for names in self._ties:
                for name in names:
                    made[name] = made[names[0]]
            return made

        yield plain("float64", convert(torch.float64))
        yield plain("float16", convert(torch.float16))
        key = self._key(lambda v: v.dtype == torch.float32)
        if key:
            yield plain("one float64", convert(torch.float64, only=key))
        key = self._key(lambda v: v.dim() and v.numel() > 1, self._floats)
        if key:
            value = self._state[key]
            shapes = [torch.cat([value, value[:1]]), value[None], value.reshape(-1, 1)]
            if value.dim() == 2 and value.shape[0] != value.shape[1]:
                shapes.append(value.t().contiguous())
            shape = self._random.choice([s for s in shapes if s.shape != value.shape])
            changed = {**self._state, key: shape}
            # A view of a tie: the graph may name the other key of the two, which has kept its shape, and
            # this one is its tie by the storage that they share. What is filled must be right all the same.
            tied = any(key in names for names in self._ties)
            if tied and shape.data_ptr() == value.data_ptr() and shape.numel() == value.numel():
                yield Damage("of another shape", self._state, pt(changed), lenient=True)
            else:
                yield plain("of another shape", changed)

    def _adding(self):
        state, key = self._state, self._key(keys=self._floats)
        counters = {"steps": torch.tensor(5), "ema.num_updates": torch.tensor(3)}
        yield plain("counters", {**state, **counters})
        decoder = {"unused_decoder.0.weight": self._noise(13, 17), "unused_decoder.0.bias": self._noise(13)}
        yield plain("an unused module", {**state, **decoder})
        if not key:
            return
        parent = truth.module_of(key)
        yield plain("a counter in a module", {**state, parent + "num_batches_tracked": torch.tensor(9)})
        yield plain("a float key", {**state, parent + "extra": self._noise(3)})
        twin = self._noise(*state[key].shape).to(state[key].dtype)
        yield plain("a key of the same shape", {**state, parent + "weight_copy": twin})
        yield plain("rotary buffer", {**state, "rotary_emb.inv_freq": 1.0 / torch.arange(1, 9)}, lenient=True)
        nested = {"nested_extra.weight": twin}
        yield plain("a module inside", {**state, **prefixed(nested, parent)}, lenient=True)
        yield from self._adapters()

    def _adapters(self):
        key = self._key(lambda v: v.dim() == 2, [k for k in self._floats if k.rsplit(".", 1)[-1] == "weight"])
        if not key or key.rsplit(".", 1)[-1] != "weight":  # adapters stand beside a layer's weight
            return
        stem, (rows, columns) = key[: -len("weight")], self._state[key].shape
        lora = {
            f"{stem}lora_A.weight": self._noise(2, columns),
            f"{stem}lora_B.weight": self._noise(rows, 2),
        }
        yield plain("LoRA beside the base", {**self._state, **lora})
        yield plain("LoRA alone", prefixed(lora, "base_model.model."))
        peft = {(stem + "base_layer." + k[len(stem) :] if k == key else k): v for k, v in self._state.items()}
        peft.update({k.replace(".weight", ".default.weight"): v for k, v in lora.items()})
        yield plain("LoRA, wrapped", prefixed(peft, "base_model.model."))
        yield plain("IA3", {**self._state, f"{stem}ia3_l": self._noise(rows, 1)})

    def _parts(self):
        children = sorted({k.split(".", 1)[0] for k in self._state if "." in k})
        if children:
            child = self._random.choice(children) + "."
            bare = {k[len(child) :]: v for k, v in self._state.items() if k.startswith(child)}
            whole = len(bare) == len(self._state)  # then its prefix is all that is gone
            # So it is where the outputs depend on nothing else (a decoder that forward() leaves out, a
            # tie): each weight of the graph gets its value, though torch's module has more keys.
            under = {k: v for k, v in self._state.items() if k.startswith(child)}
            enough = self._matter <= set(truth.complete_ties(self._module, under))
            state = self._state if whole or enough else bare
            yield Damage("a bare submodule", state, pt(bare), lenient=enough and not whole)
        whole = {**prefixed(self._state, "encoder_of_all."), "head_of_all.kernel_of_it": self._noise(7, 19)}
        yield Damage("the whole of it", self._state, pt(whole))
        other = {
            k: self._noise(*v.shape).to(v.dtype) if v.is_floating_point() else v
            for k, v in self._state.items()
        }
        both = {**prefixed(self._state, "student."), **prefixed(other, "teacher.")}
        yield plain("student and teacher", both)
        yield plain("an average beside it", {**self._state, **prefixed(other, "ema.")}, lenient=True)
        yield plain("empty", {"step": torch.tensor(1)})
