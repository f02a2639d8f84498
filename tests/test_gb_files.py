"""Cases from use, by id: files. Every flipped bit, every name, several writers, saves that are killed."""

import io
import os
import pathlib
import signal
import stat
import subprocess
import sys
import threading
import time
import zipfile

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import files

STATE = {"weight": np.arange(6.0).reshape(2, 3), "b": np.array([1, 2], np.int8)}


def same(a, b):
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and a[k].shape == b[k].shape and a[k].tobytes() == b[k].tobytes() for k in a
    )


# --- GB-14: damage --------------------------------------------------------------------------------------


def test_gb_14_a_header_that_ends_early_is_damage(tmp_path):
    path = tmp_path / "m.npz"
    ta.save({"weight": np.arange(1200.0).reshape(30, 40)}, path)
    data = bytearray(path.read_bytes())
    data[data.index(b"NUMPY") + 7] ^= 2
    path.write_bytes(data)
    with pytest.raises(ValueError, match="damaged"):
        ta.load(path)


@pytest.mark.parametrize("kind", ["saved", "of NumPy", "compressed"])
def test_gb_14_every_flipped_bit_is_found_or_harmless(kind, tmp_path):
    path = tmp_path / "m.npz"
    if kind == "saved":
        ta.save({"ü": np.arange(2.0), "b": np.int8(3)}, path)
    else:
        (np.savez if kind == "of NumPy" else np.savez_compressed)(path, **STATE)
    data, right = path.read_bytes(), ta.load(path)
    found = 0
    step = 5 if kind == "saved" else 11
    for bit in range(0, len(data) * 8, step):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            back = ta.load(path)
        except ValueError:
            found += 1
        else:
            assert same(back, right), f"bit {bit} of {len(data) * 8}"
    if kind == "saved":  # but for the checksum's own mark
        assert found >= 8 * (len(data) - len(files.TAG) - 2) // step


@pytest.mark.parametrize(
    "change", [lambda b: b[:-1], lambda b: b + b"x", lambda b: b"x" + b, lambda b: b[:50] + b[51:]]
)
def test_gb_14_bytes_lost_or_added(change, tmp_path):
    path = tmp_path / "m.npz"
    ta.save(STATE, path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match="damaged"):
        ta.load(path)


def test_gb_14_numpy_reads_what_is_saved_and_the_other_way(tmp_path):
    ta.save(STATE, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as file:
        assert same(dict(file), STATE)
    np.savez_compressed(tmp_path / "b.npz", **STATE)
    assert same(ta.load(tmp_path / "b.npz"), STATE)
    with zipfile.ZipFile(tmp_path / "c.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(ValueError, match=r"readme\.txt"):
        ta.load(tmp_path / "c.npz")


# --- names, dtypes, containers --------------------------------------------------------------------------

NAMES = [
    "",
    "a/b",
    "/a",
    "../a",
    "file",
    "arr_0",
    "a",
    "a.npy",
    "a.npy.npy",
    "ä €",
    "日本",
    " ",
    ".",
    "a\\b",
    "a\nb",
    "x" * 300,
]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_names_that_are_taken_come_back(suffix, tmp_path):
    if suffix == ".safetensors":
        pytest.importorskip("safetensors")
    state = {name: np.array([i]) for i, name in enumerate(NAMES)}
    ta.save(state, tmp_path / f"m{suffix}")
    assert same(ta.load(tmp_path / f"m{suffix}"), state)
    assert [p.name for p in tmp_path.iterdir()] == [f"m{suffix}"]
    bad = "a\0b" if suffix == ".npz" else "__metadata__"
    with pytest.raises(ValueError, match="cannot be kept"):
        ta.save({bad: np.ones(1)}, tmp_path / f"m{suffix}")
    assert same(ta.load(tmp_path / f"m{suffix}"), state)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_layouts_and_byte_orders_come_back_as_values(suffix, tmp_path):
    if suffix == ".safetensors":
        pytest.importorskip("safetensors")
    x = np.arange(24.0).reshape(4, 6)
    state = {"swapped": x.astype(">f8"), "strided": x[::-2, ::3], "fortran": np.asfortranarray(x), "scalar": x[1, 1]}
    ta.save(state | {"list": [1, 2], "number": 2.5, "tensor": ta.Tensor(x)}, tmp_path / f"m{suffix}")
    back = ta.load(tmp_path / f"m{suffix}")
    for name, a in state.items():
        np.testing.assert_array_equal(back[name], a)
    assert back["swapped"].dtype == np.float64
    assert back["list"].tolist() == [1, 2] and back["number"] == 2.5


@pytest.mark.parametrize("state", [None, 5, "text", [np.ones(2)], {1: np.ones(2)}, {"a": "b"}, {"a": [[1], [2, 3]]}])
def test_what_is_no_state_is_refused_before_anything_is_written(state, tmp_path):
    with pytest.raises((TypeError, ValueError)):
        ta.save(state, tmp_path / "m.npz")
    with pytest.raises(TypeError, match="masked"):
        ta.save({"a": np.ma.masked_array([1.0, 2.0], [True, False])}, tmp_path / "m.npz")
    assert list(tmp_path.iterdir()) == []


def test_bfloat16_is_read_as_float32_and_other_dtypes_are_named(tmp_path):
    library = pytest.importorskip("safetensors")
    x = np.array([1.0, -2.5, 3.0e38, 0.0, np.inf, 2.0**-130], np.float32)
    upper = (x.view(np.uint32) >> 16).astype("<u2")
    import json

    for dtype, data, shape in ("BF16", upper, [2, 3]), ("F8_E4M3", np.zeros(6, np.uint8), [6]):
        header = json.dumps({"w": {"dtype": dtype, "shape": shape, "data_offsets": [0, data.nbytes]}}).encode()
        header += b" " * (-len(header) % 8)
        path = tmp_path / "m.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header + data.tobytes())
        if dtype == "BF16":
            back = ta.load(path)["w"]
            assert back.dtype == np.float32
            np.testing.assert_array_equal(back, (upper.astype(np.uint32) << 16).view(np.float32).reshape(2, 3))
            np.testing.assert_allclose(back.ravel()[:3], x[:3], rtol=2**-7)
        else:
            with pytest.raises(ValueError, match="F8_E4M3"):
                ta.load(path)
    assert library


# --- GB-15: several writers; kills; permissions ---------------------------------------------------------


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_gb_15_two_threads_may_save_to_one_path(suffix, tmp_path):
    if suffix == ".safetensors":
        pytest.importorskip("safetensors")
    path, errors, seen = tmp_path / f"t{suffix}", [], set()

    def write(j):
        try:
            for _ in range(12):
                ta.save({"w": np.full(20_000, float(j))}, path)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(j,)) for j in (1, 2, 3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if path.exists():
            values = np.unique(ta.load(path)["w"])
            assert len(values) == 1
            seen.add(values.item())
    assert not errors
    assert np.unique(ta.load(path)["w"]).size == 1
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_gb_15_two_processes_may_save_to_one_path(tmp_path):
    code = (
        "import sys, numpy as np, tinyattn as ta\n"
        "for _ in range(10): ta.save({'w': np.full(20_000, float(sys.argv[2]))}, sys.argv[1])"
    )
    path = tmp_path / "p.npz"
    root = str(pathlib.Path(__file__).parents[1])
    jobs = [
        subprocess.Popen([sys.executable, "-c", code, str(path), str(j)], env=os.environ | {"PYTHONPATH": root})
        for j in (1, 2)
    ]
    assert [job.wait(timeout=120) for job in jobs] == [0, 0]
    assert np.unique(ta.load(path)["w"]).size == 1
    assert [p.name for p in tmp_path.iterdir()] == ["p.npz"]


@pytest.mark.skipif(not hasattr(os, "fork") or files.fcntl is None, reason="no fork, or no locks, on this system")
def test_gb_15_the_leftover_of_a_killed_save_is_cleared_and_one_in_use_is_not(tmp_path, monkeypatch):
    path = tmp_path / "m.npz"
    ta.save(STATE, path)
    child = os.fork()
    if not child:  # hangs while it writes
        monkeypatch.setattr(
            files, "_write_npz", lambda arrays, file: (file.write(b"half"), file.flush(), time.sleep(600))
        )
        ta.save(STATE, path)
    parts = []
    while not any(p.stat().st_size for p in parts):
        parts = list(tmp_path.glob(".tinyattn-*"))
        time.sleep(0.01)
    ta.save(STATE, path)
    assert parts[0].exists()  # it is being written
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert parts[0].exists()
    ta.save(STATE, path)
    assert [p.name for p in tmp_path.iterdir()] == ["m.npz"]
    assert same(ta.load(path), STATE)


@pytest.mark.skipif(os.name != "posix", reason="permissions as POSIX has them")
def test_permissions_and_links_are_kept(tmp_path):
    path, link = tmp_path / "m.npz", tmp_path / "latest.npz"
    ta.save(STATE, path)
    fresh = stat.S_IMODE(path.stat().st_mode)
    probe = tmp_path / "probe"
    probe.touch()
    assert fresh == stat.S_IMODE(probe.stat().st_mode)
    path.chmod(0o640)
    link.symlink_to(path.name)
    ta.save({"new": np.ones(1)}, link)
    assert link.is_symlink() and list(ta.load(path)) == ["new"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "m.npz"
    ta.save(STATE, path)
    for error in KeyboardInterrupt, OSError(28, "No space left on device"), MemoryError:

        def fail(arrays, file, error=error):
            file.write(b"half")
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(files, "_write_npz", fail)
            with pytest.raises(error if isinstance(error, type) else OSError):
                ta.save({}, path)
        assert same(ta.load(path), STATE)
        assert [p.name for p in tmp_path.iterdir()] == ["m.npz"]


@pytest.mark.parametrize("path", [5, None, b"m.npz", io.BytesIO()])
def test_paths_are_paths(path):
    for use in ta.load, lambda path: ta.save(STATE, path):
        with pytest.raises((TypeError, ValueError)):
            use(path)


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "m.npz").mkdir()
    with pytest.raises(FileNotFoundError, match="no file"):
        ta.load(tmp_path / "m.npz")
    with pytest.raises(IsADirectoryError):
        ta.save(STATE, tmp_path / "m.npz")
    assert [p.name for p in tmp_path.iterdir()] == ["m.npz"]


def test_numbers_beyond_the_parameters_range_are_not_loaded():
    layer = ta.nn.Linear(2, 1, rng=0).astype(np.float16)
    before = layer.state_dict()
    with pytest.raises(ValueError, match="weight"):
        layer.load_state_dict({"weight": np.array([[1e6, 0.0]]), "bias": np.zeros(1)})
    assert same(layer.state_dict(), before)
