"""The line that a mistake's name points to, where looking inside has found no place: the first whose text fits."""

import re

from .case import Finding

_ASSIGNS = r"(^|\W){}\w*\s*(=|,|:)|return"
POINTERS = {  # of each mistake, what its line looks like, the likeliest first
    "mask-pair-opposite": (r"where\(.*mask|masked_fill|mask\s*==|\(1\.?0?\s*-\s*\w*mask", r"mask"),
    "mask-inverted": (r"where\(|masked_fill|-\s*1e\d+|-\s*(np|math|torch)?\.?inf|mask\s*\*", r"mask"),
    "padding-or-causal": (r"[^|]\|=?[^|]|logical_or|\bor\b",),
    "mask-times-inf": (r"\*\s*.*(-\s*1e\d+|inf)|-\s*1e\d+|inf",),
    "mask-fill-small": (r"where\(|masked_fill|-\s*\d+(\.\d*)?\s*$|-\s*\d+",),
    "mask-fill-zero": (r"where\(|masked_fill|\*\s*mask|mask\s*\*",),
    "mask-fill-nan": (r"nan",),
    "mask-after-softmax": (r"\*=?\s*\w*mask|mask\w*\s*\*|where\(",),
    "mask-ignored": (r"def .*mask",),
    "causal-sees-next": (r"tri[ul]|<=|>=|arange",),
    "causal-excludes-self": (r"tri[ul]|<|>|arange",),
    "mask-transposed": (r"tri[ul]|<|>|\.T|transpose|swapaxes",),
    "no-max-subtraction": (r"exp\(",),
    "property-finite-on-large-logits": (r"max\(", r"exp\("),
    "softmax-over-everything": (r"sum\((?!.*(axis|dim|-1|1\)))", r"sum\(", r"softmax"),
    "softmax-over-queries": (r"axis\s*=\s*(0|-2)|dim\s*=\s*(0|-2)", r"sum\(|softmax"),
    "sum-without-keepdims": (r"sum\((?!.*keepdim)", r"max\((?!.*keepdim)"),
    "no-scale": (r"@.*(\.T|transpose|swapaxes|mT)|matmul|einsum|dot",),
    "scale-floor": (r"//|int\(|floor|round|trunc",),
    "scale-precedence": (r"\*\*\s*-?1\s*/\s*2",),
    "scale-n": (r"sqrt|\*\*",),
    "scale-dk": (r"/",),
    "scale-inverted": (r"\*\s*.*(sqrt|\*\*)",),
    "scale-d-model": (r"sqrt|\*\*\s*-?0?\.5",),
    "softmax-backward-elementwise": (r"1\.?0?\s*-\s*\w+",),
    "backward-path-missing": (_ASSIGNS.format("d_?x"),),
    "backward-scale-missing": (r"(d|grad)_?q\w*\s*=", r"(d|grad)_?k\w*\s*=", r"return"),
    "backward-dk-untransposed": (r"(d|grad)_?k\w*\s*=", r"return"),
    "property-gradient-dX": (_ASSIGNS.format("d_?x"),),
    "property-gradient-dQ": (_ASSIGNS.format("(d|grad)_?q"),),
    "property-gradient-dK": (_ASSIGNS.format("(d|grad)_?k"),),
    "property-gradient-dV": (_ASSIGNS.format("(d|grad)_?v"),),
    "property-precision": (r"float16|half\b|round|1e-\d", r"float32"),
    "property-same-answer-twice": (r"dropout|random|rand|bernoulli|shuffle|\w+\s*\+=",),
    "property-stale-mask": (r"is None|not in|hasattr|setdefault|global",),
    "inputs-modified": (r"\w\s*[-+*/]=|\]\s*=[^=]",),
    "heads-split-without-transpose": (r"reshape|view\(",),
    "heads-merge-without-transpose": (r"reshape\(.*\)|view\(|flatten",),
    "heads-same-slice": (r"slice|\[.*:.*\]|\[\.\.\.",),
    "kv-heads-tiled": (r"tile|concatenate|expand|repeat",),
    "no-output-projection": (r"return",),
    "value-is-key": (r"return|@",),
    "weights-not-used": (r"einsum|return|@",),
    "weights-thresholded": (r"where|[<>]",),
    "softmax-twice": (r"softmax\(.*softmax|softmax",),
    "softmin": (r"-",),
}


def points(finding: Finding, parts: list[tuple[int | None, str]]) -> None:
    """Give a finding the line that its name points to; the last fitting one for what a program ends with."""
    for pattern in POINTERS.get(finding.id, ()):
        for cell, code in parts:
            within = _lines_of(code, finding.function)
            for number, line in within:
                text = line.split("#")[0]
                if (
                    text.strip()
                    and not text.lstrip().startswith(("import", "from", '"'))
                    and re.search(pattern, text, re.I)
                ):
                    finding.line, finding.text, finding.cell = number, text.strip(), cell
                    return


def _lines_of(code: str, function: str) -> list[tuple[int, str]]:
    """The lines of a text, without what stands in docstrings; those of the function itself come first."""
    lines = list(enumerate(code.split("\n"), 1))
    quoted = False
    kept = []
    for number, line in lines:
        marks = line.count('"""') + line.count("'''")
        if not quoted and not marks:
            kept.append((number, line))
        quoted ^= marks % 2 == 1
    start = next((n for n, line in kept if re.match(rf"\s*(def|class) {re.escape(function.split('.')[0])}\b", line)), 1)
    return [one for one in kept if one[0] >= start] + [one for one in kept if one[0] < start]
