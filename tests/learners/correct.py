# ruff: noqa
# Right programs in many hands. None of them may be accused.

# === textbook
def scaled_dot_product_attention(Q, K, V, mask=None):
    d_k = Q.shape[-1]
    scores = Q @ K.T / np.sqrt(d_k)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    scores -= scores.max(axis=-1, keepdims=True)
    w = np.exp(scores)
    w /= w.sum(axis=-1, keepdims=True)
    return w @ V


# === helper softmax, returns the pair
def softmax(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = np.matmul(Q, np.swapaxes(K, -2, -1)) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    weights = softmax(scores)
    return np.matmul(weights, V), weights


# === einsum with ellipsis
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = np.einsum("...id,...jd->...ij", Q, K) * Q.shape[-1] ** -0.5
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    m = np.max(s, axis=-1, keepdims=True)
    m = np.where(np.isfinite(m), m, 0.0)
    p = np.exp(s - m)
    z = p.sum(-1, keepdims=True)
    p = np.divide(p, z, out=np.zeros_like(p), where=z > 0)
    return np.einsum("...ij,...jd->...id", p, V)


# === einsum in two dimensions
def scaled_dot_product_attention(q, k, v, m=None):
    s = np.einsum("id,jd->ij", q, k) / np.sqrt(k.shape[1])
    if m is not None:
        s[~m] = -np.inf
    s = np.exp(s - s.max(1)[:, None])
    s = s / s.sum(1)[:, None]
    return np.einsum("ij,jd->id", s, v)


# === three loops in plain Python
def scaled_dot_product_attention(Q, K, V, mask=None):
    n, dk = Q.shape
    m, dv = V.shape
    out = np.zeros((n, dv))
    for i in range(n):
        scores = []
        for j in range(m):
            if mask is not None and not mask[i][j]:
                scores.append(-math.inf)
                continue
            s = 0.0
            for d in range(dk):
                s += Q[i, d] * K[j, d]
            scores.append(s / math.sqrt(dk))
        top = max(scores)
        exps = [math.exp(s - top) if s > -math.inf else 0.0 for s in scores]
        total = sum(exps)
        for j in range(m):
            for d in range(dv):
                out[i, d] += exps[j] / total * V[j, d]
    return out


# === a row at a time, only over allowed keys
def scaled_dot_product_attention(Q, K, V, mask=None):
    rows = []
    for i, q in enumerate(Q):
        keep = np.ones(len(K), dtype=bool) if mask is None else mask[i]
        s = K[keep] @ q / np.sqrt(len(q))
        e = np.exp(s - s.max())
        rows.append((e / e.sum()) @ V[keep])
    return np.stack(rows)


# === one line
scaled_dot_product_attention = lambda Q, K, V, mask=None: (
    lambda s: (lambda e: e / e.sum(-1, keepdims=True))(np.exp(s - s.max(-1, keepdims=True))) @ V
)((Q @ K.swapaxes(-1, -2)) / Q.shape[-1] ** 0.5 + (0 if mask is None else np.where(mask, 0, -np.inf)))


# === float32 inside
def scaled_dot_product_attention(Q, K, V, mask=None):
    Q, K, V = (np.asarray(a, dtype=np.float32) for a in (Q, K, V))
    s = Q @ np.swapaxes(K, -1, -2) / np.float32(math.sqrt(Q.shape[-1]))
    if mask is not None:
        s = np.where(mask, s, np.float32(-1e9))
    s = s - s.max(-1, keepdims=True)
    e = np.exp(s)
    return (e / e.sum(-1, keepdims=True)) @ V


# === float32 inside, float64 out, pair
def scaled_dot_product_attention(Q, K, V, mask=None):
    q, k, v = Q.astype("f"), K.astype("f"), V.astype("f")
    s = (q @ k.T) / np.sqrt(np.float32(q.shape[1]))
    if mask is not None:
        s = np.where(mask, s, np.finfo(np.float32).min)
    a = np.exp(s - s.max(axis=1, keepdims=True))
    a = a / a.sum(axis=1, keepdims=True)
    return (a @ v).astype(np.float64), a.astype(np.float64)


# === additive mask inside
def scaled_dot_product_attention(Q, K, V, mask=None):
    dk = K.shape[-1]
    bias = 0.0
    if mask is not None:
        bias = np.zeros(mask.shape)
        bias[~mask] = -np.inf
    logits = (Q / np.sqrt(dk)) @ np.moveaxis(K, -1, -2) + bias
    logits = logits - np.amax(logits, axis=-1, keepdims=True)
    probs = np.exp(logits)
    probs = probs / np.sum(probs, axis=-1, keepdims=True)
    return probs @ V


# === scale Q and K each by the fourth root
def scaled_dot_product_attention(Q, K, V, mask=None):
    r = Q.shape[-1] ** 0.25
    s = (Q / r) @ (K / r).swapaxes(-1, -2)
    if mask is not None:
        s = np.where(np.logical_not(mask), -np.inf, s)
    return softmax(s) @ V


def softmax(s):
    s = s - s.max(axis=-1, keepdims=True)
    return np.exp(s) / np.exp(s).sum(axis=-1, keepdims=True)


# === log-sum-exp
def logsumexp(x):
    m = x.max(axis=-1, keepdims=True)
    return m + np.log(np.exp(x - m).sum(axis=-1, keepdims=True))


def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -1e30)
    return np.exp(s - logsumexp(s)) @ V


# === online softmax in blocks of 16 keys
def scaled_dot_product_attention(Q, K, V, mask=None):
    n, dk = Q.shape
    top = np.full((n, 1), -np.inf)
    total = np.zeros((n, 1))
    out = np.zeros((n, V.shape[1]))
    for start in range(0, len(K), 16):
        s = Q @ K[start : start + 16].T / np.sqrt(dk)
        if mask is not None:
            s = np.where(mask[:, start : start + 16], s, -np.inf)
        new = np.maximum(top, s.max(axis=1, keepdims=True))
        safe = np.where(np.isinf(new), 0, new)
        p = np.exp(s - safe)
        fade = np.exp(top - safe)
        total = total * fade + p.sum(axis=1, keepdims=True)
        out = out * fade + p @ V[start : start + 16]
        top = new
    return out / total


# === renormalised after the softmax
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[1])
    w = np.exp(s - s.max(axis=1, keepdims=True))
    if mask is not None:
        w = w * mask
    return w / w.sum(axis=1, keepdims=True) @ V


# === renormalised with an epsilon
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[1])
    e = np.exp(s - s.max(axis=1, keepdims=True))
    w = e / e.sum(axis=1, keepdims=True)
    if mask is not None:
        w = np.where(mask, w, 0)
        w = w / (w.sum(axis=1, keepdims=True) + 1e-12)
    return w @ V


# === mask == 0 and -1e9, annotated style
def attention(query, key, value, mask=None, dropout=None):
    d_k = query.shape[-1]
    scores = np.matmul(query, key.swapaxes(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = np.where(mask == 0, -1e9, scores)
    scores = scores - scores.max(axis=-1, keepdims=True)
    p_attn = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    return np.matmul(p_attn, value), p_attn


def scaled_dot_product_attention(Q, K, V, mask=None):
    return attention(Q, K, V, mask)


# === raises on an empty row
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        if not mask.any(axis=-1).all():
            raise ValueError("a query may attend to nothing")
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


# === zero on an empty row
def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    with np.errstate(invalid="ignore"):
        e = np.exp(s - s.max(-1, keepdims=True))
        w = np.nan_to_num(e / e.sum(-1, keepdims=True))
    return w @ V


# === division after the sum, returned as a list pair, printing
def scaled_dot_product_attention(Q, K, V, mask=None):
    print("attention", Q.shape, K.shape, V.shape)
    s = np.dot(Q, K.T) / np.sqrt(Q.shape[1])
    if mask is not None:
        s = np.ma.masked_array(s, ~mask).filled(-np.inf)
    e = np.exp(s - s.max(axis=1).reshape(-1, 1))
    return [np.dot(e, V) / e.sum(axis=1).reshape(-1, 1), e / e.sum(axis=1).reshape(-1, 1)]


# === float masks too, leading axes too
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = np.einsum("...qd,...kd->...qk", Q, K) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    weights = scores / scores.sum(-1, keepdims=True)
    return weights @ V, weights


# === transposed throughout
def scaled_dot_product_attention(Q, K, V, mask=None):
    S = K @ Q.T / np.sqrt(Q.shape[1])
    if mask is not None:
        S = np.where(mask.T, S, -np.inf)
    S = np.exp(S - S.max(axis=0))
    S = S / S.sum(axis=0)
    return (V.T @ S).T


# === only with a batch axis
def scaled_dot_product_attention(Q, K, V, mask=None):
    B, n, dk = Q.shape
    s = np.matmul(Q, K.transpose(0, 2, 1)) / np.sqrt(dk)
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    s = np.exp(s - s.max(axis=2, keepdims=True))
    return np.matmul(s / s.sum(axis=2, keepdims=True), V)


# === classes
class Attention:
    def __init__(self, dk):
        self.scale = 1 / math.sqrt(dk)

    def __call__(self, Q, K, V, mask):
        s = Q @ K.T * self.scale
        if mask is not None:
            s = np.where(mask, s, -np.inf)
        e = np.exp(s - s.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True) @ V


def scaled_dot_product_attention(Q, K, V, mask=None):
    return Attention(Q.shape[-1])(Q, K, V, mask)


# === causal masks: comparison
def causal_mask(n):
    i = np.arange(n)
    return i[:, None] >= i[None, :]


# === causal masks: loops
def causal_mask(n):
    mask = np.zeros((n, n), dtype=bool)
    for i in range(n):
        for j in range(n):
            if j <= i:
                mask[i, j] = True
    return mask


# === causal masks: inverted triu
def causal_mask(n):
    return ~np.triu(np.ones((n, n)), k=1).astype(bool)


# === causal masks: additive
def causal_mask(n):
    return np.triu(np.full((n, n), -np.inf), k=1)


# === causal masks: additive and finite
def causal_mask(n):
    return np.where(np.tril(np.ones((n, n))) == 1, 0.0, -1e9)


# === causal masks: the opposite convention
def causal_mask(n):
    return np.triu(np.ones((n, n), dtype=bool), k=1)


# === multi-head: reshape and transpose
def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    n, d = X.shape
    assert d % num_heads == 0
    dh = d // num_heads
    q = (X @ Wq).reshape(n, num_heads, dh).transpose(1, 0, 2)
    k = (X @ Wk).reshape(n, num_heads, dh).transpose(1, 0, 2)
    v = (X @ Wv).reshape(n, num_heads, dh).transpose(1, 0, 2)
    s = q @ k.transpose(0, 2, 1) / np.sqrt(dh)
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    o = softmax(s) @ v
    return o.transpose(1, 0, 2).reshape(n, d) @ Wo


# === multi-head: a loop over slices
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    d = X.shape[-1]
    if d % num_heads != 0:
        raise ValueError("num_heads must divide d_model")
    size = d // num_heads
    Q, K, V = X @ Wq, X @ Wk, X @ Wv
    outs = []
    for h in range(num_heads):
        part = slice(h * size, (h + 1) * size)
        s = Q[..., part] @ np.swapaxes(K[..., part], -1, -2) / size**0.5
        if mask is not None:
            s = np.where(mask, s, -1e30)
        e = np.exp(s - s.max(-1, keepdims=True))
        outs.append(e / e.sum(-1, keepdims=True) @ V[..., part])
    return np.concatenate(outs, axis=-1) @ Wo


# === multi-head: split the weights, sum the outputs, einsum
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    D = Wq.shape[0]
    H = num_heads
    q = np.einsum("nd,dhk->hnk", X, Wq.reshape(D, H, D // H))
    k = np.einsum("nd,dhk->hnk", X, Wk.reshape(D, H, D // H))
    v = np.einsum("nd,dhk->hnk", X, Wv.reshape(D, H, D // H))
    s = np.einsum("hik,hjk->hij", q, k) / np.sqrt(D // H)
    if mask is not None:
        s = s + np.where(mask, 0, -np.inf)
    e = np.exp(s - s.max(axis=2, keepdims=True))
    w = e / e.sum(axis=2, keepdims=True)
    return np.einsum("hij,hjk,hkd->id", w, v, Wo.reshape(H, D // H, D)), w


# === multi-head: only with a batch axis
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    B, T, C = X.shape
    hs = C // num_heads
    q = (X @ Wq).reshape(B, T, num_heads, hs).swapaxes(1, 2)
    k = (X @ Wk).reshape(B, T, num_heads, hs).swapaxes(1, 2)
    v = (X @ Wv).reshape(B, T, num_heads, hs).swapaxes(1, 2)
    att = q @ k.swapaxes(-2, -1) / math.sqrt(hs)
    if mask is not None:
        att = np.where(mask, att, -np.inf)
    att = np.exp(att - att.max(-1, keepdims=True))
    att = att / att.sum(-1, keepdims=True)
    return (att @ v).swapaxes(1, 2).reshape(B, T, C) @ Wo


# === multi-head: np.split
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    heads = []
    for q, k, v in zip(*(np.split(X @ W, num_heads, axis=-1) for W in (Wq, Wk, Wv))):
        s = q @ k.T / np.sqrt(q.shape[-1])
        if mask is not None:
            s[~mask] = -np.inf
        e = np.exp(s - s.max(1, keepdims=True))
        heads.append(e @ v / e.sum(1, keepdims=True))
    return np.hstack(heads) @ Wo


# === cross: textbook
def cross_attention(X, context, Wq, Wk, Wv):
    Q = X @ Wq
    K = context @ Wk
    V = context @ Wv
    S = Q @ K.T / np.sqrt(K.shape[1])
    E = np.exp(S - S.max(axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True) @ V


# === cross: batch, pair
def cross_attention(X, context, Wq, Wk, Wv):
    S = np.einsum("...nd,dk,ek,...me->...nm", X, Wq, Wk, context) / Wq.shape[1] ** 0.5
    W = np.exp(S - S.max(-1, keepdims=True))
    W = W / W.sum(-1, keepdims=True)
    return W @ (context @ Wv), W


# === backward: two dimensions
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    dk = Q.shape[1]
    S = Q @ K.T / np.sqrt(dk)
    if mask is not None:
        S = np.where(mask, S, -np.inf)
    P = np.exp(S - S.max(axis=1, keepdims=True))
    P = P / P.sum(axis=1, keepdims=True)
    dV = P.T @ dO
    dP = dO @ V.T
    dS = P * (dP - np.sum(dP * P, axis=1, keepdims=True))
    return dS @ K / np.sqrt(dk), dS.T @ Q / np.sqrt(dk), dV


# === backward: Jacobian, row by row, a list
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    c = 1 / math.sqrt(Q.shape[-1])
    dQ, dK, dV = np.zeros_like(Q), np.zeros_like(K), np.zeros_like(V)
    for i in range(len(Q)):
        s = c * (K @ Q[i])
        if mask is not None:
            s = np.where(mask[i], s, -1e9)
        p = np.exp(s - s.max())
        p /= p.sum()
        J = np.diag(p) - np.outer(p, p)
        ds = J @ (V @ dO[i])
        dQ[i] = c * ds @ K
        dK += c * np.outer(ds, Q[i])
        dV += np.outer(p, dO[i])
    return [dQ, dK, dV]


# === backward: leading axes
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    T = lambda a: np.swapaxes(a, -1, -2)
    scale = Q.shape[-1] ** -0.5
    S = (Q @ T(K)) * scale
    if mask is not None:
        S = np.where(mask, S, -np.inf)
    A = np.exp(S - S.max(-1, keepdims=True))
    A = A / A.sum(-1, keepdims=True)
    O = A @ V
    D = (dO * O).sum(-1, keepdims=True)
    G = A * (dO @ T(V) - D) * scale
    return G @ K, T(G) @ Q, T(A) @ dO


# === backward: float32 inside
def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    dO, Q, K, V = (a.astype(np.float32) for a in (dO, Q, K, V))
    r = np.float32(np.sqrt(Q.shape[-1]))
    S = Q @ K.T / r
    if mask is not None:
        S = np.where(mask, S, np.float32(-np.inf))
    P = np.exp(S - S.max(-1, keepdims=True))
    P = P / P.sum(-1, keepdims=True)
    dP = dO @ V.T
    dS = (dP - (P * dP).sum(-1, keepdims=True)) * P
    return dS @ K / r, dS.T @ Q / r, P.T @ dO
