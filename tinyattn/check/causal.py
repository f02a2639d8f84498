"""causal_mask: boolean (in either convention) or additive, and which triangle it is."""

import numpy as np

from .case import Case
from .reference import Array


def triangles(n: int) -> dict[str, Array]:
    """The masks that people write, True where attending is allowed, by what is wrong with them."""
    right = np.tri(n, dtype=bool)
    return {
        "": right, "property-mask-convention": ~right, "causal-excludes-self": np.tri(n, k=-1, dtype=bool),
        "causal-sees-next": np.tri(n, k=1, dtype=bool), "mask-transposed": right.T,
        "causal-excludes-self/": ~np.tri(n, k=-1, dtype=bool), "causal-sees-next/": ~np.tri(n, k=1, dtype=bool),
    }  # fmt: skip


def causal(case: Case) -> None:
    """Read the masks that came back, first their numbers, then their shape."""
    probe, masks = case.probes["n = 3"], {}
    for p in case.probes.values():
        n, outcome = p.args[0], case.learner[p.name]
        if outcome.arrays is None or outcome.arrays[0].shape[-2:] != (n, n) or outcome.arrays[0].size != n * n:
            got = outcome.problem or f"it returned shape {outcome.arrays and outcome.arrays[0].shape}"
            case.tell("property-shape/causal", p, n=n, got=got)
            return
        masks[n] = outcome.arrays[0].reshape(n, n)
    boolean = case.learner[probe.name].dtype == "bool"
    if not boolean and not numbers(case, masks[17]):
        return
    allowed = {n: mask != 0 if boolean else mask == 0 for n, mask in masks.items()}
    names = [name for name in triangles(3) if all((triangles(n)[name] == a).all() for n, a in allowed.items())]
    if not names:
        case.tell("property-wrong-values/causal", probe)
    elif names[0] == "property-mask-convention":
        case.tell(names[0] if boolean else "mask-inverted", probe, "note" if boolean else "bug")
    elif names[0]:
        case.tell(names[0], probe)


def numbers(case: Case, mask: Array) -> bool:
    """What an additive mask adds; whether it is additive at all."""
    probe = case.probes["n = 3"]
    fill = float(mask.max(where=mask != 0, initial=-np.inf))
    if np.isnan(mask).any():
        case.tell("mask-times-inf", probe)
    elif set(np.unique(mask)) <= {0.0, 1.0} and mask.any():
        case.tell("mask-as-bias", probe, message="It holds the numbers 1 and 0: added to the scores, that forbids "
                  "nothing and only nudges.")  # fmt: skip
    elif fill > 1e-3:
        case.tell("property-mask-values", probe, fill=fill)
    elif fill > -np.inf:
        case.tell("mask-fill-zero" if fill > -1e-3 else "mask-fill-small" if fill >= -1e5 else "mask-fill-finite",
                  probe)  # fmt: skip
    return not case.told("mask-times-inf") and not case.told("mask-as-bias")
