"""The same questions put to every autograd engine that is installed: what does it get right, refuse, or get wrong?

    python benchmarks/engines.py

Each probe runs in a process of its own (some end in a crash). Engines: tinyattn, micrograd, mygrad, autograd (HIPS)
and torch; those that are missing are left out: pip install micrograd mygrad autograd torch==2.13.0
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import subprocess
import sys
import textwrap

# What each engine needs for: a leaf x over a value, the gradient of a scalar y for x, and the value of a result.
PRELUDE = {
    "tinyattn": """
        import tinyattn as lib
        def leaf(v): return lib.Tensor(v, requires_grad=True)
        def grad(f, v):
            x = leaf(v); f(x).backward(); return x.grad.numpy()
        const, total = np.array, lib.sum
    """,
    "micrograd": """
        from micrograd.engine import Value
        def leaf(v):
            if np.ndim(v):
                print('no: single numbers only'); raise SystemExit
            return Value(v)
        const = leaf
        def grad(f, v):
            x = leaf(v); f(x).backward(); return np.array(x.grad)
    """,
    "mygrad": """
        import mygrad as lib
        def leaf(v): return lib.tensor(v)
        def grad(f, v):
            x = leaf(v); f(x).backward(); return np.array(x.grad)
        const, total = np.array, lib.sum
    """,
    "autograd": """
        import autograd, autograd.numpy as lib
        def grad(f, v): return autograd.grad(f)(v)
        const, total = np.array, lib.sum
    """,
    "torch": """
        import torch as lib
        lib.set_default_dtype(lib.float64)
        def leaf(v): return lib.tensor(v, requires_grad=True)
        def grad(f, v):
            x = leaf(v); f(x).backward(); return x.grad.numpy()
        const, total = lib.tensor, lib.sum
    """,
}

# A probe prints what it found: "yes" is right, "refused" a clear error; anything else is a finding.
SAY = "print('yes' if np.allclose(found, right) else f'wrong: {np.round(found, 6)}')"
PROBES = {
    "a value used twice: d(2b)/da with b = a + a": "found, right = grad(lambda a: (a + a) + (a + a), 1.0), 4; " + SAY,
    "a chain of 20,000 ops, backward": """
        def chain(x):
            for _ in range(20_000): x = x + x * 1e-6
            return x
        found, right = grad(chain, 1.0), (1 + 1e-6) ** 20_000
        """
    + SAY,
    "arrays, broadcast on both sides": """
        b = const([[10.0, 20.0, 30.0]])
        found, right = grad(lambda a: total(a * b), np.ones((4, 1))), np.full((4, 1), 60.0)
        """
    + SAY,
    "x[[0, 1, 1]]: repeated indices add up": """
        found, right = grad(lambda x: total(x[np.array([0, 1, 1])]), np.ones(3)), [1, 2, 0]
        """
    + SAY,
    "NumPy array * tensor is a tensor": """
        a = np.array([2.0, 3.0])
        found, right = grad(lambda x: total(a * x), np.ones(2)), a
        """
    + SAY,
    "ties of max share the gradient": """
        found = grad(lambda x: x.max() if hasattr(x, 'max') else lib.max(x), np.array([1.0, 3.0, 3.0]))
        print('yes' if np.isclose(np.sum(found), 1) else f'wrong: {found}')
        """,
    "second derivative of x³": {
        "tinyattn": """
        x = leaf(2.0); g, = lib.grad(x**3, x, create_graph=True); found, right = lib.grad(g, x)[0], 12
        """
        + SAY,
        "torch": """
        x = leaf(2.0); g, = lib.autograd.grad(x**3, x, create_graph=True); found, right = lib.autograd.grad(g, x)[0], 12
        """
        + SAY,
        "autograd": "found, right = autograd.grad(autograd.grad(lambda x: x**3))(2.0), 12; " + SAY,
        "mygrad": "print('no')",
        "micrograd": "print('no')",
    },
    "data changed between forward and backward": {
        **dict.fromkeys(
            ["tinyattn", "torch", "mygrad"],
            """
        x = leaf([1.0, 2.0, 3.0]); y = (x * x).sum()
        try:
            x.data[0] = 100.0
            y.backward()
            found, right = np.array(x.grad.numpy() if hasattr(x.grad, 'numpy') else x.grad), [2, 4, 6]
            """
            + SAY
            + """
        except (ValueError, RuntimeError):
            print('refused')
        """,
        ),
        "micrograd": """
        x = leaf(1.0); y = x * x; x.data = 100.0; y.backward()
        found, right = x.grad, 2
        """
        + SAY,
        "autograd": "print('no: not visible to the user')",
    },
    "a second backward on a used graph": {
        **dict.fromkeys(
            ["tinyattn", "torch", "mygrad", "micrograd"],
            """
        x = leaf(3.0); y = (x + 2.0) * 1.0
        try:
            y.backward(); y.backward()
            found, right = float(x.grad.item() if hasattr(x.grad, 'item') else x.grad), 2
            """
            + SAY
            + """
        except RuntimeError:
            print('refused')
        """,
        ),
        "autograd": "print('no: functional, nothing to reuse')",
    },
    "freed without the garbage collector": {
        **dict.fromkeys(
            ["tinyattn", "torch", "mygrad", "micrograd"],
            """
        import gc, weakref
        gc.disable()
        x = leaf(1.0); inner = x * x; y = inner + inner
        ref = weakref.ref(inner); y.backward(); del inner, y
        print('yes' if ref() is None else 'no')
        """,
        ),
        "autograd": "print('no: no handle on its nodes')",
    },
}


def ask(engine: str, probe: str) -> str:
    code = PROBES[probe]
    code = code if isinstance(code, str) else code[engine]
    program = "import numpy as np\n" + textwrap.dedent(PRELUDE[engine]) + "\n" + textwrap.dedent(code).strip()
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=120)
    if run.returncode < 0:
        return "crash"
    if run.returncode:
        return run.stderr.strip().splitlines()[-1].split(":")[0]
    return run.stdout.strip()


def version(engine: str) -> str:
    try:
        return importlib.metadata.version(engine)
    except importlib.metadata.PackageNotFoundError:  # run from its folder
        return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="put the questions to tinyattn alone")
    engines = ["tinyattn"] if parser.parse_args().small else [e for e in PRELUDE if importlib.util.find_spec(e)]
    if not engines:
        sys.exit("no engine is installed: pip install -e . (and micrograd mygrad autograd torch==2.13.0)")
    print("| probe | " + " | ".join(f"{e} {version(e)}" for e in engines) + " |")
    print("|---|" + "---|" * len(engines))
    for probe in PROBES:
        print(f"| {probe} | " + " | ".join(ask(e, probe) for e in engines) + " |", flush=True)


if __name__ == "__main__":
    main()
