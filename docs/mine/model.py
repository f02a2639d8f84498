import numpy as np


class SelfAttention:
    def __init__(self, d_model, d_k):
        rng = np.random.default_rng(0)
        self.Wq, self.Wk, self.Wv = rng.normal(size=(3, d_model, d_k))

    def forward(self, x):
        q, k, v = x @ self.Wq, x @ self.Wk, x @ self.Wk
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        e = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True) @ v


class MultiHeadAttention:
    """Still to come."""
