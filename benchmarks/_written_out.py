"""What the benchmarks compare with: the same mathematics in NumPy alone, derivatives written out.

As a careful person would write it who needs just this model: in place where that is safe, nothing computed twice.
"""

import numpy as np


def attention(Q, K, V, G, blocked=None):
    """softmax(Q Kᵀ / √d) V and its three gradients. blocked: booleans, True = may not attend."""
    scale = Q.dtype.type(Q.shape[-1] ** -0.5)
    P = Q @ K.mT
    P *= scale
    if blocked is not None:
        np.copyto(P, -np.inf, where=blocked)
    P -= P.max(-1, keepdims=True)
    np.exp(P, out=P)
    P /= P.sum(-1, keepdims=True)
    out = P @ V
    dS = G @ V.mT
    dS -= (G * out).sum(-1, keepdims=True)
    dS *= P
    dS *= scale
    return out, dS @ K, dS.mT @ Q, P.mT @ G


def gpt_step(weights, x, y, num_heads, lr):
    """A function that makes a training step of a GPT (forward, backward, AdamW) and returns the loss.

    weights: as in state_dict() of ta.nn.GPT. x, y: ids (B, T).
    """
    w = {name: value.copy() for name, value in weights.items()}
    moments = {name: (np.zeros_like(a), np.zeros_like(a)) for name, a in w.items()}
    (B, T), C, time = x.shape, w["norm.weight"].size, 0
    num_layers = 1 + max(int(name.split(".")[1]) for name in w if name.startswith("blocks."))
    blocked = ~np.tri(T, dtype=bool)
    scale = np.float32((C // num_heads) ** -0.5)
    slope, cubic = np.float32((2 / np.pi) ** 0.5), np.float32(0.044715)

    def split(z):  # (B · T, C) -> (B, h, T, C / h)
        return z.reshape(B, T, num_heads, -1).swapaxes(1, 2)

    def merge(z):  # and back
        return z.swapaxes(1, 2).reshape(B * T, C)

    def linear(z, name):
        return z @ w[name + ".weight"].T + w[name + ".bias"]

    def linear_back(g, z, name, grads):
        grads[name + ".weight"], grads[name + ".bias"] = g.T @ z, g.sum(0)
        return g @ w[name + ".weight"]

    def norm(z, name):
        z = z - z.mean(-1, keepdims=True)
        r = 1 / np.sqrt(np.vecdot(z, z)[:, None] / np.float32(C) + np.float32(1e-5))
        z *= r
        return z * w[name + ".weight"] + w[name + ".bias"], z, r

    def norm_back(g, z, r, name, grads):
        grads[name + ".weight"], grads[name + ".bias"] = (g * z).sum(0), g.sum(0)
        g = g * w[name + ".weight"]
        return r * (g - g.mean(-1, keepdims=True) - z * (np.vecdot(g, z)[:, None] / np.float32(C)))

    def block(h, name):
        a, *norm1 = norm(h, name + "norm1")
        Q, K, V = (split(linear(a, f"{name}attention.{p}_proj")) for p in "qkv")
        P = Q @ K.mT  # (B, h, T, T)
        P *= scale
        np.copyto(P, -np.inf, where=blocked)
        P -= P.max(-1, keepdims=True)
        np.exp(P, out=P)
        P /= P.sum(-1, keepdims=True)
        o = merge(P @ V)
        h = h + linear(o, name + "attention.out_proj")
        c, *norm2 = norm(h, name + "norm2")
        u = linear(c, name + "feed_forward.up")  # (B · T, 4 C)
        t = np.tanh(slope * (u + cubic * u * u * u))
        f = u * (1 + t) * np.float32(0.5)
        return h + linear(f, name + "feed_forward.down"), (a, norm1, Q, K, V, P, o, c, norm2, u, t, f)

    def block_back(g, saved, name, grads):
        a, norm1, Q, K, V, P, o, c, norm2, u, t, f = saved
        df = linear_back(g, f, name + "feed_forward.down", grads)
        df *= np.float32(0.5) * (1 + t + u * (1 - t * t) * slope * (1 + 3 * cubic * u * u))
        g = g + norm_back(linear_back(df, c, name + "feed_forward.up", grads), *norm2, name + "norm2", grads)
        d = split(linear_back(g, o, name + "attention.out_proj", grads))
        dS = d @ V.mT
        dS -= (dS * P).sum(-1, keepdims=True)
        dS *= P
        dS *= scale
        gradients = zip("qkv", (dS @ K, dS.mT @ Q, P.mT @ d))
        da = sum(linear_back(merge(z), a, f"{name}attention.{p}_proj", grads) for p, z in gradients)
        return g + norm_back(da, *norm1, name + "norm1", grads)

    def step():
        nonlocal time
        h, saved, grads = (w["embedding.weight"][x] + w["positions.weight"][:T]).reshape(B * T, C), [], {}
        for i in range(num_layers):
            h, kept = block(h, f"blocks.{i}.")
            saved.append(kept)
        z, *last = norm(h, "norm")
        p = z @ w["head.weight"].T  # (B · T, vocabulary)
        p -= p.max(-1, keepdims=True)
        right = np.arange(B * T), y.reshape(-1)
        chosen = p[right].copy()
        np.exp(p, out=p)
        total = p.sum(-1, keepdims=True)
        loss = float(np.mean(np.log(total[:, 0]) - chosen))

        p /= total
        p[right] -= 1
        p /= np.float32(B * T)
        grads["head.weight"] = p.T @ z
        g = norm_back(p @ w["head.weight"], *last, "norm", grads)
        for i in reversed(range(num_layers)):
            g = block_back(g, saved.pop(), f"blocks.{i}.", grads)
        grads["positions.weight"] = g.reshape(B, T, C).sum(0)
        grads["embedding.weight"] = np.zeros_like(w["embedding.weight"])
        np.add.at(grads["embedding.weight"], x.reshape(-1), g)

        time += 1
        for name, a in w.items():
            g, (m, v) = grads[name], moments[name]
            m *= np.float32(0.9)
            m += np.float32(0.1) * g
            v *= np.float32(0.999)
            v += np.float32(0.001) * g * g
            a *= np.float32(1 - lr * 0.01)
            a -= np.float32(lr / (1 - 0.9**time)) * m / (np.sqrt(v / np.float32(1 - 0.999**time)) + np.float32(1e-8))
        return loss

    return step
