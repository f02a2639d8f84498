"""Self attention and cross attention

They are one layer. In self attention queries, keys and values come from the same words; in cross attention the queries
come from one sequence, the keys and values from another. Only the source of Q differs, and the answer has a row for
each query, whatever is attended to.

The questions ask for an age by a name, the facts hold a name and an age. Asked of themselves, the questions find no
age: there is none in them.

Predict: three questions and five facts. What shape do the weights have?
"""

import numpy as np

import tinyattn as ta

CONTROLS = {"source": {"values": ["self", "cross"], "at": "cross"}, "questions": {"values": [1, 2, 3], "at": 3}}
FACTS = ["Ada 36", "Bob 41", "Cid 19", "Dov 77", "Eve 58"]


def answer(questions, source):
    """(answers, weights, the facts asked for). A question holds a name; a fact holds a name and a number."""
    asked = [3, 0, 4][:questions]
    names, numbers = np.eye(5), np.array([[36.0], [41], [19], [77], [58]])
    Q = 8 * names[asked]  # (questions, 5)
    K, V = (names, numbers) if source == "cross" else (names[asked], np.zeros((questions, 1)))
    out, P = ta.scaled_dot_product_attention(Q, K, V, return_weights=True)
    return out.numpy(), P.numpy(), asked


def figure(source="cross", questions=3):
    out, P, asked = answer(questions, source)
    rows = [f"{FACTS[i].split()[0]}?" for i in asked]
    columns = FACTS if source == "cross" else rows
    title = f"weights {P.shape}: a row for each question"
    return [
        {
            "beside": [
                {"matrix": {"title": title, "rows": rows, "columns": columns, "values": P}},
                {"table": {"columns": ["how old is", "answer"], "rows": [*zip(rows, out[:, 0])]}},
            ]
        },
    ]


def claim():
    _, P, asked = answer(3, "cross")
    assert P.shape == (3, 5)
    assert (P.argmax(-1) == asked).all()
    assert answer(3, "self")[1].shape == (3, 3)
