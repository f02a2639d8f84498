# ruff: noqa
# Mistakes that no list has. They must never be called correct. {softmax} etc. are written out on purpose.

# === softmax to base 2
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = 2 ** (s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === divided by the root of n
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[0])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === divided by the root of m
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(K.shape[0])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === divided by the root of dv
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(V.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === divided by the largest score
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T
    s = s / np.abs(s).max()
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === values shifted by a row
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ np.roll(V, 1, axis=0)


# === weights rounded to 3 digits
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.round(e / e.sum(-1, keepdims=True), 3) @ V


# === weights rounded to 6 digits
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.round(e / e.sum(-1, keepdims=True), 6) @ V


# === output rounded to 6 digits
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.round(e / e.sum(-1, keepdims=True) @ V, 6)


# === absolute scores
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = np.abs(Q @ K.T) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === tanh of the scores
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = np.tanh(Q @ K.T / np.sqrt(Q.shape[-1]))
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === scores capped at 30 tanh(s / 30)
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = 30 * np.tanh(Q @ K.T / np.sqrt(Q.shape[-1]) / 30)
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === scores clipped to ±50
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = np.clip(Q @ K.T / np.sqrt(Q.shape[-1]), -50, 50)
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s)
    return e / e.sum(-1, keepdims=True) @ V


# === relu of the scores
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = np.maximum(Q @ K.T / np.sqrt(Q.shape[-1]), 0)
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === the mask is applied to V
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    if mask is not None:
        V = V * mask.any(axis=0)[:, None]
    return w @ V


# === temperature 1.1
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1]) / 1.1
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === temperature 1.001
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1]) / 1.001
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === last key dropped
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    if s.shape[1] > 1:
        s[:, -1] = -np.inf
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === last query dropped in a loop
def scaled_dot_product_attention(Q, K, V, mask=None):
    out = np.zeros((len(Q), V.shape[1]))
    for i in range(len(Q) - 1):
        s = K @ Q[i] / math.sqrt(Q.shape[1])
        if mask is not None:
            s = np.where(mask[i], s, -np.inf)
        w = np.exp(s - s.max())
        out[i] = w @ V / w.sum()
    return out


# === only the first batch entry is used
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = np.einsum("...id,...jd->...ij", Q, K) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    if w.ndim > 2:
        w = np.broadcast_to(w[:1], w.shape)
    return w @ V


# === only the first batch entry is returned
def scaled_dot_product_attention(Q, K, V, mask=None):
    while Q.ndim > 2:
        Q, K, V = Q[0], K[0], V[0]
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === dk = 8 for all
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(8)
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === other weights returned than used
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V, e


# === scores returned as weights
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V, s


# === state between calls: calls counted into the scale
calls = 0


def scaled_dot_product_attention(Q, K, V, mask=None):
    global calls
    calls += 1
    s = Q @ K.T / np.sqrt(Q.shape[-1]) * (1 + 0.01 * calls)
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === state between calls: the mask is kept by shape
kept = {}


def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(kept.setdefault(mask.shape, mask), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === state between calls: K transposed is kept by shape
kept = {}


def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ kept.setdefault(K.shape, K.T) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === noise of 1e-3
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V + 1e-3 * np.random.normal(size=(len(Q), V.shape[1]))


# === dropout left on
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    return w * (np.random.random(w.shape) > 0.1) / 0.9 @ V


# === float16 inside
def scaled_dot_product_attention(Q, K, V, mask=None):
    Q, K, V = (a.astype(np.float16) for a in (Q, K, V))
    s = Q @ K.T / np.float16(np.sqrt(Q.shape[-1]))
    if mask is not None:
        s = np.where(mask, s, np.float16(-np.inf))
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ V).astype(float)


# === float16 out
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ V).astype(np.float16)


# === integers out
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ V).astype(int)


# === complex out
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ V).astype(complex)


# === squeezed
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.squeeze(e / e.sum(-1, keepdims=True) @ V)


# === a residual is added
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    out = e / e.sum(-1, keepdims=True) @ V
    return out + Q if out.shape == Q.shape else out


# === epsilon of 1e-3 in the denominator
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / (e.sum(-1, keepdims=True) + 1e-3) @ V


# === sigmoid instead of softmax
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    return 1 / (1 + np.exp(-s)) @ V


# === distances instead of products
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = -((Q[:, None] - K[None]) ** 2).sum(-1) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === cosine similarity
def scaled_dot_product_attention(Q, K, V, mask=None):
    Q = Q / np.linalg.norm(Q, axis=-1, keepdims=True)
    K = K / np.linalg.norm(K, axis=-1, keepdims=True)
    s = Q @ K.T
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === hard attention
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    return V[s.argmax(-1)]


# === uniform attention
def scaled_dot_product_attention(Q, K, V, mask=None):
    w = np.ones((len(Q), len(K))) if mask is None else mask.astype(float)
    return w / w.sum(-1, keepdims=True) @ V


# === zeros
def scaled_dot_product_attention(Q, K, V, mask=None):
    return np.zeros((len(Q), V.shape[1]))


# === the mask for the first row only
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask[0], s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === the mask only where n = m
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None and len(Q) == len(K):
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === the mask shifted by a column
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(np.roll(mask, 1, axis=1), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === masked scores get the smallest score
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, s.min())
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === masked scores are halved
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, s / 2)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === the maximum of the whole matrix is subtracted
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max())
    return e / e.sum(-1, keepdims=True) @ V


# === the mean is subtracted
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    e = np.exp(s - s.mean(-1, keepdims=True))
    if mask is not None:
        e = e * mask
    return e / e.sum(-1, keepdims=True) @ V


# === each row's standard deviation is divided out
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    s = (s - s.mean(-1, keepdims=True)) / (s.std(-1, keepdims=True) + 1e-5)
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === the softmax twice
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    for _ in range(2):
        s = np.exp(s - s.max(-1, keepdims=True))
        s = s / s.sum(-1, keepdims=True)
    return s @ V


# === softmax of negated scores
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = -Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === blocks of 64 keys, the rest forgotten
def scaled_dot_product_attention(Q, K, V, mask=None):
    m = len(K) // 64 * 64 or len(K)
    s = Q @ K[:m].T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask[:, :m], s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V[:m]


# === a window of 50 keys
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    i, j = np.indices(s.shape)
    s = np.where(abs(i - j) <= 50, s, -np.inf)
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === V is mixed by an extra softmax
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    v = np.exp(V - V.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ (v / v.sum(-1, keepdims=True))


# === Q is used for K
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ Q.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === a sum instead of weights
def scaled_dot_product_attention(Q, K, V, mask=None):
    return np.tile(V.sum(axis=0), (len(Q), 1))


# === only with a batch: softmax over the heads
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ np.swapaxes(K, -1, -2) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True) @ V


# === multi-head: heads reversed
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    heads = []
    for q, k, v in zip(*(np.split(X @ W, num_heads, axis=-1) for W in (Wq, Wk, Wv))):
        s = q @ k.T / np.sqrt(q.shape[-1])
        if mask is not None:
            s[~mask] = -1e9
        e = np.exp(s - s.max(1, keepdims=True))
        heads.append(e @ v / e.sum(1, keepdims=True))
    return np.hstack(heads[::-1]) @ Wo


# === multi-head: one head for all
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    s = X @ Wq @ (X @ Wk).T / np.sqrt(X.shape[-1])
    if mask is not None:
        s[~mask] = -1e9
    e = np.exp(s - s.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True) @ (X @ Wv) @ Wo


# === multi-head: interleaved heads
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    n, d = X.shape
    q, k, v = ((X @ W).reshape(n, d // num_heads, num_heads).transpose(2, 0, 1) for W in (Wq, Wk, Wv))
    s = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).transpose(1, 2, 0).reshape(n, d) @ Wo


# === multi-head: transposed weights
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    heads = []
    for q, k, v in zip(*(np.split(X @ W.T, num_heads, axis=-1) for W in (Wq, Wk, Wv))):
        s = q @ k.T / np.sqrt(q.shape[-1])
        if mask is not None:
            s[~mask] = -1e9
        e = np.exp(s - s.max(1, keepdims=True))
        heads.append(e @ v / e.sum(1, keepdims=True))
    return np.hstack(heads) @ Wo.T


# === multi-head: a head count that does not divide is accepted
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    size = X.shape[-1] // num_heads
    out = np.zeros(X.shape)
    Q, K, V = X @ Wq, X @ Wk, X @ Wv
    for h in range(num_heads):
        c = slice(h * size, (h + 1) * size)
        s = Q[..., c] @ np.swapaxes(K[..., c], -1, -2) / np.sqrt(size)
        if mask is not None:
            s = np.where(mask, s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        out[..., c] = e / e.sum(-1, keepdims=True) @ V[..., c]
    return out @ Wo


# === cross: no softmax scale but a constant
def cross_attention(X, context, Wq, Wk, Wv):
    S = (X @ Wq) @ (context @ Wk).T / 2.0
    E = np.exp(S - S.max(axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True) @ (context @ Wv)


# === cross: only the first query
def cross_attention(X, context, Wq, Wk, Wv):
    S = (X[:1] @ Wq) @ (context @ Wk).T / np.sqrt(Wq.shape[1])
    E = np.exp(S - S.max(axis=1, keepdims=True))
    return np.repeat(E / E.sum(axis=1, keepdims=True) @ (context @ Wv), len(X), axis=0)


# === backward: dV from the scores
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    r = np.sqrt(Q.shape[-1])
    S = Q @ K.T / r
    if mask is not None:
        S = np.where(mask, S, -np.inf)
    P = np.exp(S - S.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    dP = dO @ V.T
    dS = P * (dP - (P * dP).sum(-1, keepdims=True))
    return dS @ K / r, dS.T @ Q / r, (P / P.sum(0)).T @ dO


# === backward: dQ with the wrong sign
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    r = np.sqrt(Q.shape[-1])
    S = Q @ K.T / r
    if mask is not None:
        S = np.where(mask, S, -np.inf)
    P = np.exp(S - S.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    dP = dO @ V.T
    dS = P * (dP - (P * dP).sum(-1, keepdims=True))
    return -dS @ K / r, dS.T @ Q / r, P.T @ dO


# === backward: as if dO were ones
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    dO = np.ones_like(dO)
    r = np.sqrt(Q.shape[-1])
    S = Q @ K.T / r
    if mask is not None:
        S = np.where(mask, S, -np.inf)
    P = np.exp(S - S.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    dP = dO @ V.T
    dS = P * (dP - (P * dP).sum(-1, keepdims=True))
    return dS @ K / r, dS.T @ Q / r, P.T @ dO


# === backward: dK and dV in the wrong order
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    r = np.sqrt(Q.shape[-1])
    S = Q @ K.T / r
    if mask is not None:
        S = np.where(mask, S, -np.inf)
    P = np.exp(S - S.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    dP = dO @ V.T
    dS = P * (dP - (P * dP).sum(-1, keepdims=True))
    return dS @ K / r, P.T @ dO, dS.T @ Q / r


# === causal mask: all ones
def causal_mask(n):
    return np.ones((n, n), dtype=bool)


# === causal mask: only the diagonal
def causal_mask(n):
    return np.eye(n, dtype=bool)


# === causal mask: right up to n = 8
def causal_mask(n):
    return np.tril(np.ones((8, 8), dtype=bool))[:n, :n] if n <= 8 else np.ones((n, n), dtype=bool)


# === causal mask: one row
def causal_mask(n):
    return np.arange(n) <= n


# === causal mask: integers
def causal_mask(n):
    return np.tril(np.ones((n, n), dtype=int))


# === causal mask: additive with plus infinity
def causal_mask(n):
    return np.triu(np.full((n, n), np.inf), 1)


# === returns nothing
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    e / e.sum(-1, keepdims=True) @ V


# === returns a list of lists
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ V).tolist()


# === returns the weights first
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    return w, w @ V


# === returns the transpose
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ V).T


# === takes no mask
def scaled_dot_product_attention(Q, K, V):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === noise of 1e-5
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V + 1e-5 * np.random.uniform(size=(len(Q), V.shape[1]))


# === multi-head: Q and K change places
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    heads = []
    for q, k, v in zip(*(np.split(X @ W, num_heads, axis=-1) for W in (Wk, Wq, Wv))):
        s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        if mask is not None:
            s = np.where(mask, s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        heads.append(e @ v / e.sum(-1, keepdims=True))
    return np.concatenate(heads, axis=-1) @ Wo


# === multi-head: the mask only for the first head
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    heads = []
    for h, (q, k, v) in enumerate(zip(*(np.split(X @ W, num_heads, axis=-1) for W in (Wq, Wk, Wv)))):
        s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        if mask is not None and h == 0:
            s = np.where(mask, s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        heads.append(e @ v / e.sum(-1, keepdims=True))
    return np.concatenate(heads, axis=-1) @ Wo


# === multi-head: an activation on the output
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    heads = []
    for q, k, v in zip(*(np.split(X @ W, num_heads, axis=-1) for W in (Wq, Wk, Wv))):
        s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        if mask is not None:
            s = np.where(mask, s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        heads.append(e @ v / e.sum(-1, keepdims=True))
    return np.maximum(np.concatenate(heads, axis=-1) @ Wo, 0)
