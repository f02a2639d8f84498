"""Text and colour for people: what a stream can print, what fits into its columns, a text that is shown once."""

from __future__ import annotations

import codecs
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

__all__ = [
    "VIRIDIS",
    "Line",
    "Shown",
    "color",
    "columns",
    "console",
    "cut",
    "fit",
    "html_table",
    "is_terminal",
    "plain",
    "printable",
    "printed",
    "run_program",
    "show",
    "width",
]

Line: TypeAlias = list[tuple[str, str]]  # pieces of text with their style, as "bold red" or "#ffffff on #440154"

# Viridis in nine steps: readable in greyscale and to colour-blind eyes.
VIRIDIS = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")


def color(fraction: float) -> tuple[str, str]:
    """A fill and the text colour that is readable on it; 0 is dark, 1 is bright."""
    fraction = min(max(fraction, 0.0), 1.0)
    return VIRIDIS[round(fraction * (len(VIRIDIS) - 1))], "#ffffff" if fraction < 0.55 else "#000000"


# What an encoding without these signs gets instead: cp1252 (a file on Windows) lacks most of them, ASCII lacks all.
PLAIN = dict(zip("·░▒▓█■×−–—‘’“”→←↑↓│─", ".:+%##x---''\"\"><^v|-"))
PLAIN |= {
    "✓": "ok",
    "✗": "no:",
    "…": "...",
    "√": "sqrt ",
    "÷": "/",
    "∞": "inf",
    "≤": "<=",
    "≥": ">=",
    "≈": "~=",
    "≠": "!=",
}
PLAIN |= {"∇": "grad ", "∈": "in", "∂": "d", "∑": "sum", "⊙": "*", "⋅": ".", "λ": "lambda"}


def _plain_form(c: str) -> str:
    """ "→" as ">", "λ" as "lambda", "²" as "2"; "?" for what has no such form."""
    if c in PLAIN:
        return PLAIN[c]
    if greek := re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (\w+)", unicodedata.name(c, "")):
        return greek[2].title() if greek[1] == "CAPITAL" else greek[2].lower()
    return "".join(part for part in unicodedata.normalize("NFKD", c) if part.isascii()) or "?"


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_plain_form, error.object[error.start : error.end])), error.end


codecs.register_error("tinyattn.plain", _replace)


def run_program(main: Callable[[], int | None]) -> NoReturn:
    """Run a program of ours and end with its exit code. A character that a stream lacks does not end it. If nobody
    reads to the end (| head, Ctrl-C, Ctrl-D), it ends without a message."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # a program without a console, as pythonw on Windows
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="tinyattn.plain")
    code = 130
    try:
        try:
            code = main() or 0
        finally:
            sys.stdout.flush()
    except (BrokenPipeError, KeyboardInterrupt, EOFError):
        os._exit(code)
    sys.exit(code)


def printed(text: str) -> str:
    """The text as standard output can print it, in a program that is not ours."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "tinyattn.plain").decode(encoding)


def is_terminal(stream: Any) -> bool:
    """Whether a person sees this stream: not if it is missing, a pipe, or no real stream."""
    return bool(getattr(stream, "isatty", bool)())


def columns(most: int) -> int:
    """How many characters a line may have: those of the terminal, or of the variable COLUMNS; `most` in a pipe."""
    import shutil

    return min(most, shutil.get_terminal_size((most, 24)).columns)


def html_table(caption: str, rows: Any) -> str:
    """Numbers in rows, for a notebook."""
    cells = [[f"{x:.4g}" if isinstance(x, float) else str(x) for x in row.tolist()] for row in rows]
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in cells)
    import html

    return f"<table><caption><code>{html.escape(caption)}</code></caption>{body}</table>"


def printable(text: object) -> str:
    """The text on one line: line breaks and other control characters as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def width(text: str) -> int:
    """Terminal columns: East Asian wide characters take two, combining marks none."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def cut(text: str, columns: int) -> str:
    """The text; if it is wider, … replaces its end."""
    text = text[: 4 * columns]
    while width(text) > columns:
        text = text[:-2] + "…"
    return text


def fit(text: str, columns: int, align: str = "left") -> str:
    """Cut or padded to the width."""
    text = cut(text, columns)
    space = " " * (columns - width(text))
    return text + space if align == "left" else space + text


def plain(lines: Sequence[Line]) -> str:
    """The lines without their styles."""
    return "\n".join("".join(piece for piece, _ in line).rstrip() for line in lines).rstrip()


def console() -> Any:
    """rich's Console if the output is a terminal in colour and rich is installed; None otherwise."""
    if not is_terminal(sys.stdout) or os.environ.get("NO_COLOR"):
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(highlight=False)


def show(lines: Sequence[Line]) -> None:
    """Print lines, in colour if there is a console()."""
    screen = console()
    if screen is None:
        print(printed(plain(lines)))
        return
    from rich.text import Text  # unlike a string with markup, it shows [ ] as they are

    for line in lines:
        screen.print(Text.assemble(*[(printed(piece), style) for piece, style in line]), soft_wrap=True)


class Shown(str):
    """A text that Python's prompt and a notebook show as it is; a notebook in colour.

    show() shows it at once. A notebook's cell that ends with it then does not show it again.
    """

    lines: Sequence[Line]
    cell: int | None = None  # in which cell of a notebook it was shown

    def __new__(cls, lines: Sequence[Line]) -> Shown:
        self = super().__new__(cls, plain(lines))
        self.lines = lines
        return self

    def __repr__(self) -> str:
        return printed(self)

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def show(self) -> Shown:
        """Print it in a script, display it in a notebook. Python's prompt shows by itself what a call returns."""
        if _notebook() is not None:
            self._ipython_display_()
        elif not hasattr(sys, "ps1"):
            show(self.lines)
        return self

    def _repr_html_(self) -> str:
        import html

        rows = ["".join(f'<span style="{_css(style)}">{html.escape(t)}</span>' for t, style in x) for x in self.lines]
        return '<pre style="line-height: 1.2; overflow-x: auto">' + "\n".join(rows) + "</pre>"

    def _ipython_display_(self) -> None:
        cell = _notebook().execution_count
        if cell != self.cell and is_terminal(sys.stdout):
            show(self.lines)
        elif cell != self.cell:
            _notebook().display_pub.publish({"text/plain": str(self), "text/html": self._repr_html_()})
        self.cell = cell


def _notebook() -> Any:
    """IPython's shell, if this program runs in one."""
    module = sys.modules.get("IPython")
    return module and module.get_ipython()


CSS = {"bold": "font-weight: bold", "italic": "font-style: italic", "dim": "opacity: .65"}


def _css(style: str) -> str:
    ink, _, fill = style.partition("on ")
    rules = [CSS.get(word, f"color: {word}") for word in ink.split()]
    return "; ".join(rules + [f"background: {fill}"] * bool(fill))
