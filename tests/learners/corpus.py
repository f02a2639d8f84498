"""Reads the learners' programs of this folder, and runs one the way the child process does."""

import contextlib
import io
import math
import re
from functools import cache
from pathlib import Path

import numpy as np

from tinyattn.check.judge.case import Finding
from tinyattn.check.judge.diagnose import diagnose
from tinyattn.check.run import child
from tinyattn.check.run.isolate import _job, full_plan

PLAN = full_plan()


def programs(name: str) -> list[tuple[str, str]]:
    """(title, source) of each program in a file of this folder."""
    parts = re.split(r"^# === (.*)$", Path(__file__).with_name(f"{name}.py").read_text(), flags=re.M)[1:]
    return list(zip(parts[::2], parts[1::2]))


def findings_on(function, kind: str) -> list[Finding]:
    records = {}

    def keep(record):
        if "probe" in record:
            records[record["probe"]] = record

    with contextlib.redirect_stdout(io.StringIO()):
        child.run({kind: function}, _job("", None, PLAN, kind), keep)
    return diagnose(kind, kind, PLAN[kind], records)


@cache
def check(source: str) -> list[Finding]:
    """The findings on the one known function that a source defines."""
    names = {"np": np, "math": math}
    exec(source, names)
    (kind,) = [kind for kind in PLAN if kind in names]
    return findings_on(names[kind], kind)


def bugs(findings: list[Finding]) -> list[str]:
    return [finding.id for finding in findings if finding.severity == "bug"]
