"""The installed package, tried in a folder of its own, far from the clone."""

import re
import subprocess
import sys
import tempfile
from importlib.metadata import metadata, version
from pathlib import Path

import numpy as np

import tinyattn as ta

folder = Path(tempfile.mkdtemp())
program = Path(sys.executable).with_name("tinyattn")
RIGHT = """
import numpy as np

def causal_mask(n):
    return np.tri(n, dtype=bool)
"""


def command(*words: object) -> int:
    return subprocess.run([program, *map(str, words)], cwd=folder, check=False, stdout=subprocess.DEVNULL).returncode


assert "site-packages" in ta.__file__
assert ta.__version__ == version("tinyattn")
assert not re.search(r"\]\((?!https?:|#)", metadata("tinyattn").get_payload()), "the description links into the clone"
for text, code in ((RIGHT, 0), (RIGHT.replace("n, dtype", "n, k=1, dtype"), 1), ("def", 2)):
    folder.joinpath("mine.py").write_text(text)
    assert command("check", "mine.py") == code
assert command("practice", "practice.py") == 0
assert command("check", "--step", 1, "practice.py") == 2
assert command("break", "--list") == 0

rng = np.random.default_rng(0)
Q, K, V = (ta.Tensor(rng.normal(size=(3, 2)), requires_grad=True) for _ in "QKV")
out, weights = ta.scaled_dot_product_attention(Q, K, V, ta.causal_mask(3), return_weights=True)
ta.draw_graph(out.sum(), path=folder / "graph.svg")
assert folder.joinpath("graph.svg").read_text(encoding="utf-8").rstrip().endswith("</svg>")
assert "keys" in str(ta.heatmap(weights))
if hasattr(ta, "microscope"):
    ta.microscope(Q, K, V, ta.causal_mask(3), path=folder / "microscope.html")
    assert folder.joinpath("microscope.html").stat().st_size
out.sum().backward()
assert ta.gradcheck(ta.scaled_dot_product_attention, (Q, K, V))
print(f"tinyattn {ta.__version__} works with NumPy {np.__version__}, Python {sys.version.split()[0]}")
