"""The README does what it says: its example prints what it shows, its line counts and its commands hold."""

import contextlib
import io
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_prints_what_is_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", README, re.S)[1]
    shown = re.search(r"```text\n(.*?)```", README, re.S)[1]
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()):
        exec(code, {})
    assert printed.getvalue() == shown
    assert list(tmp_path.glob("graph.*"))


def test_the_reading_order_counts_lines():
    """Exactly: what `python demos/figures.py --render` writes is compared below."""
    rows = dict(re.findall(r"^\| `(\w+(?:\.py|/))` \| (\d+) \|", README, re.M))
    assert len(rows) >= 16
    assert int(rows["graph.py"]) == len((ROOT / "tinyattn" / "graph.py").read_text(encoding="utf-8").splitlines())


def test_pictures_are_there_and_small_and_each_is_shown():
    pages = [(ROOT / "README.md", ROOT), *((p, p.parent) for p in (ROOT / "docs").glob("*.md"))]
    shown = set()
    for page, folder in pages:
        for name in re.findall(r"!\[[^]]*\]\((\S+?)\)|(?:src|srcset)=\"(\S+?)\"", page.read_text(encoding="utf-8")):
            shown.add((folder / "".join(name)).resolve())
    assert shown == {p.resolve() for p in (ROOT / "docs" / "images").iterdir()}
    assert max(p.stat().st_size for p in shown) <= 150_000


def test_every_demo_is_listed():
    demos = pathlib.Path(__file__).parents[1] / "demos"
    missing = [d.name for d in demos.glob("[a-z]*.py") if f"`{d.name}`" not in README]
    assert not missing


def test_the_demos_figures_are_those_of_the_file():
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "demos"))
    import figures

    assert figures.load(), "python demos/figures.py writes docs/figures.json"
    assert figures.render(README, figures.load()) == README, "python demos/figures.py --render"
    assert all(all(result["claims"].values()) and not result["quick"] for result in figures.load().values())
