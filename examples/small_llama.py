"""A small Llama in a folder, as a hub would give it: the examples of decoders use it.

The examples need no network, so the model is made from a config. It learns one sentence by heart,
letter by letter, so that the text that it generates can be read.
"""

from pathlib import Path

import tokenizers
import torch
import transformers

SENTENCE = "once upon a time a small model learned one sentence by heart."


def make_folder(folder: Path) -> Path:
    """Write config.json, model.safetensors and tokenizer.json, unless they are there."""
    if (folder / "tokenizer.json").exists():
        return folder
    letters = {letter: index for index, letter in enumerate(["<end>", *sorted({*SENTENCE})])}
    config = transformers.LlamaConfig(
        vocab_size=len(letters),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    text = torch.tensor([[*(letters[letter] for letter in SENTENCE), 0]])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        model(text, labels=text).loss.backward()
        optimizer.step()
    transformers.utils.logging.disable_progress_bar()
    model.eval().save_pretrained(folder)
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(letters, unk_token="<end>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    made.decoder = tokenizers.decoders.Fuse()
    made.save(str(folder / "tokenizer.json"))
    return folder
