"""From a run to a report: the findings on every function that was called, or why there are none."""

from typing import Any

from .judge.case import Finding
from .judge.diagnose import diagnose
from .judge.outcome import at_line
from .report import Report
from .run.isolate import Plan, Run


def report_on(run: Run, plan: Plan, function: str | None = None) -> Report:
    """The findings on all functions that a run has called; stubs count only where nothing else is there."""
    if run.load:
        return Report([load_error(run.load)], [])
    findings: list[Finding] = []
    for name, kind in run.kinds.items():
        findings += diagnose(kind, name, plan[kind], run.records[name])
    if not run.kinds:
        findings.append(_nothing_found(run, function))
    written = [f for f in findings if f.id != "error-not-written"]
    if len(run.kinds) > len(findings) - len(written):
        for finding in findings:
            finding.severity = "note" if finding.id == "error-not-written" else finding.severity
    return Report(sorted(findings, key=lambda f: f.severity == "note"), list(run.kinds))


def load_error(error: dict[str, Any]) -> Finding:
    kind = error["error"]
    if kind in ("SyntaxError", "IndentationError", "TabError"):
        where = f"line {error.get('line')}: `{error.get('code')}`"
        text = f"Python cannot read the file: {error['message']}, {where}."
        return Finding("error-syntax", "bug", "", text, "Look at that line, and at the end of the one before it.")
    if kind in ("ImportError", "ModuleNotFoundError"):
        return Finding(
            "error-import",
            "bug",
            "",
            f"The file cannot be imported: {at_line(error)}.",
            "Is the module installed for this Python, or beside the file?",
        )
    if kind in ("FileNotFoundError", "IsADirectoryError", "PermissionError"):
        return Finding("error-no-file", "bug", "", f"The file cannot be read: {error['message']}.")
    hint = {"EOFError": "There is nobody to answer input() during a check; put it under `if __name__ == …`."}
    return Finding(
        "error-load",
        "bug",
        "",
        f"Running the file from top to bottom raises {at_line(error)}.",
        hint.get(kind, 'Code to try things out belongs under `if __name__ == "__main__":`.'),
    )


def _nothing_found(run: Run, function: str | None) -> Finding:
    if run.broke:
        return Finding(
            "error-stopped",
            "bug",
            "",
            f"The file did not load: {run.broke['how']}.",
            'An endless loop or an exit at the top level? `if __name__ == "__main__":` keeps it out.',
        )
    there = f"It defines {', '.join(run.functions)}." if run.functions else "It defines no function."
    wanted = function or "scaled_dot_product_attention(Q, K, V, mask=None)"
    return Finding(
        "error-missing-function",
        "bug",
        function or "",
        f"There is no function {wanted}. {there}",
        "Name another one after a colon: FILE:FUNCTION.",
    )
