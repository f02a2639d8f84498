"""Every value that a program computes on its way: its syntax tree, with each expression passed through a hook.

`a * b` becomes `__at__(2, __at__(0, a) * __at__(1, b))`. With a hook that gives back what it is given, results
and exceptions are those of the program as it was; a hook can also record what it sees, or replace it. Where a
statement changes a value in place (`x op= y`, `x[i] = y`, `f(x, out=y)`), the name is passed through the hook
after it: only names that are local there already, so that no name changes its scope.
"""

import ast
from dataclasses import dataclass
from types import CodeType
from typing import Any

HOOK = "__at__"  # ends in underscores, so that it is not mangled in a class
Functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Scopes = (*Functions, ast.ClassDef)
ABOUT = {"shape", "ndim", "size", "dtype", "len", "isinstance", "super"}  # of these only the answer is of interest


@dataclass(frozen=True)
class Site:
    """A place in a text: an expression, or (`after`) a statement that changes `text` in place."""

    file: str
    line: int
    column: int
    text: str
    end: tuple[int, int]
    node: ast.AST
    parts: dict[str, int]  # the sites of the operands, by the name of the field
    statement: int = 0  # the line on which its statement begins
    whole: bool = False  # all of a statement's value


class _Rewriter:
    """Wraps a module's expressions, and numbers their sites from `offset`."""

    def __init__(self, text: str, file: str, offset: int):
        self.lines, self.file, self.offset = text.splitlines(keepends=True), file, offset
        self.sites: list[Site] = []
        self.local: list[set[str]] = []  # per open scope, the names that are its own
        self.statement = 0

    # Expressions

    def load(self, node: Any, whole: bool = False) -> Any:
        """An expression that is read, wrapped after its operands."""
        if isinstance(node, (ast.JoinedStr, ast.Slice)) or type(node).__name__ == "TemplateStr":
            return self.inside(node) if isinstance(node, ast.Slice) else node
        if isinstance(node, ast.Constant) and not isinstance(node.value, (int, float, complex)):
            return node
        if isinstance(node, ast.Lambda):
            self.local.append({a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)})
            node.body = self.load(node.body, whole=True)
            self.local.pop()
            return node
        original = _copy(node)
        negative = isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)
        first = len(self.sites)
        node = node if negative else self.inside(node)
        if isinstance(node, ast.Starred) or (isinstance(node, ast.Tuple) and _slices(node)):
            return node
        parts = _parts(original, self.sites[first:], self.offset + first)
        return self.wrap(node, self.site(original, parts, whole))

    def inside(self, node: Any) -> Any:
        """The operands of a node, each in its role: read, written, or left alone."""
        if isinstance(node, ast.Attribute) and node.attr in ABOUT and isinstance(node.value, ast.Name):
            return node
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in ABOUT:
                return node
            if isinstance(node.func, ast.Attribute):
                node.func.value = self.load(node.func.value)
            elif not isinstance(node.func, ast.Name):
                node.func = self.load(node.func)
            node.args = [self.load(arg) for arg in node.args]
            for keyword in node.keywords:
                keyword.value = self.load(keyword.value)
            return node
        if isinstance(node, ast.NamedExpr):
            node.value = self.load(node.value)
            return node
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(node, name, self.load(value))
            elif isinstance(value, list):
                setattr(node, name, [self.element(item) for item in value])
        return node

    def element(self, item: Any) -> Any:
        if isinstance(item, ast.comprehension):
            item.iter = self.load(item.iter)
            item.ifs = [self.load(test) for test in item.ifs]
            return item
        return self.load(item) if isinstance(item, ast.expr) else item

    def store(self, target: Any) -> None:
        """A target: only the indices in it are read."""
        if isinstance(target, ast.Subscript):
            target.slice = self.load(target.slice)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for item in target.elts:
                self.store(item)

    # Statements

    def block(self, statements: list[Any]) -> list[Any]:
        return [made for statement in statements for made in self.run(statement)]

    def run(self, node: Any) -> list[Any]:
        """One statement, and what is passed through the hook after it."""
        self.statement = node.lineno
        original = _copy(node) if isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr)) else node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.local.append(_own_names(node))
            body = self.block(node.body)
            doc = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
            node.body = [*body[:doc], *self.defaults(node.args), *body[doc:]]
            self.local.pop()
            return [node]
        if isinstance(node, ast.ClassDef):
            self.local.append(set())
            node.body = self.block(node.body)
            self.local.pop()
            return [node]
        for name, value in ast.iter_fields(node):
            if name in ("target", "targets", "optional_vars"):
                for target in value if isinstance(value, list) else [value]:
                    self.store(target)
            elif name == "annotation":
                continue
            elif isinstance(value, ast.expr):
                setattr(node, name, self.load(value, whole=True))
            elif isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, self.block(value))
            elif isinstance(value, list):
                for i, item in enumerate(value):
                    if isinstance(item, ast.expr) and not isinstance(node, ast.Delete):
                        value[i] = self.load(item)
                    elif isinstance(item, ast.withitem):
                        item.context_expr = self.load(item.context_expr)
                    elif isinstance(item, (ast.ExceptHandler, ast.match_case)):
                        item.body = self.block(item.body)
                        if isinstance(item, ast.match_case) and item.guard:
                            item.guard = self.load(item.guard)
        self.statement = original.lineno
        return [node, *(self.after(original, name) for name in self.changed(original))]

    def changed(self, node: Any) -> list[Any]:
        """The names that a statement may have changed without naming their new value."""
        if isinstance(node, ast.AugAssign):
            names = [node.target, getattr(node.target, "value", None)]
        elif isinstance(node, ast.Assign):
            names = [item for t in node.targets for item in (t.elts if isinstance(t, ast.Tuple) else [])]
            names += [t.value for t in node.targets if isinstance(t, ast.Subscript)]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            names = [*node.value.args, *(k.value for k in node.value.keywords), getattr(node.value.func, "value", None)]
        else:
            names = []
        names = [_base(name) for name in names]
        own = {name.id: name for name in names if isinstance(name, ast.Name) and name.id in self.local[-1]}
        return list(own.values())

    def after(self, statement: Any, name: ast.Name) -> Any:
        """`x = __at__(i, x)`"""
        unpacked = isinstance(statement, ast.Assign) and not isinstance(statement.targets[0], ast.Subscript)
        site = self.site(name if unpacked else statement, {}, whole=True)
        value = self.wrap(ast.copy_location(ast.Name(name.id, ast.Load()), statement), site)
        target = ast.copy_location(ast.Name(name.id, ast.Store()), statement)
        return ast.copy_location(ast.Assign([target], value), statement)

    def defaults(self, arguments: ast.arguments) -> list[Any]:
        """`axis=0` in a signature: what the argument is when the function begins."""
        positional = [*arguments.posonlyargs, *arguments.args]
        pairs = list(zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults))
        pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults) if d is not None]
        made = []
        for argument, default in pairs:
            if isinstance(default, ast.Constant) and not isinstance(default.value, (int, float)):
                continue
            place = ast.copy_location(ast.Name(argument.arg, ast.Load()), argument)
            place.end_lineno, place.end_col_offset = default.end_lineno, default.end_col_offset
            self.statement = argument.lineno
            value = self.wrap(place, self.site(place, {}, whole=True))
            target = ast.copy_location(ast.Name(argument.arg, ast.Store()), argument)
            made.append(ast.copy_location(ast.Assign([target], value), argument))
        return made

    # Sites

    def site(self, node: Any, parts: dict[str, int], whole: bool) -> int:
        line, end = self.lines[node.lineno - 1], self.lines[node.end_lineno - 1]
        column = len(line.encode()[: node.col_offset].decode())
        last = len(end.encode()[: node.end_col_offset].decode())
        text = [*self.lines[node.lineno - 1 : node.end_lineno]]
        text[-1] = text[-1][:last]
        text[0] = text[0][column:]
        self.sites.append(
            Site(
                self.file,
                node.lineno,
                column + 1,
                "".join(text),
                (node.end_lineno, last + 1),
                node,
                parts,
                self.statement,
                whole,
            )
        )
        return self.offset + len(self.sites) - 1

    def wrap(self, node: Any, number: int) -> Any:
        hook = ast.copy_location(ast.Name(HOOK, ast.Load()), node)
        index = ast.copy_location(ast.Constant(number), node)
        return ast.copy_location(ast.Call(hook, [index, node], []), node)


def _copy(node: Any) -> Any:
    """The node as it was: its operands are replaced one level at a time, so lists need a copy of their own."""
    made = type(node)(**{k: [*v] if isinstance(v, list) else v for k, v in ast.iter_fields(node)})
    if isinstance(node, ast.Call):
        made.func = _copy(node.func) if isinstance(node.func, ast.Attribute) else node.func
        made.keywords = [ast.keyword(k.arg, k.value) for k in node.keywords]
    return ast.copy_location(made, node)


def _slices(node: ast.Tuple) -> bool:
    return any(isinstance(item, ast.Slice) for item in node.elts)


def _base(node: Any) -> Any:
    """The name at the root of x[i][j]."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _parts(node: Any, sites: list[Site], first: int) -> dict[str, int]:
    """Which sites are the operands of this node."""
    operands = {name: value for name, value in ast.iter_fields(node) if isinstance(value, ast.expr)}
    if isinstance(node, ast.Call):
        operands = {str(i): arg for i, arg in enumerate(node.args)}
        if isinstance(node.func, ast.Attribute):
            operands["value"] = node.func.value
    if isinstance(node, ast.Compare) and len(node.comparators) == 1:
        operands["right"] = node.comparators[0]
    at = {
        (s.node.lineno, s.node.col_offset, s.node.end_lineno, s.node.end_col_offset): i  # type: ignore[attr-defined]
        for i, s in enumerate(sites, first)
    }
    found = {k: at.get((v.lineno, v.col_offset, v.end_lineno, v.end_col_offset)) for k, v in operands.items()}
    return {name: number for name, number in found.items() if number is not None}


def _own_names(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The names that are local to a function, less those that belong to a scope inside it."""
    names = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
    todo: list[ast.AST] = [*node.body]
    outside: set[str] = set()
    while todo:
        child = todo.pop()
        if isinstance(child, (ast.Global, ast.Nonlocal)):
            outside |= {*child.names}
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            names.add(child.id)
        if not isinstance(child, (*Scopes, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            todo += ast.iter_child_nodes(child)
    return names - outside


def rewritten(text: str, file: str, offset: int = 0, tree: ast.Module | None = None) -> tuple[CodeType, list[Site]]:
    """A module's text (or a tree made of it, which is used up) as code whose expressions call HOOK, and their
    sites, the first with number `offset`."""
    tree = tree or ast.parse(text)
    rewriter = _Rewriter(text, file, offset)
    rewriter.local.append({n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)})
    tree.body = rewriter.block(tree.body)
    return compile(tree, file, "exec", dont_inherit=True), rewriter.sites
