"""Bad input by table: the arguments of the public functions, each in turn replaced by what people pass by mistake.

A call must give an answer, or raise ValueError, TypeError or IndexError (a RuntimeError for a graph that is not there,
a GradcheckError) with words of tinyattn's own; and it must leave its inputs as they were.
"""

import copy
import linecache
import math
import pathlib

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import interop, nn, optim

ROOT = str(pathlib.Path(ta.__file__).parent)
RNG = np.random.default_rng(0)
X, IDS = RNG.normal(size=(2, 4, 6)), RNG.integers(0, 6, (2, 4))
frozen = np.ones((2, 4, 6))
frozen.setflags(write=False)

VALUES = {
    "None": None,
    "a bool": True,
    "an int": 3,
    "0": 0,
    "-1": -1,
    "huge": 10**15,
    "beyond int64": 10**30,
    "-huge": -(10**30),
    "a float": 2.5,
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "-0.0": -0.0,
    "complex": 1j,
    "a string": "text",
    "bytes": b"text",
    "an object": object(),
    "a function": len,
    "a class": dict,
    "a dictionary": {"a": 1},
    "a set": {1, 2},
    "a list": [1, 2],
    "an empty list": [],
    "a ragged list": [[1], [2, 3]],
    "a list of strings": ["a", "b"],
    "a list of tensors": [ta.Tensor([1.0]), ta.Tensor([2.0])],
    "a list with None": [1.0, None],
    "0-d": np.array(2.0),
    "0-d int": np.array(2),
    "1-d": np.ones(6),
    "2-d": np.ones((4, 6)),
    "3-d": X,
    "5-d": np.ones((1, 1, 2, 4, 6)),
    "other width": np.ones((2, 4, 5)),
    "empty": np.zeros((0, 6)),
    "no features": np.zeros((2, 4, 0)),
    "integers": IDS,
    "negative integers": -IDS - 1,
    "int8": IDS.astype(np.int8),
    "uint64": np.full((2, 4), 2**63, np.uint64),
    "booleans": X > 0,
    "a mask": np.tril(np.ones((4, 4), bool)),
    "float16": X.astype(np.float16),
    "long double": X.astype(np.longdouble),
    "complex array": X.astype(complex),
    "object array": X.astype(object),
    "string array": X.astype(str),
    "dates": np.array(["2020-01-01"], "datetime64[D]"),
    "structured": np.zeros(3, "i4,f8"),
    "nans": np.full((2, 4, 6), np.nan),
    "infs": np.full((2, 4, 6), np.inf),
    "strided": np.ones((4, 8, 12))[::2, ::2, ::2],
    "read-only": frozen,
    "byte-swapped": X.astype(">f8"),
    "masked": np.ma.masked_array(X, X > 0),
    "a matrix": np.ones((4, 6)).view(np.matrix),
    "a tensor": ta.Tensor(X),
    "a tensor that requires gradients": ta.Tensor(X, requires_grad=True),
    "an integer tensor": ta.Tensor(IDS),
    "a module": nn.Linear(6, 6, rng=0),
    "a range": range(3),
    "a Generator of NumPy": np.random.default_rng(0),
}


def leaves():
    p = ta.Tensor([1.0, 2.0], requires_grad=True)
    p.grad = np.array([0.5, 0.25])
    return [p]


def optimizer_step(lr):
    optimizer = optim.SGD(leaves(), 0.1)
    optimizer.lr = lr
    optimizer.step()


LAYER = {
    "Linear": nn.Linear(6, 3, rng=0),
    "Embedding": nn.Embedding(6, 3, rng=0),
    "LayerNorm": nn.LayerNorm(6),
    "RMSNorm": nn.RMSNorm(6),
    "Dropout": nn.Dropout(0.5, rng=0),
    "FeedForward": nn.FeedForward(6, rng=0),
    "SwiGLU": nn.SwiGLU(6, 4, rng=0),
    "LearnedPositions": nn.LearnedPositions(5, 6, rng=0),
    "MultiHeadAttention": nn.MultiHeadAttention(6, 2, rng=0),
    "grouped": nn.MultiHeadAttention(6, 3, num_kv_heads=1, rotary=10.0, rng=0),
    "TransformerBlock": nn.TransformerBlock(6, 2, rng=0),
    "cross": nn.TransformerBlock(6, 2, cross=True, rng=0),
    "GPT": nn.GPT(6, 8, 6, 2, 1, rng=0),
    "RNN": nn.RNN(6, 3, rng=0),
    "GRU": nn.GRU(6, 3, rng=0),
}
M = np.tril(np.ones((4, 4), bool))
STATE = LAYER["Linear"].state_dict()

S, SQUARE, NUMBERS = ta.Tensor(X, requires_grad=True), np.ones((4, 4)), (2, 4, 6)
GRAPH = ta.softmax(2 * ta.Tensor(SQUARE, requires_grad=True)).sum()


def graph():
    return ta.softmax(2 * ta.Tensor(SQUARE, requires_grad=True)).sum()


def named(names):
    return [(name, getattr(ta, name)) for name in names.split()]


# name: (function, its arguments, all right); each argument is spoilt in turn
CALLS = {
    "linear": (ta.linear, {"x": X, "weight": np.ones((3, 6)), "bias": np.ones(3)}),
    "embedding": (ta.embedding, {"ids": IDS, "weight": np.ones((6, 3))}),
    "dropout": (ta.dropout, {"x": X, "p": 0.5, "training": True, "rng": 0}),
    "gelu": (ta.gelu, {"x": X, "approximate": "none"}),
    "erf": (ta.erf, {"x": X}),
    "layer_norm": (ta.layer_norm, {"x": X, "weight": np.ones(6), "bias": np.ones(6), "eps": 1e-5}),
    "rms_norm": (ta.rms_norm, {"x": X, "weight": np.ones(6), "eps": 1e-5}),
    "rotary": (ta.rotary, {"x": X, "start": 0, "base": 10.0}),
    "cross_entropy": (ta.cross_entropy, {"logits": X, "targets": IDS, "ignore_index": -100}),
    "attention": (ta.scaled_dot_product_attention, {"Q": X, "K": X, "V": X, "mask": M, "scale": 0.5, "dropout": 0.1}),
    "fused": (ta.fused_attention, {"Q": X, "K": X, "V": X, "mask": M, "scale": 0.5, "rng": 0}),
    "causal_mask": (ta.causal_mask, {"n": 3, "m": 4}),
    "padding_mask": (ta.padding_mask, {"lengths": [1, 2], "m": 3}),
    "sliding_window_mask": (ta.sliding_window_mask, {"n": 3, "window": 2, "m": 4}),
    "Linear()": (nn.Linear, {"in_features": 2, "out_features": 3, "rng": 0}),
    "Embedding()": (nn.Embedding, {"num_embeddings": 2, "embedding_dim": 3, "std": 1.0, "rng": 0}),
    "LayerNorm()": (nn.LayerNorm, {"d_model": 2, "eps": 1e-5}),
    "RMSNorm()": (nn.RMSNorm, {"d_model": 2, "eps": 1e-5}),
    "Dropout()": (nn.Dropout, {"p": 0.5, "rng": 0}),
    "FeedForward()": (nn.FeedForward, {"d_model": 2, "d_ff": 3, "dropout": 0.1, "rng": 0}),
    "SwiGLU()": (nn.SwiGLU, {"d_model": 2, "d_ff": 3, "rng": 0}),
    "LearnedPositions()": (nn.LearnedPositions, {"context": 2, "d_model": 3, "rng": 0}),
    "sinusoidal_positions": (nn.sinusoidal_positions, {"n": 3, "d_model": 4}),
    "MultiHeadAttention()": (
        nn.MultiHeadAttention,
        {"d_model": 4, "num_heads": 2, "num_kv_heads": 1, "dropout": 0.1, "rotary": 10.0, "rng": 0},
    ),
    "TransformerBlock()": (nn.TransformerBlock, {"d_model": 4, "num_heads": 2, "dropout": 0.1, "rng": 0}),
    "GPT()": (
        nn.GPT,
        {"vocab_size": 3, "context": 4, "d_model": 4, "num_heads": 2, "num_layers": 1, "dropout": 0.1, "rng": 0},
    ),
    "RNN()": (nn.RNN, {"d_in": 2, "d_hidden": 3, "rng": 0}),
    "GRU()": (nn.GRU, {"d_in": 2, "d_hidden": 3, "rng": 0}),
    **{f"{name}(x)": (LAYER[name], {"x": X}) for name in LAYER if name not in ("Embedding", "GPT", "cross")},
    "Embedding(ids)": (LAYER["Embedding"], {"ids": IDS}),
    "LearnedPositions(start)": (LAYER["LearnedPositions"], {"x": X, "start": 0}),
    "mha": (LAYER["MultiHeadAttention"], {"x": X, "context": X, "mask": M}),
    "grouped mha": (LAYER["grouped"], {"x": X, "mask": M, "cache": nn.KVCache()}),
    "block": (LAYER["TransformerBlock"], {"x": X, "mask": M, "cache": nn.KVCache()}),
    "cross block": (LAYER["cross"], {"x": X, "context": X, "mask": M, "context_mask": M}),
    "GPT(ids)": (LAYER["GPT"], {"ids": IDS, "padding": [1, 0], "cache": nn.KVCache()}),
    "RNN(x, h)": (LAYER["RNN"], {"x": X, "h": np.zeros((2, 3))}),
    "GRU(x, h)": (LAYER["GRU"], {"x": X, "h": np.zeros((2, 3))}),
    "generate": (
        LAYER["GPT"].generate,
        {"ids": IDS, "max_new_tokens": 1, "temperature": 1.0, "top_k": 2, "padding": [0, 1], "rng": 0},
    ),
    "load_state_dict": (LAYER["Linear"].load_state_dict, {"state": STATE}),
    "load_state_dict weight": (
        lambda weight: nn.Linear(6, 3, rng=0).load_state_dict(STATE | {"weight": weight}),
        {"weight": STATE["weight"]},
    ),
    "astype": (lambda dtype: nn.Linear(6, 3, rng=0).astype(dtype), {"dtype": np.float32}),
    "select": (nn.KVCache().select, {"rows": [0]}),
    "SGD": (optim.SGD, {"params": leaves(), "lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
    "Adam": (optim.Adam, {"params": leaves(), "lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8}),
    "AdamW": (optim.AdamW, {"params": leaves(), "lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1}),
    "step": (optimizer_step, {"lr": 0.1}),
    "clip_grad_norm": (optim.clip_grad_norm, {"params": leaves(), "max_norm": 10.0}),
    "warmup_cosine": (optim.warmup_cosine, {"step": 1, "total": 5, "warmup": 2, "final": 0.1}),
    "optimizer.load_state_dict": (optim.Adam(leaves()).load_state_dict, {"state": optim.Adam(leaves()).state_dict()}),
    "steps": (lambda steps: optim.Adam(leaves()).load_state_dict({"lr": 0.1, "steps": steps}), {"steps": [0]}),
    "state_from_torch": (interop.state_from_torch, {"state": {"w": X}}),
    "state_from_torch w": (lambda w: interop.state_from_torch({"in_proj_weight": w}), {"w": np.ones((3, 1))}),
    "state_to_torch": (interop.state_to_torch, {"state": {"w": X}}),
    "mask_from_mha": (
        interop.mask_from_mha,
        {"attn_mask": M, "key_padding_mask": np.zeros((2, 4), bool), "num_heads": 1},
    ),
    "mask_from_huggingface": (interop.mask_from_huggingface, {"attention_mask": np.ones((2, 4), int)}),
    "mask_from_flash": (interop.mask_from_flash, {"n": 3, "m": 4, "window_size": (1, 0)}),
    "load": (ta.load, {"path": "missing.npz"}),
    # --- ops and tensors
    **{
        name: (f, {"x": X})
        for name, f in named(
            "negative positive exp log sqrt log1p expm1 square sign sin cos tanh sigmoid relu absolute ravel transpose"
        )
    },
    **{name: (f, {"x": X, "y": X}) for name, f in named("add subtract multiply divide power maximum minimum")},
    **{name: (f, {"x": X, "axis": 1, "keepdims": True}) for name, f in named("sum mean max min prod logsumexp")},
    **{name: (f, {"x": X, "axis": 1, "keepdims": True, "ddof": 1}) for name, f in named("var std")},
    **{name: (f, {"x": X, "axis": 1}) for name, f in named("softmax log_softmax cumsum flip")},
    "matmul": (ta.matmul, {"x": SQUARE, "y": SQUARE}),
    "dot": (ta.dot, {"x": SQUARE, "y": SQUARE}),
    "outer": (ta.outer, {"x": SQUARE, "y": SQUARE}),
    "einsum": (lambda subscripts, x: ta.einsum(subscripts, x, SQUARE), {"subscripts": "ij,jk->ik", "x": SQUARE}),
    "where": (ta.where, {"condition": X > 0, "x": X, "y": X}),
    "masked_fill": (ta.masked_fill, {"x": X, "mask": X > 0, "value": 1.0}),
    "clip": (ta.clip, {"x": X, "a_min": -1.0, "a_max": 1.0}),
    "reshape": (ta.reshape, {"x": X, "shape": (6, 8)}),
    "broadcast_to": (ta.broadcast_to, {"x": X, "shape": (3, 2, 4, 6)}),
    "transpose axes": (ta.transpose, {"x": X, "axes": (0, 2, 1)}),
    "swapaxes": (ta.swapaxes, {"x": X, "axis1": 0, "axis2": 1}),
    "expand_dims": (ta.expand_dims, {"x": X, "axis": 0}),
    "squeeze axis": (ta.squeeze, {"x": X[:, :1], "axis": 1}),
    "roll": (ta.roll, {"x": X, "shift": 1, "axis": 0}),
    "repeat": (ta.repeat, {"x": X, "repeats": 2, "axis": 0}),
    "tile": (ta.tile, {"x": X, "reps": 2}),
    "split": (ta.split, {"x": X, "sections": 2, "axis": 0}),
    "concatenate": (ta.concatenate, {"arrays": [X, X], "axis": 1}),
    "concatenate of": (lambda x: ta.concatenate([X, x]), {"x": X}),
    "stack": (ta.stack, {"arrays": [X, X], "axis": 1}),
    "stack of": (lambda x: ta.stack([X, x]), {"x": X}),
    "ta.astype": (ta.astype, {"x": X, "dtype": np.float32}),
    "t.astype": (S.astype, {"dtype": np.float32}),
    "getitem": (lambda index: S[index], {"index": 0}),
    "getitem pair": (lambda index: S[0, index], {"index": 0}),
    "t @ x": (lambda x: ta.Tensor(SQUARE, requires_grad=True) @ x, {"x": SQUARE}),
    "t + x": (lambda x: S + x, {"x": X}),
    "x / t": (lambda x: x / S, {"x": X}),
    "t ** x": (lambda x: S**x, {"x": 2.0}),
    "t == x": (lambda x: x == S, {"x": X}),
    "t < x": (lambda x: x > S, {"x": X}),
    "Tensor": (ta.Tensor, {"data": X, "requires_grad": True}),
    "Tensor name": (lambda name: ta.Tensor(X, name=name), {"name": "a"}),
    "t.data": (lambda value: setattr(ta.Tensor(X), "data", value), {"value": X}),
    "t.grad": (lambda value: setattr(ta.Tensor(X, requires_grad=True), "grad", value), {"value": X}),
    "backward": (lambda gradient: (S * 2.0).backward(gradient), {"gradient": X}),
    "ta.grad": (lambda **k: ta.grad(S * 2.0, **k), {"inputs": S, "grad_output": X}),
    "ta.grad of": (lambda output: ta.grad(output, S, X), {"output": S * 2.0}),
    "gradients": (lambda **k: ta.gradients(S * 2.0, **k), {"gradient": X}),
    "gradients of": (lambda output: ta.gradients(output, X), {"output": S * 2.0}),
    # --- efficient
    "flash_attention": (
        ta.efficient.flash_attention,
        {"Q": X, "K": X, "V": X, "causal": True, "mask": M, "scale": 0.5, "block_size": 2},
    ),
    "sliding_window_attention": (
        ta.efficient.sliding_window_attention,
        {"Q": X, "K": X, "V": X, "window": 2, "causal": True, "scale": 0.5},
    ),
    "block_sparse_attention": (
        ta.efficient.block_sparse_attention,
        {"Q": X, "K": X, "V": X, "block_mask": np.ones((2, 2), bool), "block_size": 2, "scale": 0.5},
    ),
    "linear_attention": (
        ta.efficient.linear_attention,
        {
            "Q": X,
            "K": X,
            "V": X,
            "causal": True,
            "feature_map": ta.efficient.elu_plus_one,
            "key_mask": np.ones((2, 4), bool),
        },
    ),
    "linear_attention_step": (
        ta.efficient.linear_attention_step,
        {"q": X[0, 0], "k": X[0, 0], "v": X[0, 0], "state": np.ones((6, 7)), "feature_map": ta.exp},
    ),
    "elu_plus_one": (ta.efficient.elu_plus_one, {"x": X}),
    "attention dropout": (
        lambda **k: ta.scaled_dot_product_attention(X, X, X, **k),
        {"return_weights": True, "dropout": 0.1, "rng": 0},
    ),
    # --- checks and drawings
    "draw_graph": (
        lambda **k: ta.draw_graph(graph(), **k),
        {"show": "shapes", "direction": "TB", "depth": None, "fold": None, "title": "", "limits": None},
    ),
    "draw_graph of": (ta.draw_graph, {"output": GRAPH}),
    "draw_graph gradient": (
        lambda gradient: ta.draw_graph(graph(), show="gradients", gradient=gradient),
        {"gradient": 1.0},
    ),
    "explain": (lambda **k: ta.explain(graph(), **k), {"gradient": 1.0}),
    "explain of": (ta.explain, {"output": GRAPH}),
    "heatmap": (
        ta.heatmap,
        {
            "weights": np.ones((4, 6)),
            "row_labels": list("abcd"),
            "column_labels": list("abcdef"),
            "title": "t",
            "mark": [(0, 1)],
        },
    ),
    "show_mask": (ta.show_mask, {"mask": M}),
    "microscope": (
        ta.microscope,
        {
            "Q": X[0],
            "K": X[0],
            "V": X[0],
            "mask": M,
            "scale": 0.5,
            "row_labels": list("abcd"),
            "column_labels": list("abcd"),
            "gradient": X[0],
        },
    ),
    "gradcheck": (
        ta.gradcheck,
        {"f": ta.tanh, "inputs": X[0], "eps": 1e-6, "atol": 1e-7, "rtol": 1e-5, "raise_exception": True},
    ),
    "gradgradcheck": (
        ta.gradgradcheck,
        {"f": ta.tanh, "inputs": X[0, :1], "eps": 1e-6, "atol": 1e-7, "rtol": 1e-5, "raise_exception": True},
    ),
    "local_blocks": (ta.efficient.local_blocks, {"n": 3, "reach": 1}),
    "global_blocks": (ta.efficient.global_blocks, {"n": 3, "count": 1}),
    "random_blocks": (ta.efficient.random_blocks, {"n": 3, "count": 1, "rng": 0}),
    "bigbird_blocks": (ta.efficient.bigbird_blocks, {"n": 3, "rng": 0, "reach": 1, "count": 1, "random": 1}),
    "longformer_blocks": (ta.efficient.longformer_blocks, {"n": 3, "reach": 1, "count": 1}),
}


def outcome(function, arguments):
    """None for an answer, else what is wrong with the error: that its words are Python's or NumPy's, or its kind."""
    try:
        with np.errstate(all="ignore"):
            function(**arguments)
    except (ValueError, TypeError, IndexError, FileNotFoundError, RuntimeError, ta.GradcheckError) as error:
        trace = error.__traceback__
        while trace.tb_next:
            trace = trace.tb_next
        file, line = (
            trace.tb_frame.f_code.co_filename,
            linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno),
        )
        ours = file.startswith(ROOT) and line.strip().startswith("raise")
        return None if ours else f"{type(error).__name__}: {str(error)[:90]} ({pathlib.Path(file).name})"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:90]}"
    return None


def spoilt(name):
    function, right = CALLS[name]
    for argument in right:
        for what, value in VALUES.items():
            if isinstance(value, np.ndarray) and value.dtype == object:
                value = value.copy()
            if what == "huge" and argument in ("repeats", "reps"):
                continue  # a MemoryError, and rightly so
            yield f"{name}({argument}={what})", function, right | {argument: value}


def test_the_calls_are_right_as_they_stand():
    for name, (function, right) in CALLS.items():
        if name != "load":
            own = right if any(isinstance(x, ta.Tensor) for x in right.values()) else copy.deepcopy(right)
            function(**own)


@pytest.mark.filterwarnings("ignore")
def test_bad_input_is_answered_or_refused_in_our_own_words():
    raw, calls, changed = {}, 0, []
    arrays = [(what, v, v.copy()) for what, v in VALUES.items() if isinstance(v, np.ndarray) and v.dtype != object]
    states = {name: layer.state_dict() for name, layer in LAYER.items()}
    for name in CALLS:
        for call, function, arguments in spoilt(name):
            calls += 1
            problem = outcome(
                function, {k: nn.KVCache() if isinstance(v, nn.KVCache) else v for k, v in arguments.items()}
            )
            if problem:
                raw[call] = problem
        changed += [f"{name}: {what}" for what, v, was in arrays if v.tobytes() != was.tobytes()]
    assert not changed
    for name, layer in LAYER.items():
        assert all(np.array_equal(a, states[name][k]) for k, a in layer.state_dict().items()), name
    shown = "\n".join(f"{call}: {problem}" for call, problem in raw.items())
    print(shown)
    assert len(raw) <= 0.001 * calls, f"{len(raw)} of {calls}\n{shown}"
