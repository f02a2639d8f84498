"""A page of pictures that link to each other: a click on a box shows the picture in which it is open."""

from __future__ import annotations

import html as escape
import re

__all__ = ["html"]

STYLE = """
body { margin: 1rem; font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff }
p { margin: 0 0 1rem; max-width: 60rem }
section { display: none; overflow-x: auto }
section:target, body:not(:has(section:target)) #all { display: block }
section svg { height: auto }
a:hover :is(polygon, path) { stroke-width: 3 }
"""


def html(pictures: dict[str, str], title: str) -> str:
    """One section for each picture, by its id; the one called "all" is shown first. No script, nothing from outside."""
    sections = []
    for name, svg in pictures.items():
        svg = re.sub(r'id="(?=graph|node|edge|clust|a_)', f'id="{name}_', svg[svg.index("<svg") :])  # ids are unique
        sections.append(f'<section id="{name}">\n{svg}</section>')
    return f"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape.escape(title)}</title>
<style>{STYLE}</style>
<h1>{escape.escape(title)}</h1>
<p>A box with a thick border opens when you click it; the frame of an open one closes it. Point at a node for its
formula, its derivative, and its numbers. <a href="#all">Close all</a></p>
{"".join(sections)}
</html>
"""
