"""A page of pictures that link to each other: a click on a box shows the picture in which it is open."""

from __future__ import annotations

import html as escape
import re
from collections.abc import Sequence

__all__ = ["html"]

# The pictures have inks for white paper: on a dark page, text outside of a box is lighter.
STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #222; --line: #555; --link: #0a58a8; --alarm: #c1121f }
body { margin: 1rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper) }
h1 { font-size: 1.3rem; margin: 0 }
p { margin: .5rem 0; max-width: 60rem }
a { color: var(--link) }
.key { display: flex; flex-wrap: wrap; align-items: center; gap: 2px; font-size: 13px }
.key span { padding: 0 .5em; min-height: 1.5em }
.key .on { color: #222 }
.key .dashed { border: 1px dashed var(--line) }
section { display: none; overflow-x: auto }
section:target, body:not(:has(section:target)) #all { display: block }
section:focus-visible { outline: 1px dotted var(--line) }
svg { display: block; height: auto; width: 100% }
a:is(:hover, :focus-visible) :is(polygon, path) { stroke-width: 3; stroke: var(--link) }
.graph > polygon { fill: var(--paper) }
.edge :is(path, polygon):not([stroke="#c1121f"]) { stroke: var(--line) }
.edge polygon:not([fill="#c1121f"]) { fill: var(--line) }
:is(.edge, .cluster) text:is([fill="#555555"]) { fill: var(--line) }
.node:has([stroke-dasharray]) text { fill: var(--ink) }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14161a; --ink: #eceef2; --line: #a9b0bc; --link: #7cb8ff; --alarm: #ff6b6b }
  .cluster path { stroke: #6d7583 }
  [stroke="#8e5aa8"] { stroke: #c79be0 !important } [fill="#8e5aa8"] { fill: #c79be0 }
  [stroke="#c1121f"] { stroke: var(--alarm) } .edge [fill="#c1121f"] { fill: var(--alarm) }
}
"""


def html(pictures: dict[str, str], title: str, legend: Sequence[tuple[str, str]], verdict: str) -> str:
    """One section for each picture, by its id; the one called "all" is shown first. No script, nothing from outside."""
    sections = []
    for name, svg in pictures.items():
        svg = re.sub(r'id="(?=graph|node|edge|clust|a_)', f'id="{name}_', svg[svg.index("<svg") :])  # ids are unique
        found = re.search(r'width="([\d.]+)pt"', svg)
        wide = float(found[1]) if found else 600.0  # as drawn; smaller down to what one can read
        svg = svg.replace("<svg", f'<svg style="max-width: {wide * 4 / 3:.0f}px; min-width: {wide * 0.8:.0f}px"', 1)
        sections.append(f'<section id="{name}">\n{svg}</section>')
    cells = []
    for text, fill in legend:
        look = f' class="on" style="background: {fill}"' if fill[:1] == "#" else ' class="dashed"' if fill else ""
        cells.append(f"<span{look}>{escape.escape(text)}</span>")
    return f"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape.escape(title)}</title>
<style>{STYLE}</style>
<h1>{escape.escape(title)}</h1>
<p>A box with a thick border opens when you click it; the frame of an open one closes it. Point at a node for its
formula, its derivative, and its numbers. <a href="#all">Close all</a></p>
<p class="key">{"".join(cells)}</p>
{f"<p><strong>{escape.escape(verdict)}</strong></p>" * bool(verdict)}
{"".join(sections)}
</html>
"""
