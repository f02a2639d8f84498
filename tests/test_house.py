"""The house: rooms that are read in order, arrows that run one way, files of one idea, names and types that tell."""

import ast
import importlib
import inspect
import pathlib
import pydoc
import subprocess
import sys
import types

import pytest

import tinyattn as ta

ROOT = pathlib.Path(__file__).parents[1]
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "tinyattn").rglob("*.py"))
}

# Rooms of the package, as they are read. A room may use those before it and those on its own line.
FLOORS = [
    "text arguments habits",  # on which everything stands: what is printed, what a caller gives, names from elsewhere
    "graph values methods face modes refusals calling",
    "ops einsum erf",
    "functional",
    "gradcheck",
    "attention masks",
    "nn",
    "efficient",
    "optim files interop",
    "draw",
    "pretrained",
    "check",
    "__main__",
]


def imported(name):
    """The modules of the package that a module imports, anywhere in it: at the top, in functions, by import_module."""
    path = FILES[name]
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            found = [f"{module}.{a.name}" if f"{module}.{a.name}" in FILES else module for a in node.names]
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func) and node.args:
            found = [str(getattr(node.args[0], "value", ""))]
        else:
            continue
        yield from (m for m in found if m in FILES and m != name)


ARROWS = {name: set(imported(name)) for name in FILES}


def room(name):
    return name.removeprefix("tinyattn").strip(".").split(".")[0]


def test_the_walk_of_the_imports_sees_them():
    assert {"tinyattn.graph", "tinyattn.values"} <= ARROWS["tinyattn.ops"]
    assert "tinyattn.check" in ARROWS["tinyattn"]  # by import_module, in a function
    assert "tinyattn.nn.module" in ARROWS["tinyattn.nn.layers"]


def test_no_import_circle():
    arrows = {name: {m for m in ARROWS[name] if m != "tinyattn"} for name in ARROWS if name != "tinyattn"}
    while leaves := [name for name, out in arrows.items() if not out & arrows.keys()]:
        for name in leaves:
            del arrows[name]
    assert not arrows, f"these import each other: {sorted(arrows)}"


def test_no_arrow_runs_up_the_reading_order():
    floors = {name: i for i, floor in enumerate(FLOORS) for name in floor.split()}
    rooms = {room(name) for name in FILES} - {""}
    assert rooms <= floors.keys(), f"on which floor are {rooms - floors.keys()}?"
    up = [
        (name, m)
        for name in FILES
        for m in ARROWS[name]
        if room(name) and room(m) and floors[room(m)] > floors[room(name)]
    ]
    assert not up
    inside = [name for name in FILES if room(name) not in ("", "check", "__main__") and "tinyattn" in ARROWS[name]]
    assert not inside, f"{inside} import the whole package"


def test_no_file_outgrows_its_idea():
    limits = {"tinyattn.graph": 220, "tinyattn.ops": 620}
    too_long = {
        name: lines
        for name, path in FILES.items()
        if (lines := path.read_text(encoding="utf-8").count("\n")) > limits.get(name, 400) and room(name) != "check"
    }
    assert not too_long


def test_the_formatter_is_not_fought():
    mark = "fmt" + ": "
    for folder in ("tinyattn", "tests", "demos", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            assert mark + "skip" not in (text := path.read_text(encoding="utf-8")) and mark + "off" not in text, path


PUBLIC = {
    "tinyattn": """
        clip cumsum dot expm1 flip log1p outer ravel repeat roll sign square std tile
        GradcheckError Microscope Tensor abs absolute add astype broadcast_to causal_mask concatenate cos cross_entropy
        divide
        draw_graph dropout einsum embedding erf exp expand_dims explain fused_attention gelu grad gradcheck
        gradgradcheck gradients heatmap layer_norm linear load log log_softmax logsumexp masked_fill matmul max maximum
        mean microscope min minimum multiply negative no_grad padding_mask positive power prod relu reshape rms_norm
        rotary save scaled_dot_product_attention show_mask sigmoid sin sliding_window_mask softmax split sqrt squeeze
        stack subtract sum swapaxes tanh transpose var where
        """,
    "tinyattn.nn": """
        Dropout Embedding FeedForward GPT GRU KVCache LayerNorm LearnedPositions Linear Module MultiHeadAttention
        RMSNorm RNN SwiGLU TransformerBlock sinusoidal_positions
        """,
    "tinyattn.optim": "Adam AdamW SGD clip_grad_norm warmup_cosine",
    "tinyattn.efficient": """
        bigbird_blocks block_sparse_attention elu_plus_one flash_attention global_blocks linear_attention
        linear_attention_step local_blocks longformer_blocks random_blocks sliding_window_attention
        """,
    "tinyattn.interop": "mask_from_flash mask_from_huggingface mask_from_mha state_from_torch state_to_torch",
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names(module):
    module, listed = importlib.import_module(module), set(PUBLIC[module].split())
    for name in listed:
        assert hasattr(module, name), name
    names = dir(module) if module is ta else getattr(module, "__all__", None) or dir(module)
    found = {n for n in names if n[0] != "_" and not isinstance(getattr(module, n), types.ModuleType)}
    assert not found - listed - {"Any", "FAR"}, "public, and not listed here"


def test_nothing_is_public_by_accident():
    for name in ("np", "math", "op", "on", "Array", "Axis", "wrap", "as_tensor", "region", "Methods"):
        assert not hasattr(ta, name), name
    for name in ("attention", "values", "text", "graph", "files"):  # a user's own names
        assert name not in dir(ta) and name not in ta.__all__, name


# --- types, for help() and for type checkers ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "takes"),
    [
        (ta.exp, "(x: TensorLike) -> Tensor"),
        (ta.softmax, "(x: TensorLike, axis: Axis = -1) -> Tensor"),
        (ta.sum, "(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor"),
        (ta.where, "(condition: TensorLike, x: TensorLike, y: TensorLike) -> Tensor"),
        (ta.matmul, "(x: TensorLike, y: TensorLike) -> Tensor"),
        (ta.reshape, "(x: TensorLike, shape: int | Shape) -> Tensor"),
        (ta.concatenate, "(arrays: Sequence[TensorLike], axis: int | None = 0) -> Tensor"),
        (ta.erf, "(x: TensorLike) -> Tensor"),
        (ta.Tensor.maximum, "(x: TensorLike, y: TensorLike) -> Tensor"),
        (ta.gradients, "(output: Tensor, gradient: Gradient = None) -> dict[Tensor, Array]"),
        (ta.layer_norm, "(x: TensorLike, weight: TensorLike | None = None, bias: TensorLike | None = None, "),
        (ta.scaled_dot_product_attention, "(Q: TensorLike, K: TensorLike, V: TensorLike, mask: Mask = None, *, "),
    ],
)
def test_help_says_what_a_function_takes_and_returns(function, takes):
    text = pydoc.render_doc(function, renderer=pydoc.plaintext).replace("'", "")
    assert takes in text
    assert inspect.getdoc(function)


def test_every_method_is_bound_and_every_op_has_the_callers_signature():
    from tinyattn import methods, ops

    for name in methods.Methods.__annotations__:
        assert getattr(ta.Tensor, name) is not getattr(object, name, None), name
    for name in ops.__all__:
        signature = inspect.signature(getattr(ta, name))
        assert "Tensor" in signature.return_annotation, name
        assert "TensorLike" in next(iter(signature.parameters.values())).annotation, name


USER = """
import numpy as np
import tinyattn as ta

t, u = ta.Tensor([1.0, 2.0], requires_grad=True), ta.Tensor([2.0, 1.0])
a: ta.Tensor = t.sin()
b: ta.Tensor = t.maximum(u).reshape(1, 2).expand_dims(0).broadcast_to((2, 1, 2)).swapaxes(0, 1).T
c: ta.Tensor = ta.softmax(t, axis=0) + 2.0 * t - u @ u + ta.sum(t, axis=0, keepdims=True) ** 2
d: ta.Tensor = ta.where(t > 1.0, t, 0.0)[None, :1]
n: int = len(t.shape) + t.ndim
(g,) = ta.grad(c.sum(), [t], create_graph=True)
e: ta.Tensor = ta.gelu(ta.einsum("i,i->", g, t)).mean()
f: ta.Tensor = ta.nn.Linear(2, 3)(t)
"""
MISUSES = {
    "t.sin(3)": "Too many arguments",
    'ta.softmax(t, axis="rows")': "incompatible type",
    "t.sinus()": "no attribute",
    "ta.maximum(t)": "Too few arguments",
    "t.sum(dim=0)": "Unexpected keyword",
}


def test_a_users_file_type_checks_and_its_mistakes_are_found(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    lines = USER.count("\n")
    (tmp_path / "user.py").write_text(USER + "\n".join(MISUSES) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path), "user.py"]
    env = {"MYPYPATH": str(ROOT), "PATH": "", "PYTHONPATH": ""}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    found = {}
    for line in done.stdout.splitlines():
        if line.startswith("user.py:") and ": error: " in line:
            found[int(line.split(":")[1]) - lines - 1] = line
    assert sorted(found) == list(range(len(MISUSES))), done.stdout + done.stderr
    for (call, says), line in zip(MISUSES.items(), (found[i] for i in sorted(found))):
        assert says in line, (call, line)
