"""The models: a BERT, and how configs and stored tensors become a BERT or a Llama-type nn.GPT."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..functional import gelu
from ..graph import Tensor
from ..masks import padding_mask
from ..nn import (
    GPT,
    Embedding,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    Module,
    MultiHeadAttention,
    RMSNorm,
    SwiGLU,
    TransformerBlock,
)
from ..nn.transformer import attend
from ..ops import sqrt
from ..values import Array, Rng
from .formats import Stored

# --- the encoder; the language models are nn.GPT with other parts -------------------------------------


class BERT(Module):
    """A transformer that reads both ways: ids (B, T) -> hidden states (B, T, d_model) (Devlin et al. 2019).

    Post-norm blocks with the exact gelu; positions are learned. context: the longest text it can read, in tokens.
    num_types: how many kinds of segment have a vector of their own.
    """

    def __init__(
        self,
        vocab_size: int,
        context: int,
        d_model: int,
        num_heads: int,
        num_layers: int,
        *,
        d_ff: int | None = None,
        num_types: int = 2,
        eps: float = 1e-12,
        rng: Rng = None,
    ) -> None:
        rng = np.random.default_rng(rng)
        norm = functools.partial(LayerNorm, eps=eps)
        exact = functools.partial(gelu, approximate="none")
        self.embedding = Embedding(vocab_size, d_model, std=0.02, rng=rng)
        self.types = Embedding(num_types, d_model, std=0.02, rng=rng)
        self.positions = LearnedPositions(context, d_model, rng=rng)
        self.norm = norm(d_model)
        self.blocks = [
            TransformerBlock(
                d_model,
                num_heads,
                pre_norm=False,
                norm=norm,
                rng=rng,
                feed_forward=FeedForward(d_model, d_ff, activation=exact, rng=rng),
            )
            for _ in range(num_layers)
        ]

    def forward(self, ids: Any, *, types: Any = 0, mask: Any = None, return_weights: bool = False) -> Any:
        """types: the segment of each token, (B, T), or one for all. mask: `padding_mask`, if texts were padded.

        return_weights: also return the attention weights of each layer, a list of (B, h, T, T).
        """
        ids = np.asarray(ids)
        if ids.ndim != 2:
            raise ValueError(f"ids have shape {ids.shape}, but (batch, time) is needed; for one text use [ids]")
        x = self.embedding(ids) + self.types(types)  # (B, T) -> (B, T, d_model)
        x = self.norm(self.positions(x))
        maps: list[Tensor] | None = [] if return_weights else None
        for block in self.blocks:
            x = attend(block, x, maps=maps, mask=mask)
        return x if maps is None else (x, maps)


def sentence_vectors(model: BERT, tokenizer: Any, sentences: Sequence[str]) -> Tensor:
    """(B, d_model), of length 1: the mean of each sentence's hidden states (Reimers & Gurevych 2019).

    Their dot products are cosines: how alike the meanings are, if the model was trained for that (minilm was).
    """
    encoded = [text.ids for text in tokenizer.encode_batch(list(sentences))]
    lengths = np.array([len(ids) for ids in encoded])
    ids = np.zeros((len(encoded), lengths.max()), int)
    for row, text in zip(ids, encoded):
        row[: len(text)] = text
    mask = padding_mask(lengths, ids.shape[1])  # (B, 1, 1, T)
    hidden = model(ids, mask=None if mask.all() else mask)
    real = mask[:, 0, 0, :, None].astype(hidden.dtype)  # (B, T, 1)
    total = (hidden * real).sum(1)  # (B, T, d_model) -> (B, d_model); its direction is the mean's
    vectors: Tensor = total / sqrt((total * total).sum(-1, keepdims=True))
    return vectors


# --- from a config to a model, from a file's names to ours --------------------------------------------


class _Unfilled(np.random.Generator):
    """Draws nothing: layers made with it have shapes but need no memory, until a file's values come."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64())

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        return np.broadcast_to(np.float32(0), size)

    uniform = normal  # type: ignore[assignment]


def bert(config: Mapping[str, Any], stored: Mapping[str, Stored], path: Path) -> BERT:
    vocab, context, d, h, layers, d_ff, types = _sizes(
        config,
        stored,
        path,
        "vocab_size",
        "max_position_embeddings",
        "hidden_size",
        "num_attention_heads",
        "num_hidden_layers",
        "intermediate_size",
        "type_vocab_size",
    )
    return BERT(
        vocab,
        context,
        d,
        h,
        layers,
        d_ff=d_ff,
        num_types=types,
        eps=config.get("layer_norm_eps", 1e-12),
        rng=_Unfilled(),
    )


def llama(config: Mapping[str, Any], stored: Mapping[str, Stored], path: Path) -> GPT:
    config = {"num_key_value_heads": config.get("num_attention_heads"), **config}
    vocab, context, d, h, kv, layers, d_ff = _sizes(
        config,
        stored,
        path,
        "vocab_size",
        "max_position_embeddings",
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "num_hidden_layers",
        "intermediate_size",
    )
    if config.get("head_dim") not in (None, d // h):
        raise ValueError(
            f"{path}: {h} heads of {config['head_dim']} features each, but here heads share the {d} features of a "
            f"vector, {d // h} each"
        )
    rope = config.get("rope_parameters") or config
    if rope.get("rope_type", "default") != "default":
        raise ValueError(f"{path}: rotary positions of type {rope['rope_type']!r}, but these layers compute plain ones")
    norm = functools.partial(RMSNorm, eps=config.get("rms_norm_eps", 1e-6))
    theta, rng = rope.get("rope_theta", 10000.0), _Unfilled()

    def block() -> TransformerBlock:
        attention = MultiHeadAttention(d, h, num_kv_heads=kv, bias=False, rotary=theta, rng=rng)
        return TransformerBlock(d, h, norm=norm, attention=attention, feed_forward=SwiGLU(d, d_ff, rng=rng), rng=rng)

    return GPT(vocab, context, d, h, layers, tied=tied(config), positions=False, norm=norm, block=block, rng=rng)


def tied(config: Mapping[str, Any]) -> bool:
    return bool(config.get("tie_word_embeddings", False))


def _sizes(config: Mapping[str, Any], stored: Mapping[str, Stored], path: Path, *keys: str) -> list[int]:
    """These entries of a config, if they are sizes that a file with these tensors can have."""
    longest = max((n for tensor in stored.values() for n in tensor.shape), default=0)
    for key in keys:
        n = config.get(key)
        limit = {"num_hidden_layers": len(stored), "max_position_embeddings": math.inf}.get(key, longest)
        if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= limit:
            raise ValueError(
                f"{path}: {key} is {n!r}, but a whole number between 1 and {limit} fits the tensors: are "
                "config and weights of the same model?"
            )
    if config["hidden_size"] % config["num_attention_heads"]:
        raise ValueError(f"{path}: {config['num_attention_heads']} heads cannot share {config['hidden_size']} features")
    return [config[key] for key in keys]


def refuse(path: Path, config: Mapping[str, Any], **allowed: tuple[Any, ...]) -> None:
    for key, values in allowed.items():
        if config.get(key, values[0]) not in values:
            raise ValueError(f"{path}: {key} is {config[key]!r}, but these layers compute {values[0]!r}")


BERT_NAMES = {
    "embedding": "embeddings.word_embeddings",
    "types": "embeddings.token_type_embeddings",
    "positions": "embeddings.position_embeddings",
    "norm": "embeddings.LayerNorm",
    "blocks.#.attention.q_proj": "encoder.layer.#.attention.self.query",
    "blocks.#.attention.k_proj": "encoder.layer.#.attention.self.key",
    "blocks.#.attention.v_proj": "encoder.layer.#.attention.self.value",
    "blocks.#.attention.out_proj": "encoder.layer.#.attention.output.dense",
    "blocks.#.norm1": "encoder.layer.#.attention.output.LayerNorm",
    "blocks.#.feed_forward.up": "encoder.layer.#.intermediate.dense",
    "blocks.#.feed_forward.down": "encoder.layer.#.output.dense",
    "blocks.#.norm2": "encoder.layer.#.output.LayerNorm",
}
LLAMA_NAMES = {
    "embedding": "model.embed_tokens",
    "blocks.#.norm1": "model.layers.#.input_layernorm",
    "blocks.#.attention.q_proj": "model.layers.#.self_attn.q_proj",
    "blocks.#.attention.k_proj": "model.layers.#.self_attn.k_proj",
    "blocks.#.attention.v_proj": "model.layers.#.self_attn.v_proj",
    "blocks.#.attention.out_proj": "model.layers.#.self_attn.o_proj",
    "blocks.#.norm2": "model.layers.#.post_attention_layernorm",
    "blocks.#.feed_forward.gate": "model.layers.#.mlp.gate_proj",
    "blocks.#.feed_forward.up": "model.layers.#.mlp.up_proj",
    "blocks.#.feed_forward.down": "model.layers.#.mlp.down_proj",
    "norm": "model.norm",
    "head": "lm_head",
}
GGUF_NAMES = {
    "embedding": "token_embd",
    "blocks.#.norm1": "blk.#.attn_norm",
    "blocks.#.attention.q_proj": "blk.#.attn_q",
    "blocks.#.attention.k_proj": "blk.#.attn_k",
    "blocks.#.attention.v_proj": "blk.#.attn_v",
    "blocks.#.attention.out_proj": "blk.#.attn_output",
    "blocks.#.norm2": "blk.#.ffn_norm",
    "blocks.#.feed_forward.gate": "blk.#.ffn_gate",
    "blocks.#.feed_forward.up": "blk.#.ffn_up",
    "blocks.#.feed_forward.down": "blk.#.ffn_down",
    "norm": "output_norm",
    "head": "output",
}
GGUF_CONFIG = {
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "rope_theta": "rope.freq_base",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
}


def fill(model: Module, names: Mapping[str, str], stored: Mapping[str, Stored], ignored: str, path: Path) -> None:
    """Set each parameter from its tensor, after all names and shapes are known to fit."""
    plan = {}
    for name, parameter in model.named_parameters():
        part, _, leaf = name.rpartition(".")
        number = re.search(r"\d+", part) if part.startswith("blocks.") else None
        index = number.group() if number else ""
        plan[names[part.replace(f".{index}.", ".#.")].replace("#", index) + f".{leaf}"] = parameter
    wrong = [f"{name} is not there" for name in plan if name not in stored]
    wrong += [
        f"{name} is {stored[name].shape}, not {p.shape}"
        for name, p in plan.items()
        if name in stored and stored[name].shape != p.shape
    ]
    wrong += [f"{name} has no place" for name in stored if name not in plan and not re.fullmatch(ignored, name)]
    if wrong:
        raise ValueError(
            f"{path} does not fit its config: "
            + "; ".join(wrong[:3])
            + (f"; and {len(wrong) - 3} more" if len(wrong) > 3 else "")
            + ". Is it of the same model, and complete?"
        )
    for name, parameter in plan.items():
        parameter._bind(stored[name].read())


def halves(read: Callable[[], Array], heads: int) -> Array:
    """The rows of Wq or Wk in our order, in which rotary pairs are halves, from one in which they are neighbours."""
    W = read()
    pairs = W.reshape(heads, -1, 2, W.shape[1])  # (h·dk, d) -> (h, dk/2, 2, d)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(W.shape)
