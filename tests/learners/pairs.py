# ruff: noqa
# Two mistakes at once; both must be named.

# === no-scale + mask-ignored
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === no-scale + softmax-over-queries
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = np.einsum("id,jd->ij", Q, K)
    if mask is not None:
        s = np.where(mask, s, -1e9)
    e = np.exp(s - s.max(0))
    return e / e.sum(0) @ V


# === scale-dk + mask-inverted
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / Q.shape[-1]
    if mask is not None:
        s = np.where(mask, -1e9, s)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === scale-inverted + mask-after-softmax
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T * np.sqrt(Q.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    return w @ V if mask is None else (w * mask) @ V


# === softmax-over-queries + mask-transposed
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask.T, s, -np.inf)
    e = np.exp(s - s.max(axis=0, keepdims=True))
    return e / e.sum(axis=0, keepdims=True) @ V


# === no-scale + value-is-key
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ K


# === no-scale + no-max-subtraction
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s)
    return e / e.sum(-1, keepdims=True) @ V


# === no-max-subtraction + mask-as-bias
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = s + mask
    e = np.exp(s)
    return e / e.sum(-1, keepdims=True) @ V


# === scale-dk + mask-fill-zero
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.swapaxes(-1, -2) / Q.shape[-1]
    if mask is not None:
        s = s * mask
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === no-scale + mask-fill-small
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T
    if mask is not None:
        s = np.where(mask, s, -5)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === scale-dk + mask-fill-small
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / Q.shape[-1]
    if mask is not None:
        s = np.where(mask, s, -1e4)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === softmax-over-queries + mask-ignored
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    e = np.exp(s - s.max(0))
    return e / e.sum(0) @ V


# === key-reshaped + no-scale
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.reshape(K.shape[1], K.shape[0])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === not-normalised + no-scale
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    return np.exp(s - s.max(-1, keepdims=True)) @ V


# === inputs-modified + mask-ignored
def scaled_dot_product_attention(Q, K, V, mask=None):
    Q /= np.sqrt(Q.shape[-1])
    s = Q @ K.T
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === mask-inverted + mask-fill-zero
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, 0, s)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === scale-after-softmax + mask-after-softmax
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T
    e = np.exp(s - s.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True) / np.sqrt(Q.shape[-1])
    if mask is not None:
        w = w * mask
    return w @ V


# === sum-without-keepdims + no-scale
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1)) @ V


# === heads-merge-without-transpose + mask-ignored
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    n, d = X.shape
    q, k, v = ((X @ W).reshape(n, num_heads, d // num_heads).transpose(1, 0, 2) for W in (Wq, Wk, Wv))
    s = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).reshape(n, d) @ Wo


# === scale-d-model + no-output-projection
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    heads = []
    for q, k, v in zip(*(np.split(X @ W, num_heads, axis=-1) for W in (Wq, Wk, Wv))):
        s = q @ k.T / np.sqrt(X.shape[-1])
        if mask is not None:
            s = np.where(mask, s, -np.inf)
        e = np.exp(s - s.max(1, keepdims=True))
        heads.append(e @ v / e.sum(1, keepdims=True))
    return np.hstack(heads)


# === value-from-key-projection + no-scale
def cross_attention(X, context, Wq, Wk, Wv):
    Q, K, V = X @ Wq, context @ Wk, context @ Wk
    S = Q @ K.T
    E = np.exp(S - S.max(axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True) @ V


# === cross-sources-swapped + softmax-over-queries
def cross_attention(X, context, Wq, Wk, Wv):
    Q, K, V = context @ Wq, X @ Wk, X @ Wv
    S = Q @ K.T / np.sqrt(K.shape[1])
    E = np.exp(S - S.max(axis=0))
    return E / E.sum(axis=0) @ V


# === softmax-backward-no-row-sum + backward-scale-missing
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    S = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        S = np.where(mask, S, -np.inf)
    P = np.exp(S - S.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    dS = P * (dO @ V.T)
    return dS @ K, dS.T @ Q, P.T @ dO


# === softmax-backward-elementwise + backward-dk-untransposed
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    r = np.sqrt(Q.shape[-1])
    S = Q @ K.T / r
    if mask is not None:
        S = np.where(mask, S, -np.inf)
    P = np.exp(S - S.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    dS = (dO @ V.T) * P * (1 - P)
    return dS @ K / r, dS @ Q / r, P.T @ dO


# === causal-excludes-self + mask-fill-small
def causal_mask(n):
    return np.where(np.tri(n, k=-1), 0.0, -10.0)
