# ruff: noqa
# Every listed mistake, at least twice, in hands other than the table's.

# === softmax-over-queries: helper with axis=0
def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    return softmax(scores, axis=0) @ V


# === softmax-over-queries: einsum, axis −2, pair
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = np.einsum("...id,...jd->...ij", Q, K) / Q.shape[-1] ** 0.5
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    s = np.exp(s - s.max(axis=-2, keepdims=True))
    s = s / s.sum(axis=-2, keepdims=True)
    return np.einsum("...ij,...jd->...id", s, V), s


# === softmax-over-queries: loops over columns
def scaled_dot_product_attention(Q, K, V, mask=None):
    n, m = len(Q), len(K)
    W = np.zeros((n, m))
    for j in range(m):
        col = np.array([Q[i] @ K[j] / math.sqrt(Q.shape[1]) for i in range(n)])
        if mask is not None:
            col[~mask[:, j]] = -1e9
        col = np.exp(col - col.max())
        W[:, j] = col / col.sum()
    return W @ V


# === softmax-over-queries: sum over axis 0 with row maxima
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(1, keepdims=True))
    return e / e.sum(0) @ V


# === softmax-over-batch: axis 0, leading axes
def softmax(x):
    e = np.exp(x - x.max(axis=0))
    return e / e.sum(axis=0)


def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.swapaxes(-1, -2) / math.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -1e9)
    return softmax(s) @ V


# === softmax-over-batch: a batch axis is added first
def scaled_dot_product_attention(Q, K, V, mask=None):
    two = Q.ndim == 2
    if two:
        Q, K, V = Q[None], K[None], V[None]
    s = np.einsum("bid,bjd->bij", Q, K) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -1e9)
    e = np.exp(s - s.max(axis=0, keepdims=True))
    out = e / e.sum(axis=0, keepdims=True) @ V
    return out[0] if two else out


# === softmax-over-everything: one line
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    s = s if mask is None else np.where(mask, s, -np.inf)
    return (np.exp(s - s.max()) / np.exp(s - s.max()).sum()) @ V


# === softmax-over-everything: loops
def scaled_dot_product_attention(Q, K, V, mask=None):
    n, m = Q.shape[0], K.shape[0]
    e = np.zeros((n, m))
    top = max(Q[i] @ K[j] for i in range(n) for j in range(m)) / math.sqrt(Q.shape[1])
    total = 0
    for i in range(n):
        for j in range(m):
            if mask is None or mask[i, j]:
                e[i, j] = math.exp(Q[i] @ K[j] / math.sqrt(Q.shape[1]) - top)
                total += e[i, j]
    return (e / total) @ V


# === sum-without-keepdims: the sum
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1)) @ V


# === sum-without-keepdims: both
def softmax(x):
    x = x - np.max(x, axis=-1)
    e = np.exp(x)
    return e / np.sum(e, axis=-1)


def scaled_dot_product_attention(Q, K, V, mask=None):
    s = np.einsum("id,jd->ij", Q, K) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = s + np.where(mask, 0, -1e9)
    return np.einsum("ij,jd->id", softmax(s), V)


# === sum-without-keepdims: only the maximum
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(axis=1))
    return e / e.sum(axis=1, keepdims=True) @ V


# === no-max-subtraction: textbook
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s)
    return e / e.sum(axis=-1, keepdims=True) @ V


# === no-max-subtraction: loops
def scaled_dot_product_attention(Q, K, V, mask=None):
    out = []
    for i in range(len(Q)):
        e = np.exp(np.array([Q[i] @ k for k in K]) / math.sqrt(Q.shape[1]))
        if mask is not None:
            e = np.where(mask[i], e, 0)
        out.append(e / e.sum() @ V)
    return np.array(out)


# === no-max-subtraction: math.exp overflows with an exception
def scaled_dot_product_attention(Q, K, V, mask=None):
    out = np.zeros((Q.shape[0], V.shape[1]))
    for i in range(Q.shape[0]):
        e = [
            math.exp(Q[i] @ K[j] / math.sqrt(Q.shape[1])) if mask is None or mask[i, j] else 0.0
            for j in range(K.shape[0])
        ]
        for j in range(K.shape[0]):
            out[i] += e[j] / sum(e) * V[j]
    return out


# === no-max-subtraction: float32
def scaled_dot_product_attention(Q, K, V, mask=None):
    Q, K, V = (np.asarray(a, np.float32) for a in (Q, K, V))
    s = Q @ K.swapaxes(-1, -2) / np.float32(np.sqrt(Q.shape[-1]))
    if mask is not None:
        s = np.where(mask, s, np.float32(-1e9))
    e = np.exp(s)
    return e / e.sum(-1, keepdims=True) @ V


# === not-normalised: forgot the division
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    return np.exp(s - s.max(-1, keepdims=True)) @ V


# === not-normalised: no softmax at all
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = np.einsum("id,jd->ij", Q, K) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -1e9)
    return np.einsum("ij,jd->id", s, V)


# === not-normalised: exp of raw scores
def scaled_dot_product_attention(Q, K, V, mask=None):
    w = np.exp(Q @ K.T / np.sqrt(Q.shape[-1]))
    if mask is not None:
        w = w * mask
    return w @ V


# === not-normalised: raw scores, zeros where masked
def scaled_dot_product_attention(Q, K, V, mask=None):
    w = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        w = w * mask
    return w @ V


# === no-scale: textbook
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === no-scale: loops
def scaled_dot_product_attention(Q, K, V, mask=None):
    out = np.zeros((len(Q), V.shape[1]))
    for i in range(len(Q)):
        s = np.array([sum(Q[i, d] * K[j, d] for d in range(Q.shape[1])) for j in range(len(K))])
        if mask is not None:
            s[~mask[i]] = -1e9
        w = np.exp(s - s.max())
        out[i] = w / w.sum() @ V
    return out


# === scale-dk: divided by dk
def scaled_dot_product_attention(Q, K, V, mask=None):
    dk = K.shape[-1]
    s = np.matmul(Q, K.swapaxes(-1, -2)) / dk
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === scale-dk: twice by the root
def scaled_dot_product_attention(Q, K, V, mask=None):
    Q = Q / np.sqrt(Q.shape[-1])
    K = K / np.sqrt(K.shape[-1])
    s = np.einsum("...id,...jd->...ij", Q, K)
    if mask is not None:
        s = np.where(mask, s, -1e9)
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("...ij,...jd->...id", e / e.sum(-1, keepdims=True), V)


# === scale-inverted: times the root
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = (Q @ K.T) * np.sqrt(K.shape[1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True) @ V


# === scale-inverted: divided by a power of −1/2
def scaled_dot_product_attention(q, k, v, mask=None):
    scale = q.shape[-1] ** -0.5
    att = q @ k.swapaxes(-2, -1) / scale
    if mask is not None:
        att = np.where(mask, att, -1e9)
    att = np.exp(att - att.max(axis=-1, keepdims=True))
    return att / att.sum(axis=-1, keepdims=True) @ v, att / att.sum(axis=-1, keepdims=True)


# === scale-d-model: reshape
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    n, d = X.shape
    assert d % num_heads == 0
    q, k, v = ((X @ W).reshape(n, num_heads, -1).transpose(1, 0, 2) for W in (Wq, Wk, Wv))
    s = q @ k.transpose(0, 2, 1) / np.sqrt(d)
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(n, d) @ Wo


# === scale-d-model: slices
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    d = X.shape[-1]
    if d % num_heads:
        raise ValueError
    Q, K, V, h = X @ Wq / np.sqrt(d), X @ Wk, X @ Wv, d // num_heads
    parts = []
    for a in range(0, d, h):
        s = Q[..., a : a + h] @ K[..., a : a + h].swapaxes(-1, -2)
        if mask is not None:
            s = np.where(mask, s, -1e9)
        e = np.exp(s - s.max(-1, keepdims=True))
        parts.append(e / e.sum(-1, keepdims=True) @ V[..., a : a + h])
    return np.concatenate(parts, -1) @ Wo


# === scale-after-softmax: weights divided
def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.swapaxes(-1, -2)
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    return softmax(s) / np.sqrt(Q.shape[-1]) @ V


# === scale-after-softmax: the output divided, scores too
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / math.sqrt(Q.shape[1])
    if mask is not None:
        s = np.where(mask, s, -1e9)
    w = np.exp(s - s.max(1, keepdims=True))
    w = w / w.sum(1, keepdims=True)
    return w @ V / math.sqrt(Q.shape[1])


# === key-reshaped: reshape
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.reshape(K.shape[1], K.shape[0]) / np.sqrt(K.shape[1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === key-reshaped: np.reshape with −1, einsum
def scaled_dot_product_attention(Q, K, V, mask=None):
    Kt = np.reshape(K, (Q.shape[-1], -1))
    s = np.einsum("id,dj->ij", Q, Kt) / Q.shape[-1] ** 0.5
    if mask is not None:
        s[~mask] = -1e9
    e = np.exp(s - s.max(-1)[:, None])
    return np.einsum("ij,jd->id", e / e.sum(-1)[:, None], V)


# === weights-transposed: wᵀ V
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    return w.T @ V


# === weights-transposed: K Qᵀ
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = K @ Q.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -1e9)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === weights-transposed: indices of einsum
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = np.einsum("id,jd->ij", Q, K) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("ij,id->jd", e / e.sum(-1, keepdims=True), V)


# === value-is-key: textbook
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ K


# === value-is-key: loops
def scaled_dot_product_attention(Q, K, V, mask=None):
    out = []
    for i in range(len(Q)):
        s = K @ Q[i] / math.sqrt(len(Q[i]))
        if mask is not None:
            s = np.where(mask[i], s, -1e9)
        w = np.exp(s - max(s))
        out.append(sum(w[j] * K[j] for j in range(len(K))) / sum(w))
    return np.array(out)


# === mask-ignored: not used
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === mask-ignored: np.where's result is dropped
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = np.einsum("...id,...jd->...ij", Q, K) / Q.shape[-1] ** 0.5
    if mask is not None:
        np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    return w @ V, w


# === mask-inverted: where the wrong way round
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, -1e9, s)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === mask-inverted: torch.nn.MultiheadAttention's convention
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = s.copy()
        s[..., mask] = -np.inf
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === mask-transposed: mask.T
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask.T, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === mask-transposed: mask[j, i] in a loop
def scaled_dot_product_attention(Q, K, V, mask=None):
    out = np.zeros((len(Q), V.shape[1]))
    for i in range(len(Q)):
        s = K @ Q[i] / math.sqrt(Q.shape[1])
        for j in range(len(K)):
            if mask is not None and not mask[j, i]:
                s[j] = -1e9
        w = np.exp(s - s.max())
        out[i] = w @ V / w.sum()
    return out


# === mask-transposed: causal_mask is triu
def causal_mask(n):
    return np.triu(np.ones((n, n))).astype(bool)


# === mask-transposed: causal_mask additive
def causal_mask(n):
    return np.tril(np.full((n, n), -np.inf), k=-1)


# === causal-excludes-self: causal_mask
def causal_mask(n):
    return np.tril(np.ones((n, n), dtype=bool), k=-1)


# === causal-excludes-self: causal_mask by comparison
def causal_mask(n):
    return np.arange(n)[:, None] > np.arange(n)


# === causal-excludes-self: causal_mask additive
def causal_mask(n):
    return np.triu(np.ones((n, n)), k=0) * -1e9


# === causal-excludes-self: built inside
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(np.triu(np.ones_like(s)) == 0, s, -1e9)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === causal-sees-next: causal_mask
def causal_mask(n):
    return np.tril(np.ones((n, n), dtype=bool), k=1)


# === causal-sees-next: causal_mask additive
def causal_mask(n):
    mask = np.zeros((n, n))
    mask[np.triu_indices(n, k=2)] = -np.inf
    return mask


# === causal-sees-next: built inside
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        n, m = s.shape
        s = np.where(np.tril(np.ones((n, m), dtype=bool), k=1), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === mask-fill-zero: zero
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, 0)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === mask-fill-zero: −1e-9
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = np.einsum("...id,...jd->...ij", Q, K) / Q.shape[-1] ** 0.5
    if mask is not None:
        s = np.where(mask == 0, -1e-9, s)
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("...ij,...jd->...id", e / e.sum(-1, keepdims=True), V)


# === mask-fill-zero: multiplied
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.swapaxes(-1, -2)
    if mask is not None:
        s = s * mask
    s = s / math.sqrt(Q.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === mask-fill-small: −10
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -10.0)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === mask-fill-small: −1e4
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -1e4)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === mask-fill-small: −1e4 added
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = s + (1.0 - mask) * -10000.0
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === mask-fill-small: −7 before scaling, in a loop
def scaled_dot_product_attention(Q, K, V, mask=None):
    rows = []
    for i in range(len(Q)):
        s = K @ Q[i]
        if mask is not None:
            s[~mask[i]] = -7
        s = s / math.sqrt(Q.shape[1])
        w = np.exp(s - s.max())
        rows.append(w @ V / w.sum())
    return np.vstack(rows)


# === mask-fill-small: −100
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    s = s if mask is None else s - 100 * ~mask
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === mask-fill-small: causal_mask
def causal_mask(n):
    return np.where(np.tri(n), 0, -10)


# === mask-fill-finite: −1e9
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -1e9)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === mask-fill-finite: −1e30 added
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = np.einsum("id,jd->ij", Q, K) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = s + np.logical_not(mask) * -1e30
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === mask-fill-finite: the lowest float, added −1e9 in a loop
def scaled_dot_product_attention(Q, K, V, mask=None):
    out = []
    for i, q in enumerate(Q):
        s = K @ q / math.sqrt(len(q))
        if mask is not None:
            s = s + np.where(mask[i], 0.0, -1e9)
        w = np.exp(s - s.max())
        out.append(w / w.sum() @ V)
    return np.array(out)


# === mask-as-bias: added as it is
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = s + mask
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === mask-as-bias: before the scaling
def scaled_dot_product_attention(Q, K, V, mask=None):
    bias = 0 if mask is None else mask.astype(float)
    s = (np.einsum("...id,...jd->...ij", Q, K) + bias) / Q.shape[-1] ** 0.5
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("...ij,...jd->...id", e / e.sum(-1, keepdims=True), V)


# === mask-as-bias: causal_mask in floats
def causal_mask(n):
    return np.tril(np.ones((n, n)))


# === mask-as-bias: causal_mask in loops
def causal_mask(n):
    return np.array([[1.0 if j <= i else 0.0 for j in range(n)] for i in range(n)])


# === mask-times-inf: 1 − m
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = s + (1 - mask) * -np.inf
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === mask-times-inf: subtract inf times not mask
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = np.einsum("...id,...jd->...ij", Q, K) / Q.shape[-1] ** 0.5
    if mask is not None:
        s -= np.inf * (~mask)
    m = s.max(axis=-1, keepdims=True)
    e = np.exp(s - m)
    return e / e.sum(axis=-1, keepdims=True) @ V


# === mask-times-inf: causal_mask
def causal_mask(n):
    return np.triu(np.ones((n, n)), 1) * -np.inf


# === mask-after-softmax: times mask
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    if mask is not None:
        w = w * mask
    return w @ V


# === mask-after-softmax: np.where, pair
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = np.einsum("...id,...jd->...ij", Q, K) / Q.shape[-1] ** 0.5
    e = np.exp(s - s.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    w = w if mask is None else np.where(mask, w, 0.0)
    return np.einsum("...ij,...jd->...id", w, V), w


# === mask-after-softmax-renormalised: exp masked
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    if mask is not None:
        e = e * mask
    return e / e.sum(-1, keepdims=True) @ V


# === mask-after-softmax-renormalised: with epsilon
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.swapaxes(-1, -2) / math.sqrt(Q.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    if mask is not None:
        w = np.where(mask, w, 0)
        w = w / np.maximum(w.sum(-1, keepdims=True), 1e-12)
    return w @ V, w


# === empty-row-nan: where
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === empty-row-nan: float("-inf") in a copy
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = np.inner(Q, K) / Q.shape[1] ** 0.5
    if mask is not None:
        s = s.copy()
        s[np.where(mask == False)] = float("-inf")
    s = np.exp(s - s.max(axis=1, keepdims=True))
    return s / s.sum(axis=1, keepdims=True) @ V


# === inputs-modified: Q is scaled in place
def scaled_dot_product_attention(Q, K, V, mask=None):
    Q /= np.sqrt(Q.shape[-1])
    s = Q @ K.T
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === inputs-modified: the mask is inverted in place
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    if mask is not None:
        np.logical_not(mask, out=mask)
        s = np.where(mask, -1e9, s)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === inputs-modified: V is overwritten
def scaled_dot_product_attention(Q, K, V, mask=None):
    out = []
    for i in range(len(Q)):
        s = K @ Q[i] / math.sqrt(Q.shape[1])
        if mask is not None:
            s = np.where(mask[i], s, -np.inf)
        w = np.exp(s - s.max())
        out.append(w / w.sum() @ V)
    V *= 0.5
    return np.array(out)


# === causal-needs-square: built from n
def scaled_dot_product_attention(Q, K, V, mask=None):
    n = Q.shape[0]
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(np.tril(np.ones((n, n))) == 1, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === causal-needs-square: top-left, by comparison
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = np.einsum("...id,...jd->...ij", Q, K) / Q.shape[-1] ** 0.5
    if mask is not None:
        n, m = s.shape[-2:]
        s = np.where(np.arange(m)[None, :] > np.arange(n)[:, None], -1e9, s)
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("...ij,...jd->...id", e / e.sum(-1, keepdims=True), V)


# === causal-needs-square: always causal, in a loop
def scaled_dot_product_attention(Q, K, V, mask=None):
    out = np.zeros((len(Q), V.shape[1]))
    for i in range(len(Q)):
        s = K[: i + 1] @ Q[i] / math.sqrt(Q.shape[1])
        w = np.exp(s - s.max())
        out[i] = w @ V[: i + 1] / w.sum()
    return out


# === heads-split-without-transpose: reshape
def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    n, d = X.shape
    assert d % num_heads == 0
    q, k, v = ((X @ W).reshape(num_heads, n, d // num_heads) for W in (Wq, Wk, Wv))
    s = q @ k.transpose(0, 2, 1) / np.sqrt(d // num_heads)
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    return (softmax(s) @ v).transpose(1, 0, 2).reshape(n, d) @ Wo


# === heads-split-without-transpose: with a batch, einsum
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    single = X.ndim == 2
    X = X[None] if single else X
    b, n, d = X.shape
    h = num_heads
    q, k, v = [(X @ W).reshape(b, h, n, d // h) for W in (Wq, Wk, Wv)]
    s = np.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(d // h)
    if mask is not None:
        s = np.where(mask, s, -1e9)
    e = np.exp(s - s.max(-1, keepdims=True))
    o = np.einsum("bhij,bhjd->bihd", e / e.sum(-1, keepdims=True), v).reshape(b, n, d) @ Wo
    return o[0] if single else o


# === heads-merge-without-transpose: reshape
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    n, d = X.shape
    assert d % num_heads == 0
    q, k, v = ((X @ W).reshape(n, num_heads, -1).transpose(1, 0, 2) for W in (Wq, Wk, Wv))
    s = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).reshape(n, d) @ Wo


# === heads-merge-without-transpose: stacked heads
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    heads = []
    for q, k, v in zip(*(np.split(X @ W, num_heads, axis=-1) for W in (Wq, Wk, Wv))):
        s = q @ k.T / np.sqrt(q.shape[-1])
        if mask is not None:
            s[~mask] = -1e9
        e = np.exp(s - s.max(1, keepdims=True))
        heads.append(e @ v / e.sum(1, keepdims=True))
    return np.stack(heads).reshape(X.shape) @ Wo


# === heads-split-and-merge: reshape
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    n, d = X.shape
    q, k, v = ((X @ W).reshape(num_heads, n, d // num_heads) for W in (Wq, Wk, Wv))
    s = q @ k.transpose(0, 2, 1) / np.sqrt(d // num_heads)
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).reshape(n, d) @ Wo


# === heads-split-and-merge: loop
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    if X.shape[-1] % num_heads:
        raise ValueError("no")
    *lead, n, d = X.shape
    cut = lambda A: A.reshape(*lead, num_heads, n, d // num_heads)
    s = cut(X @ Wq) @ np.swapaxes(cut(X @ Wk), -1, -2) / (d // num_heads) ** 0.5
    if mask is not None:
        s = s + np.where(mask, 0, -1e9)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ cut(X @ Wv)).reshape(*lead, n, d) @ Wo


# === value-from-key-projection: multi-head
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    n, d = X.shape
    assert d % num_heads == 0
    q, k, v = ((X @ W).reshape(n, num_heads, -1).transpose(1, 0, 2) for W in (Wq, Wk, Wk))
    s = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(n, d) @ Wo


# === value-from-key-projection: cross
def cross_attention(X, context, Wq, Wk, Wv):
    Q, K = X @ Wq, context @ Wk
    V = K
    S = Q @ K.T / np.sqrt(K.shape[1])
    E = np.exp(S - S.max(axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True) @ V


# === no-output-projection: concatenated
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    heads = []
    for q, k, v in zip(*(np.split(X @ W, num_heads, axis=-1) for W in (Wq, Wk, Wv))):
        s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        if mask is not None:
            s = np.where(mask, s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        heads.append(e @ v / e.sum(-1, keepdims=True))
    return np.concatenate(heads, axis=-1)


# === no-output-projection: averaged
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    n, d = X.shape
    assert d % num_heads == 0
    q, k, v = ((X @ W).reshape(n, num_heads, -1).transpose(1, 0, 2) for W in (Wq, Wk, Wv))
    s = np.einsum("hid,hjd->hij", q, k) / np.sqrt(q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -1e9)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).mean(axis=0)


# === no-output-projection: summed
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    out = 0
    for q, k, v in zip(*(np.split(X @ W, num_heads, axis=-1) for W in (Wq, Wk, Wv))):
        s = q @ k.T / np.sqrt(q.shape[-1])
        if mask is not None:
            s[~mask] = -np.inf
        e = np.exp(s - s.max(-1, keepdims=True))
        out = out + e @ v / e.sum(-1, keepdims=True)
    return out


# === cross-sources-swapped: the context asks
def cross_attention(X, context, Wq, Wk, Wv):
    Q, K, V = context @ Wq, X @ Wk, X @ Wv
    S = Q @ K.T / np.sqrt(K.shape[1])
    E = np.exp(S - S.max(axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True) @ V


# === cross-sources-swapped: self-attention
def cross_attention(X, context, Wq, Wk, Wv):
    S = np.einsum("...id,...jd->...ij", X @ Wq, X @ Wk) / Wq.shape[1] ** 0.5
    E = np.exp(S - S.max(axis=-1, keepdims=True))
    W = E / E.sum(axis=-1, keepdims=True)
    return np.einsum("...ij,...jd->...id", W, X @ Wv), W


# === cross-sources-swapped: the values from X
def cross_attention(X, context, Wq, Wk, Wv):
    S = (X @ Wq) @ (context @ Wk).T / np.sqrt(Wk.shape[1])
    E = np.exp(S - S.max(axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True) @ (X @ Wv)


# === mask-rank: squeezed
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    *lead, n, d = X.shape
    assert d % num_heads == 0
    cut = lambda A: A.reshape(*lead, n, num_heads, d // num_heads).swapaxes(-2, -3)
    q, k, v = cut(X @ Wq), cut(X @ Wk), cut(X @ Wv)
    s = q @ k.swapaxes(-1, -2) / np.sqrt(d // num_heads)
    if mask is not None:
        s = np.where(np.squeeze(mask), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).swapaxes(-2, -3).reshape(X.shape) @ Wo


# === mask-rank: reshaped to (B, n, m)
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    *lead, n, d = X.shape
    if d % num_heads:
        raise ValueError
    cut = lambda A: np.moveaxis(A.reshape(*lead, n, num_heads, -1), -2, -3)
    s = np.einsum("...id,...jd->...ij", cut(X @ Wq), cut(X @ Wk)) / (d // num_heads) ** 0.5
    if mask is not None:
        mask = mask if mask.ndim == 2 else mask.reshape(-1, n, n)
        s = np.where(mask, s, -1e9)
    e = np.exp(s - s.max(-1, keepdims=True))
    o = np.einsum("...ij,...jd->...id", e / e.sum(-1, keepdims=True), cut(X @ Wv))
    return np.moveaxis(o, -3, -2).reshape(X.shape) @ Wo


# === softmax-backward-elementwise: two dimensions
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    S = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        S = np.where(mask, S, -np.inf)
    P = np.exp(S - S.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    dS = (dO @ V.T) * P * (1 - P) / np.sqrt(Q.shape[-1])
    return dS @ K, dS.T @ Q, P.T @ dO


# === softmax-backward-elementwise: loops
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    c = 1 / math.sqrt(Q.shape[-1])
    dQ, dK, dV = np.zeros_like(Q), np.zeros_like(K), np.zeros_like(V)
    for i in range(len(Q)):
        s = c * (K @ Q[i])
        if mask is not None:
            s = np.where(mask[i], s, -1e9)
        p = np.exp(s - s.max())
        p /= p.sum()
        ds = np.diag(p - p**2) @ (V @ dO[i])
        dQ[i] = c * ds @ K
        dK += c * np.outer(ds, Q[i])
        dV += np.outer(p, dO[i])
    return dQ, dK, dV


# === softmax-backward-no-row-sum: two dimensions
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    S = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        S = np.where(mask, S, -np.inf)
    P = np.exp(S - S.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    dS = (dO @ V.T) * P / np.sqrt(Q.shape[-1])
    return dS @ K, dS.T @ Q, P.T @ dO


# === softmax-backward-no-row-sum: einsum
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    S = np.einsum("...id,...jd->...ij", Q, K) / Q.shape[-1] ** 0.5
    if mask is not None:
        S = np.where(mask, S, -1e9)
    P = np.exp(S - S.max(-1, keepdims=True))
    P = P / P.sum(-1, keepdims=True)
    G = P * np.einsum("...id,...jd->...ij", dO, V) / Q.shape[-1] ** 0.5
    return [
        np.einsum("...ij,...jd->...id", G, K),
        np.einsum("...ij,...id->...jd", G, Q),
        np.einsum("...ij,...id->...jd", P, dO),
    ]


# === backward-scale-missing: both
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    S = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        S = np.where(mask, S, -np.inf)
    P = np.exp(S - S.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    dP = dO @ V.T
    dS = P * (dP - (P * dP).sum(-1, keepdims=True))
    return dS @ K, dS.T @ Q, P.T @ dO


# === backward-scale-missing: dQ alone
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    S = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        S = np.where(mask, S, -1e9)
    P = np.exp(S - S.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    dP = dO @ V.T
    dS = P * (dP - (P * dP).sum(-1, keepdims=True))
    return dS @ K, dS.T @ Q / np.sqrt(Q.shape[-1]), P.T @ dO


# === backward-scale-missing: dK alone, leading axes
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    T = lambda a: np.swapaxes(a, -1, -2)
    S = Q @ T(K) / np.sqrt(Q.shape[-1])
    if mask is not None:
        S = np.where(mask, S, -np.inf)
    P = np.exp(S - S.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    dP = dO @ T(V)
    dS = P * (dP - (P * dP).sum(-1, keepdims=True))
    return dS @ K / np.sqrt(Q.shape[-1]), T(dS) @ Q, T(P) @ dO


# === backward-dk-untransposed: dS @ Q
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    r = np.sqrt(Q.shape[-1])
    S = Q @ K.T / r
    if mask is not None:
        S = np.where(mask, S, -np.inf)
    P = np.exp(S - S.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    dP = dO @ V.T
    dS = P * (dP - (P * dP).sum(-1, keepdims=True))
    return dS @ K / r, dS @ Q / r, P.T @ dO


# === backward-dk-untransposed: einsum
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    S = np.einsum("id,jd->ij", Q, K) / Q.shape[-1] ** 0.5
    if mask is not None:
        S = np.where(mask, S, -1e9)
    P = np.exp(S - S.max(-1, keepdims=True))
    P = P / P.sum(-1, keepdims=True)
    dP = np.einsum("id,jd->ij", dO, V)
    G = P * (dP - np.einsum("ij,ij->i", P, dP)[:, None]) / Q.shape[-1] ** 0.5
    return np.einsum("ij,jd->id", G, K), np.einsum("ij,jd->id", G, Q), np.einsum("ij,id->jd", P, dO)


# === backward-broadcast-not-summed: swapaxes
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    T = lambda a: np.swapaxes(a, -1, -2)
    c = Q.shape[-1] ** -0.5
    S = Q @ T(K) * c
    if mask is not None:
        S = np.where(mask, S, -np.inf)
    P = np.exp(S - S.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    dP = dO @ T(V)
    dS = c * P * (dP - (P * dP).sum(-1, keepdims=True))
    return dS @ K, T(dS) @ Q, T(P) @ dO


# === backward-broadcast-not-summed: the mean instead of the sum
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    T = lambda a: np.swapaxes(a, -1, -2)
    c = Q.shape[-1] ** -0.5
    S = Q @ T(K) * c
    if mask is not None:
        S = np.where(mask, S, -np.inf)
    P = np.exp(S - S.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    dP = dO @ T(V)
    dS = c * P * (dP - (P * dP).sum(-1, keepdims=True))
    fit = lambda g, a: g if g.shape == a.shape else g.mean(tuple(range(g.ndim - a.ndim)))
    return fit(dS @ K, Q), fit(T(dS) @ Q, K), fit(T(P) @ dO, V)


# === no-scale: backward, forward and backward agree
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    S = Q @ K.T
    if mask is not None:
        S = np.where(mask, S, -np.inf)
    P = np.exp(S - S.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    dP = dO @ V.T
    dS = P * (dP - (P * dP).sum(-1, keepdims=True))
    return dS @ K, dS.T @ Q, P.T @ dO


# === mask-ignored: backward
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    r = np.sqrt(Q.shape[-1])
    S = Q @ K.T / r
    P = np.exp(S - S.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    dP = dO @ V.T
    dS = P * (dP - (P * dP).sum(-1, keepdims=True))
    return dS @ K / r, dS.T @ Q / r, P.T @ dO


# === mask-ignored: multi-head
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    n, d = X.shape
    q, k, v = ((X @ W).reshape(n, num_heads, d // num_heads).transpose(1, 0, 2) for W in (Wq, Wk, Wv))
    s = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(n, d) @ Wo


# === no-scale: multi-head
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    heads = []
    for q, k, v in zip(*(np.split(X @ W, num_heads, axis=-1) for W in (Wq, Wk, Wv))):
        s = q @ k.T
        if mask is not None:
            s[~mask] = -1e9
        e = np.exp(s - s.max(1, keepdims=True))
        heads.append(e @ v / e.sum(1, keepdims=True))
    return np.hstack(heads) @ Wo


# === softmax-over-queries: cross
def cross_attention(X, context, Wq, Wk, Wv):
    Q, K, V = X @ Wq, context @ Wk, context @ Wv
    S = Q @ K.T / np.sqrt(K.shape[1])
    E = np.exp(S - S.max(axis=0))
    return E / E.sum(axis=0) @ V


# === softmax-over-batch: only with a batch axis
def scaled_dot_product_attention(Q, K, V, mask=None):
    B, n, dk = Q.shape
    s = Q @ K.transpose(0, 2, 1) / np.sqrt(dk)
    if mask is not None:
        s = np.where(mask, s, -1e9)
    e = np.exp(s - s.max(0))
    return e / e.sum(0) @ V


# === no-scale: only with a batch axis
def scaled_dot_product_attention(Q, K, V, mask=None):
    B, n, dk = Q.shape
    s = Q @ K.transpose(0, 2, 1)
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(2, keepdims=True))
    return e / e.sum(2, keepdims=True) @ V


# === heads-split-without-transpose: attention among the heads of one token
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    n, d = X.shape
    q, k, v = ((X @ W).reshape(n, num_heads, d // num_heads) for W in (Wq, Wk, Wv))
    s = q @ k.transpose(0, 2, 1) / np.sqrt(d // num_heads)
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).reshape(n, d) @ Wo


# === sum-without-keepdims: multi-head, in a loop over heads
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    heads = []
    for q, k, v in zip(*(np.split(X @ W, num_heads, axis=-1) for W in (Wq, Wk, Wv))):
        s = q @ k.T / np.sqrt(q.shape[-1])
        if mask is not None:
            s = np.where(mask, s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        heads.append(e / e.sum(-1) @ v)
    return np.hstack(heads) @ Wo


# === softmax-over-everything: multi-head, in a loop over heads
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    heads = []
    for q, k, v in zip(*(np.split(X @ W, num_heads, axis=-1) for W in (Wq, Wk, Wv))):
        s = q @ k.T / np.sqrt(q.shape[-1])
        if mask is not None:
            s = np.where(mask, s, -np.inf)
        e = np.exp(s - s.max())
        heads.append(e / e.sum() @ v)
    return np.hstack(heads) @ Wo


# === causal-needs-square: causal where no mask is given, and with it where one is
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    tri = np.tri(*s.shape, dtype=bool)
    s = np.where(tri if mask is None else tri & mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === scale-n: the number of queries
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / math.sqrt(len(Q))
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === scale-n: the number of keys
def scaled_dot_product_attention(Q, K, V, mask=None):
    n = K.shape[-2]
    s = np.matmul(Q, np.swapaxes(K, -1, -2)) * n**-0.5
    if mask is not None:
        s = np.where(mask, s, -1e9)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === scale-precedence: a power of one half
def scaled_dot_product_attention(Q, K, V, mask=None):
    d_k = Q.shape[-1]
    s = Q @ K.T / (d_k**1 / 2)
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === scale-precedence: a power of minus one half
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = np.einsum("id,jd->ij", Q, K) * Q.shape[1] ** -1 / 2
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === scale-floor: two slashes
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T // np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === scale-floor: a whole root
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / int(math.sqrt(Q.shape[-1]))
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === softmax-twice: a helper, and once more by hand
def scaled_dot_product_attention(Q, K, V, mask=None):
    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    return softmax(softmax(s)) @ V


# === softmax-twice: in a loop over rows
def scaled_dot_product_attention(Q, K, V, mask=None):
    rows = []
    for i, q in enumerate(Q):
        s = K @ q / len(q) ** 0.5
        if mask is not None:
            s = np.where(mask[i], s, -1e9)
        for _ in range(2):
            s = np.exp(s - s.max())
            s = s / s.sum()
        rows.append(s @ V)
    return np.array(rows)


# === softmin: the sign of the scores
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = -Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === softmin: the factor
def scaled_dot_product_attention(Q, K, V, mask=None):
    factor = -1 / math.sqrt(K.shape[-1])
    s = factor * np.einsum("id,jd->ij", Q, K)
    if mask is not None:
        s[~mask] = -np.inf
    e = np.exp(s - s.max(-1)[:, None])
    return np.einsum("ij,jd->id", e / e.sum(-1)[:, None], V)


# === weights-thresholded: under a twentieth
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    w[w < 0.05] = 0
    return w @ V


# === weights-thresholded: under a tenth, shared out again
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    w = w * (w >= 0.1)
    return w / w.sum(-1, keepdims=True) @ V


# === accumulator-not-rescaled: key by key
def scaled_dot_product_attention(Q, K, V, mask=None):
    out = np.zeros((len(Q), V.shape[1]))
    for i, q in enumerate(Q):
        top, total = -np.inf, 0.0
        for j in range(len(K)):
            if mask is not None and not mask[i, j]:
                continue
            s = q @ K[j] / np.sqrt(len(q))
            new = max(top, s)
            total = total * np.exp(top - new) + np.exp(s - new)
            out[i] += np.exp(s - new) * V[j]
            top = new
        out[i] /= total
    return out


# === accumulator-not-rescaled: neither the sum, in blocks of 2
def scaled_dot_product_attention(Q, K, V, mask=None):
    out, total = np.zeros((len(Q), V.shape[1])), np.zeros((len(Q), 1))
    top = np.full((len(Q), 1), -np.inf)
    for j in range(0, len(K), 2):
        s = Q @ K[j : j + 2].T / np.sqrt(Q.shape[-1])
        if mask is not None:
            s = np.where(mask[:, j : j + 2], s, -1e30)
        top = np.maximum(top, s.max(-1, keepdims=True))
        p = np.exp(s - top) if mask is None else np.exp(s - top) * mask[:, j : j + 2]
        total += p.sum(-1, keepdims=True)
        out += p @ V[j : j + 2]
    return out / total


# === weights-not-used: einsum of a token with itself
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("ij,id->id", e / e.sum(-1, keepdims=True), V)


# === weights-not-used: summed before V comes
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -1e9)
    e = np.exp(s - s.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    return w.sum(-1, keepdims=True) * V


# === mask-fill-nan: where
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, np.nan)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === mask-fill-nan: assigned
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = np.einsum("...id,...jd->...ij", Q, K) / math.sqrt(Q.shape[-1])
    if mask is not None:
        s = s + 0 * s
        s[~np.broadcast_to(mask, s.shape)] = float("nan")
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === padding-or-causal: where
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    allowed = np.tril(np.ones(s.shape, dtype=bool))
    if mask is not None:
        allowed = allowed | mask
    s = np.where(allowed, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === padding-or-causal: blocked only where both block
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    blocked = np.triu(np.ones(s.shape, dtype=bool), 1)
    if mask is not None:
        blocked &= ~mask
    s[blocked] = -1e9
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === heads-same-slice: a slice that never moves
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    d = X.shape[-1] // num_heads
    assert d * num_heads == X.shape[-1]
    out = []
    for _ in range(num_heads):
        q, k, v = ((X @ W)[..., :d] for W in (Wq, Wk, Wv))
        s = q @ k.swapaxes(-1, -2) / np.sqrt(d)
        if mask is not None:
            s = np.where(mask if mask.ndim < 4 else mask[:, 0], s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        out.append(e / e.sum(-1, keepdims=True) @ v)
    return np.concatenate(out, -1) @ Wo


# === heads-same-slice: the last one again and again
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    d = X.shape[-1] // num_heads
    assert d * num_heads == X.shape[-1]
    Q, K, V = (np.split(X @ W, num_heads, axis=-1)[-1] for W in (Wq, Wk, Wv))
    s = Q @ K.swapaxes(-1, -2) / np.sqrt(d)
    if mask is not None:
        s = np.where(mask if mask.ndim < 4 else mask[:, 0], s, -1e9)
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.concatenate([e / e.sum(-1, keepdims=True) @ V] * num_heads, -1) @ Wo


# === dropout-at-inference: a mask of random numbers
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    w = w * (np.random.rand(*w.shape) < 0.5) / 0.5
    return w @ V


# === dropout-at-inference: its own generator, the same each time
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -1e9)
    w = np.exp(s - s.max(-1, keepdims=True))
    w /= w.sum(-1, keepdims=True)
    w[np.random.RandomState(1).random_sample(w.shape) < 0.4] = 0
    return w / 0.6 @ V


# === softmax-over-heads: axis 0 of (heads, n, m)
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    n, d = X.shape
    size = d // num_heads
    assert size * num_heads == d
    q, k, v = ((X @ W).reshape(n, num_heads, size).transpose(1, 0, 2) for W in (Wq, Wk, Wv))
    s = q @ k.transpose(0, 2, 1) / np.sqrt(size)
    if mask is not None:
        s = np.where(mask, s, -1e9)
    e = np.exp(s - s.max(0))
    return (e / e.sum(0) @ v).transpose(1, 0, 2).reshape(n, d) @ Wo


# === softmax-over-heads: counted from the end
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    *batch, n, d = X.shape
    assert d % num_heads == 0
    q, k, v = (np.stack(np.split(X @ W, num_heads, axis=-1), axis=-3) for W in (Wq, Wk, Wv))
    s = q @ k.swapaxes(-1, -2) / (d // num_heads) ** 0.5
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-3, keepdims=True))
    o = e / e.sum(-3, keepdims=True) @ v
    return np.concatenate([o[..., i, :, :] for i in range(num_heads)], -1) @ Wo
