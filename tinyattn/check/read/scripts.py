"""A script without a function, as a program of its global arrays.

Its inputs are the arrays that it makes itself (Q, K, V, or X and weights); the whole text is run again with other
numbers of the same shapes in their place, and the answer is among the names that are there at the end.
"""

import ast
from typing import Any

from ..inside.live import Script
from .carry import imports_torch, to_array
from .form import Form, Parameter, Values
from .names import PARAMETERS, role
from .text import Text
from .trial import Program

_INPUTS = ("Q", "K", "V", "X", "context", *PARAMETERS)


def _bound(statement: ast.stmt) -> list[str]:
    """The names that a statement assigns."""
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        targets = [statement.target]
    else:
        return []
    return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]


def _inputs(text: Text) -> dict[str, str]:
    """Role -> name of the arrays that the script makes from nothing."""
    found: dict[str, str] = {}
    names: set[str] = set()  # those that stand for an input, or were computed from one
    for statement in text.tree.body:
        bound = _bound(statement)
        value = getattr(statement, "value", None)
        used = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)} if value is not None else set()
        for name in bound:
            meant = role(name, *_INPUTS)
            array = to_array(text.names.get(name))
            derived = bool(used & names)
            if derived or array is None or array.ndim not in (1, 2, 3):
                names.add(name) if derived else None
            elif meant and meant not in found and not isinstance(statement, ast.AugAssign):
                found[meant] = name
                names.add(name)
    return found


def script(text: Text) -> list[Program]:
    """The program that a script is, if it has the arrays of one."""
    given = _inputs(text)
    arrays = {r: to_array(text.names[name]) for r, name in given.items()}
    if not {"Q", "K", "V"} <= given.keys() and not ("X" in given and len(given) >= 2):
        return []
    if {"Q", "K", "V"} <= given.keys() and "W_q" not in given:
        given = {r: given[r] for r in ("Q", "K", "V")}
    trees = [_replacing(part.code, set(given.values())) for part in text.parts]
    files = [part.filename for part in text.parts]
    codes = [compile(tree, file, "exec") for tree, file in zip(trees, files)]
    whole = Script(trees, [part.code for part in text.parts], files, codes)

    def run(form: Form, values: Values, args: list[Any], keywords: dict[str, Any]) -> Any:
        handed = dict(zip((p.name for p in form.parameters), args)) | keywords
        names: dict[str, Any] = {"__name__": "__main__", "__file__": text.path, "given_arrays": handed}
        for code in codes:
            exec(code, names)
        made = [(k, v) for k, v in names.items() if k not in handed and not k.startswith("__") and k != "given_arrays"]
        return {k: v for k, v in reversed(made) if to_array(v) is not None}

    first = arrays["Q" if "Q" in given else "X"]
    lead = max(0, (first.ndim if first is not None else 2) - 2)
    sizes = _sizes(text, arrays, given)
    if sizes is None or lead > 2:
        return []
    words = text.code.lower()
    made = Program("this script", [Parameter(n, r, True) for r, n in given.items()], run, [whole, text.names], words)
    made.torch, made.fixed = imports_torch(text.code), sizes
    made.sized = ("heads",) if len(sizes) > 4 and sizes[5] > 1 else ()
    made.lead = lead
    return [made]


def _sizes(text: Text, arrays: dict[str, Any], given: dict[str, str]) -> tuple[int, ...] | None:
    """(n, m, dk, dv), or (n, m, d, dk, dv, heads, width of the output) of a layer."""
    if given.keys() == {"Q", "K", "V"}:
        Q, K, V = (arrays[r] for r in "QKV")
        if Q.ndim < 2 or Q.ndim > 3 or any(a.ndim != Q.ndim for a in (K, V)) or Q.shape[:-2] not in ((), (1,)):
            return None
        return Q.shape[-2], K.shape[-2], Q.shape[-1], V.shape[-1]
    X, W = arrays.get("X"), arrays.get("W_q")
    if X is None or X.ndim < 2 or X.shape[:-2] not in ((), (1,)):
        return None
    heads = next((v for n, v in text.names.items() if role(n) == "heads" and isinstance(v, int)), 1)
    context = arrays.get("context")
    wide = W.shape[-1] if W is not None and W.ndim == 2 else X.shape[-1]
    V = arrays.get("W_v")
    wide_v = V.shape[-1] if V is not None and V.ndim == 2 else wide
    out = arrays.get("W_o")
    m = context.shape[-2] if context is not None else X.shape[-2]
    return X.shape[-2], m, X.shape[-1], wide // heads, wide_v // heads, heads, out.shape[-1] if out is not None else 0


class _Replace(ast.NodeTransformer):
    """After each statement that makes an input, the given one takes its place."""

    def __init__(self, names: set[str]):
        self.names, self.seen = names, set[str]()

    def visit_Assign(self, node: ast.Assign) -> Any:
        bound = [n for n in _bound(node) if n in self.names and n not in self.seen]
        self.seen |= set(bound)
        lines = [ast.parse(f"{n} = given_arrays[{n!r}]").body[0] for n in bound]
        for line in lines:
            ast.increment_lineno(line, node.lineno - 1)
        return [node, *lines]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        return self.visit_Assign(node)  # type: ignore[arg-type]


def _replacing(code: str, names: set[str]) -> ast.Module:
    tree = ast.parse(code)
    replacer = _Replace(names)
    body: list[ast.stmt] = []
    for statement in tree.body:
        made = replacer.visit(statement) if isinstance(statement, (ast.Assign, ast.AnnAssign)) else statement
        body += made if isinstance(made, list) else [made]
    tree.body = body
    return ast.fix_missing_locations(tree)
