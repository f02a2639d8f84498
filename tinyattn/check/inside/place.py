"""Which inputs a program is looked into on, and what its finding says of the place."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ..judge.case import Case, Finding
from ..judge.outcome import evaluate
from ..known.mutants import Edit
from ..known.probes import Probe
from .steps import WORDS, names_of, numbers, passing, steps

SIZE = 700  # numbers in an input, at most
LOOKS = 3  # findings whose place is looked for, at most
SECONDS = 1.2  # of processor time for each program
UNEXPLAINED = {"property-wrong-values", "property-mask"}  # findings that say no more than that it is wrong
Look = dict[str, Any]


def example(kind: str, edits: tuple[Edit, ...], probe: Probe) -> dict[str, Any]:
    """An input with all that is right on it, ready for repair.search."""
    return {
        "args": probe.args,
        "right": evaluate(kind, edits, probe),
        "steps": [tuple(step) for step in steps(kind, edits, probe)],
        "numbers": numbers(kind, probe),
        "passing": passing(kind, edits, probe),
        "lines": [*WORDS.values()],
    }


def far(kind: str) -> list[Probe]:
    """Large scores whose softmax stays undecided: a one-hot row is right whatever the scores are."""
    names, rng = names_of(kind), np.random.default_rng(3)
    if "Q" not in names:
        return []
    made = []
    for n, m, dk, dv in ((3, 4, 5, 2), (4, 3, 6, 5)):
        Q, K, V = rng.normal(size=(n, dk)), rng.normal(size=(m, dk)), rng.normal(size=(m, dv))
        Q[:, 0], K[:, 0] = 100 * np.sqrt(dk) * (-1.0) ** np.arange(n), 30.0
        args = (rng.normal(size=(n, dv)),) if names[0] == "dO" else ()
        made.append(Probe(f"scores of ±3000, {n} × {m}", "large", (*args, Q, K, V)))
    return made


def low(kind: str) -> list[Probe]:
    """Allowed scores about −50000 that differ: where they are equal, the mask alone makes the right weights."""
    if kind.partition("/")[0] != "scaled_dot_product_attention":
        return []
    rng, made = np.random.default_rng(4), []
    for n, dk, dv in ((4, 5, 2), (3, 6, 5)):
        allowed = np.tri(n, dtype=bool)
        Q, K, V = rng.normal(size=(n, n + dk)), rng.normal(size=(n, n + dk)), rng.normal(size=(n, dv))
        Q[:, :n], K[:, :n] = -5e4 * np.sqrt(n + dk) * allowed, np.eye(n)
        made.append(Probe(f"mask, allowed scores near −50000, {n} × {n}", "fill", (Q, K, V, allowed)))
    return made


def distinct(probe: Probe) -> int:
    """How many sizes an input has that can be told apart."""
    shapes = {size for a in probe.args for size in np.shape(a)} | {a for a in probe.args if isinstance(a, int)}
    heads = [a for a in probe.args if isinstance(a, int)] if len(probe.args) > 1 else []
    shapes |= {probe.args[0].shape[-1] // h for h in heads}
    return len(shapes - {1})


def pair(wrong: list[Probe], raised: Callable[[Probe], bool]) -> list[Probe]:
    """Two of the inputs on which a program is wrong: their sizes differ, and can be told apart."""
    fair = [p for p in wrong if p.size <= SIZE] or wrong
    fair = sorted(fair, key=lambda p: (raised(p), -distinct(p), p.size))
    first = fair[0]
    shapes = [np.shape(a) for a in first.args]
    other = [p for p in fair if [np.shape(a) for a in p.args] != shapes] or fair[1:]
    return [first, *other[:1]]


def looks(case: Case) -> list[tuple[Finding, Look]]:
    """For each bug how to find its place: on which inputs, and what is right there. Of two mistakes, each is
    looked for with the other one taken for right."""
    made: list[tuple[Finding, Look]] = []
    for finding in [f for f in case.findings if f.severity == "bug" and not f.id.startswith("error-") and not f.line]:
        if finding.id == "inputs-modified":
            changed = [p for p in case.probes.values() if case.learner[p.name].record.get("changed")]
            probe = next(iter(changed or case.probes.values()))
            made.append((finding, {"args": probe.args}))
            continue
        edit = case.because.get(finding.id)
        others = tuple(e for e in case.edits if e is not edit)
        wrong = _wrong(case, others, finding)
        if wrong and len(made) < LOOKS:
            made.append((finding, _job(case, others, wrong, finding)))
            if edit is None and finding.id.startswith("property-"):
                break  # the properties are signs of one mistake, and the first gets its place
    return [(f, look | {"seconds": SECONDS / len(made)}) for f, look in made]


def _wrong(case: Case, edits: tuple[Edit, ...], finding: Finding) -> list[Probe]:
    """The inputs of the first group on which the program is wrong, if these edits are taken for right."""
    shown = case.probes.get(finding.evidence.get("input", ""))
    groups = [shown.group] if shown and shown.group != "pair" else []
    for group in (*groups, "plain", "masked", "large", "fill", "dominated", "batch"):
        wrong = [p for p in case.group(group) if not case.agrees_with(p, edits)]
        if wrong:
            return wrong
    return []


def _job(case: Case, edits: tuple[Edit, ...], wrong: list[Probe], finding: Finding) -> Look:
    shown = case.probes.get(finding.evidence.get("input", ""), wrong[0])
    shown = shown if shown in wrong else wrong[0]
    chosen = pair(wrong, case.broken)
    telling = {"large": far, "fill": low, "dominated": low}.get(wrong[0].group)
    tries = list(filter(None, [telling(case.kind) if telling else [], chosen]))
    return {
        "tries": [[example(case.kind, edits, probe) for probe in probes] for probes in tries],
        "shown": example(case.kind, edits, shown),
        "input": shown.name,
        "causal": case.kind == "causal_mask",
        "others": len(edits),
    }


def told(finding: Finding, record: dict[str, Any], look: Look) -> None:
    """What was found, into the finding: place, words, numbers; the replacing text is part of the solution."""
    finding.line, finding.column, finding.text = record["line"], record["column"], record["text"]
    finding.place = "proven"
    cell = re.search(r", cell (\d+)$", record["file"])
    finding.cell = int(cell[1]) if cell else None
    here: dict[str, Any] = {"code": record["code"]}
    if "needed" in record:
        outputs = {1: ("output",), 3: ("dQ", "dK", "dV"), 4: ("dX", "dWq", "dWk", "dWv")}[len(look["shown"]["right"])]
        gives = f"your own code gives the right {outputs[record['which']]}"
        gives = "this mistake is gone" if look["others"] else gives
        if len(finding.text.splitlines()) > 1:
            finding.text = finding.text.splitlines()[0] + " …"
        if record.get("shown") and look["input"] == finding.evidence.get("input", look["input"]):
            here |= {key: np.array(record[key]) for key in ("yours", "right")}
        needed = record["needed"] + "," * ("," in record["needed"])
        here["says"] = f"{where(finding)}, `{finding.text}`: with {needed} here, {gives}."
        here["needed"] = record["needed"]
        mended = f"# {where(finding).lower()}: {record['instead']}, in the place of {finding.text}"
        finding.solution = f"{finding.solution}\n{mended}".strip()
        if finding.id in UNEXPLAINED:
            finding.message = here["says"]
    finding.evidence = {**finding.evidence, "here": here}


def where(finding: Finding) -> str:
    return f"Cell {finding.cell}, line {finding.line}" if finding.cell else f"Line {finding.line}"
