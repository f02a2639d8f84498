"""What a test proves: every mutant against every probe, all measured."""

import linecache
import zlib
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from .inside import place
from .inside.repair import look_inside
from .judge.case import Finding
from .judge.diagnose import diagnose, examine
from .judge.lines import SURE, points
from .judge.outcome import Arrays, close, evaluate
from .known import mutants, reference
from .known.mutants import MUTANTS, Edit, Mutant, lines_named
from .known.probes import ARGUMENTS, BATCHED, Probe, probes
from .run import child

UNJUDGED = (
    "empty",
    "float-mask",
    "float-twin",
    "finite",
    "per-entry",
    "broadcast",
    "again",
    "read-only",
    "divides",
)


def applies(mutant: Mutant, kind: str) -> bool:
    """Whether the mistake can be made in this function, and shows there."""
    named = lines_named(kind).keys()
    if not mutant.edits[0]:
        return kind == "scaled_dot_product_attention"
    edit = mutant.edits[0]
    masked = bool(edit.keys() & {"which", "mask"}) and kind == "cross_attention"
    return bool(edit.keys() & named) and not masked


def _written(mutant: Mutant) -> Edit:
    """Its first edit, with a number if one is wanted."""
    return {name: text.replace(mutants.FILL, "-10.0") for name, text in mutant.edits[0].items()}


def home(mutant: Mutant) -> tuple[str, Edit]:
    """The first function in which a mistake can be made, and its edit with a number if one is wanted."""
    kind = next(kind for kind in ARGUMENTS if applies(mutant, kind))
    return kind, _written(mutant)


def records(kind: str, edit: Edit) -> dict[str, dict[str, Any]]:
    """What the check would record of this program."""
    function, told = mutants.program(kind, (edit,)), {}
    assert function is not None
    job = {
        "path": "",
        "kind": kind,
        "batched": BATCHED,
        "plan": {kind: [(p.name, p.args, p.read_only) for p in probes(kind)]},
    }

    def keep(record: dict[str, Any]) -> None:
        if "probe" in record:
            told[record["probe"]] = record

    child.run({kind: function}, job, keep)
    return told


def killed(kind: str, edit: Edit, probe: Probe) -> bool:
    """Whether comparing with the right numbers on this one input gives the mutant away."""
    right, wrong = evaluate(kind, (), probe), evaluate(kind, (edit,), probe)
    return right is not None and (wrong is None or not close(wrong, right))


def lessons_asserts(kind: str, edit: Edit) -> tuple[bool, bool]:
    """The two asserts of the lesson: whether `rows sum to 1` and `nothing above the diagonal` fail."""
    Q, K = np.random.default_rng(1).normal(size=(2, 6, 4))
    right = mutants.program("scaled_dot_product_attention", ())
    broken = mutants.program("scaled_dot_product_attention", () if kind == "causal_mask" else (edit,))
    maker = mutants.program("causal_mask", (edit,) if kind == "causal_mask" else ())
    assert right is not None
    assert broken is not None
    assert maker is not None
    with np.errstate(all="ignore"):
        weights = broken.__globals__["attention_weights"](Q.copy(), K, maker(6))
    return not np.allclose(weights.sum(axis=-1), 1), not np.allclose(np.triu(weights, 1), 0)


def pointed(kind: str, edit: Edit, seconds: float = 20.0) -> bool:
    """Whether the line that was edited is found, or one beside it: by looking inside, else by its text."""
    text, right = mutants.source(kind, (edit,)) or "", mutants.source(kind) or ""
    wrong, lines = text.splitlines(), set[int]()
    for tag, _, _, start, end in SequenceMatcher(None, right.splitlines(), wrong, autojunk=False).get_opcodes():
        lines |= set(range(start, max(end, start + 1) + 1)) if tag != "equal" else set()
    file = f"<{kind}, {len(text)}, {zlib.crc32(text.encode())}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {**vars(reference), mutants.FILL: -10.0, mutants.KEPT: {}}
    exec(compile(text, file, "exec"), names)
    function = names[kind]
    case = examine(kind, kind, probes(kind), records(kind, edit))
    named = case.findings[0]
    if named.id in SURE:
        points(named, [(None, text)])
    found = place.looks(case)

    def call(*args: Any) -> Arrays:
        value = function(*args)
        return value if isinstance(value, tuple) else (np.asarray(value),)

    told = look_inside(call, [function], found[0][1] | {"seconds": seconds}) if found else None
    if not named.line:
        points(named, [(None, text)])
    line = told["line"] if told else named.line or -9
    return any(abs(line - edited) <= 1 for edited in lines)


def places() -> dict[tuple[str, str], bool]:
    """For each mistake of the tables, whether its line is found."""
    found = {}
    for kind in ARGUMENTS:
        for mutant in (m for m in MUTANTS if m.severity == "bug" and applies(m, kind)):
            if kind not in (home(mutant)[0], "causal_mask"):
                continue
            found[kind, mutant.id] = pointed(kind, _written(mutant))
    return found


def third(found: dict[tuple[str, str], bool]) -> list[str]:
    """What is said of the lines that are found."""
    lines = [
        "## Where it is",
        "",
        "How often the line is found (or one beside it), by looking inside, else by its text:",
        "",
    ]
    lines += ["| function | lines found | not found |", "|---|---|---|"]
    for kind in dict.fromkeys(kind for kind, _ in found):
        mine = {id: hit for (k, id), hit in found.items() if k == kind}
        misses = ", ".join(id for id, hit in mine.items() if not hit) or "–"
        lines.append(f"| {kind} | {sum(mine.values())} of {len(mine)} | {misses} |")
    return [*lines, ""]


def markdown(where: dict[tuple[str, str], bool] | None = None) -> str:
    """The kill matrix as Markdown: one table per function, a legend under each; and where the mistakes are
    found, which takes a minute, unless that is known already."""
    lines = [
        "# The kill matrix",
        "",
        "What a test proves: each row is a mistake, each column a test, ✗ where the "
        "test catches it. The first two are the asserts that lessons usually end with; the numbered "
        "ones compare with the right numbers on one input each. The last column is what `check` calls it.",
        "",
        "Made by `python -m tinyattn check --matrix`; the test suite fails if a mistake is not named.",
        "",
    ]
    let_through, total = 0, 0
    for kind in ARGUMENTS:
        columns = [p for p in probes(kind) if p.group not in (*UNJUDGED, "pair", "float32")]
        table = [m for m in MUTANTS if applies(m, kind) and kind in (home(m)[0], "causal_mask")]
        if not table:
            continue
        lines += [
            f"## {kind}",
            "",
            "| mistake | rows sum to 1 | nothing above the diagonal | inputs untouched | "
            + " | ".join(str(i) for i in range(1, len(columns) + 1))
            + " | named |",
            "|---" * (len(columns) + 5) + "|",
        ]
        for mutant in table:
            edit = _written(mutant)
            asserts = lessons_asserts(kind, edit)
            made = records(kind, edit)
            found = diagnose(kind, kind, probes(kind), made)
            name = found[0].id if found else "–"
            note = f" ({found[0].severity})" if found and found[0].severity == "note" else ""
            cells = [
                *asserts,
                any("changed" in record for record in made.values()),
                *(killed(kind, edit, p) for p in columns),
            ]
            lines.append(f"| {mutant.id} | " + " | ".join("✗" if c else "" for c in cells) + f" | {name}{note} |")
            if mutant.severity == "bug":
                total, let_through = total + 1, let_through + (not any(asserts))
        lines += ["", "; ".join(f"{i} {p.name}" for i, p in enumerate(columns, 1)) + ".", ""]
    lines += [f"The two asserts let {let_through} of these {total} wrong programs through.", ""]
    lines += third(places() if where is None else where)
    return "\n".join(lines)


def shown(mutant: Mutant, kind: str, edit: Edit) -> Finding:
    """The finding that the check makes of this mutant."""
    found = diagnose(kind, kind, probes(kind), records(kind, edit))
    named = next(f for f in found if f.id == mutant.id)
    named.severity = "bug"  # so that its evidence is shown
    return named
