"""Mistakes that no table has: what must hold of attention, and what is said where it does not.

An id may have several wordings, `id/which`. In braces: what the case at hand fills in.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..known.mutants import CAUSAL, HEADS, ROWS, SCALE, SCORE, THREE
from ..known.reference import Array

TEXTS = {  # id: message, hint, the lesson's sentence
    "property-shape": (
        "The output has shape {got}, where {want} is due.",
        "Follow the shapes: (n, dk) @ (dk, m) → (n, m), then @ (m, dv) → (n, dv).",
        SCORE,
    ),
    "property-shape/causal": (
        "causal_mask({n}): {got}. Due is an array of shape ({n}, {n}).",
        "One row for each position, one column too.",
        CAUSAL,
    ),
    "property-crash": ("It raises {where}: {problem}.", "Print the shapes on the line that failed.", SCORE),
    "property-stopped": (
        'On the input "{input}", {problem}.',
        "An endless loop? os._exit? A crash in compiled code?",
        SCORE,
    ),
    "property-returns-nothing": (
        "Your function returned nothing (None). Due is {want}.",
        "Look at the last line of the function.",
        SCORE,
    ),
    "property-returns-type": ("{problem}. Due is {want}.", "Look at the last line of the function.", SCORE),
    "property-return-order": (
        "It returns (weights, out), where out or (out, weights) is due.",
        "The output comes first.",
        SCORE,
    ),
    "property-same-answer-twice": (
        "The same call gives another answer the second time.",
        "Randomness, or something kept from the call before?",
        SCORE,
    ),
    "property-elsewhere": (
        'On the input "{input}" it does not compute what it computes on all ordinary ones.',
        "What is different about this input: its numbers' type, or whether it may be written to?",
        SCORE,
    ),
    "property-elsewhere/raises": (
        'The input "{input}" makes it raise {problem}.',
        "Does a line ask for one type of numbers?",
        SCORE,
    ),
    "property-own-attention": (
        "It calls tinyattn's own attention: that it agrees with tinyattn proves nothing.",
        "Write the four steps yourself: score, scale, normalise, weighted sum.",
        SCORE,
    ),
    "property-stale-mask/size": (
        "A second length fails: {problem}. Something is kept from the first call, of the first call's size.",
        "What does the second call find that the first one left: a mask, a shape, a cache?",
        CAUSAL,
    ),
    "property-precision": (
        "The numbers are nearly right: to about three digits only.",
        "Is something rounded, kept in float16, or added for safety?",
        SCORE,
    ),
    "property-row-sums": (
        "A row's weights do not sum to 1: with V = 1 the output must be 1.",
        "Add up one row of your weights.",
        ROWS,
    ),
    "property-ignores-Q": ("Another Q changes nothing.", "Where is Q used?", SCORE),
    "property-ignores-K": ("Another K changes nothing.", "Where is K used?", SCORE),
    "property-ignores-V": ("Another V changes nothing.", "Where is V used?", THREE),
    "property-ignores-mask": ("A mask changes nothing.", "Where is the mask used?", CAUSAL),
    "property-shift-invariance": (
        "Adding the same number to all scores of a row changes the answer; softmax(s + c) = softmax(s).",
        "Does anything but the scores' differences enter?",
        ROWS,
    ),
    "property-permuted-keys": (
        "Keys and values in another order change the answer: attention finds by content, not by place.",
        "Is a key singled out by its index, or paired with another's value?",
        SCORE,
    ),
    "property-permuted-queries": (
        "Queries in another order do not give the same rows in that order: each must be answered on its own.",
        "Does one query's row depend on another's?",
        SCORE,
    ),
    "property-future-leaks": (
        "Under a causal mask, changing the last position changes the answers before it: the future leaks.",
        "What weight does a forbidden key get, exactly?",
        CAUSAL,
    ),
    "property-masked-keys-matter": (
        "Row 0 depends on keys that its mask forbids.",
        "What weight does a forbidden key get, exactly?",
        CAUSAL,
    ),
    "property-scale-exponent": (
        "The factor on q·k goes like dk^{exponent:.2f}, where dk^{due:.2f} is due.",
        "What is the standard deviation of a sum of dk products?",
        SCALE,
    ),
    "property-scale-factor": (
        "All scores are {factor:.4g} times what they should be.",
        "Is there another base than e, or another constant, in your softmax?",
        SCALE,
    ),
    "property-finite-on-large-logits": (
        "Scores up to ±100000 give NaN or inf.",
        "softmax(s) = softmax(s − c), row by row: which c makes overflow, and 0 / 0, impossible?",
        ROWS,
    ),
    "property-large-scores": (
        "Scores up to ±100000 give wrong, though finite, numbers.",
        "Is anything clipped, or kept in float16?",
        ROWS,
    ),
    "property-mask-crash": (
        "With a mask it raises {problem}.",
        "The mask is the next argument, None by default.",
        CAUSAL,
    ),
    "property-mask": (
        "With a mask the output is wrong, in a way that no known mistake explains.",
        "Work out one masked row by hand: which keys are left, and what do they sum to?",
        CAUSAL,
    ),
    "property-mask-extremes": (
        "With scores of ±100000 in a masked row the result is wrong.",
        "Which masked score could still win, which allowed one could vanish?",
        CAUSAL,
    ),
    "property-mask-values": ("Forbidden keys get {fill:g} added: they would win.", "Which sign does −∞ have?", CAUSAL),
    "property-mask-convention": (
        "True means forbidden here, as in torch.nn.MultiheadAttention; tinyattn and "
        "F.scaled_dot_product_attention take True as allowed.",
        "Give your own attention the convention that it expects.",
        CAUSAL,
    ),
    "property-wrong-values": (
        "The output is wrong, in a way that no known mistake explains.",
        "Do the smallest case by hand, one step at a time.",
        SCORE,
    ),
    "property-wrong-values/causal": (
        "This is not the triangle j ≤ i.",
        "Print it for n = 3: row i says what position i may see.",
        CAUSAL,
    ),
    **{
        f"property-gradient-d{x}": (
            f"d{x} does not agree with finite differences of the loss.",
            f"Write the chain rule from the output down to {x}, shapes included.",
            SCORE,
        )
        for x in ("Q", "K", "V", "X", "Wq", "Wk", "Wv")
    },
    "mask-pair-opposite": (
        "{attention}(Q, K, V, {maker}(n)) sees only the future: the two functions mean opposite things by their mask, "
        "each of them is right alone.",
        "Which of the two means `may attend`, and which `blocked`? Let both follow one convention.",
        CAUSAL,
    ),
    "mask-pair-opposite/other": (
        "{attention}(Q, K, V, {maker}(n)) is not causal attention, though each of the two is right alone: they do not "
        "agree about what the numbers in a mask mean.",
        "Print the mask for n = 3, and follow it through the attention line by line.",
        CAUSAL,
    ),
    "property-mask-convention/blocked": (
        "{one} means blocked in its mask, as in torch.nn.MultiheadAttention; it is judged so.",
        "F.scaled_dot_product_attention and tinyattn mean the opposite: True = may attend.",
        CAUSAL,
    ),
    "property-mask-convention/added": (
        "Its mask is added to the scores (0 = may attend, −∞ = may not); it is judged so.",
        "",
        CAUSAL,
    ),
    "property-mask-convention/numbers": (
        "Its mask holds numbers, 1 = may attend and 0 = may not; it is judged so.",
        "",
        CAUSAL,
    ),
    "property-weights": (
        "The weights that are returned with the output are not those used.",
        "Return the very array that multiplies V.",
        ROWS,
    ),
    "property-heads-must-divide": (
        "num_heads = 4 with d_model = 6 must raise; what it returns drops or mixes features silently.",
        "What is 6 / 4 features per head?",
        HEADS,
    ),
    "property-leading-axes": (
        "With a leading axis it silently computes something else than in 2-D.",
        "Which axis does each of your operations mean, counted from the end?",
        SCORE,
    ),
    "property-leading-axes/batch": (
        "Works in 2-D; with a batch axis: {problem}. A bonus.",
        "`.T` reverses all axes; swapaxes(-1, -2) and axis=-1 serve every rank.",
        SCORE,
    ),
    "property-leading-axes/more": (
        "Not with every leading axis: {problem}. A bonus.",
        "Count axes from the end.",
        SCORE,
    ),
    "property-needs-batch": (
        "It works with a batch axis only, not in 2-D.",
        "`...` and negative axes make one program serve all ranks.",
        SCORE,
    ),
    "property-float-mask": (
        "A float mask of 0 and −inf, to be added, is a bonus: {problem}.",
        "mask.dtype tells the two conventions apart.",
        CAUSAL,
    ),
    "property-empty-row": (
        "A row that may attend to nothing changes the other rows.",
        "Which of your numbers are shared by all rows?",
        CAUSAL,
    ),
    "property-empty-row/note": (
        "For a query that may attend to nothing, {problem}.",
        "Conventions differ; tinyattn returns zeros.",
        CAUSAL,
    ),
    "property-dtype": ("float64 goes in and {dtype} comes out.", "Where do you convert?", SCORE),
    "property-dtype/wide": (
        "float32 goes in and float64 comes out.",
        "np.sqrt(dk), for one, is a float64 that takes an array along; math.sqrt is not.",
        SCORE,
    ),
}


@dataclass(frozen=True)
class Property:
    """A relation between the answers to two probes: the second must be (or must not be) `expected(first)`."""

    id: str
    first: str
    second: str
    expected: Callable[[Array], Array] = lambda y: y
    must_differ: bool = False


PROPERTIES = [
    Property("property-row-sums", "base", "V = 1", np.ones_like),
    Property("property-ignores-Q", "base", "Q changed", must_differ=True),
    Property("property-ignores-K", "base", "K changed", must_differ=True),
    Property("property-ignores-V", "base", "V changed", must_differ=True),
    Property("property-shift-invariance", "base", "scores shifted"),
    Property("property-permuted-keys", "base", "keys permuted"),
    Property(
        "property-permuted-queries", "base", "queries permuted", lambda y: y[[2, 0, 3, 1] if len(y) == 4 else [2, 0, 1]]
    ),
    Property("property-ignores-mask", "base", "masked base", must_differ=True),
    Property("property-future-leaks", "causal base", "the future changed", lambda y: y[:-1]),
    Property("property-masked-keys-matter", "masked base", "what row 0 may not see changed", lambda y: y[:1]),
]
