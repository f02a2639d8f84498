"""What holds of attention whatever the numbers: relations between the answers to two related calls."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .mutants import CAUSAL, ROWS, SCORE, THREE
from .reference import Array


@dataclass(frozen=True)
class Property:
    """What must hold between the answer to one call and the answer to a related one."""

    id: str
    first: str
    second: str
    expected: Callable[[Array], Array]
    message: str
    hint: str
    lesson: str
    must_differ: bool = False


PROPERTIES = [
    Property("property-row-sums", "base", "V = 1", np.ones_like, "A row's weights do not sum to 1: with V = 1 "
             "the output must be 1.", "Add up one row of your weights.", ROWS),
    Property("property-ignores-Q", "base", "Q changed", lambda y: y, "Another Q changes nothing.",
             "Where is Q used?", SCORE, must_differ=True),
    Property("property-ignores-K", "base", "K changed", lambda y: y, "Another K changes nothing.",
             "Where is K used?", SCORE, must_differ=True),
    Property("property-ignores-V", "base", "V changed", lambda y: y, "Another V changes nothing.",
             "Where is V used?", THREE, must_differ=True),
    Property("property-shift-invariance", "base", "scores shifted", lambda y: y, "Adding the same number to all "
             "scores of a row changes the answer; softmax(s + c) = softmax(s).",
             "Does anything but the scores' differences enter?", ROWS),
    Property("property-permuted-keys", "base", "keys permuted", lambda y: y, "Keys and values in another order "
             "change the answer: attention finds by content, not by place.",
             "Is a key singled out by its index, or paired with another's value?", SCORE),
    Property("property-permuted-queries", "base", "queries permuted",
             lambda y: y[[2, 0, 3, 1] if len(y) == 4 else [2, 0, 1]], "Queries in another order do not give the "
             "same rows in that order: each query must be answered on its own.",
             "Does one query's row depend on another's?", SCORE),
    Property("property-ignores-mask", "base", "masked base", lambda y: y, "A mask changes nothing.",
             "Where is the mask used?", CAUSAL, must_differ=True),
    Property("property-future-leaks", "causal base", "the future changed", lambda y: y[:-1], "Under a causal "
             "mask, changing the last position changes the answers before it: the future leaks.",
             "What weight does a forbidden key get, exactly?", CAUSAL),
    Property("property-masked-keys-matter", "masked base", "what row 0 may not see changed", lambda y: y[:1],
             "Row 0 depends on keys that its mask forbids.", "What weight does a forbidden key get, exactly?",
             CAUSAL),
]
