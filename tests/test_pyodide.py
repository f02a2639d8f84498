"""tinyattn runs on Python in the browser: its tests, under node. Skipped if node or its files are missing."""

import os
import subprocess

import pytest
from test_page import MISSING, WEB, WHEELS

SITE = os.environ.get("TINYATTN_WASM_SITE", "")  # pytest, hypothesis, graphviz: see CONTRIBUTING.md
PARTS = [
    *("test_tensor", "test_ops", "test_attention", "test_gradcheck"),  # the engine and attention
    *("test_draw", "test_explain", "test_microscope"),
    *("test_check_diagnosis", "test_check_cases", "test_check_game", "test_cells"),
]


@pytest.mark.skipif(bool(MISSING), reason=f"not here: {', '.join(MISSING)}")
@pytest.mark.skipif(not SITE, reason="TINYATTN_WASM_SITE names no folder with pytest, hypothesis and graphviz")
@pytest.mark.parametrize("part", PARTS)
def test_part(part):
    (wheel,) = WHEELS.glob("numpy-*wasm32.whl")
    command = ["node", "under_node.js", wheel, SITE, f"tests/{part}.py"]
    done = subprocess.run(command, cwd=WEB, capture_output=True, text=True, encoding="utf-8", timeout=900)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
