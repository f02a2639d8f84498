"""The line that a mistake's name points to: the first whose text fits. That is likely, and not proven; it is told of
where looking inside has found no place, or where the text is the mistake itself (SURE)."""

import re

from .case import Finding

SURE = {
    "heads-split-and-merge",
    "accumulator-not-rescaled",
    "kv-heads-tiled",
    "dropout-at-inference",
    "padding-or-causal",
    "scale-precedence",
    "heads-split-without-transpose",
}
LAST = {"heads-merge-without-transpose", "no-output-projection", "value-is-key", "weights-not-used"}
_ADDS = r"(?P<sum>\w+)(\[[^\]]*\])?\s*(\+=|=\s*(?P=sum)(\[[^\]]*\])?\s*\+)\s*(?!\d|\w*(block|size|step)|b[rc]\b)"
_ASSIGNS = r"(^|\W){}\w*\s*(=|,|:)|return"
POINTERS = {  # of each mistake, what its line looks like, the likeliest first
    "mask-pair-opposite": (
        r"where\(.*mask|masked_fill|mask\s*==|\(1\.?0?\s*-\s*\w*mask",
        r"mask\w*\s*\*|\*\s*\w*mask|\+=?\s*\w*mask|\[.*mask.*\]\s*=",
        r"mask",
    ),
    "mask-inverted": (r"where\(|masked_fill|-\s*1e\d+|-\s*(np|math|torch)?\.?inf|mask\s*\*", r"mask"),
    "padding-or-causal": (r"^(?!\s*def\b)(?!.*\|\s*None).*([^|]\|=?[^|]|logical_or)", r"\bor\b"),
    "mask-times-inf": (r"\*\s*.*(-\s*1e\d+|inf)|-\s*1e\d+|inf",),
    "mask-fill-small": (
        r"(where|masked_fill)\(.*-|where\(|masked_fill|mask.*=\s*-|mask.*\*\s*-",
        r"-\s*\d+(\.\d*)?\s*$",
        r"-\s*\d+",
    ),
    "mask-fill-zero": (r"where\(|masked_fill|\*\s*mask|mask\s*\*",),
    "mask-fill-nan": (r"nan",),
    "mask-after-softmax": (r"\*=?\s*\w*mask|mask\w*\s*\*|where\(",),
    "mask-ignored": (r"def .*mask",),
    "causal-sees-next": (r"tri[ul]|<=|>=|arange",),
    "causal-excludes-self": (r"tri[ul]|<|>|arange",),
    "mask-as-bias": (r"\+=?\s*\(?\w*mask|tri[ul]?\(",),
    "heads-split-and-merge": (
        r"^(?!.*(transpose|permute|swapaxes|moveaxis|rearrange)).*\b(reshape|view)\([^()]*,[^()]*,.*\)",
    ),
    "mask-transposed": (r"tri[ul]|<|>|\.T|transpose|swapaxes",),
    "no-max-subtraction": (r"exp\(",),
    "property-finite-on-large-logits": (r"\bmax\(|amax|maximum", r"exp\("),
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
    "heads-split-without-transpose": (
        r"^(?!.*(transpose|permute|swapaxes|moveaxis|rearrange)).*\b(reshape|view)\([^()]*,[^()]*,.*\)",
        r"reshape|view\(",
    ),
    "heads-merge-without-transpose": (
        r"^(?!.*(transpose|permute|swapaxes|moveaxis|\.mT|rearrange)).*(reshape|view|flatten|concat\w*|hstack)\(",
        r"reshape\(|view\(|flatten",
    ),
    "heads-same-slice": (r"slice|\[.*:.*\]|\[\.\.\.",),
    "kv-heads-tiled": (r"\btile\(|concatenate\(\[.*\*|\.repeat\((?!_inter)|\.expand\(",),
    "accumulator-not-rescaled": (_ADDS,),
    "dropout-at-inference": (r"dropout\w*\(|bernoulli|\brand(om)?\w*\(|rng\.",),
    "softmax-over-heads": (r"(dim|axis)\s*=\s*(1|-3)|softmax\(.*,\s*(1|-3)\s*\)",),
    "softmax-over-batch": (r"(dim|axis)\s*=\s*0|softmax\(.*,\s*0\s*\)",),
    "cross-sources-swapped": (r"\w+\s*=.*(context|memory|enc|source|src|kv)\w*\W",),
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
            fitting = [
                (number, line.split("#")[0].strip())
                for number, line in _lines_of(code, finding.function)
                if not line.lstrip().startswith(("import", "from", '"')) and _fits(pattern, line.split("#")[0], code)
            ]
            if fitting:
                finding.line, finding.text = fitting[-1 if finding.id in LAST else 0]
                finding.cell, finding.place = cell, "likely"
                return


def _fits(pattern: str, line: str, code: str) -> bool:
    found = re.search(pattern, line, re.I) if line.strip() else None
    if found is None or pattern != _ADDS:
        return found is not None
    name = re.escape(found["sum"])  # a sum that no line multiplies
    return not re.search(rf"\b{name}(\[[^\]]*\])?\s*(\*=|=[^=\n]*\*\s*{name}\b|=\s*\(?{name}(\[[^\]]*\])?\s*\*)", code)


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
