# ruff: noqa
# Attention in the forms that people write it in: "=== title | right", or "=== title | wrong | one of these must be said".

# === torch: one module per head, a list of them, biases at the end | right
import torch
from torch import nn


class One(nn.Module):
    def __init__(self, width, share, longest):
        super().__init__()
        self.asks, self.tells, self.gives = (nn.Linear(width, share, bias=False) for _ in range(3))
        self.register_buffer("seen", torch.ones(longest, longest).tril().bool())

    def forward(self, x):
        n = x.shape[-2]
        s = self.asks(x) @ self.tells(x).mT / self.tells(x).shape[-1] ** 0.5
        s = s.masked_fill(~self.seen[:n, :n], -torch.inf)
        return s.softmax(-1) @ self.gives(x)


class SeveralHeads(nn.Module):
    def __init__(self, width, num_heads, max_len):
        super().__init__()
        self.heads = nn.ModuleList(One(width, width // num_heads, max_len) for _ in range(num_heads))
        self.out = nn.Linear(width, width)

    def forward(self, x):
        return self.out(torch.cat([head(x) for head in self.heads], -1))


# === torch: four layers without names, dropout, the mask one axis short | right
import torch
from torch import nn


class ManyHeads(nn.Module):
    def __init__(self, heads, width, p=0.2):
        super().__init__()
        self.heads, self.each = heads, width // heads
        self.maps = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.drop = nn.Dropout(p)

    def forward(self, q, k, v, mask=None):
        ask, tell, give = (
            f(t).unflatten(-1, (self.heads, self.each)).transpose(-2, -3) for f, t in zip(self.maps, (q, k, v))
        )
        s = ask @ tell.mT * self.each**-0.5
        if mask is not None:
            s = s.masked_fill(mask[:, None] == 0, -1e9)
        mixed = self.drop(s.softmax(-1)) @ give
        return self.maps[3](mixed.transpose(-2, -3).flatten(-2))


# === torch: sizes in a configuration, one fused map | right
import torch
from torch import nn


class Causal(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.h = config.n_head
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (a.view(b, t, self.h, c // self.h).transpose(1, 2) for a in self.qkv(x).chunk(3, -1))
        late = torch.ones(t, t, dtype=torch.bool).triu(1)
        p = (q @ k.mT / (c // self.h) ** 0.5).masked_fill(late, -torch.inf).softmax(-1)
        return self.proj((p @ v).transpose(1, 2).reshape(b, t, c))


# === torch: the root of the input's width | wrong | √d_model,head's,dot product run
import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, width, head_size):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, head_size, bias=False) for _ in range(3))

    def forward(self, x):
        s = self.query(x) @ self.key(x).mT / x.shape[-1] ** 0.5
        return s.softmax(-1) @ self.value(x)


# === a function for dropout as an option | right
import numpy as np


def attend(query, key, value, mask=None, dropout=None):
    s = query @ np.swapaxes(key, -1, -2) / key.shape[-1] ** 0.5
    s = s if mask is None else np.where(mask == 1, s, -1e9)
    s = np.exp(s - s.max(-1, keepdims=True))
    p = s / s.sum(-1, keepdims=True)
    p = p if dropout is None else dropout(p)
    return p @ value, p


# === callable class, weights of its own | right
import numpy as np


class Looking:
    def __init__(self, n_in, n_out, seed=0):
        g = np.random.default_rng(seed)
        self.w_q, self.w_k, self.w_v = g.normal(size=(3, n_in, n_out))

    def _shares(self, s):
        s = np.exp(s - s.max(-1, keepdims=True))
        return s / s.sum(-1, keepdims=True)

    def __call__(self, x):
        return self._shares(x @ self.w_q @ (x @ self.w_k).T / self.w_k.shape[1] ** 0.5) @ (x @ self.w_v)


# === callable class: the queries are made with Wk | wrong | wk,changed places
import numpy as np


class Looking:
    def __init__(self, n_in, n_out):
        self.w_q, self.w_k, self.w_v = np.random.default_rng(1).normal(size=(3, n_in, n_out))

    def __call__(self, x):
        q, k, v = x @ self.w_k, x @ self.w_k, x @ self.w_v
        s = np.exp(q @ k.T / len(q[0]) ** 0.5 - (q @ k.T / len(q[0]) ** 0.5).max(-1, keepdims=True))
        return s / s.sum(-1, keepdims=True) @ v


# === script in torch: no scale | wrong | √dk is missing
import torch

torch.manual_seed(1)
x = torch.randn(5, 4)
w_q, w_k, w_v = torch.randn(3, 4, 3)
q, k, v = x @ w_q, x @ w_k, x @ w_v
p = torch.softmax(q @ k.T, -1)
result = p @ v
print(result)


# === script in torch: learned weights | right
import torch
from torch.nn import Parameter

x = torch.randn(4, 3)
w_q, w_k, w_v = (Parameter(torch.rand(3, 2)) for _ in range(3))
q = x @ w_q
k = x @ w_k
v = x @ w_v
p = torch.softmax(q @ k.T / k.shape[1] ** 0.5, -1)
context = p @ v


# === heads in a script by a loop | right
import numpy as np

g = np.random.default_rng(0)
tokens, width, n_heads = 5, 6, 3
x = g.normal(size=(tokens, width))
Wq, Wk, Wv, Wo = g.normal(size=(4, width, width))
each = width // n_heads
parts = []
for h in range(n_heads):
    here = slice(h * each, (h + 1) * each)
    q, k, v = (x @ W)[:, here] if False else x @ Wq[:, here], x @ Wk[:, here], x @ Wv[:, here]
    s = q @ k.T / np.sqrt(each)
    s = np.exp(s - s.max(1, keepdims=True))
    parts.append(s / s.sum(1, keepdims=True) @ v)
output = np.concatenate(parts, 1) @ Wo


# === class: lengths of the keys, a batch axis needed | right
import math
import numpy as np


def masked_softmax(X, valid_lens):
    if valid_lens is None:
        e = np.exp(X - X.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)
    maxlen = X.shape[-1]
    mask = np.arange(maxlen)[None, :] < np.asarray(valid_lens)[:, None]
    X = np.where(mask[:, None, :], X, -1e6)
    e = np.exp(X - X.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class DotProductAttention:
    def __init__(self, dropout=0.0):
        self.dropout = dropout

    def forward(self, queries, keys, values, valid_lens=None):
        d = queries.shape[-1]
        scores = queries @ keys.transpose(0, 2, 1) / math.sqrt(d)
        self.attention_weights = masked_softmax(scores, valid_lens)
        return self.attention_weights @ values


# === softmax of scipy, twice | wrong | twice
import numpy as np
from scipy.special import softmax


def attention_block(q, k, v):
    w = softmax(q @ k.T / np.sqrt(k.shape[1]), axis=1)
    w = softmax(w, axis=1)
    return w @ v


# === pure Python: loops | right
from math import sqrt, exp


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def attend(queries, keys, values):
    results = []
    for q in queries:
        s = [dot(q, k) / sqrt(len(q)) for k in keys]
        m = max(s)
        e = [exp(x - m) for x in s]
        z = sum(e)
        w = [x / z for x in e]
        results.append([sum(wi * v[j] for wi, v in zip(w, values)) for j in range(len(values[0]))])
    return results


# === pure Python: raw scores | wrong | overflow,raw scores,stable
from math import sqrt, exp


def matmul(A, B):
    return [[sum(a * b for a, b in zip(row, col)) for col in zip(*B)] for row in A]


def transpose(A):
    return list(map(list, zip(*A)))


def softmax(row):
    e = [exp(x) for x in row]
    return [x / sum(e) for x in e]


def scaled_dot_product(Q, K, V):
    d = len(Q[0])
    S = matmul(Q, transpose(K))
    P = [softmax([s / sqrt(d) for s in row]) for row in S]
    return matmul(P, V)


# === class: a dict of weights, heads, an additive mask | right
import numpy as np


class MHA:
    def __init__(self, d_model=8, num_heads=2, seed=0):
        r = np.random.RandomState(seed)
        self.h = num_heads
        self.dk = d_model // num_heads
        self.params = {n: r.randn(d_model, d_model) / d_model**0.5 for n in ["Wq", "Wk", "Wv", "Wo"]}

    def __call__(self, x, mask=None):
        n, d = x.shape
        sp = lambda t: t.reshape(n, self.h, self.dk).transpose(1, 0, 2)
        q, k, v = (sp(x @ self.params[w]) for w in ("Wq", "Wk", "Wv"))
        s = q @ k.transpose(0, 2, 1) / np.sqrt(self.dk)
        if mask is not None:
            s = s + mask
        s = np.exp(s - s.max(-1, keepdims=True))
        s /= s.sum(-1, keepdims=True)
        o = (s @ v).transpose(1, 0, 2).reshape(n, d)
        return o @ self.params["Wo"]


# === heads as an option, joined before their axis is back | wrong | scrambl,tokens,joined,merge
import numpy as np


def multihead(x, Wq, Wk, Wv, Wo, n_heads=2):
    n, d = x.shape
    dh = d // n_heads
    q = (x @ Wq).reshape(n, n_heads, dh).transpose(1, 0, 2)
    k = (x @ Wk).reshape(n, n_heads, dh).transpose(1, 0, 2)
    v = (x @ Wv).reshape(n, n_heads, dh).transpose(1, 0, 2)
    s = q @ k.transpose(0, 2, 1) / np.sqrt(dh)
    w = np.exp(s - s.max(-1, keepdims=True))
    w /= w.sum(-1, keepdims=True)
    return (w @ v).reshape(n, d) @ Wo


# === grouped heads, always causal, a batch axis needed | right
import numpy as np


def gqa(x, wq, wk, wv, wo, n_heads, n_kv_heads):
    b, t, d = x.shape
    hd = d // n_heads
    q = (x @ wq).reshape(b, t, n_heads, hd).transpose(0, 2, 1, 3)
    k = (x @ wk).reshape(b, t, n_kv_heads, hd).transpose(0, 2, 1, 3)
    v = (x @ wv).reshape(b, t, n_kv_heads, hd).transpose(0, 2, 1, 3)
    rep = n_heads // n_kv_heads
    k = np.repeat(k, rep, axis=1)
    v = np.repeat(v, rep, axis=1)
    s = q @ k.swapaxes(-1, -2) / hd**0.5
    s = np.where(np.tril(np.ones((t, t), bool)), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return (p @ v).transpose(0, 2, 1, 3).reshape(b, t, d) @ wo


# === tiles with a running maximum | right
import numpy as np


def flash_attention(Q, K, V, block_size=2):
    n, d = Q.shape
    out = np.zeros((n, V.shape[1]))
    m = np.full(n, -np.inf)
    l = np.zeros(n)
    for s in range(0, K.shape[0], block_size):
        Kb, Vb = K[s : s + block_size], V[s : s + block_size]
        S = Q @ Kb.T / np.sqrt(d)
        mn = np.maximum(m, S.max(1))
        P = np.exp(S - mn[:, None])
        a = np.exp(m - mn)
        l = l * a + P.sum(1)
        out = out * a[:, None] + P @ Vb
        m = mn
    return out / l[:, None]


# === tiles: the accumulator is not rescaled | wrong | rescal,accumulator,running maximum
import numpy as np


def flash_attention(Q, K, V, block_size=2):
    n, d = Q.shape
    out = np.zeros((n, V.shape[1]))
    m = np.full(n, -np.inf)
    l = np.zeros(n)
    for s in range(0, K.shape[0], block_size):
        Kb, Vb = K[s : s + block_size], V[s : s + block_size]
        S = Q @ Kb.T / np.sqrt(d)
        mn = np.maximum(m, S.max(1))
        P = np.exp(S - mn[:, None])
        l = l * np.exp(m - mn) + P.sum(1)
        out = out + P @ Vb
        m = mn
    return out / l[:, None]


# === softmax alone: the sum is not rescaled | wrong | rescal,accumulator,running maximum,sum
import numpy as np


def streaming_softmax(xs):
    m, s = float("-inf"), 0.0
    for x in xs:
        new = max(m, x)
        s = s + np.exp(x - new)
        m = new
    return [np.exp(x - m) / s for x in xs]


# === X alone | right
import numpy as np


# simple self attention without weights
def simple_self_attention(X):
    scores = X @ X.T / np.sqrt(X.shape[1])
    w = np.exp(scores - scores.max(axis=1, keepdims=True))
    w = w / w.sum(axis=1, keepdims=True)
    return w @ X


# === script: two heads | right
import numpy as np

np.random.seed(0)
seq_len, d_model, num_heads = 6, 8, 2
d_head = d_model // num_heads
x = np.random.randn(seq_len, d_model)
W_q = np.random.randn(d_model, d_model)
W_k = np.random.randn(d_model, d_model)
W_v = np.random.randn(d_model, d_model)
W_o = np.random.randn(d_model, d_model)
Q = (x @ W_q).reshape(seq_len, num_heads, d_head).transpose(1, 0, 2)
K = (x @ W_k).reshape(seq_len, num_heads, d_head).transpose(1, 0, 2)
V = (x @ W_v).reshape(seq_len, num_heads, d_head).transpose(1, 0, 2)
scores = Q @ K.transpose(0, 2, 1) / np.sqrt(d_head)
weights = np.exp(scores - scores.max(-1, keepdims=True))
weights = weights / weights.sum(-1, keepdims=True)
context = (weights @ V).transpose(1, 0, 2).reshape(seq_len, d_model)
output = context @ W_o
print(output.shape)


# === torch: over the queries | wrong | axis,rows,columns,queries
import torch


def attention(q, k, v, mask=None):
    scores = torch.matmul(q, k.transpose(-2, -1)) / q.size(-1) ** 0.5
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    attn = torch.softmax(scores, dim=-2)
    return torch.matmul(attn, v), attn


# === two sources | right
import numpy as np


def cross_attention(decoder_states, encoder_states, Wq, Wk, Wv):
    q = decoder_states @ Wq
    k = encoder_states @ Wk
    v = encoder_states @ Wv
    a = q @ k.T / np.sqrt(q.shape[1])
    a = np.exp(a - a.max(1, keepdims=True))
    return a / a.sum(1, keepdims=True) @ v


# === heads without weights | right
import numpy as np


def split_heads(t, h):
    n, d = t.shape
    return t.reshape(n, h, d // h).swapaxes(0, 1)


def multi_head(Q, K, V, n_heads):
    """No projections: only split, attend, join."""
    q, k, v = split_heads(Q, n_heads), split_heads(K, n_heads), split_heads(V, n_heads)
    s = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    o = e / e.sum(-1, keepdims=True) @ v
    return o.swapaxes(0, 1).reshape(Q.shape[0], -1)


# === the text says one thing of its mask, the code does another | wrong | other way,inverted,wrong way,opposite,forbidden
import numpy as np


def attention(Q, K, V, mask=None):
    """mask: True = may attend."""
    s = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, -1e9, s)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === a padding mask that is required, 1 = padding | right
import numpy as np


def attention_with_padding(q, k, v, padding_mask):
    # padding_mask: (batch, m), 1 for padding
    s = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    s = s + padding_mask[:, None, :] * -1e9
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)) @ v


# === half of dk, a causal flag | wrong | half,** 1,precedence,binds,dk^
import numpy as np


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def sdpa(q, k, v, causal=False):
    d_k = q.shape[-1]
    scores = (q @ k.T) / d_k**1 / 2
    if causal:
        scores = np.where(np.tri(len(q), len(k), dtype=bool), scores, -np.inf)
    return softmax(scores) @ v


# === callable class, a dict back, root of n | wrong | √n,number of,length
import numpy as np


class Attention:
    def __call__(self, q, k, v):
        n = q.shape[-2]
        s = q @ k.swapaxes(-1, -2) / np.sqrt(n)
        w = np.exp(s - s.max(-1, keepdims=True))
        w = w / w.sum(-1, keepdims=True)
        return {"output": w @ v, "weights": w}


# === a dataclass back | right
import numpy as np
from dataclasses import dataclass


@dataclass
class Result:
    out: np.ndarray
    weights: np.ndarray


def attention(q, k, v):
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    w = np.exp(s - s.max(-1, keepdims=True))
    w = w / w.sum(-1, keepdims=True)
    return Result(w @ v, w)


# === self-attention over the queries | wrong | not rescaled,column,keepdims,broadcast,axis,rows
import numpy as np


def softmax(x):
    return np.exp(x) / np.sum(np.exp(x), axis=0)


def self_attention(x, wq, wk, wv):
    q, k, v = x @ wq, x @ wk, x @ wv
    return softmax(q @ k.T / np.sqrt(k.shape[1])) @ v


# === backward: a dict as cache @attention_backward | right
import numpy as np


def softmax(z):
    z = z - z.max(axis=-1, keepdims=True)
    e = np.exp(z)
    return e / e.sum(axis=-1, keepdims=True)


def attention_forward(Q, K, V):
    A = softmax(Q @ K.T / np.sqrt(Q.shape[-1]))
    out = A @ V
    cache = {"Q": Q, "K": K, "V": V, "A": A}
    return out, cache


def attention_backward(dout, cache):
    Q, K, V, A = cache["Q"], cache["K"], cache["V"], cache["A"]
    dV = A.T @ dout
    dA = dout @ V.T
    dS = A * (dA - (A * dA).sum(-1, keepdims=True)) / np.sqrt(Q.shape[-1])
    return dS @ K, dS.T @ Q, dV


# === backward: dS Q @attention_backward | wrong | transpos,dsᵀ
import numpy as np


def softmax(z):
    z = z - z.max(axis=-1, keepdims=True)
    e = np.exp(z)
    return e / e.sum(axis=-1, keepdims=True)


def attention_forward(Q, K, V):
    A = softmax(Q @ K.T / np.sqrt(Q.shape[-1]))
    return A @ V, (Q, K, V, A)


def attention_backward(dout, cache):
    Q, K, V, A = cache
    dV = A.T @ dout
    dA = dout @ V.T
    dS = A * (dA - (A * dA).sum(-1, keepdims=True)) / np.sqrt(Q.shape[-1])
    return dS @ K, dS @ Q, dV


# === backward: no row sum, a dict back @grad_attention | wrong | row sum,rowsum
import numpy as np


def grad_attention(q, k, v, grad_out):
    s = q @ k.T / np.sqrt(k.shape[1])
    p = np.exp(s - s.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    gv = p.T @ grad_out
    gp = grad_out @ v.T
    gs = p * gp / np.sqrt(k.shape[1])
    return {"grad_q": gs @ k, "grad_k": gs.T @ q, "grad_v": gv}


# === class: gradients of weights kept | right
import numpy as np


class SelfAttentionLayer:
    def __init__(self, d):
        self.Wq = np.random.randn(d, d)
        self.Wk = np.random.randn(d, d)
        self.Wv = np.random.randn(d, d)

    def forward(self, X):
        self.X = X
        self.Q, self.K, self.V = X @ self.Wq, X @ self.Wk, X @ self.Wv
        S = self.Q @ self.K.T / np.sqrt(self.K.shape[1])
        e = np.exp(S - S.max(1, keepdims=True))
        self.A = e / e.sum(1, keepdims=True)
        return self.A @ self.V

    def backward(self, dY):
        dV = self.A.T @ dY
        dA = dY @ self.V.T
        dS = self.A * (dA - (dA * self.A).sum(1, keepdims=True)) / np.sqrt(self.K.shape[1])
        dQ, dK = dS @ self.K, dS.T @ self.Q
        self.dWq, self.dWk, self.dWv = self.X.T @ dQ, self.X.T @ dK, self.X.T @ dV
        return dQ @ self.Wq.T + dK @ self.Wk.T + dV @ self.Wv.T


# === always causal, a small fill | wrong | fill,small,low enough,leak
import numpy as np


def causal_attention(x, Wq, Wk, Wv):
    q, k, v = x @ Wq, x @ Wk, x @ Wv
    s = q @ k.T / np.sqrt(k.shape[-1])
    s = np.where(np.tril(np.ones_like(s)) == 1, s, -5)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


# === weights times mask | wrong | after the softmax,rows sum
import numpy as np


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(Q, K, V, mask=None):
    w = softmax(Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1]))
    if mask is not None:
        w = w * mask
    return w @ V


# === pair: an additive mask | right
import numpy as np


def get_causal_mask(size):
    return np.triu(np.full((size, size), -np.inf), 1)


def attention(Q, K, V, mask=None):
    s = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = s + mask
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === pair: opposite meanings | wrong | opposite,agree,future,convention
import numpy as np


def look_ahead_mask(n):
    return 1 - np.tril(np.ones((n, n)))


def attention(q, k, v, mask):
    s = q @ k.T / np.sqrt(q.shape[-1])
    s = np.where(mask.astype(bool), s, -1e9)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


# === pair: the diagonal is blocked | wrong | itself,own position,off by one
import numpy as np


def look_ahead_mask(n):
    """True where blocked."""
    return np.triu(np.ones((n, n), dtype=bool))


def attention(q, k, v, mask=None):
    s = q @ k.T / np.sqrt(q.shape[-1])
    if mask is not None:
        s = np.where(mask, -1e9, s)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


# === script: axis 0 | wrong | axis,column,query,queries
import numpy as np
from scipy.special import softmax

X = np.random.randn(5, 8)
Wq = np.random.randn(8, 4)
Wk = np.random.randn(8, 4)
Wv = np.random.randn(8, 4)
Q = X @ Wq
K = X @ Wk
V = X @ Wv
scores = Q @ K.T / np.sqrt(4)
attn = softmax(scores, axis=0)
out = attn @ V


# === script: raw scores | wrong | overflow,raw scores,stable
import numpy as np

q = np.random.rand(3, 4)
k = np.random.rand(5, 4)
v = np.random.rand(5, 2)
s = q @ k.T / 2
w = np.exp(s) / np.exp(s).sum(axis=1, keepdims=True)
result = w @ v


# === four axes only, a scale as an option | right
import numpy as np


def attention(Q, K, V, mask=None, scale=None):
    scale = scale or Q.shape[-1] ** -0.5
    s = np.einsum("bhqd,bhkd->bhqk", Q, K) * scale
    if mask is not None:
        s = s + mask
    s = s - s.max(axis=-1, keepdims=True)
    w = np.exp(s)
    w = w / w.sum(axis=-1, keepdims=True)
    return np.einsum("bhqk,bhkd->bhqd", w, V)


# === four axes only, raw scores | wrong | overflow,raw scores,stable
import numpy as np


def attention(Q, K, V, mask=None):
    s = np.einsum("bhqd,bhkd->bhqk", Q, K) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    w = np.exp(s)
    w = w / w.sum(axis=-1, keepdims=True)
    return np.einsum("bhqk,bhkd->bhqd", w, V)


# === softmax alone, an axis as an option | right
import numpy as np


def softmax(x, axis=-1):
    x = np.asarray(x, dtype=float)
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


# === softmax alone, raw | wrong | overflow,raw scores,stable
import numpy as np


def softmax(x):
    return np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)


# === heads by slices, one softmax over everything | wrong | axis,column,queries,rows,whole
import numpy as np


def softmax(x):
    e = np.exp(x - np.max(x))
    return e / e.sum()


def mha(x, w_q, w_k, w_v, w_o, heads):
    n, d = x.shape
    dh = d // heads
    outs = []
    for i in range(heads):
        s = slice(i * dh, (i + 1) * dh)
        q, k, v = x @ w_q[:, s], x @ w_k[:, s], x @ w_v[:, s]
        outs.append(softmax(q @ k.T / np.sqrt(dh)) @ v)
    return np.hstack(outs) @ w_o


# === Wo is not used | wrong | output,wo,w_o,mixed
import numpy as np


def multi_head_attention(X, W_q, W_k, W_v, W_o, h):
    n, d = X.shape
    Q = np.split(X @ W_q, h, axis=1)
    K = np.split(X @ W_k, h, axis=1)
    V = np.split(X @ W_v, h, axis=1)
    heads = []
    for q, k, v in zip(Q, K, V):
        s = q @ k.T / np.sqrt(d // h)
        a = np.exp(s - s.max(1, keepdims=True))
        a /= a.sum(1, keepdims=True)
        heads.append(a @ v)
    return np.concatenate(heads, 1)


# === torch: always causal, the next token seen | wrong | next,one step,i + 1,off by one
import torch
import torch.nn as nn


class Causal(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, bias=False)
        self.W_key = nn.Linear(d_in, d_out, bias=False)
        self.W_value = nn.Linear(d_in, d_out, bias=False)

    def forward(self, x):
        q, k, v = self.W_query(x), self.W_key(x), self.W_value(x)
        s = q @ k.transpose(1, 2) / k.shape[-1] ** 0.5
        m = torch.triu(torch.ones(x.shape[1], x.shape[1]), diagonal=2).bool()
        return torch.softmax(s.masked_fill(m, -torch.inf), dim=-1) @ v


# === torch: dropout while nobody trains | wrong | another answer,random,dropout
import torch
import torch.nn.functional as F


def attention(q, k, v, mask=None, dropout=0.1):
    s = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
    if mask is not None:
        s = s.masked_fill(mask == 0, float("-inf"))
    p = F.dropout(torch.softmax(s, -1), 0.1)
    return p @ v


# === class of layers with biases; values, keys, queries | right
import numpy as np


class MultiHeadAttention:
    """mask: 1 for padding"""

    def __init__(self, d_model, num_heads):
        self.num_heads, self.d_model = num_heads, d_model
        self.depth = d_model // num_heads
        self.wq = Dense(d_model, d_model)
        self.wk = Dense(d_model, d_model)
        self.wv = Dense(d_model, d_model)
        self.dense = Dense(d_model, d_model)

    def split_heads(self, x, batch_size):
        return x.reshape(batch_size, -1, self.num_heads, self.depth).transpose(0, 2, 1, 3)

    def __call__(self, v, k, q, mask=None):
        b = q.shape[0]
        q, k, v = self.wq(q), self.wk(k), self.wv(v)
        q, k, v = self.split_heads(q, b), self.split_heads(k, b), self.split_heads(v, b)
        logits = q @ k.swapaxes(-1, -2) / np.sqrt(self.depth)
        if mask is not None:
            logits = logits + mask * -1e9
        w = np.exp(logits - logits.max(-1, keepdims=True))
        w /= w.sum(-1, keepdims=True)
        out = (w @ v).transpose(0, 2, 1, 3).reshape(b, -1, self.d_model)
        return self.dense(out), w


class Dense:
    def __init__(self, n_in, n_out):
        self.kernel = np.random.randn(n_in, n_out) * 0.1
        self.bias = np.zeros(n_out)

    def __call__(self, x):
        return x @ self.kernel + self.bias


# === a threshold on the weights | wrong | threshold,cut off,counts as 0
import numpy as np


def sparse_attention(q, k, v):
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    w = np.exp(s - s.max(-1, keepdims=True))
    w /= w.sum(-1, keepdims=True)
    w = np.where(w > 0.02, w, 0)
    return w @ v


# === softmin | wrong | minus,least similar,softmin
import numpy as np


def attn(q, k, v):
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    w = np.exp(-(s - s.min(-1, keepdims=True)))
    return (w / w.sum(-1, keepdims=True)) @ v


# === keys reshaped | wrong | reshape,scrambl
import numpy as np


def attention(q, k, v):
    s = q @ k.reshape(k.shape[1], k.shape[0]) / np.sqrt(q.shape[-1])
    w = np.exp(s - s.max(-1, keepdims=True))
    w /= w.sum(-1, keepdims=True)
    return w @ v


# === an input changed | wrong | in place,modif,changes
import numpy as np


def attention(q, k, v):
    q /= np.sqrt(q.shape[-1])
    s = q @ k.T
    w = np.exp(s - s.max(-1, keepdims=True))
    w /= w.sum(-1, keepdims=True)
    return w @ v


# === class: the first triangle is kept | wrong | kept,second,same shape,state
import numpy as np


class CausalAttention:
    mask = None

    def forward(self, q, k, v):
        n = q.shape[0]
        if CausalAttention.mask is None:
            CausalAttention.mask = np.tril(np.ones((n, n), dtype=bool))
        s = q @ k.T / np.sqrt(q.shape[-1])
        s = np.where(CausalAttention.mask, s, -np.inf)
        w = np.exp(s - s.max(-1, keepdims=True))
        w /= w.sum(-1, keepdims=True)
        return w @ v


# === the keys as payload | wrong | mixes the keys,instead of the values,payload,value-is-key
import numpy as np


def attention(q, k, v):
    s = q @ k.T / np.sqrt(q.shape[-1])
    w = np.exp(s - s.max(-1, keepdims=True))
    w /= w.sum(-1, keepdims=True)
    return w @ k


# === a list of weights | right
import numpy as np


def self_attention(inputs, weights):
    """weights: a list [Wq, Wk, Wv]"""
    Wq, Wk, Wv = weights
    q, k, v = inputs @ Wq, inputs @ Wk, inputs @ Wv
    s = q @ k.T / np.sqrt(k.shape[1])
    e = np.exp(s - s.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True) @ v


# === scale the wrong way | wrong | multiplied,instead of divided,inverted
import numpy as np


def attention(q, k, v):
    s = q @ k.T * np.sqrt(q.shape[-1])
    w = np.exp(s - s.max(-1, keepdims=True))
    w /= w.sum(-1, keepdims=True)
    return w @ v, w


# === class: weights of each head stacked | right
import numpy as np


class MultiHeadSelfAttention:
    def __init__(self, embed_size, heads):
        self.embed_size, self.heads = embed_size, heads
        self.head_dim = embed_size // heads
        self.W_q = np.random.randn(heads, embed_size, self.head_dim)
        self.W_k = np.random.randn(heads, embed_size, self.head_dim)
        self.W_v = np.random.randn(heads, embed_size, self.head_dim)
        self.W_o = np.random.randn(embed_size, embed_size)

    def forward(self, x, mask=None):
        outs = []
        for i in range(self.heads):
            q, k, v = x @ self.W_q[i], x @ self.W_k[i], x @ self.W_v[i]
            s = q @ np.swapaxes(k, -1, -2) / np.sqrt(self.head_dim)
            if mask is not None:
                s = np.where(mask, s, -np.inf)
            w = np.exp(s - s.max(-1, keepdims=True))
            w /= w.sum(-1, keepdims=True)
            outs.append(w @ v)
        return np.concatenate(outs, -1) @ self.W_o


# === torch: two sources, keys and values in one map | right
import torch, torch.nn as nn, torch.nn.functional as F


class CrossAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.kv_proj = nn.Linear(d_model, 2 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x, context):
        b, n, d = x.shape
        m = context.shape[1]
        q = self.q_proj(x).view(b, n, self.n_heads, -1).transpose(1, 2)
        k, v = self.kv_proj(context).chunk(2, dim=-1)
        k = k.view(b, m, self.n_heads, -1).transpose(1, 2)
        v = v.view(b, m, self.n_heads, -1).transpose(1, 2)
        a = F.softmax(q @ k.transpose(-1, -2) * (d // self.n_heads) ** -0.5, -1)
        return self.out_proj((a @ v).transpose(1, 2).reshape(b, n, d))


# === weights as attributes of an argument | right
import numpy as np


class Params:
    def __init__(self, d):
        r = np.random.RandomState(0)
        self.Wq, self.Wk, self.Wv = r.randn(d, d), r.randn(d, d), r.randn(d, d)


def self_attention(x, p):
    q, k, v = x @ p.Wq, x @ p.Wk, x @ p.Wv
    s = q @ k.T / np.sqrt(q.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


# === heads with biases as arguments | right
import numpy as np


def mha(x, Wq, bq, Wk, bk, Wv, bv, Wo, bo, num_heads):
    n, d = x.shape
    f = lambda W, b: (x @ W + b).reshape(n, num_heads, -1).transpose(1, 0, 2)
    q, k, v = f(Wq, bq), f(Wk, bk), f(Wv, bv)
    s = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return (p @ v).transpose(1, 0, 2).reshape(n, d) @ Wo + bo


# === a padding mask by length, a batch axis needed | right
import numpy as np


def softmax(x, axis=-1):
    x = x - x.max(axis, keepdims=True)
    return np.exp(x) / np.exp(x).sum(axis, keepdims=True)


def create_padding_mask(lengths, max_len):
    return np.arange(max_len)[None, :] < np.array(lengths)[:, None]


def scaled_dot_product_attention(q, k, v, mask=None):
    s = np.einsum("bqd,bkd->bqk", q, k) / np.sqrt(q.shape[-1])
    if mask is not None:
        s = np.where(mask[:, None, :], s, -1e9)
    w = softmax(s)
    return np.einsum("bqk,bkd->bqd", w, v), w


# === a causal flag | right
import numpy as np


def attention(Q, K, V, is_causal=False):
    n, m = Q.shape[-2], K.shape[-2]
    s = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    if is_causal:
        s = np.where(np.tri(n, m, m - n, dtype=bool), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === one key and value head for all | right
import numpy as np


def multi_query_attention(x, Wq, Wk, Wv, Wo, num_heads):
    n, d = x.shape
    dh = d // num_heads
    q = (x @ Wq).reshape(n, num_heads, dh).swapaxes(0, 1)
    k, v = x @ Wk, x @ Wv
    s = q @ k.T / np.sqrt(dh)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return (p @ v).swapaxes(0, 1).reshape(n, d) @ Wo


# === class: dropout in every call | wrong | another answer,random
import numpy as np


class SelfAttention:
    def __init__(self, d):
        self.d = d
        self.Wq, self.Wk, self.Wv = (np.random.randn(d, d) for _ in range(3))

    def forward(self, x, p=0.1):
        q, k, v = x @ self.Wq, x @ self.Wk, x @ self.Wv
        s = q @ k.T / np.sqrt(self.d)
        w = np.exp(s - s.max(-1, keepdims=True))
        w /= w.sum(-1, keepdims=True)
        w = w * (np.random.rand(*w.shape) > p) / (1 - p)
        return w @ v


# === class: queries, keys and values in one argument | right
import numpy as np


class DotAttention:
    def call(self, inputs):
        q, k, v = inputs
        near = np.einsum("bqd,bkd->bqk", q, k) / np.sqrt(q.shape[-1])
        near = np.exp(near - near.max(axis=2, keepdims=True))
        return np.einsum("bqk,bkd->bqd", near / near.sum(axis=2, keepdims=True), v)


# === class: fit draws the weights, transform attends | wrong | projected by wk
import numpy as np


class AttentionLayer:
    def __init__(self, dim=4):
        self.dim = dim

    def fit(self, X, y=None):
        rng = np.random.RandomState(0)
        self.W_q_, self.W_k_, self.W_v_ = (rng.randn(X.shape[-1], self.dim) for _ in range(3))
        return self

    def transform(self, X):
        q, k, v = X @ self.W_q_, X @ self.W_k_, X @ self.W_k_
        s = q @ k.T / np.sqrt(self.dim)
        s = np.exp(s - s.max(axis=1, keepdims=True))
        return (s / s.sum(axis=1, keepdims=True)) @ v


# === class: the triangle of the first call is kept | wrong | kept from the first
import numpy as np


class CausalAttention:
    def __init__(self):
        self.triangle = None

    def forward(self, q, k, v):
        n = q.shape[0]
        if self.triangle is None:
            self.triangle = np.tri(n, dtype=bool)
        s = np.where(self.triangle[:n, :n], q @ k.T / np.sqrt(q.shape[1]), -np.inf)
        e = np.exp(s - s.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True) @ v


# === class: a generator of its own drops weights | wrong | dropout
import numpy as np


class Attention:
    def __init__(self, rate=0.2):
        self.rate, self.rng = rate, np.random.default_rng(0)

    def forward(self, q, k, v):
        s = q @ k.T / np.sqrt(q.shape[-1])
        w = np.exp(s - s.max(axis=-1, keepdims=True))
        w = w / w.sum(axis=-1, keepdims=True)
        return w * (self.rng.random(w.shape) >= self.rate) / (1 - self.rate) @ v


# === a backward function beside another forward one | right
import numpy as np


def softmax_forward(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def attention_forward(Q, K, V):
    P = softmax_forward(Q.dot(K.T) / np.sqrt(Q.shape[1]))
    return P.dot(V), (Q, K, V, P)


def attention_backward(dout, cache):
    Q, K, V, P = cache
    dP = dout.dot(V.T)
    dS = P * (dP - np.sum(dP * P, axis=1, keepdims=True)) / np.sqrt(Q.shape[1])
    return dS.dot(K), dS.T.dot(Q), P.T.dot(dout)


# === class: a configuration that it keeps | wrong | wo is missing
import numpy as np


class SelfAttention:
    def __init__(self, cfg):
        self.cfg = cfg
        self.W_qkv = np.random.randn(cfg.d_model, 3 * cfg.d_model)
        self.W_out = np.random.randn(cfg.d_model, cfg.d_model)

    def heads(self, x):
        return x.reshape(len(x), self.cfg.n_heads, -1).transpose(1, 0, 2)

    def __call__(self, x):
        q, k, v = map(self.heads, np.split(x @ self.W_qkv, 3, axis=-1))
        s = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        e = np.exp(s - s.max(-1, keepdims=True))
        o = e / e.sum(-1, keepdims=True) @ v
        return o.transpose(1, 0, 2).reshape(x.shape)


# === class: widths that the file fixes | wrong | scale-d-model
import numpy as np

n_embd = 24


class Head:
    def __init__(self, head_size):
        self.query, self.key, self.value = (np.random.randn(n_embd, head_size) for _ in range(3))

    def forward(self, x):
        q, k, v = x @ self.query, x @ self.key, x @ self.value
        s = q @ k.T * n_embd**-0.5
        s = np.where(np.tri(len(x)) > 0, s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v


# === class: another source, where one is given | wrong | source
import numpy as np


class Attention:
    def __init__(self, dim, heads=2):
        self.heads = heads
        self.to_q, self.to_k, self.to_v, self.to_out = (np.random.randn(dim, dim) for _ in range(4))

    def split(self, a):
        return a.reshape(len(a), self.heads, -1).swapaxes(0, 1)

    def forward(self, x, context=None):
        context = x if context is None else context
        q, k, v = self.split(x @ self.to_q), self.split(context @ self.to_k), self.split(x @ self.to_v)
        s = q @ k.swapaxes(1, 2) * q.shape[-1] ** -0.5
        e = np.exp(s - s.max(-1, keepdims=True))
        return (e / e.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(x.shape) @ self.to_out


# === a padding mask that indexes the columns | right
import numpy as np


def attention_with_padding(Q, K, V, key_padding_mask=None):
    """key_padding_mask: (m,), True where a key is padding."""
    S = Q @ K.T / np.sqrt(Q.shape[1])
    if key_padding_mask is not None:
        S[:, key_padding_mask] = -np.inf
    E = np.exp(S - S.max(axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True) @ V


# === a padding mask that indexes the rows | wrong | mask
import numpy as np


def attention_with_padding(Q, K, V, key_padding_mask=None):
    """key_padding_mask: (m,), True where a key is padding."""
    S = Q @ K.T / np.sqrt(Q.shape[1])
    if key_padding_mask is not None:
        S[key_padding_mask, :] = -np.inf
    E = np.exp(S - S.max(axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True) @ V


# === a softmax in chunks, each with its own maximum | wrong | nan
import numpy as np


def chunked_softmax(x, chunk=4):
    n, m = x.shape
    for s in range(0, m, chunk):
        top = x[:, s : s + chunk].max(axis=1)
    total, out = np.zeros(n), np.empty((n, m))
    for s in range(0, m, chunk):
        out[:, s : s + chunk] = np.exp(x[:, s : s + chunk] - top[:, None])
        total += out[:, s : s + chunk].sum(axis=1)
    return out / total[:, None]
