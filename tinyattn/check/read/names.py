"""What a name means: the roles that arguments, attributes and keys play, in the words that people use for them.

`role("W_query")` is "Wq". A name that no list has is None; its place among the arguments decides then.
"""

import re

_ASK = (
    r"(q|qs|quer(y|ies|ys)|consultas?|preguntas?|anfragen?|abfragen?|requetes?|domande?|perguntas?|vrag(en)?"
    r"|zapros\w*|sorgu\w*)"
)
_TELL = (
    r"(k|ks|keys?|claves?|llaves?|schl(u|ue|ü)ssel|cles?|clés?|chiavi|chiave|chaves?|sleutels?|kl(yu|u)ch\w*"
    r"|anahtar\w*)"
)
_GIVE = r"(v|vs|vals?|values?|valor(es)?|werte?|valeurs?|valor[ie]|waarden?|znach\w*|deger\w*)"
_WEIGHT = (
    r"(w|ws|wt|weights?|proj(ection|s)?|mat(rix)?|kernel|to|lin(ear)?|layer|params?|fc|dense|theta|pesos|gewichte?)"
)
_INPUT = r"(in|inp|inputs?|x|s|mat(rix)?|arr(ay)?|t(ensor)?s?|data|vec(tor)?s?|heads?|rows?)"
_OUT = r"(o|out|outputs?|0)"

_ROLES = [  # the first that fits
    ("heads_kv", r"(n|num|number_of)?_?(kv|key_value|kvs)_?(heads?|groups?)|n_?kv|h_?kv|(n|num)_?groups?|groups?"),
    (
        "heads",
        r"(n|num|number_of|nb|n_of)?_?(attention_|attn_)?(heads?|h|nheads?|kopfe|cabezas|tetes|teste)|nhead|nh|n_q_heads|num_q(uery)?_heads",
    ),
    (
        "causal",
        r"(is|use|be|do|with|apply)?_?(causal|autoregressive|look_?ahead)(_mask(ed|ing)?)?|(is|use|apply)_?mask",
    ),
    ("lengths", r"(valid|real|seq|key|kv|src)?_?(lengths|lens|valid_lens?)|valid_len"),
    (
        "key_mask",
        r"(key|src|source|memory|kv|token|encoder)?_?(key_)?_?pad(ding)?_?(mask)?|(key|kv|token)_?mask|(is_)?(real|valid|pad)(_tokens?|_keys)?|pad_?mask|padding_?mask",
    ),
    (
        "mask",
        r".*(mask|masc|masque|maschera|máscara).*|attn_?bias|attention_?bias|allowed|visible|keep|blocked|forbidden|m",
    ),
    ("dropout", r".*drop.*|p_?drop|pdrop"),
    ("training", r"(is_)?train(ing)?|inference|deterministic"),
    ("scale", r"scale|scaling|scale_?factor|scores?_scale|temp(erature)?|tau|sqrt_?d_?k?|root|inv_sqrt.*"),
    ("W_qkv", rf"{_WEIGHT}?_?(qkv|in_?proj|c_?attn|kqv)_?{_WEIGHT}?|in_?proj(_weight)?|c_?attn|qkv(_w)?"),
    ("b_qkv", r"(b|bias)_?qkv|qkv_?(b|bias)|in_?proj_?bias"),
    ("b_kv", r"(b|bias)_?kv|kv_?(b|bias)"),
    ("W_kv", rf"{_WEIGHT}?_?kv_?{_WEIGHT}?|kv"),
    ("b_q", rf"(b|bias)_?{_ASK}|{_ASK}_?(b|bias)(es)?"),
    ("b_k", rf"(b|bias)_?{_TELL}|{_TELL}_?(b|bias)(es)?"),
    ("b_v", rf"(b|bias)_?{_GIVE}|{_GIVE}_?(b|bias)(es)?"),
    ("b_o", rf"(b|bias)_?{_OUT}(_proj)?|{_OUT}_?(b|bias)|proj_?(b|bias)|{_OUT}_proj_bias"),
    ("W_q", rf"{_WEIGHT}_?{_ASK}_?{_WEIGHT}?|{_ASK}_?{_WEIGHT}(_?w(eights?)?)?"),
    ("W_k", rf"{_WEIGHT}_?{_TELL}_?{_WEIGHT}?|{_TELL}_?{_WEIGHT}(_?w(eights?)?)?"),
    ("W_v", rf"{_WEIGHT}_?{_GIVE}_?{_WEIGHT}?|{_GIVE}_?{_WEIGHT}(_?w(eights?)?)?"),
    (
        "W_o",
        rf"{_WEIGHT}_?{_OUT}(_?{_WEIGHT})?|{_OUT}_?{_WEIGHT}(_?w(eights?)?)?|c_?proj|proj(ection)?|w_?p(roj)?|w_?f(inal)?|fc|wout|dense|linear|final(_linear)?|unify_?heads|combine(_heads)?",
    ),
    (
        "dO",
        r"d_?o(ut(put)?)?|d_?y|d_?z|grad_?(o|out|outputs?|y)?|d_?(attn|context|result|res)|upstream(_grad(ient)?)?|g|dl_?d_?o(ut(put)?)?|dldo|gradient|d_?outputs?|dout",
    ),
    ("cache", r"(fwd_?|forward_?)?(cache|ctx|saved|tape|residuals?|stored?|state)(_?tensors)?"),
    ("params", rf"params?|parameters|{_WEIGHT}|p|model|layers?"),
    ("Q", rf"{_ASK}(_?{_INPUT})?|{_INPUT}_?{_ASK}"),
    ("K", rf"{_TELL}(_?{_INPUT})?|{_INPUT}_?{_TELL}"),
    ("V", rf"{_GIVE}(_?{_INPUT})?|{_INPUT}_?{_GIVE}"),
    (
        "context",
        r"context|memory|enc(oder)?_?(out(puts?)?|hidden(_states?)?|states?|h)?|cross|source|src|other|cond(itioning)?|x_?(kv|enc|2|context|cross|mem)|y|image.*|kv_?(in|input|source)",
    ),
    (
        "X",
        r"x+|x_?(q|in|1|dec|t)|inp(uts?)?|emb(ed|s|edding|eddings|eds)?|tok(en)?s?|(token_|word_)?emb(edding)?s|hidden(_states?)?|seq(uences?)?|sent(ence)?|features?|data|eingaben?|entradas?|entr[ée]es?|h|z|tgt|target|dec(oder)?_?.*|words?|batch",
    ),
    (
        "d_k",
        r"d_?k|dk|d_?h(ead)?|head_?(dim|size|width)|dim_?(k|key|head|qk|per_head)|key_?(dim|size)|depth|d_?qk|d_?key|d_?q|size_per_head|breite|dim_clave|qk_?dim|d_attn",
    ),
    ("d_v", r"d_?v|dv|dim_?v(alue)?|value_?(dim|size)|d_?value|v_?dim"),
    (
        "d_model",
        r"d_?(model|m|in|emb(ed)?|x|input|hidden)?|dims?|(model|emb(ed(ding)?)?|hidden|in|input|feature|x)_?(dims?|size|width|features)|width|c|dim_?(in|model|emb|x|input)|n_?embd?|channels|d_in|in_features|size",
    ),
    ("d_out", r"d_?out(put)?|(out|output)_?(dim|size|features|width)|dim_?out|out_features"),
    (
        "length",
        r"n|t|l|seq_?len(gth)?|length|len|size_n|context_?(len(gth)?|size)|block_?size|max_?(seq_?)?len(gth)?|n_?ctx|(n|num)_?(tokens|positions|queries)|s|seq|window|tokens_count|max_?(t|n|tokens|positions?)|tgt_len",
    ),
    ("length_keys", r"m|(n|num)_?keys|src_?len|kv_?len|s_len"),
    ("batch_size", r"b|bs|batch_?size|n_?batch"),
    ("axis", r"axis|dim"),
    ("seed", r"seed|rng|random_state|key|generator|gen"),
    ("bias_flag", r"(qkv_|use_|attn_)?bias"),
    ("block", r"(block|tile|chunk)_?(size|len|rows?|cols?|q|k|m|n)?|b_?[rc]"),
    ("weights", r"a|p|attn|att(ention)?|alpha|probs?|(attn|attention)_?(weights?|probs?)|pesos|gewichte"),
    ("out", r"out(put)?|o"),
    ("flag", r"(return|need|output|with|verbose|debug).*"),
]
_COMPILED = [(role, re.compile(pattern)) for role, pattern in _ROLES]
PARAMETERS = ("W_q", "W_k", "W_v", "W_o", "W_qkv", "W_kv", "b_q", "b_k", "b_v", "b_o", "b_qkv", "b_kv")
COUNTS = ("heads", "heads_kv", "d_k", "d_v", "d_model", "d_out", "length", "length_keys", "batch_size")
OPTIONS = ("dropout", "training", "axis", "seed", "bias_flag", "block", "flag", "causal", "scale")


def plain(name: str) -> str:
    """The name in lower case with single underscores: "W_Query_" and "WQuery" become w_query."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])|(?<=[a-z]{2})(?=[A-Z])|(?<=^[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"_+", "_", spaced).strip("_").lower()


def role(name: str, *among: str) -> str | None:
    """The role of a name, if it has one (of these)."""
    text = plain(name)
    for found, pattern in _COMPILED:
        if (not among or found in among) and pattern.fullmatch(text):
            return found
    return None


ATTENTION = re.compile(
    r"att(ention|n|end)|sdpa|mha|gqa|mqa|multi_?head|self_?att|dot_?prod|atenci|aten[cç][aã]o|aufmerksam|attenzione"
    r"|aandacht|vnimani|dikkat|flash|transformer_?head|^heads?$|decoder_?layer",
    re.IGNORECASE,
)
MASK = re.compile(r"mask|masc|maske|masque|triang", re.IGNORECASE)
SOFTMAX = re.compile(r"soft_?max|smax|normali[sz]", re.IGNORECASE)
CAUSAL = re.compile(r"causal|autoregress|decoder|look.?ahead|future|masked|kausal|gpt|autoregres", re.IGNORECASE)
BACKWARD = re.compile(r"backward|backprop|_grad|grad_|gradient|^grads?$|_bwd|bwd_|vjp", re.IGNORECASE)
