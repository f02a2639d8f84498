"""Make pretrained_reference.npz: what the reference library computes with the two known models.

    python -m tinyattn fetch minilm smollm2
    pip install torch==2.13.0 transformers==5.24.0 accelerate gguf==0.19.0
    python tests/data/make_pretrained_reference.py

The logits of each position are kept for every 97th token of the vocabulary, and for the likeliest.
"""

from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

from tinyattn import pretrained

SENTENCES = (
    "The animal didn't cross the street because it was too tired.",
    "Attention, please!",
    "A naïve café sold 1,234 croissants.",
)
TEXTS = (
    "<|im_start|>The capital of France is",
    "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>one two three one two three one two",
)
NEW_TOKENS = 24

torch.set_grad_enabled(False)
kept = {}

folder = pretrained.find("minilm").parent
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
for i, sentence in enumerate(SENTENCES):
    encoded = tokenizer(sentence, return_tensors="pt")
    out = model(**encoded, output_attentions=True)
    mean = out.last_hidden_state[0].mean(0)
    kept[f"minilm.{i}.ids"] = encoded["input_ids"][0].numpy().astype(np.int32)
    kept[f"minilm.{i}.vector"] = (mean / mean.norm()).numpy()
    kept[f"minilm.{i}.maps"] = torch.cat(out.attentions).numpy()  # (layers, heads, n, n)

path = pretrained.find("smollm2")
tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
for i, text in enumerate(TEXTS):
    encoded = tokenizer(text, return_tensors="pt")
    logits = model(**encoded).logits[0]
    new = model.generate(**encoded, max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=None)
    kept[f"smollm2.{i}.ids"] = encoded["input_ids"][0].numpy().astype(np.int32)
    kept[f"smollm2.{i}.logits"] = logits[:, ::97].numpy()
    kept[f"smollm2.{i}.top"] = logits.max(-1).values.numpy()
    kept[f"smollm2.{i}.greedy"] = new[0, -NEW_TOKENS:].numpy().astype(np.int32)

target = Path(__file__).with_name("pretrained_reference.npz")
np.savez_compressed(target, **kept)
print(f"{target}: {target.stat().st_size:,} bytes")
