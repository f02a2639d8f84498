"""PyTorch's own samples of each op (`op_db`: ordinary, empty, broadcast, strided, at the edges), here and in PyTorch.

In float64 the value, and the gradients of all inputs for a random cotangent, must be PyTorch's. A sample is out of
scope where it asks for what the op does not offer here (an option, another dtype), and a NaN's gradient is nobody's.
TINYATTN_OP_DB=1000 takes all samples of an op, not some.
"""

import contextlib
import itertools
import os

import numpy as np
import pytest

import tinyattn as ta

MOST = int(os.environ.get("TINYATTN_OP_DB", "5"))  # samples of an op, taken evenly from all


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture(scope="module")
def op_db(torch):
    pytest.importorskip("expecttest", reason="PyTorch's samples need the package expecttest")
    from torch.testing._internal.common_methods_invocations import op_db

    return {f"{op.name} {op.variant_test_name}".strip(): op for op in op_db}


# --- PyTorch's arguments, here -----------------------------------------------------------------------------


def axes(dim, x):
    dim = tuple(dim) if isinstance(dim, list) else dim
    return None if dim == () or not x.ndim else dim  # a number has one axis more in PyTorch


def reduction(f):
    def call(x, dim=None, keepdim=False, dtype=None):
        return f(x, axis=axes(dim, x), keepdims=keepdim)

    return call


def spread(f):
    def call(x, dim=None, unbiased=True, correction=None, keepdim=False):
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        return f(x, axis=axes(dim, x), keepdims=keepdim, ddof=int(unbiased) if correction is None else correction)

    return call


def cat(xs, dim=0):
    rank = max(x.ndim for x in xs)
    return ta.concatenate([x for x in xs if x.ndim == rank], dim)  # PyTorch lets empty vectors pass


def squeeze(x, dim=None):
    dims = range(x.ndim) if dim is None else dim if isinstance(dim, (tuple, list)) else (dim,)
    return ta.squeeze(x, tuple(d for d in dims if x.ndim and x.shape[d] == 1))


def split(x, size, dim=0):
    n = x.shape[dim]
    cuts = np.cumsum(size[:-1]).tolist() if isinstance(size, (list, tuple)) else list(range(size, n, size))
    return tuple(ta.split(x, cuts, dim))


def expand(x, shape):
    lead = len(shape) - x.ndim
    return ta.broadcast_to(x, tuple(x.shape[i - lead] if n == -1 else n for i, n in enumerate(shape)))


def layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
    return ta.layer_norm(x, weight, bias, eps) if len(shape) == 1 else NotImplemented


def rms_norm(x, shape, weight=None, eps=None):
    return ta.rms_norm(x, weight, np.finfo(float).eps if eps is None else eps) if len(shape) == 1 else NotImplemented


def cross_entropy(x, y, weight=None, reduction="mean", ignore_index=-100, label_smoothing=0.0):
    if weight is not None or reduction != "mean" or label_smoothing or isinstance(y, ta.Tensor):
        return NotImplemented
    if (y == ignore_index).all():
        return NotImplemented  # a ValueError here, by contract; NaN there
    order = (0, *range(2, x.ndim), 1) if x.ndim > 1 else (0,)  # the classes are its second axis there, its last here
    return ta.cross_entropy(x.transpose(order), y, ignore_index)


def attention(Q, K, V, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if dropout_p or enable_gqa or (is_causal and Q.shape[-2] != K.shape[-2]):
        return NotImplemented
    mask = ta.causal_mask(Q.shape[-2], K.shape[-2]) if is_causal else attn_mask
    return ta.scaled_dot_product_attention(Q, K, V, mask, scale=scale)


def embedding(table, ids, padding_idx=None, max_norm=None, scale_grad_by_freq=False):
    plain = not scale_grad_by_freq and max_norm is None and padding_idx is None
    return ta.embedding(ids, table) if plain else NotImplemented


def scaled(f):
    return lambda x, y, alpha=1: f(x, y if alpha == 1 else y * alpha)


OPS = {  # PyTorch's name, and its variant: the same here, with PyTorch's arguments
    **{
        name: getattr(ta, name)
        for name in ("abs", "cos", "erf", "exp", "expm1", "log", "log1p", "matmul", "maximum", "minimum", "outer")
    },
    **{name: getattr(ta, name) for name in ("positive", "ravel", "sigmoid", "sign", "sin", "sqrt", "square", "tanh")},
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "__getitem__": lambda x, index: x[index],
    "__radd__": lambda x, y: y + x,
    "__rdiv__": lambda x, y: y / x,
    "__rmatmul__": lambda x, y: y @ x,
    "__rmul__": lambda x, y: y * x,
    "__rpow__": lambda x, y: y**x,
    "__rsub__": lambda x, y: y - x,
    "add": scaled(ta.add),
    "amax": reduction(ta.max),
    "amin": reduction(ta.min),
    "bmm": ta.matmul,
    "broadcast_to": ta.broadcast_to,
    "cat": cat,
    "clamp": lambda x, min=None, max=None: ta.clip(x, min, max),
    "cumsum": lambda x, dim, dtype=None: ta.cumsum(x, dim) if x.ndim else +x,
    "div no_rounding_mode": lambda x, y, rounding_mode=None: x / y,
    "dot": ta.dot,
    "einsum": lambda xs, subscripts: ta.einsum(subscripts, *xs),
    "expand": expand,
    "flip": lambda x, dims: ta.flip(x, dims),
    "log_softmax": lambda x, dim, dtype=None: ta.log_softmax(x, dim),
    "logsumexp": reduction(ta.logsumexp),
    "masked_fill": ta.masked_fill,
    "max binary": ta.maximum,
    "max reduction_no_dim": ta.max,
    "mean": reduction(ta.mean),
    "min binary": ta.minimum,
    "min reduction_no_dim": ta.min,
    "mm": ta.matmul,
    "mul": ta.multiply,
    "mv": ta.matmul,
    "neg": ta.negative,
    "nn.functional.cross_entropy": cross_entropy,
    "nn.functional.embedding": embedding,
    "nn.functional.gelu": lambda x, approximate="none": ta.gelu(x, approximate),
    "nn.functional.layer_norm": layer_norm,
    "nn.functional.linear": ta.linear,
    "nn.functional.relu": ta.relu,
    "nn.functional.rms_norm": rms_norm,
    "nn.functional.scaled_dot_product_attention": attention,
    "permute": lambda x, *dims: ta.transpose(x, dims[0] if len(dims) == 1 else dims),
    "pow": ta.power,
    "prod": reduction(ta.prod),
    "repeat_interleave": lambda x, repeats, dim=None, output_size=None: ta.repeat(x, repeats, dim),
    "reshape": ta.reshape,
    "roll": lambda x, shifts, dims=None: ta.roll(x, shifts, None if dims == () else dims),
    "rsub": lambda x, y, alpha=1: y - x * alpha,
    "softmax": lambda x, dim, dtype=None: ta.softmax(x, dim),
    "split": split,
    "split list_args": split,
    "squeeze": squeeze,
    "squeeze multiple": squeeze,
    "stack": lambda xs, dim=0: ta.stack(list(xs), dim),
    "std": spread(ta.std),
    "std unbiased": spread(ta.std),
    "sub": scaled(ta.subtract),
    "sum": reduction(ta.sum),
    "tile": ta.tile,
    "transpose": lambda x, a, b: ta.swapaxes(x, a, b) if x.ndim else +x,
    "true_divide": ta.divide,
    "unsqueeze": ta.expand_dims,
    "var": spread(ta.var),
    "var unbiased": spread(ta.var),
    "where": lambda x, condition, y: ta.where(condition, x, y),
}


# --- the samples -------------------------------------------------------------------------------------------


def converted(value, of_tensor):
    """A sample's argument with its tensors replaced."""
    if type(value).__name__ == "Tensor":
        return of_tensor(value)
    if isinstance(value, dict):
        return {k: converted(x, of_tensor) for k, x in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [converted(x, of_tensor) for x in value]
        return parts if isinstance(value, list) else tuple(parts)
    return value


def samples_of(op, torch):
    """All of its samples, or every k-th; PyTorch cannot make the reference samples of a few ops."""
    torch.manual_seed(0)
    found = list(op.sample_inputs("cpu", torch.float64, requires_grad=True))
    if len(found) < MOST:
        with contextlib.suppress(ValueError):
            found += itertools.islice(op.reference_inputs("cpu", torch.float64, requires_grad=True), MOST)
    return found[:: max(1, len(found) // MOST)]


def run(function, sample, of_tensor):
    """(the results, the leaves) of a function called on a sample, whose tensors of floats became leaves."""
    leaves = []

    def replaced(x):
        new = of_tensor(x)
        if x.is_floating_point():
            leaves.append(new)
        return new

    arguments = converted((sample.input, *sample.args), replaced), converted(dict(sample.kwargs), replaced)
    out = function(*arguments[0], **arguments[1])
    return ([out] if hasattr(out, "shape") else out), leaves


def here(x):
    return ta.Tensor(x.detach().numpy(), requires_grad=True) if x.is_floating_point() else x.numpy()


def there(x):
    return x.detach().requires_grad_() if x.is_floating_point() else x


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPS)
def test_an_op_on_pytorch_s_samples(name, torch, op_db):
    checked = 0
    for sample in samples_of(op_db[name], torch):
        found, ours = run(OPS[name], sample, here)
        if found is NotImplemented or not ours:  # not ours to give; or numbers alone, which PyTorch makes float32
            continue
        cotangents = [np.random.default_rng(i).normal(size=y.shape) for i, y in enumerate(found)]
        try:
            expected, theirs = run(op_db[name].op, sample, there)
            right = torch.autograd.grad(expected, theirs, [torch.tensor(c) for c in cotangents], allow_unused=True)
        except RuntimeError:
            continue  # PyTorch itself cannot
        if any(np.isnan(x.numpy()).any() for x in ours):
            continue
        told = {"err_msg": str(sample)}
        for y, z in zip(found, expected, strict=True):
            np.testing.assert_allclose(y.numpy(), z.detach().numpy(), rtol=1e-10, atol=1e-12, **told)
        joined = ta.concatenate([y.reshape(-1) for y in found])
        cotangent = np.concatenate([c.reshape(-1) for c in cotangents])
        for x, g, z in zip(ours, ta.grad(joined, ours, cotangent, materialize_grads=True), right, strict=True):
            z = np.zeros(x.shape) if z is None else z.numpy()
            known = np.isfinite(z)  # 0 where PyTorch has NaN: the slope of x ** y where that is 0
            np.testing.assert_allclose(g.numpy()[known], z[known], rtol=1e-8, atol=1e-10, **told)
        checked += 1
    assert checked
