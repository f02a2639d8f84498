"""causal_mask: boolean (in either convention) or additive, and which triangle it is."""

import numpy as np

from ..known.reference import Array
from .case import Case


def triangles(n: int) -> dict[str, Array]:
    """The masks that people write, True where attending is allowed, by what is wrong with them."""
    right = np.tri(n, dtype=bool)
    return {
        "": right,
        "property-mask-convention": ~right,
        "mask-transposed": right.T,
        "causal-excludes-self": np.tri(n, k=-1, dtype=bool),
        "causal-sees-next": np.tri(n, k=1, dtype=bool),
        "causal-sees-next/": ~np.tri(n, k=1, dtype=bool),  # in the opposite convention
    }


def causal(case: Case) -> None:
    """Read the masks that came back, first their numbers, then their shape."""
    probe, masks = case.probes["n = 3"], {}
    for p in case.probes.values():
        n, outcome = p.args[0], case.learner[p.name]
        mask = outcome.arrays[0] if outcome.arrays else np.empty(0)
        if mask.shape[-2:] != (n, n) or mask.size != n * n:
            got = outcome.problem or f"it returned shape {mask.shape}"
            case.tell("property-shape/causal", p, n=n, got=got)
            return
        masks[n] = mask.reshape(n, n)
    boolean = all(case.learner[p.name].dtype == "bool" for p in case.probes.values())
    if not boolean and (masks[17] < 0).any():  # it is to be added, and so is what it is compared with
        case.right = {name: (np.where(right[0], 0.0, -np.inf),) for name, right in case.right.items() if right}
    if not boolean and not numbers(case, masks[17]):
        return
    ones = boolean or set(np.unique(masks[17])) <= {0.0, 1.0}
    allowed = {n: mask != 0 if ones else mask == 0 for n, mask in masks.items()}
    fits = {name: all((triangles(n)[name] == a).all() for n, a in allowed.items()) for name in triangles(3)}
    names = [name for name, fit in fits.items() if fit]
    if ones and case.blocked and names[:1] not in ([""], ["property-mask-convention"]):
        allowed = {n: ~mask for n, mask in allowed.items()}
        names = [name for name in triangles(3) if all((triangles(n)[name] == a).all() for n, a in allowed.items())]
    if not names:
        case.tell("property-wrong-values/causal", probe)
    elif names[0] == "property-mask-convention":
        case.tell(names[0] if ones else "mask-inverted", probe, "note" if ones else "bug")
    elif names[0]:
        case.tell(names[0], probe)


def numbers(case: Case, mask: Array) -> bool:
    """What an additive mask adds; whether it is additive at all."""
    probe = case.probes["n = 3"]
    fill = float(mask.max(where=mask != 0, initial=-np.inf))
    if np.isnan(mask).any():
        case.tell("mask-times-inf", probe)
    elif set(np.unique(mask)) <= {0.0, 1.0} and mask.any():
        if case.form is not None:
            return True  # a convention: what the attention beside it makes of it is another question
        what = "It holds the numbers 1 and 0: added to the scores, that forbids nothing and only nudges."
        case.tell("mask-as-bias", probe, message=what)
    elif fill > 1e-3:
        case.tell("property-mask-values", probe, fill=fill)
    elif fill > -np.inf:
        size = "zero" if fill > -1e-3 else "small" if fill >= -1e5 else "finite"
        case.tell(f"mask-fill-{size}", probe)
    return not case.told("mask-times-inf") and not case.told("mask-as-bias")
