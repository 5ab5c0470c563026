# %% [markdown]
# # Text from an exported model
#
# This page uses the folder `llama`, which `larger_than_memory.py` writes. A decoder is one graph:
# it takes words and a cache of what it has computed before, and gives scores for the next word and
# the longer cache. `oe.generate` runs it with onnxruntime and tokenizers, without torch;
# the command is
#
#     onnx-external generate llama --prompt "once upon" --max-new-tokens 64

# %%
import numpy as np
import onnxruntime
import tokenizers

import onnx_external as oe

(text,) = oe.generate("llama", ["once upon"], max_new_tokens=64)
print("once upon" + text)

# %% [markdown]
# What it does, in full: the prompt goes in with an empty cache, then one token at a time.

# %%
session = onnxruntime.InferenceSession("llama/model.onnx")
shapes = {value.name: value.shape for value in session.get_inputs()}
caches = {
    name: np.zeros((1, shape[1], 0, shape[3]), np.float32)
    for name, shape in shapes.items()
    if name.startswith("past_key_values")
}
names = [value.name for value in session.get_outputs()]


def step(ids: np.ndarray, past: int) -> int:
    total = past + ids.shape[1]
    given = {
        "input_ids": ids,
        "attention_mask": np.ones((1, total), np.int64),
        "position_ids": np.arange(past, total)[None],
    }
    wanted = {name: value for name, value in given.items() if name in shapes}
    found = dict(zip(names, session.run(None, {**wanted, **caches}), strict=True))
    for name in caches:
        caches[name] = found[name.replace("past_key_values", "present")]
    return int(found["logits"][0, -1].argmax())


tokenizer = tokenizers.Tokenizer.from_file("llama/tokenizer.json")
ids = tokenizer.encode("once upon").ids
token, written = step(np.array([ids]), 0), len(ids)
tokens: list[int] = []
while token != 0 and len(tokens) < 64:  # 0 is the token that ends a text
    tokens.append(token)
    token, written = step(np.array([[token]]), written), written + 1
print("the same by hand:", tokenizer.decode(tokens) == text)
