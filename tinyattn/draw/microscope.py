"""The microscope: every number of an attention and every gradient on one page of HTML, and the sums behind them."""

from __future__ import annotations

import base64
import html
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..attention import scaled_dot_product_attention
from ..graph import Tensor, as_tensor, grad
from ..habits import explained
from ..masks import split_mask
from ..nn import MultiHeadAttention
from ..values import Array

__all__ = ["Microscope", "microscope"]

TEMPLATE = Path(__file__).with_name("microscope.html")
ROOM = 16  # columns whose numbers fit; a wider matrix shows colours, and the number under the pointer
STATIC = 6_000  # cells that are also written as plain tables, for a reader without JavaScript
TITLES = {
    "Q": "Q",
    "K": "K",
    "S": "S = Q Kᵀ",
    "Z": "Z = S · scale",
    "M": "M = Z, masked",
    "P": "P = softmax(M)",
    "V": "V",
    "O": "O = P V",
}


class Microscope:
    """A page of HTML: `.html` is its text; in a notebook it shows itself."""

    def __init__(self, page: str) -> None:
        self.html = page

    def save(self, path: str | os.PathLike[str]) -> None:
        Path(path).write_text(self.html, encoding="utf-8")

    def _repr_html_(self) -> str:
        page = html.escape(self.html, quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 900px; border: 0" title="microscope"></iframe>'

    def __repr__(self) -> str:
        return f"Microscope({len(self.html) // 1000} kB of HTML: in a notebook it shows itself, .save(path) writes it)"


@explained
def microscope(
    Q: Any,
    K: Any = None,
    V: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    row_labels: Sequence[Any] | None = None,
    column_labels: Sequence[Any] | None = None,
    head_labels: Sequence[Any] | None = None,
    gradient: Any = None,
    path: str | os.PathLike[str] | None = None,
) -> Microscope:
    """Q, K, S = Q Kᵀ, S · scale, masked, P, V, O and dL/d(each of them) as one page that needs nothing else.

    Q (..., n, dk), K (..., m, dk), V (..., m, dv), mask and scale: as in `scaled_dot_product_attention`. The axes
        before the last two become the choice of heads. Or microscope(mha, x[, context]): the heads of a
        MultiHeadAttention at work on x (n, d_model) or (B, n, d_model).
    row_labels, column_labels: a word per query and per key. If queries and keys are the same row, row_labels is enough.
    head_labels: a name per head.
    gradient: dL/dO, of O's shape (of mha's output for an mha). None: all 1, so that L is the sum of O.
    path: where to write the page; it opens from disk.
    Raises ValueError if labels or the gradient do not fit.
    """
    if isinstance(Q, MultiHeadAttention):
        Q, K, V, mask, gradient, scale = _inside(Q, K, V, mask, gradient)
    if K is None or V is None:
        raise TypeError("microscope needs Q, K and V, or a MultiHeadAttention and its input")
    arrays, given = _measured(as_tensor(Q), as_tensor(K), as_tensor(V), mask, scale, gradient)
    n, m = arrays["P"].shape[-2:]
    rows = _labels(row_labels, n, "row_labels", "queries")
    same = column_labels is None and n == m
    columns = rows if same else _labels(column_labels, m, "column_labels", "keys")
    heads = len(arrays["Q"])
    names = _labels(head_labels or [f"{h + 1} of {heads}" for h in range(heads)], heads, "head_labels", "heads")
    page = _page(arrays, given, rows, columns, names)
    shown = Microscope(page)
    if path is not None:
        shown.save(path)
    return shown


def _inside(mha: Any, x: Any, context: Any, mask: Any, gradient: Any) -> tuple[Any, ...]:
    """What the heads of mha receive at x, and the gradient of what they return."""
    seen: dict[str, Any] = {}

    def watched(Q: Tensor, K: Tensor, V: Tensor, mask: Any = None, scale: float | None = None, **_: Any) -> Tensor:
        out = Tensor(scaled_dot_product_attention(Q, K, V, mask, scale=scale).numpy(), requires_grad=True)
        seen.update(Q=Q, K=K, V=V, mask=mask, scale=scale, out=out)
        return out

    attention, mha.attention = mha.attention, watched
    try:
        out = mha(x, mask=mask) if context is None else mha(x, context, mask=mask)
    finally:
        mha.attention = attention
    (g,) = grad(out, seen["out"], np.ones(out.shape) if gradient is None else gradient)
    return seen["Q"], seen["K"], seen["V"], seen["mask"], g, seen["scale"]


def _measured(
    Q: Tensor, K: Tensor, V: Tensor, mask: Any, scale: float | None, gradient: Any
) -> tuple[dict[str, Array], float]:
    """The engine's numbers, (heads, rows, columns) each, and the scale.

    The inputs are rounded to float32 first, so that page and engine compute from the same numbers.
    """
    leading = np.broadcast_shapes(Q.shape[:-2], K.shape[:-2], V.shape[:-2])
    n, m, dk = Q.shape[-2], K.shape[-2], Q.shape[-1]
    given = 1 / math.sqrt(dk or 1) if scale is None else float(scale)
    bias: Array = np.zeros((*leading, n, m))
    if mask is not None:
        allowed, added = split_mask(mask, bias.shape, bias.dtype)
        bias = np.broadcast_to(
            np.where(allowed, 0.0 if added is None else as_tensor(added).numpy(), -np.inf), bias.shape
        )
        bias = bias.astype(np.float32).astype(float)
    blocked = bias == -np.inf
    alone = blocked.all(-1), blocked.all(-2), blocked.all(-2)  # there a NaN meets nothing, and 0 stands in for it
    filled = [np.where(a[..., None] & ~np.isfinite(x.numpy()), 0, x.numpy()) for a, x in zip(alone, (Q, K, V))]
    q, k, v = (Tensor(x.astype(np.float32).astype(float), True) for x in filled)
    out, P = scaled_dot_product_attention(q, k, v, bias, scale=given, return_weights=True)
    g = np.ones(out.shape) if gradient is None else as_tensor(gradient).numpy()
    if g.shape != out.shape:
        raise ValueError(f"gradient of shape {g.shape} for an output of shape {out.shape}: it is dL/dO")
    g = g.astype(np.float32).astype(float)
    dQ, dK, dV = (d.numpy() for d in grad(out, (q, k, v), g))
    arrays = {"Q": q.numpy(), "K": k.numpy(), "V": v.numpy(), "bias": bias, "gradient": g}
    arrays |= {"P": P.numpy(), "O": out.numpy(), "dQ": dQ, "dK": dK, "dV": dV}
    return {name: x.reshape(-1, *x.shape[-2:]) for name, x in arrays.items()}, given


def _labels(labels: Sequence[Any] | None, count: int, name: str, what: str) -> list[str]:
    if labels is None:
        return [str(i) for i in range(count)]
    if len(labels) != count:
        raise ValueError(f"{len(labels)} {name} for {count} {what}: one word each is needed")
    return [str(label) for label in labels]


# --- the page -----------------------------------------------------------------------------------------


def _page(arrays: dict[str, Array], given: float, rows: list[str], columns: list[str], names: list[str]) -> str:
    (heads, n, dk), (_, m, dv) = arrays["Q"].shape, arrays["V"].shape
    scale = given if given != 1 else 1 / math.sqrt(dk or 1)
    data = {
        "n": n,
        "m": m,
        "dk": dk,
        "dv": dv,
        "heads": heads,
        "rows": rows,
        "columns": columns,
        "given": given,
        "scale": scale,
        "room": ROOM,
        "arrays": {name: base64.b64encode(x.astype("<f4").tobytes()).decode() for name, x in arrays.items()},
    }
    is_root = math.isclose(scale, 1 / math.sqrt(dk or 1))
    ones = (arrays["gradient"] == 1).all()
    parts = {
        "heads": "".join(f"<option value={h}>{html.escape(name)}" for h, name in enumerate(names)),
        "scale": f"÷ √dk = √{dk}" if is_root else f"· {scale:.4g}",
        "loss": "L is the sum of O, so dL/dO is 1 everywhere." if ones else "dL/dO is as it was given.",
        "shown": "the first head" if heads > 1 else "the attention",
        "measures": "",
        "tables": _tables({name: x[0] for name, x in arrays.items()}, given, rows, columns),
        "data": json.dumps(data).replace("<", "\\u003c"),
    }
    page = TEMPLATE.read_text(encoding="utf-8")
    for name, text in parts.items():
        page = page.replace("{{" + name + "}}", text)
    return page


def _tables(a: dict[str, Array], given: float, rows: list[str], columns: list[str]) -> str:
    """The first head's matrices as plain tables: shown until the script runs, or without a script."""
    S = a["Q"] @ a["K"].T
    value = {"Q": a["Q"], "K": a["K"], "S": S, "Z": S * given, "M": S * given + a["bias"], "P": a["P"], "V": a["V"]}
    value["O"] = a["O"]
    dP = a["gradient"] @ a["V"].T
    dM = a["P"] * (dP - (a["P"] * dP).sum(-1, keepdims=True))
    back = {"Q": a["dQ"], "K": a["dK"], "S": dM * given, "Z": dM, "M": dM, "P": dP, "V": a["dV"], "O": a["gradient"]}
    if sum(2 * x.size for x in value.values()) > STATIC:
        value = {name: value[name] for name in "PO"}
    top = max(np.abs(g[np.isfinite(g)]).max(initial=0) for g in back.values()) or 1
    figures = []
    for name, x in value.items():
        whole = np.abs(x[np.isfinite(x)]).max(initial=0) if name != "P" else 1.0
        with np.errstate(divide="ignore"):
            parts = np.abs(x) / (whole or 1), 1 + np.log10(np.abs(back[name]) / top) / 8
        row_words = columns if name in "KV" else rows
        column_words = columns if name in "SZMP" else [str(j) for j in range(x.shape[-1])]
        both = [
            _table(title, numbers, part, row_words, column_words)
            for title, numbers, part in ((name, x, parts[0]), (f"dL/d{name}", back[name], parts[1]))
        ]
        figures.append(f"<figure><figcaption>{TITLES[name]}</figcaption>{''.join(both)}</figure>")
    return "".join(figures)


def _table(title: str, x: Array, part: Array, row_words: list[str], column_words: list[str]) -> str:
    tall = ("<span>{}</span>" if len(word) > 2 else "{}" for word in ["", *column_words])
    head = "".join("<th scope=col>" + f.format(html.escape(word)) for f, word in zip(tall, ["", *column_words]))
    lines = [
        f"<tr><th scope=row>{html.escape(word)}" + "".join(_cell(number, p) for number, p in zip(numbers, shares))
        for word, numbers, shares in zip(row_words, x, part)
    ]
    kind = "small" if x.shape[-1] > ROOM else "mid" if x.shape[-1] > 9 else "wide"
    inner = f"<caption>{title}</caption><thead><tr>{head}<tbody>{''.join(lines)}"
    return f"<div class=grid><table class={kind}>{inner}</table></div>"


def _cell(x: float, part: float) -> str:
    if x == 0 or x == -np.inf:
        return "<td class=z>" + ("0" if x == 0 else "−∞")
    strength = round(min(max(part, 0.0), 1.0) * 80) if np.isfinite(x) else 0
    return f"<td{' class=n' if x < 0 else ''} style=--x:{strength}>{_short(x)}"


def _short(x: float) -> str:
    """Two digits, as the page's script writes them: .31, −1.2, 2e−7."""
    exponent = math.floor(math.log10(abs(x))) if np.isfinite(x) else 9
    if -2 <= exponent <= 4:
        text = f"{x:.{max(0, 1 - max(exponent, -1))}f}"
    else:
        text = f"{x:.0e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e").replace("inf", "∞")
    return text.replace("-", "−").replace("0.", ".", 1 if abs(x) < 1 else 0)
