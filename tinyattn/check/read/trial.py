"""What reading a form needs: something that can be called, small inputs, and what comes back."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ..judge.outcome import evaluate
from ..known.probes import Limits, Probe, within
from ..known.reference import Array
from .form import Form, Parameter
from .record import quiet

SDPA, LAYER, SOFT, TRIANGLE = "scaled_dot_product_attention", "attention_layer", "softmax", "causal_mask"
BACK, SELF_BACK = "scaled_dot_product_attention_backward", "self_attention_backward"
RAISED, RAN, SHAPED, EXACT = range(4)


@dataclass
class Program:
    """Something of a learner's text that can be called: a function, a method of a class, a script."""

    label: str
    parameters: list[Parameter]
    run: Callable[..., Any]
    roots: list[Any]
    words: str = ""  # its own text, lower case: names, docstring, comments
    numpy: bool = True
    torch: bool = False
    weights: set[str] = field(default_factory=set)  # roles of weights that it holds itself
    sized: tuple[str, ...] = ()  # roles of the sizes that its constructor takes
    after: Callable[..., Any] | None = None  # a backward pass that follows: run(form, values, args, keywords)
    fixed: tuple[int, ...] = ()  # the only sizes that a script has
    lead: int = 0  # leading axes of 1 that a script's arrays have
    holds: Callable[[Limits, str], set[str] | None] | None = None  # the weights held by an instance of these sizes
    own_sizes: Callable[[], tuple[int, ...] | None] | None = None  # those that its weights have, whatever is asked for


@cache
def sample(kind: str, limits: Limits, name: str = "") -> Probe | None:
    """A small input of a kind within the limits."""
    made = within(kind, limits)
    wanted = (name,) if name else ("more keys", "5 tokens", "as many keys as queries", "dv = dk", "5 × 3", "n = 5")
    return next((p for w in wanted for p in made if p.name == w), None if name else next(iter(made), None))


def attempt(form: Form, args: tuple[Any, ...]) -> Any:
    """What comes back, or None and the exception."""
    with quiet():
        try:
            return form.raw(*args), None
        except (Exception, SystemExit) as error:
            return None, error


def right_of(kind: str, args: tuple[Any, ...]) -> tuple[Array, ...] | None:
    return evaluate(kind, (), Probe("", "", args))
