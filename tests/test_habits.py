"""What users of PyTorch and NumPy type: it works, or one line says what it is here. And no graph is cut silently."""

import math
import subprocess
import sys

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import habits, nn, optim

SPACE = {"ta": ta, "nn": nn, "optim": optim, "np": np}
T = "t = ta.Tensor(np.arange(6.0).reshape(2, 3), requires_grad=True); "
X = "x = ta.Tensor(np.ones((2, 3, 4)), requires_grad=True); "
MHA = X + "mha = nn.MultiHeadAttention(4, 2); "

# what is typed, after what; and what the error names: None where it simply works
TYPED = [
    (T, "t.view(3, 2)", "reshape"),
    (T, "t.permute(1, 0)", "transpose"),
    (T, "t.unsqueeze(0)", r"expand_dims|t\[None\]"),
    (T, "t.size()", r"t\.shape"),
    (T, "t.size(0)", r"t\.shape"),
    (T, "t.dim()", r"t\.ndim"),
    (T, "t.numel()", r"t\.size"),
    (T, "t.t()", r"t\.T"),
    (T, "t.matmul(t.T)", "@"),
    (T, "t.clone()", r"\+t"),
    (T, "t.requires_grad_()", "requires_grad = True"),
    (T, "t.argmax()", r"np\.argmax"),
    (T, "t.cuda()", "only the CPU"),
    (T, "t.tolist()", "numpy"),
    (T, "t.add_(1)", "in place"),
    (T, "t.transposee()", "transpose"),
    (T, "t.backwards()", "backward"),
    (T, "t.concatenate([t])", r"ta\.concatenate"),
    (T + "(t * t).sum().backward(); ", "t.grad.zero_()", r"grad = None"),
    (T, "t.sum(dim=1)", "axis="),
    (T, "t.mean(axis=1, keepdim=True)", "keepdims="),
    (T, "t.sum(1, True)", None),
    (T, "t.reshape((3, 2)), t.reshape(3, -1), t.T, t.mT, len(t), t[None], abs(t), -t", None),
    (T, "ta.softmax(t, dim=-1)", "axis="),
    (T, "ta.softmax(input=t)", "without a name"),
    (T, "ta.cat([t, t])", r"ta\.concatenate"),
    (T, "ta.concatenate([t, t], dim=0)", "axis="),
    (T, "ta.stack([t, t], dim=0)", "axis="),
    (T, "ta.cross_entropy(t, [0, 1], reduction='sum')", "mean"),
    ("", "ta.tensor([1.0])", r"ta\.Tensor"),
    ("", "ta.randn(2, 3)", "default_rng"),
    ("", "ta.zeros(2, 3)", r"np\.zeros"),
    ("", "ta.manual_seed(0)", "default_rng"),
    ("", "ta.Linear(2, 3)", r"ta\.nn\.Linear"),
    ("", "ta.nn.softmax", r"ta\.softmax"),
    ("", "ta.Adam", r"ta\.optim\.Adam"),
    (T, "ta.attention(t, t, t)", r"ta\.scaled_dot_product_attention"),
    (T, "ta.masks(3)", r"ta\.causal_mask"),
    (T, "ta.optim([t])", r"ta\.optim\.SGD"),
    ("", "ta.sofmax", "softmax"),
    ("", "ta.float32", r"np\.float32"),
    ("", "ta.Tensor([1.0], dtype=np.float32)", "astype"),
    ("", "nn.Sequential(nn.Linear(2, 2))", "Module"),
    ("", "nn.MultiheadAttention(4, 2)", "MultiHeadAttention"),
    ("", "nn.multi_head_attention", "MultiHeadAttention"),
    ("", "nn.ModuleList", "list"),
    ("", "nn.Parameter(np.ones(2))", "requires_grad=True"),
    ("", "nn.CrossEntropyLoss()", "cross_entropy"),
    ("", "nn.MultiHeadAttention(embed_dim=4, num_heads=2)", "d_model="),
    ("", "nn.MultiHeadAttention(4, 2, batch_first=True)", "batch"),
    ("", "optim.RMSprop", "Adam"),
    (X, "ta.scaled_dot_product_attention(x, x, x, is_causal=True)", "causal_mask"),
    (X, "ta.scaled_dot_product_attention(x, x, x, attn_mask=None)", "mask="),
    (X, "ta.scaled_dot_product_attention(x, x, x, ta.causal_mask)", r"call it, as in causal_mask\(n\)"),
    (X, "ta.efficient.flash_attention(x, x, x, is_causal=True)", "causal=True"),
    (X, "ta.efficient.flash_attention(x, x, x, mask=ta.causal_mask)", r"causal_mask\(n\)"),
    (X, "x @ x.T", r"\.mT"),
    (X, "x @ x", r"\.mT"),
    (X, "x @ x.mT", None),
    (X, "x.transpose(1, 2)", r"swapaxes\(1, 2\)"),
    (X, "x.swapaxes(1, 2), x.transpose(0, 2, 1), x.transpose((0, 2, 1))", None),
    (MHA, "mha(x, x, x)", r"mha\(x\) is self"),
    (MHA, "mha(query=x, key=x, value=x)", r"mha\(x\) is self"),
    (MHA, "mha(x, ta.causal_mask(3))", "mask=mask"),
    (MHA, "mha(x, mask=ta.causal_mask)", r"causal_mask\(n\)"),
    (MHA, "mha(x, need_weights=True)", "return_weights="),
    (MHA, "mha(x, key_padding_mask=None)", "padding_mask"),
    (MHA, "mha.to('cpu')", "only the CPU"),
    (MHA, "mha.named_modules()", r"modules\(\)"),
    (MHA, "optim.SGD(mha, lr=0.1)", r"module\.parameters\(\)"),
    (MHA, "optim.Adam(mha.q_proj.weight)", r"\[tensor\]"),
    (MHA, "optim.Adam(mha.parameters(), learning_rate=0.1)", "lr="),
]


@pytest.mark.parametrize(("before", "typed", "named"), TYPED, ids=[typed for _, typed, _ in TYPED])
def test_gb_23_what_one_types_works_or_is_explained(before, typed, named):
    space = dict(SPACE)
    exec(before, space)
    if named is None:
        eval(typed, space)
        return
    with pytest.raises((AttributeError, TypeError, ValueError), match=named) as error:
        eval(typed, space)
    assert len(str(error.value)) < 320


def test_gb_23_with_no_grad_without_its_brackets():
    x = ta.Tensor(1.0, requires_grad=True)

    @ta.no_grad
    def plain():
        return x * 1

    @ta.no_grad()
    def called():
        return x * 1

    with ta.no_grad:
        assert not (x * 1).requires_grad
        with ta.no_grad():
            pass
        assert not (x * 1).requires_grad
    assert (x * 1).requires_grad and not plain().requires_grad and not called().requires_grad


def test_gb_23_names_that_are_explained_are_not_there():
    layer = nn.Linear(2, 2)
    for owner, table in ((ta.Tensor([1.0]), habits.TENSOR), (ta, habits.TOP), (nn, habits.NN), (optim, habits.OPTIM)):
        assert [name for name in table if hasattr(owner, name)] == []
    assert [name for name in habits.MODULE if hasattr(layer, name)] == []


def test_an_error_from_inside_a_function_is_left_alone():
    class Layer(nn.Module):
        def forward(self, x):
            return sorted(x, dim=1)

    with pytest.raises(TypeError) as error:
        Layer()([1])
    assert "axis=" not in str(error.value)


def test_gb_24_a_star_import_leaves_pythons_own_functions_alone():
    code = (
        "from tinyattn import *\n"
        "print(max(-5, 0), max(3, 5), sum(i for i in range(3)), abs(-2), min([3, 1]), Tensor([1.0]).max().item())\n"
        "print(softmax, scaled_dot_product_attention, nn, optim, check)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[:1] == ["0 5 3 2 1 1.0"], done.stderr
    assert ta.max([1.0, 2.0]).item() == 2 and {"max", "softmax", "check", "nn"} <= set(dir(ta))
    assert not {"Any", "annotations"} & set(dir(ta))


@pytest.mark.parametrize("symbol", ["+", "-", "*", "/", "**", "@"])
def test_gb_08_a_parameter_is_not_updated_in_place(symbol):
    p = ta.Tensor([1.0, 2.0], requires_grad=True)
    (p * p).sum().backward()
    for context in (ta.no_grad(), np.errstate()):
        with context, pytest.raises(TypeError, match=rf"p\.data {'[*][*]' if symbol == '**' else f'[{symbol}]'}="):
            exec(f"p {symbol}= 0.1 * p.grad")
    for q in nn.Linear(2, 2).parameters():
        with pytest.raises(TypeError, match=r"ta\.optim"):
            exec(f"q {symbol}= 1", {"q": q})
    p.data -= 0.1 * p.grad.numpy()
    assert p.numpy().tolist() == [0.8, 1.6]


def test_gb_08_a_name_of_a_computed_tensor_or_a_constant_may_move_on():
    x = ta.Tensor([1.0, 2.0], requires_grad=True)
    h = x * 2
    h += h * h
    h -= 1
    h.sum().backward()
    assert x.grad.numpy().tolist() == [10, 18]
    total = ta.Tensor(0.0)
    total += x.sum()
    assert total.item() == 3 and total.requires_grad


def test_gb_09_a_computed_tensor_is_not_wrapped_again():
    w = ta.Tensor([2.0], requires_grad=True)
    h = w * 3
    for wrap in (ta.Tensor, lambda x: ta.Tensor(x, requires_grad=True), lambda x: ta.Tensor(data=x, name="h")):
        with pytest.raises(TypeError, match=r"h\.detach\(\)"):
            wrap(h)
    assert ta.Tensor(h.detach()).item() == 6 and ta.Tensor(w).item() == 2  # a copy of a leaf is a leaf
    with ta.no_grad():
        assert ta.Tensor(w * 3).item() == 6


def test_results_that_have_no_gradient_are_refused():
    x = ta.Tensor([1.5, 2.5], requires_grad=True)
    for dtype in (int, bool, np.int32):
        with pytest.raises(TypeError, match=r"detach\(\)"):
            x.astype(dtype)
        with pytest.raises(TypeError, match=r"detach\(\)"):
            ta.astype(x * 2, dtype)
        assert x.detach().astype(dtype).dtype == dtype
    assert x.astype(np.float32).requires_grad
    with ta.no_grad():
        assert x.astype(int).numpy().tolist() == [1, 2]


def test_what_leaves_the_graph_as_a_number():
    """float(t) and t.item() say so; math.exp(t) and np.float64(t) cannot be told from float(t): the same method."""
    x = ta.Tensor(2.0, requires_grad=True)
    assert float(x) == x.item() == 2
    assert math.exp(x) == pytest.approx(np.exp(2)) and np.float64(x) == 2
    for convert in (np.asarray, np.float32, np.int64, np.atleast_1d):
        with pytest.raises(TypeError, match=r"numpy|gradient"):
            convert(x)
