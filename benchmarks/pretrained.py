"""Two real models in tinyattn beside PyTorch: a sentence through MiniLM, a token from SmolLM2, and their memory.

    python -m tinyattn fetch minilm smollm2
    python benchmarks/pretrained.py

PyTorch runs the same weights by its functional layers and its fused attention, with no model library around them; what
that library takes in memory is added where transformers is installed.
"""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
from typing import Any

import _timing as t  # first: it sets the number of BLAS threads
import numpy as np

import tinyattn as ta
from tinyattn import pretrained

SENTENCE = "The animal didn't cross the street because it was too tired."
TEXT = "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n"


def torch_bert(torch: Any, model: Any) -> Any:
    """The same encoder as a function of ids, in PyTorch."""
    F = torch.nn.functional
    P = {name: torch.from_numpy(value) for name, value in model.state_dict().items()}

    def layer(name: str, x: Any) -> Any:
        return F.linear(x, P[f"{name}.weight"], P[f"{name}.bias"])

    def norm(name: str, x: Any) -> Any:
        return F.layer_norm(x, x.shape[-1:], P[f"{name}.weight"], P[f"{name}.bias"], 1e-12)

    @torch.inference_mode()
    def run(ids: Any) -> Any:
        x = P["embedding.weight"][ids] + P["types.weight"][0] + P["positions.weight"][: ids.shape[1]]
        x = norm("norm", x)
        B, T, d = x.shape
        for i, block in enumerate(model.blocks):
            name, h = f"blocks.{i}", block.attention.num_heads
            Q, K, V = (layer(f"{name}.attention.{p}_proj", x).view(B, T, h, -1).transpose(1, 2) for p in "qkv")
            heads = F.scaled_dot_product_attention(Q, K, V).transpose(1, 2).reshape(B, T, d)
            x = norm(f"{name}.norm1", x + layer(f"{name}.attention.out_proj", heads))
            hidden = F.gelu(layer(f"{name}.feed_forward.up", x))
            x = norm(f"{name}.norm2", x + layer(f"{name}.feed_forward.down", hidden))
        return x

    return run


def torch_llama(torch: Any, model: Any, ids: list[int]) -> Any:
    """Reads ids, then is a function of the next token and its position, in PyTorch; keys and values are kept."""
    F = torch.nn.functional
    P = {name: torch.from_numpy(value) for name, value in model.state_dict().items()}
    attention = model.blocks[0].attention
    h, kv, eps = attention.num_heads, attention.num_kv_heads, model.norm.eps
    kept: list[Any] = [None] * len(model.blocks)

    def turn(x: Any, start: int) -> Any:
        half = x.shape[-1] // 2
        angles = torch.arange(start, start + x.shape[-2])[:, None] * attention.rotary ** (-torch.arange(half) / half)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)

    @torch.inference_mode()
    def run(tokens: list[int], start: int) -> Any:
        x = P["embedding.weight"][torch.tensor(tokens)]  # (T, d)
        T, d = x.shape
        for i in range(len(kept)):
            name = f"blocks.{i}"
            y = F.rms_norm(x, (d,), P[f"{name}.norm1.weight"], eps)
            Q, K, V = (
                F.linear(y, P[f"{name}.attention.{p}_proj.weight"]).view(T, n, -1).transpose(0, 1)
                for p, n in zip("qkv", (h, kv, kv))
            )
            Q, K = turn(Q, start), turn(K, start)
            if start:
                K, V = (torch.cat([old[:, :start], new], 1) for old, new in zip(kept[i], (K, V)))
            kept[i] = K, V
            heads = F.scaled_dot_product_attention(Q[None], K[None], V[None], is_causal=T > 1, enable_gqa=True)[0]
            x = x + F.linear(heads.transpose(0, 1).reshape(T, d), P[f"{name}.attention.out_proj.weight"])
            y = F.rms_norm(x, (d,), P[f"{name}.norm2.weight"], eps)
            gated = F.silu(F.linear(y, P[f"{name}.feed_forward.gate.weight"]))
            gated = gated * F.linear(y, P[f"{name}.feed_forward.up.weight"])
            x = x + F.linear(gated, P[f"{name}.feed_forward.down.weight"])
        return F.linear(F.rms_norm(x[-1], (d,), P["norm.weight"], eps), P["embedding.weight"])

    run(ids, 0)
    return run


def report(name: str, seconds: dict[str, list[float]], per_second: str = "") -> None:
    median = {key: statistics.median(values) for key, values in seconds.items()}
    header, row = [name], ["median"]
    for key, value in median.items():
        header.append(key)
        row.append(t.duration(value))
    if "PyTorch" in seconds:
        header.append("ratio")
        row.append(f"{t.ratio(seconds['tinyattn'], seconds['PyTorch']):.2f}")
    if per_second:
        header.append(per_second)
        row.append(f"{1 / median['tinyattn']:.1f}")
    t.table(header, [row])


def minilm(torch: Any, rounds: int) -> None:
    model, tokenizer = pretrained.load("minilm")
    ids = np.array([tokenizer.encode(SENTENCE).ids])
    run = ta.no_grad()(lambda: model(ids))
    functions = {"tinyattn": run}
    if torch:
        theirs, their_ids = torch_bert(torch, model), torch.from_numpy(ids)
        functions["PyTorch"] = lambda: theirs(their_ids)
        difference = np.abs(run().numpy() - functions["PyTorch"]().numpy()).max()
        print(f"largest difference of the hidden states: {difference:.1e}")
    report(f"MiniLM, a sentence of {ids.shape[1]} tokens", t.interleaved(functions, rounds))
    parameters = sum(p._data.nbytes for p in model.parameters())
    t.table(
        ["MiniLM, arrays", "MB"],
        [
            ("parameters", f"{parameters / 1e6:.1f}"),
            ("peak of a sentence, no_grad", f"{t.peak_memory(run) / 1e6:.2f}"),
            ("peak of a sentence, with its graph", f"{t.peak_memory(lambda: model(ids)) / 1e6:.2f}"),
        ],
    )


def smollm2(torch: Any, rounds: int) -> None:
    model, tokenizer = pretrained.load("smollm2")
    ids = tokenizer.encode(TEXT).ids
    new = model.generate([ids], 32, temperature=0)[0, len(ids) :].tolist()
    with ta.no_grad():
        cache = ta.nn.KVCache()
        model([[*ids, *new]], cache=cache)
        token, start = new[-1], len(cache)

        def run() -> Any:  # the token after these, always the same one
            return model([[token]], cache=cache.copy())

        functions = {"tinyattn": run}
        if torch:
            theirs = torch_llama(torch, model, [*ids, *new])
            functions["PyTorch"] = lambda: theirs([token], start)
            difference = np.abs(run().numpy()[0, -1] - functions["PyTorch"]().numpy()).max()
            print(f"largest difference of the logits: {difference:.1e}")
        report(f"SmolLM2, one more token after {start}", t.interleaved(functions, rounds), "tinyattn, tokens a second")
        parameters = sum(p._data.nbytes for p in model.parameters())
        kept = sum(K._data.nbytes + V._data.nbytes for K, V in cache._text.layers)
        t.table(
            ["SmolLM2, arrays", "MB"],
            [
                ("parameters", f"{parameters / 1e6:.1f}"),
                (f"keys and values of {start} tokens", f"{kept / 1e6:.2f}"),
                ("peak of one more token, no_grad", f"{t.peak_memory(run) / 1e6:.2f}"),
            ],
        )


PROCESSES = {
    "MiniLM, tinyattn": """
        import tinyattn as ta; from tinyattn import pretrained
        model, tokenizer = pretrained.load("minilm")
        with ta.no_grad(): model([tokenizer.encode({SENTENCE!r}).ids])""",
    "MiniLM, transformers": """
        import torch; from transformers import AutoModel, AutoTokenizer; from tinyattn import pretrained
        folder = pretrained.find("minilm").parent
        tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
        with torch.inference_mode(): model(**tokenizer({SENTENCE!r}, return_tensors="pt"))""",
    "SmolLM2, tinyattn": """
        from tinyattn import pretrained
        model, tokenizer = pretrained.load("smollm2")
        model.generate([tokenizer.encode({TEXT!r}).ids], 8, temperature=0)""",
    "SmolLM2, transformers": """
        import torch; from transformers import AutoModelForCausalLM, AutoTokenizer; from tinyattn import pretrained
        path = pretrained.find("smollm2")
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
        model.generate(**tokenizer({TEXT!r}, return_tensors="pt"), max_new_tokens=8, do_sample=False)""",
}


def processes() -> None:
    """Peak memory and the processor's seconds of whole processes: import, load, run once. (Linux tells the peak.)"""
    rows = []
    for name, code in PROCESSES.items():
        if "transformers" in name and not importlib.util.find_spec("transformers"):
            continue
        lines = "\n".join(line.strip() for line in code.strip().splitlines()).format(SENTENCE=SENTENCE, TEXT=TEXT)
        lines += (
            "\nimport time\npeak = next(line for line in open('/proc/self/status') if 'VmHWM' in line).split()[1]"
            "\nprint(int(peak) / 1e3, time.process_time())"
        )
        done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
        memory, seconds = done.stdout.split()[-2:]
        rows.append((name, f"{float(memory):.0f}", f"{float(seconds):.1f}"))
    t.table(["a process: import, load, run", "peak MB", "processor seconds"], rows)


def main() -> None:
    options = t.options(__doc__ or "").parse_args()
    rounds = 1 if options.small else options.rounds
    print(t.machine(), "\n")
    if missing := [name for name in pretrained.MODELS if not pretrained.find(name)]:
        print(
            f"{', '.join(missing)}: not on this machine: python -m tinyattn fetch {' '.join(missing)}", file=sys.stderr
        )
        return
    torch = t.torch_or_none()
    minilm(torch, rounds)
    smollm2(torch, rounds)
    if not options.small and sys.platform == "linux":
        processes()


if __name__ == "__main__":
    main()
