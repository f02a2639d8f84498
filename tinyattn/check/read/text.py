"""A learner's text: .py or .ipynb, whatever its encoding; run from top to bottom as a module."""

import ast
import json
import linecache
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np


@dataclass
class Part:
    """One piece of code under the file name it is compiled with: a whole file, or a cell of a notebook."""

    filename: str
    code: str
    cell: int | None = None


@dataclass
class Text:
    """All the code of a file, and what its running gave."""

    path: str
    parts: list[Part]
    names: dict[str, Any] = field(default_factory=dict)
    problems: list[BaseException] = field(default_factory=list)

    @property
    def tree(self) -> ast.Module:
        """The whole as one syntax tree; parts that Python cannot read are left out."""
        body: list[ast.stmt] = []
        for part in self.parts:
            try:
                body += ast.parse(part.code).body
            except SyntaxError:
                continue
        return ast.Module(body, [])

    @property
    def code(self) -> str:
        return "\n".join(part.code for part in self.parts)

    def cell_of(self, filename: str) -> int | None:
        return next((part.cell for part in self.parts if part.filename == filename), None)


def _decode(data: bytes) -> str:
    """UTF-8, UTF-16 by its mark, or what the file's first lines say."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16")
    lines = iter(data.splitlines(keepends=True))
    encoding, _ = tokenize.detect_encoding(lambda: next(lines, b""))
    return data.decode(encoding)


def _tidy(line: str) -> str:
    """A notebook's magics and shell lines are no Python."""
    return "pass  # " + line.strip() if line.lstrip()[:1] in ("%", "!", "?") else line


def read_text(path: str) -> Text:
    """The code of a file; raises OSError or SyntaxError."""
    text = _decode(Path(path).read_bytes())
    if not (path.endswith(".ipynb") or (text.lstrip()[:1] == "{" and '"cells"' in text[:200_000])):
        return Text(path, [Part(path, text)])
    try:
        cells = json.loads(text)["cells"]
    except (ValueError, KeyError) as error:
        raise SyntaxError(f"not a notebook: {error}") from None
    parts: list[Part] = []
    for cell in cells:
        if cell.get("cell_type") == "code":
            source = cell.get("source", "")
            lines = (source if isinstance(source, str) else "".join(source)).split("\n")
            number = len(parts) + 1
            parts.append(Part(f"{path}, cell {number}", "\n".join(map(_tidy, lines)), number))
    return Text(path, parts)


class Nothing(ModuleType):
    """Stands in for a plotting library: everything is there and does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _subplots if name == "subplots" else self

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter((self, self))

    def __getitem__(self, key: Any) -> Any:
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *args: Any) -> None:
        return None


def _subplots(rows: int = 1, columns: int = 1, *args: Any, **keywords: Any) -> tuple[Any, Any]:
    rows, columns = keywords.get("nrows", rows), keywords.get("ncols", columns)
    axes = np.full((rows, columns), None, dtype=object)
    for index in np.ndindex(rows, columns):
        axes[index] = Nothing("axes")
    return Nothing("figure"), axes[0, 0] if axes.size == 1 else axes.squeeze()


class _Plots:
    """Finds plotting libraries, and makes nothing of them: pictures cost time and prove nothing here."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] in ("matplotlib", "seaborn", "plotly", "mpl_toolkits"):
            return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: Any) -> ModuleType:
        return Nothing(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return None


def run(text: Text) -> None:
    """Run all parts in one module, with the file's folder on the path, as `python file.py` would have it. A file
    stops at its first exception; a notebook goes on, and keeps what its cells raised."""
    sys.path.insert(0, str(Path(text.path).parent))
    sys.meta_path.insert(0, _Plots())
    name = Path(text.path).stem
    name = name if name.isidentifier() and name not in sys.modules else f"learner_{name}"
    module = ModuleType(name)
    module.__file__ = text.path
    sys.modules[name] = module
    text.names = vars(module)
    for part in text.parts:
        linecache.cache[part.filename] = (len(part.code), None, part.code.splitlines(keepends=True), part.filename)
        try:
            exec(compile(part.code, part.filename, "exec", dont_inherit=True), text.names)
        except (Exception, SystemExit) as error:
            text.problems.append(error)
            if part.cell is None:
                raise
