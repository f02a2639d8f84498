"""From DOT text to a picture: by Graphviz's dot, else by graphviz-pure; without both, the text is written."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from typing import Any

__all__ = ["ENDINGS", "digraph", "find_program", "picture", "write"]

PICTURES = (".svg", ".png", ".html")
ENDINGS = (*PICTURES, ".dot", ".gv")
NO_PACKAGE = "the package graphviz is missing: pip install graphviz graphviz-pure"
NO_PROGRAM = "Graphviz's program dot is missing: pip install graphviz-pure, or see https://graphviz.org/download"


def find_program() -> bool:
    """Whether graphviz has a program to call: the system's dot, else graphviz-pure, which it is then told of."""
    import shutil

    from graphviz.backend import dot_command

    if shutil.which(dot_command.DOT_BINARY):
        return True
    program = _pure()
    if program:
        dot_command.DOT_BINARY = program
    return program is not None


def _pure() -> Any:
    """graphviz-pure: in PATH, or in the environment's scripts, as an environment may be used without activation."""
    import shutil

    return shutil.which("graphviz-pure") or shutil.which("graphviz-pure", path=sysconfig.get_path("scripts"))


def picture(graph: Any, kind: str) -> bytes:
    """The picture of the graph, as "svg" or "png"; RuntimeError with dot's own complaint if no program can draw it."""
    from graphviz.backend import dot_command

    try:
        return bytes(graph.pipe(format=kind, quiet=True))
    except subprocess.CalledProcessError as error:
        program = _pure()
        if program and program != dot_command.DOT_BINARY:  # dot is there but cannot draw: its plug-ins are missing
            dot_command.DOT_BINARY = program
            return picture(graph, kind)
        told = " ".join((error.stderr or b"").decode(errors="replace").split())[:200]
        raise RuntimeError(
            f"dot cannot draw it ({told}): dot -c registers its plug-ins; or pip install graphviz-pure"
        ) from None


def digraph(body: Sequence[str], refused: str = "") -> Any:
    """graphviz's Digraph, which a notebook shows (unless refused says why not); None without the package."""
    try:
        import graphviz
    except ImportError:
        return None
    graph: Any = graphviz.Digraph(body=list(body))

    def shown(**_: Any) -> dict[str, str]:  # in place of a long trace
        try:
            if refused or not find_program():
                raise RuntimeError(refused or NO_PROGRAM)
            return {"image/svg+xml": picture(graph, "svg").decode()}
        except RuntimeError as error:
            return {"text/plain": f"{error}. The DOT text is in .source"}

    graph._repr_mimebundle_ = shown
    return graph


def write(path: str | os.PathLike[str], body: Sequence[str], drawn: Any, refused: str = "") -> None:
    """Write body, the part inside the braces of `digraph { }`, as DOT text; or what drawn(kind) makes of it.

    If the picture cannot be made, its text is written instead, and one line says why.
    """
    stem, suffix = os.path.splitext(path)
    problem = ""
    if suffix in PICTURES:
        problem = refused or (NO_PACKAGE if digraph(body) is None else "" if find_program() else NO_PROGRAM)
        if not problem:
            try:
                content = drawn(suffix[1:])
            except RuntimeError as error:
                problem = str(error)
            else:
                with open(path, "wb") as file:
                    file.write(content)
                return
    target = stem + (".dot" if suffix in PICTURES else suffix)
    with open(target, "w", encoding="utf-8") as text:
        text.writelines(["digraph {\n", *body, "}\n"])
    if problem:
        print(f"{path} is not drawn: {problem}. The graph's DOT text is in {target}", file=sys.stderr)
