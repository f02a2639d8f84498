"""NumPy's short names: its values, as function, as method and as np.f(tensor), with first and second derivatives."""

import numpy as np
import pytest
from test_ops import check, values

import tinyattn as ta

X, V, Y = values((2, 3, 4)), values((4,), 1), values((4, 5), 2)
CASES = {
    "square": [(X,), {}],
    "std": [(X,), {}],
    "std axis": [(X, 1), {"keepdims": True}],
    "std ddof": [(X, (0, -1)), {"ddof": 1}],
    "var ddof": [(X, 2), {"ddof": 1}],
    "var ddof all": [(X,), {"ddof": 2}],
    "clip": [(X, -0.5, 0.6), {}],
    "clip below": [(X, None, 0.3), {}],
    "clip above": [(X, 0.3, None), {}],
    "cumsum": [(X, 1), {}],
    "cumsum flat": [(X,), {}],
    "cumsum last": [(X, -1), {}],
    "flip": [(X,), {}],
    "flip axis": [(X, -1), {}],
    "flip axes": [(X, (0, 2)), {}],
    "roll": [(X, 2, 1), {}],
    "repeat": [(X, 2), {}],
    "repeat axis": [(X, 2, 1), {}],
    "repeat counts": [(X, (0, 1, 2), 1), {}],
    "tile": [(X, 2), {}],
    "tile axes": [(X, (2, 1, 3)), {}],
    "tile more axes": [(X, (2, 3, 1, 1)), {}],
    "outer": [(V, values((3,), 3)), {}],
    "outer of matrices": [(Y, V), {}],
    "dot": [(V, values((4,), 3)), {}],
    "dot of matrices": [(values((3, 4), 3), Y), {}],
    "dot of a matrix and a vector": [(X, V), {}],
    "dot over more axes": [(values((2, 3), 5), values((5, 2, 3, 4), 4)), {}],
    "dot of a number": [(np.array(2.0), V), {}],
    "ravel": [(X,), {}],
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_derivatives(case):
    args, options = CASES[case]
    name = case.split()[0]
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    rest = args[len(arrays) :]
    expected = getattr(np, name)(*args, **options)
    ours = getattr(ta, name)(*args, **options)
    through = getattr(np, name)(*map(ta.Tensor, arrays), *rest, **options)
    for found in (ours, through):
        assert isinstance(found, ta.Tensor)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    if hasattr(np.ndarray, name):
        np.testing.assert_allclose(
            getattr(ta.Tensor(args[0]), name)(*args[1:], **options).numpy(), expected, rtol=1e-12
        )
    check(lambda *xs: getattr(ta, name)(*xs, *rest, **options), *arrays)


def test_sign_has_a_gradient_of_zeros():
    x = ta.Tensor([-2.0, 0.0, 3.0], requires_grad=True)
    (ta.sign(x) * x).sum().backward()
    assert ta.sign(x).numpy().tolist() == np.sign(x).numpy().tolist() == [-1, 0, 1]
    assert x.grad.numpy().tolist() == [-1, 0, 1]


def test_small_numbers_are_exact():
    assert ta.log1p(1e-17).item() == ta.expm1(1e-17).item() == 1e-17


def test_whole_numbers_stay_whole():
    for found in (
        ta.cumsum([1, 2, 3]),
        ta.square([1, 2]),
        ta.clip([1, 9], 2, 5),
        ta.repeat([1, 2], 2),
        ta.roll([1, 2], 1),
    ):
        assert found.dtype.kind == "i"


def test_what_does_not_fit_is_refused():
    with pytest.raises(np.exceptions.AxisError):
        ta.flip(X, 3)
    with pytest.raises(ValueError, match=r"\(4,\).*\(3,\)"):
        ta.dot(V, values((3,), 3))
    with pytest.raises(TypeError, match="axis="):
        ta.std(X, dim=0)
    with pytest.raises(TypeError, match="ddof="):
        ta.Tensor(X).std(unbiased=True)
