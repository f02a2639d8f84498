"""Looking inside a learner's program: the hook changes nothing, and one right value shows where the mistake is."""

import builtins
import functools
import json
import linecache
import math
import re
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest
from learners.corpus import programs

from tinyattn.check import check_file
from tinyattn.check.inside import place, repair
from tinyattn.check.inside.live import Program
from tinyattn.check.inside.rewrite import HOOK, rewritten
from tinyattn.check.judge.outcome import close, evaluate
from tinyattn.check.known import mutants, reference
from tinyattn.check.known.probes import KINDS, probes
from tinyattn.check.run import child


@pytest.fixture(autouse=True)
def untraced():
    """The search has a limit of processor time, and a measure of coverage makes it several times slower."""
    trace = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(trace)


SDPA = "scaled_dot_product_attention"


def load(source, name="<learner>", **more):
    """The names that a text defines, with its lines where tracebacks find them."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    names = {"np": np, "math": math, "__name__": "learner", **more}
    exec(compile(source, name, "exec"), names)
    return names


# The hook


def spread(kind):
    """A probe of each group."""
    return list({p.group: p for p in probes(kind) if p.size < 300 and p.group in ("plain", "masked", "large")}.values())


@pytest.mark.parametrize("name", ["correct", "mutants", "pairs", "unlisted"])
def test_results_and_exceptions_are_bit_for_bit_those_of_the_program_as_it_was(name):
    for title, source in programs(name):

        def answers(inside, title=title, source=source):
            names = load(source, f"<{title}>")
            kind = next(kind for kind in KINDS if kind in names)
            with Program([names[kind]] if inside else []) as program:
                assert bool(program.sites) == inside
                np.random.seed(0)  # noqa: NPY002  a learner's own
                return json.dumps([child.call(names[kind], p.args, p.read_only, f"<{title}>") for p in spread(kind)])

        try:
            assert answers(True) == answers(False), title
        except SyntaxError:
            continue


HARD = '''
import functools
class Base:
    __hidden = 3
    def twice(self, x): return 2 * x
class Child(Base):
    scale: float = 2.0
    def twice(self, x):
        self.__hidden = super().twice(x)
        return self.__hidden
    @staticmethod
    def half(x): return x / 2
    @classmethod
    def made(cls): return cls()
    @property
    def three(self): return self.scale + 1
def outer(a, /, b=2, *rest, c=3, **more):
    """Says nothing."""
    count = 0
    def inner(x):
        nonlocal count
        count += 1
        return x + count
    got = [inner(i) for i in range(b) if (j := i) or True]
    first, *others = got
    text = f"{first:>{b}} {others!r}"
    match a:
        case [x, y] if x < y: kind = "pair"
        case {"k": v}: kind = v
        case _: kind = None
    try:
        more["gone"]
    except KeyError as error:
        kept = repr(error)
    finally:
        count -= -1
    def numbers():
        got = yield 1
        yield got
    steps = numbers()
    next(steps)
    more |= {"minus": (lambda q, *z: -q)(1), **more}
    return got, j, text, kind, kept, steps.send(5), count, c, rest, sorted(more)
def world():
    global seen
    seen = 1
    seen += 1
    data = {"a": [1, 2, 3]}
    data["a"][0] += 5
    data["a"][1:] = [7]
    del data["a"][0]
    a = np.zeros((2, 3)); a[..., 1:] = 4; a[a > 3] -= 1
    np.add(a, 1, out=a)
    assert a.sum() > 0, "never"
    with np.errstate(all="ignore"):
        b = a[0] / a[1] if len(a) else None
    return seen, data, a.tolist(), [*map(float, b)], 1 < 2 < 3, not a.any(), a.T.shape, -1, 3 % 2 ** 2, set(range(3))
def fails(x):
    y = x + 1
    return [v / (v - 3)
            for v in (1, y)]
'''


def test_all_of_the_language_means_what_it_meant():
    def all_of_it(names):
        child, outer = names["Child"].made(), names["outer"]
        told = [child.twice(4), child.half(3), child.three, sorted(vars(child))]
        told += [outer([1, 2], more=1), outer({"k": 7}, 3, 4, c=5), names["world"](), names["seen"]]
        try:
            names["fails"](2)
        except ZeroDivisionError as error:
            frames = traceback.extract_tb(error.__traceback__)[1:]
            told.append((str(error), [(f.name, f.lineno) for f in frames]))
        return repr(told)

    plain = all_of_it(load(HARD, "<hard>"))
    names = load(HARD, "<hard>")
    roots = [names[n] for n in ("Child", "outer", "world", "fails")]
    with Program(roots) as program:
        seen = []
        program.hook = lambda number, value: seen.append(number) or value
        assert all_of_it(names) == plain
    assert len(set(seen)) > 80
    assert not hasattr(builtins, HOOK)
    assert all_of_it(names) == plain


def test_sites_say_where_they_are_in_characters():
    _, sites = rewritten("ä = 'ö' * 2 + str(3)\nb = (1 +\n     ä)\n", "<text>")
    assert [(s.line, s.column, s.text) for s in sites if s.whole] == [(1, 5, "'ö' * 2 + str(3)"), (2, 6, "1 +\n     ä")]


def _decorated(f):
    @functools.wraps(f)
    def around(*args, **kwargs):
        return f(*args, **kwargs)

    return around


LIVE = """
def plain(x): return x + 1
class Layer:
    def forward(self, x): return x + 1
    def __call__(self, x): return self.forward(x)
    @staticmethod
    def still(x): return x + 1
    @classmethod
    def kind(cls, x): return x + 1
def maker(d):
    def made(x): return x + d
    return made
counted = around(lambda x: x + 1)
cached = functools.lru_cache(lambda x: x + 1)
part = functools.partial(lambda y, x: x + y, 1)
def helped(x): return plain(x)
"""


@pytest.mark.parametrize(
    "pick",
    [
        "plain",
        "Layer().forward",
        "Layer()",
        "Layer.still",
        "Layer.kind",
        "maker(1)",
        "counted",
        "cached",
        "part",
        "helped",
    ],
)
def test_live_functions_of_every_form_are_looked_into_and_put_back(pick):
    names = load(LIVE, f"<live {pick}>", around=_decorated, functools=functools)
    function = eval(pick, names)
    with Program([function]) as program:
        program.hook = lambda number, value: (
            value + 10 if program.sites[number].text in ("x + 1", "x + d", "x + y") else value
        )
        assert function(1) == 12
    assert function(2) == 3


# The repair


def look(source, kind=SDPA, edits=(), seconds=2.0, **more):
    """The place that is told of a program: on two inputs of the first group on which it is wrong."""
    name = f"<look {abs(hash(source))}>"
    function = load(source, name, **more)[kind]

    def call(*args):
        value = function(*args)
        backward = kind.endswith("backward")
        value = value[0] if isinstance(value, tuple) and not backward else value
        return tuple(np.asarray(v, float) for v in (value if backward else (value,)))

    def grade(probe):
        """0 right, 1 wrong, 2 raised"""
        right = evaluate(kind, edits, probe)
        try:
            with np.errstate(all="ignore"):
                return (
                    0
                    if right is None
                    else int(not close(call(*(np.copy(a) if np.ndim(a) else a for a in probe.args)), right))
                )
        except Exception:
            return 2

    for group in ("plain", "masked", "large"):
        made = [p for p in probes(kind) if p.group == group]
        if group == "large" and any(map(grade, made)):
            made = place.far(kind) or made
        wrong = [p for p in made if grade(p)]
        if wrong:
            pair = place.pair(wrong, lambda p: grade(p) == 2)
            examples = [place.example(kind, edits, p) for p in pair]
            shown = place.example(kind, edits, wrong[0])
            return repair.search(call, Program([function]), {"examples": examples, "shown": shown, "seconds": seconds})
    raise AssertionError("it is right")


HEAD = "def scaled_dot_product_attention(Q, K, V, mask=None):\n"
TAIL = """    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ V
"""


@pytest.mark.parametrize(
    ("source", "line", "text", "needed"),
    [
        (f"{HEAD}    s = Q @ K.T / np.sqrt(len(Q))\n{TAIL}", 2, "len(Q)", "dk, the width of a key"),
        (f"{HEAD}    s = Q @ K.T / K.shape[-1] ** 1 / 2\n{TAIL}", 2, "", ""),
        (
            f"{HEAD}    s = Q @ K.T // np.sqrt(K.shape[-1])\n{TAIL}",
            2,
            "Q @ K.T // np.sqrt(K.shape[-1])",
            "/ between the two",
        ),
        (f"{HEAD}    s = Q @ Q.T / np.sqrt(K.shape[-1])\n{TAIL}", 2, "Q", "K"),
        (f"{HEAD}    s = Q @ K.T / np.sqrt(K.shape[-1])\n{TAIL[:-2]}K\n", 6, "K", "V"),
        (f"{HEAD}    s = np.tanh(Q @ K.T) / np.sqrt(K.shape[-1])\n{TAIL}", 2, "np.tanh(Q @ K.T)", "`Q @ K.T` alone"),
        (f"{HEAD}    s = Q @ K.T\n{TAIL}", 2, "Q @ K.T", "the scores divided by √dk"),
        (f"{HEAD}    s = Q @ K.T / np.sqrt(K.shape[-1])\n{TAIL.replace('(mask', '(~mask')}", 4, "mask", ""),
        (f"{HEAD}    s = Q @ K.T / np.sqrt(K.shape[-1])\n{TAIL.replace('-np.inf', '-5')}", 4, "-5", ""),
        (
            f"{HEAD}    s = Q @ K.T / np.sqrt(K.shape[-1])\n{TAIL.replace(' - s.max(axis=-1, keepdims=True)', '')}",
            5,
            "s",
            "the scores less each row's maximum",
        ),
        (
            f"{HEAD}    s = Q @ K.T / np.sqrt(K.shape[-1])\n{TAIL.replace('s.max(axis=-1, keepdims=True)', 's.max()')}",
            5,
            "s.max()",
            "rowmax(scores)",
        ),
        (f"{HEAD}    s = Q @ K.T / np.sqrt(K.shape[-1])\n{TAIL.replace('e.sum(axis=-1', 'e.sum(axis=0')}", 6, "0", "1"),
    ],
)
def test_one_right_value_in_the_place_of_the_mistake_makes_the_program_right(source, line, text, needed):
    found = look(source)
    assert found["line"] == line
    assert text in (found["text"], "")
    assert needed in (found["needed"], "")
    column = source.splitlines()[line - 1].find(found["text"].splitlines()[0]) + 1
    assert not text or source.splitlines()[line - 1][found["column"] - 1 :].startswith(found["text"])
    assert column > 0


LOOPS = """def softmax(row):
    top = max(row)
    exps = [math.exp(x - top) for x in row]
    return [e / sum(exps) for e in exps]

def scaled_dot_product_attention(Q, K, V, mask=None):
    Q, K, V = Q.tolist(), K.tolist(), V.tolist()
    out = []
    for i, q in enumerate(Q):
        scores = [sum(a * b for a, b in zip(q, k)) / math.sqrt(len(q)) for k in K]
        if mask is not None:
            scores = [s if mask[i][j] else -math.inf for j, s in enumerate(scores)]
        w = softmax(scores)
        out.append([sum(w[j] * v[c] for j, v in enumerate(V)) for c in range(len(V[0]))])
    return out
"""


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("math.sqrt(len(q))", "math.sqrt(len(K))", 10),
        ("if mask[i][j]", "if not mask[i][j]", 12),
        ("e / sum(exps)", "e", 4),
    ],
)
def test_lists_and_loops_over_single_numbers(old, new, line):
    assert abs(look(LOOPS.replace(old, new))["line"] - line) <= 1


def test_no_maximum_that_raises():
    assert look(LOOPS.replace("x - top", "x"))["line"] in (2, 3)


def test_what_is_told_is_true():
    """The right value, written in the place that is named, makes the program right."""
    source = f"{HEAD}    s = Q @ K.T / np.sqrt(Q.shape[-2])\n{TAIL}"
    found = look(source)
    lines = source.splitlines()
    at = found["column"] - 1
    row = lines[found["line"] - 1]
    lines[found["line"] - 1] = row[:at] + found["instead"] + row[at + len(found["text"]) :]
    mended = load("\n".join(lines) + "\n")[SDPA]
    for probe in probes(SDPA):
        if probe.group in ("plain", "masked"):
            assert close((mended(*probe.args),), evaluate(SDPA, (), probe))


def test_with_another_mistake_in_it_the_first_is_still_found():
    """Two mistakes: each is looked for with the other one taken for right."""
    ids = "no-scale", "mask-inverted"
    edits = [mutants.BY_ID[id].edits[0] for id in ids]
    source = mutants.source(SDPA, tuple(edits))
    lines = [
        source.splitlines().index(text) + 1
        for text in ("    scores = Q @ K.swapaxes(-1, -2)", "        allowed = ~mask")
    ]
    found = [look(source, edits=(other,), **vars(reference)) for other in edits[::-1]]
    assert [f["line"] for f in found] == lines


def test_gradients_are_judged_one_by_one():
    edit = {"dK": "dK = dS.swapaxes(-1, -2) @ Q", "dV": "dV = P.swapaxes(-1, -2) @ (2 * dO)"}
    kind = f"{SDPA}_backward"
    source = mutants.source(kind, (edit,))
    found = look(source, kind, **vars(reference))
    assert "dS.swapaxes(-1, -2) @ Q" in source.splitlines()[found["line"] - 1]


def test_nothing_is_said_of_a_program_that_comes_right_by_itself():
    body = "    s = Q @ K.T / np.sqrt(K.shape[-1]) * (2 if len(calls) < 40 else 1)\n"
    assert look(f"calls = []\n{HEAD}    calls.append(1)\n{body}{TAIL}") is None


def test_an_endless_loop_after_a_change_ends():
    loop = f"{HEAD}    i = 0\n    while i < 1:\n        i = i + 1\n    s = Q @ K.T\n{TAIL}"
    assert look(loop)["line"] == 5


def test_the_place_where_an_input_is_overwritten():
    names = load(f"{HEAD}    s = Q @ K.T\n    t = Q\n    t /= np.sqrt(Q.shape[1])\n    return s\n", "<written>")
    args = tuple(np.ones((2, 3)) for _ in range(3))
    assert repair.watch(names[SDPA], Program([names[SDPA]]), args)["line"] == 4
    assert repair.watch(names[SDPA], Program([]), args) is None


# What is said


def test_a_finding_has_its_place_in_json_and_the_replacing_text_only_in_the_solution(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(f"import numpy as np\n{HEAD}    s = Q @ K.T / np.sqrt(K.shape[-1])\n{TAIL[:-2]}K\n")
    report = check_file(file)
    (finding,) = report.to_json()["findings"][:1]
    assert (finding["line"], finding["text"], finding["cell"]) == (7, "K", None)
    assert finding["column"] == 48
    assert finding["evidence"]["here"]["needed"] == "V"
    assert "line 7: V, in the place of K" in finding["solution"]
    text = repr(report)
    assert "`K`: with V here, your own code gives the right output." in text
    assert "in the place of" not in text


def test_the_readme_shows_what_the_check_prints():
    """Each command of its section; … stands for what is left out."""
    root = Path(__file__).parents[1]
    section = (root / "README.md").read_text(encoding="utf-8").partition("## Check your own attention")[2]
    shown = dict(re.findall(r"^\$ python -m tinyattn check (docs/\S+)\n(.*?)\n     …$", section, re.S | re.M))
    assert len(shown) == 3
    for target, text in shown.items():
        if "torch" in target:
            pytest.importorskip("torch")
        path, _, function = target.partition(":")
        printed = repr(check_file(root / path, function or None))
        assert printed.split()[: len(text.split())] == text.split()  # lines end where the terminal does


@pytest.mark.parametrize(
    ("masked", "text", "needed"),
    [
        ("s = np.where(mask, s, -10000)", "-10000", "−∞"),
        ("s = np.where(mask, s, 0)", "0", "−∞"),
        ("s = np.where(mask, -1e4, s)", "-1e4", "−∞"),
        ("s = s + (1 - mask) * -1e4", "-1e4", "−1e9"),  # −∞ · 0 would be NaN
        ("pass", "Q @ K.T / np.sqrt(Q.shape[-1])", "the scores with −∞ where attending is forbidden"),
    ],
)
def test_the_place_of_a_fill_is_the_fill(tmp_path, masked, text, needed):
    """Not a right line where, by chance, the mask alone would do; and what is needed is not refused itself."""
    file = tmp_path / "mine.py"
    file.write_text(
        f"""import numpy as np

def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    if mask is not None:
        {masked}
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ V
""",
        encoding="utf-8",
    )
    bug = next(f for f in check_file(file).findings if f.severity == "bug")
    assert bug.id.startswith("mask-")
    assert (bug.place, bug.text, bug.evidence["here"]["needed"]) == ("proven", text, needed)
