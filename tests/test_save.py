"""Files: a round trip keeps every bit, and what is no such file is a clear error."""

import numpy as np
import pytest

import tinyattn as ta

SUFFIXES = [".npz", ".safetensors"]


@pytest.fixture(params=SUFFIXES)
def path(request, tmp_path):
    if request.param == ".safetensors":
        pytest.importorskip("safetensors")
    return tmp_path / f"model{request.param}"


def test_a_round_trip_keeps_names_shapes_dtypes_and_bits(path):
    rng = np.random.default_rng(0)
    state = {
        "a.weight": rng.normal(size=(3, 4)),
        "transposed": rng.normal(size=(3, 4)).T,
        "strided": rng.normal(size=(6, 4)).astype(np.float32)[::2],
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 3)),
        "counts": np.arange(5),
        "flags": np.array([True, False]),
        "special": np.array([np.nan, np.inf, -0.0, 5e-324]),
        "file": np.ones(2),
        "arr_0": np.zeros(1),
    }
    ta.save(state, path)
    back = ta.load(path)
    assert set(back) == set(state)
    for name, a in state.items():
        assert back[name].dtype == a.dtype
        assert back[name].shape == a.shape
        assert back[name].tobytes() == np.ascontiguousarray(a).tobytes()


def test_a_model_survives(path):
    model, other = (ta.nn.GPT(7, 5, 6, 2, 2, rng=seed).astype(np.float32) for seed in (0, 1))
    ta.save(model, path)
    other.load_state_dict(ta.load(path))
    ids = np.array([[1, 2, 3, 4]])
    np.testing.assert_array_equal(other(ids).numpy(), model(ids).numpy())


def test_a_dictionary_of_tensors_is_taken(path):
    ta.save({"w": ta.Tensor([1.0, 2.0], requires_grad=True)}, path)
    assert ta.load(path)["w"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b[: len(b) // 2],
        lambda b: b[:-1],
        lambda b: b"",
        lambda b: b"hello",
        lambda b: b"\x80\x04]q\x00.",
        lambda b: b[:60] + b"\xff" * 8 + b[68:],
    ],
)
def test_a_damaged_or_foreign_file_is_a_clear_error(path, damage):
    ta.save({"w": np.arange(100.0), "v": np.ones((3, 4))}, path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"cannot be read as \.(npz|safetensors): damaged"):
        ta.load(path)


def test_pickles_are_never_read_or_written(path, tmp_path):
    with pytest.raises(TypeError, match="'w' holds object"):
        ta.save({"w": np.array([object()])}, path)
    np.savez(tmp_path / "objects.npz", w=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="cannot be read"):
        ta.load(tmp_path / "objects.npz")
    np.save(tmp_path / "one.npy", np.ones(3))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    with pytest.raises(ValueError, match="cannot be read"):
        ta.load(tmp_path / "one.npz")


def test_a_failed_save_leaves_the_old_file_and_no_other(path):
    ta.save({"w": np.ones(2)}, path)
    old = path.read_bytes()
    with pytest.raises(TypeError):
        ta.save({"w": np.zeros(2), "x": "text"}, path)
    with pytest.raises(UnicodeEncodeError):
        ta.save({"w": np.zeros(2), "\ud800": np.ones(2)}, path)  # fails while it is written
    assert path.read_bytes() == old
    assert list(path.parent.iterdir()) == [path]


def test_the_suffix_chooses_the_format(tmp_path):
    for name in "model", "model.pkl", "model.pt", "model.npz.txt":
        with pytest.raises(ValueError, match=r"\.npz .*or \.safetensors"):
            ta.save({"w": np.ones(2)}, tmp_path / name)
        with pytest.raises(ValueError, match=r"\.npz .*or \.safetensors"):
            ta.load(tmp_path / name)


def test_a_file_that_is_not_there(path):
    with pytest.raises(FileNotFoundError, match="is not there"):
        ta.load(path)
