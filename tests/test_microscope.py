"""The microscope: its numbers are the engine's, its sums evaluate to their cells, and it needs nothing but itself."""

import base64
import html
import json
import re
from pathlib import Path

import numpy as np
import pytest

import tinyattn as ta

WORDS = ["the", "<b>cat</b>", "sat", "& 'down'"]


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def some(n=4, m=5, dk=3, dv=2, heads=(2,)):
    Q, K, V = (normal(*heads, *shape, seed=seed) for seed, shape in enumerate([(n, dk), (m, dk), (m, dv)]))
    return tuple(x.astype(np.float32).astype(float) for x in (Q, K, V))


def arrays(page):
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page.html, re.S)[1])
    heads, n, m, dk, dv = (data[name] for name in ("heads", "n", "m", "dk", "dv"))
    shapes = {"Q": (n, dk), "K": (m, dk), "V": (m, dv), "O": (n, dv), "P": (n, m), "bias": (n, m), "gradient": (n, dv)}
    shapes |= {"dQ": (n, dk), "dK": (m, dk), "dV": (m, dv)}
    return {
        name: np.frombuffer(base64.b64decode(text), "<f4").reshape(heads, *shapes[name])
        for name, text in data["arrays"].items()
    }


def test_it_holds_the_engine_s_numbers():
    Q, K, V = (ta.Tensor(x, requires_grad=True) for x in some())
    mask = np.arange(5) <= np.arange(4)[:, None] + 1
    g = normal(2, 4, 2, seed=9).astype(np.float32)
    out, weights = ta.scaled_dot_product_attention(Q, K, V, mask, scale=0.7, return_weights=True)
    there = arrays(ta.microscope(Q, K, V, mask, scale=0.7, gradient=g))
    expected = dict(zip(("dQ", "dK", "dV"), ta.grad(out, (Q, K, V), g)), O=out, P=weights)
    for name, x in expected.items():
        np.testing.assert_allclose(there[name], x.numpy(), rtol=1e-6, atol=1e-7)
    assert Q.grad is None


def test_heads_of_a_layer():
    mha = ta.nn.MultiHeadAttention(8, 2, rng=0)
    usual, x, context = mha.attention, normal(4, 8), normal(6, 8, seed=1)
    there = arrays(ta.microscope(mha, x, context, gradient=normal(4, 8, seed=2)))
    _, weights = mha(x, context, return_weights=True)
    np.testing.assert_allclose(there["P"], weights.numpy(), rtol=1e-5)
    # dL/d(heads' outputs) = g Wo, split into heads
    g = (normal(4, 8, seed=2) @ mha.out_proj.weight.numpy()).reshape(4, 2, 4).swapaxes(0, 1)
    np.testing.assert_allclose(there["gradient"], g, rtol=1e-5)
    assert mha.attention is usual
    assert all(p.grad is None for p in mha.parameters())


def test_a_float_mask_a_list_and_an_idle_query():
    mask = np.array([[0.0, -1.5, -np.inf], [-np.inf] * 3])
    there = arrays(ta.microscope([[1.0], [2.0]], [[1.0], [2.0], [3.0]], [[1.0], [2.0], [3.0]], mask))
    assert (there["P"][0, 1] == 0).all()
    assert (there["dQ"][0, 1] == 0).all()
    np.testing.assert_allclose(there["P"][0, 0, :2], [np.exp(1) / (np.exp(1) + np.exp(0.5)), 1 - 0.62245933], rtol=1e-6)


def test_words_are_escaped_and_nothing_is_asked_for(tmp_path):
    Q, K, V = some(4, 4)
    page = ta.microscope(Q, K, V, row_labels=WORDS, path=tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.html
    assert "<b>cat" not in page.html
    assert html.escape("& 'down'") in page.html
    assert "://" not in page.html
    assert "src=" not in page.html
    assert "iframe" in page._repr_html_()
    assert "<b>" not in page._repr_html_()


def test_without_a_script_the_first_head_stands_there():
    page = ta.microscope(*some())
    figures = re.findall(r"<figcaption>(.*?)</figcaption>", page.html)
    assert figures == ["Q", "K", "S = Q Kᵀ", "Z = S · scale", "M = Z, masked", "P = softmax(M)", "V", "O = P V"]
    table = re.search(r"<caption>P</caption>.*?<tbody>(.*?)</table>", page.html)[1]
    shown = [float(x) for x in re.findall(r"<td[^>]*>([^<]+)", table)]
    np.testing.assert_allclose(shown, arrays(page)["P"][0].ravel(), atol=0.0051)


def test_sixteen_tokens_and_eight_heads_are_small():
    assert len(ta.microscope(*some(16, 16, 16, 16, (8,))).html) < 500_000


def test_numbers_that_are_none_have_a_page():
    """NaN where it is met is shown; in a key that nobody may attend it is as harmless as it is to the engine."""
    Q, K, V = some(3, 4, heads=())
    K[2] = V[2] = np.nan
    page = ta.microscope(Q, K, V, np.array([True, True, False, True]))
    assert all(np.isfinite(x).all() for name, x in arrays(page).items() if name != "bias")
    V[0, 0] = np.nan
    assert "NaN" in ta.microscope(Q, np.nan_to_num(K), V).html


def test_what_does_not_fit_is_refused():
    Q, K, V = some()
    with pytest.raises(ValueError, match="3 row_labels for 4 queries"):
        ta.microscope(Q, K, V, row_labels="abc")
    with pytest.raises(ValueError, match="dL/dO"):
        ta.microscope(Q, K, V, gradient=np.ones(3))
    with pytest.raises(TypeError, match="needs Q, K and V"):
        ta.microscope(Q)
    with pytest.raises(ValueError, match="mask of shape"):
        ta.microscope(Q, K, V, np.ones((3, 3), bool))


# --- in a browser -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no browser test")
    chromium = next((p for p in ("/usr/bin/chromium", "/usr/bin/chromium-browser") if Path(p).exists()), None)
    if chromium is None:
        pytest.skip("no chromium on this machine")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser, page, tmp_path, width=1280, scheme="light", **options):
    path = tmp_path / "page.html"
    page.save(path)
    tab = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme, **options)
    tab.set_default_timeout(20_000)
    tab.faults, tab.asked = [], []
    tab.on("console", lambda message: tab.faults.append(message.text))
    tab.on("pageerror", lambda error: tab.faults.append(str(error)))
    tab.on("request", lambda request: tab.asked.append(request.url))
    tab.goto(path.as_uri())
    return tab


def read(tab, which, back, columns):
    texts = tab.locator(f'td[data-which={which}][data-back="{back}"]').all_inner_texts()
    return np.array([number(text) for text in texts]).reshape(-1, columns)


def number(text):
    return float(text.replace("−", "-").replace("∞", "inf"))


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1280, "light"), (1280, "dark")])
def test_the_page_computes_what_the_engine_computes(browser, tmp_path, width, scheme):
    Q, K, V = some(4, 5)
    g = normal(2, 4, 2, seed=9).astype(np.float32).astype(float)
    bias = np.where(np.arange(5) <= np.arange(4)[:, None] + 1, normal(4, 5, seed=7).astype(np.float32), -np.inf)
    tab = opened(browser, ta.microscope(Q, K, V, bias, gradient=g), tmp_path, width, scheme)
    tab.check("#exact")
    causal = np.where(ta.causal_mask(4, 5), bias, -np.inf)
    for head, scaled, mask in [(0, True, bias), (1, True, bias), (1, False, bias), (0, False, causal)]:
        tab.select_option("#head", str(head))
        tab.set_checked("#scaled", scaled)
        tab.set_checked("#causal", mask is causal)
        q, k, v = (ta.Tensor(x[head], requires_grad=True) for x in (Q, K, V))
        out, weights = ta.scaled_dot_product_attention(
            q, k, v, mask, scale=None if scaled else 1.0, return_weights=True
        )
        dq, dk, dv = ta.grad(out, (q, k, v), g[head])
        for which, back, x in [("O", 0, out), ("P", 0, weights), ("Q", 1, dq), ("K", 1, dk), ("V", 1, dv)]:
            x = x.numpy()
            np.testing.assert_allclose(read(tab, which, back, x.shape[-1]), x, rtol=1e-5, atol=1e-6 * np.abs(x).max())
        if scaled and mask is bias:
            assert "agrees with the engine" in tab.inner_text("#tick")
            assert float(tab.get_attribute("#tick", "data-worst")) < 1e-6
    assert not tab.faults
    assert tab.asked == [tab.url]
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.close()


def test_the_tick_is_there_where_numbers_are_none(browser, tmp_path):
    Q, K, V = some(3, 4, heads=())
    K[2] = V[2] = np.nan
    for mask, V_ in ((np.array([True, True, False, True]), V), (None, V), (None, np.where(np.isnan(V), np.inf, V))):
        tab = opened(browser, ta.microscope(Q, np.nan_to_num(K) if mask is None else K, V_, mask), tmp_path)
        assert "agrees" in tab.inner_text("#tick")
        assert not tab.faults


@pytest.mark.parametrize("size", [3, 12])  # 12: products beyond the eight largest become one number
def test_the_sums_evaluate_to_their_cells(browser, tmp_path, size):
    Q, K, V = some(4, size + 1, size, size + 2, (1,))
    g = normal(1, 4, size + 2, seed=9)
    tab = opened(browser, ta.microscope(Q, K, V, ta.causal_mask(4, size + 1), gradient=g), tmp_path)
    tab.check("#exact")
    seen = set()
    for td in tab.locator('td[data-i="2"][data-j="1"]').all():
        td.dispatch_event("pointerover", {"bubbles": True})
        name, *middle, result = tab.inner_text("#sum").split(" = ")
        value = number(td.inner_text())
        assert number(result) == pytest.approx(value, rel=1e-4)
        seen.add(name.split("[")[0])
        for text in middle:
            text = re.sub(r"\[the other \d+\]", "", text).replace("−", "-").replace("·", "*").replace("e^", "E**")
            assert eval(text, {"E": np.e}) == pytest.approx(value, rel=1e-4)
    assert seen == {f"{d}{which}" for which in "QKSZMPVO" for d in ("", "dL/d")}
    tab.close()


def test_hover_tap_and_keys_outline_the_sources(browser, tmp_path):
    Q, K, V = some(4, 4, heads=())
    tab = opened(browser, ta.microscope(Q, K, V, row_labels=WORDS), tmp_path, 390, has_touch=True)

    def outlined():
        cells = tab.locator("td.from").evaluate_all("all => all.map(x => x.dataset.which + x.dataset.back)")
        return {which: cells.count(which) for which in cells}

    tab.hover('td[data-which=S][data-back="0"][data-i="1"][data-j="2"]')
    assert outlined() == {"Q0": 3, "K0": 3}
    assert tab.inner_text("#sum").startswith("S[<b>cat</b>, sat] = ")
    tab.tap('td[data-which=Q][data-back="1"][data-i="1"][data-j="2"]')
    assert outlined() == {"S1": 4, "K0": 4}
    tab.keyboard.press("ArrowDown")
    assert tab.inner_text("#sum").startswith("dL/dQ[sat, 2] = ")
    tab.keyboard.press("Home")
    assert tab.inner_text("#sum").startswith("dL/dQ[sat, 0] = ")
    assert not tab.faults
    tab.close()


def test_without_javascript_it_can_be_read(browser, tmp_path):
    tab = opened(browser, ta.microscope(*some()), tmp_path, java_script_enabled=False)
    assert tab.locator("table").count() == 16
    assert "Without JavaScript" in tab.inner_text("body")
    assert not tab.is_visible("form") and not tab.is_visible("#told")  # what does nothing is not there
    tab.close()
