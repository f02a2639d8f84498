"""Why the backward pass needs an order: without it, shared nodes are counted twice, or walked exponentially often.

The chain rule seems to ask for recursion: pass your gradient on to what you were computed from. That is right on a
tree. But a value may be used twice (a residual connection, a weight in every step), and then the graph is a diamond:

        x        three ways to walk it back without an order:
       / \\       1. pass on the sum so far, at each visit: what came first is passed on twice. Wrong.
      b   c      2. visit each node once, in any order: what comes second is lost. Wrong.
       \\ /       3. pass on each contribution by itself: right, but every path is walked, 2ⁿ for n diamonds.
        y

In order, from the last node to the first, each is visited once, when its gradient is complete: right, and linear. (This
walk is a loop: any recursion ends at Python's limit of 1,000 calls.)
"""

import sys
import time
from typing import ClassVar

import _demo

import tinyattn as ta


class Scalar:
    """A number that remembers what it was computed from: pairs of (input, d(this)/d(input))."""

    passed_on = 0  # how many contributions were passed on, by any walk
    received: ClassVar = []  # who received how much: the contributions in their order

    def __init__(self, value, inputs=()):
        self.value, self.inputs, self.grad = value, inputs, 0.0

    def __add__(self, other):
        return Scalar(self.value + other.value, [(self, 1.0), (other, 1.0)])

    def __mul__(self, number):
        return Scalar(self.value * number, [(self, number)])

    def receive(self, gradient):
        self.grad += gradient
        Scalar.passed_on += 1
        if Scalar.passed_on < 100:
            Scalar.received.append((self, gradient))


# Four ways back from a node whose grad is known.


def pass_on_the_sum(node):
    for x, slope in node.inputs:
        x.receive(node.grad * slope)
    for x, _ in node.inputs:
        pass_on_the_sum(x)  # on a second visit, x.grad still holds what the first has passed on


def never_come_back(node, seen=None):
    seen = set() if seen is None else seen
    for x, slope in node.inputs:
        x.receive(node.grad * slope)
        if x not in seen:
            seen.add(x)
            never_come_back(x, seen)  # what x receives later stays in x


def every_path(node, gradient=1.0):
    for x, slope in node.inputs:
        x.receive(gradient * slope)
        every_path(x, gradient * slope)  # this contribution alone


def in_order(output):
    for node in reversed(inputs_first(output, [], set())):
        for x, slope in node.inputs:
            x.receive(node.grad * slope)  # node.grad is complete: all nodes that use this one came before


def inputs_first(node, order, seen):
    """A topological order: every node after the nodes that it was computed from."""
    if node not in seen:
        seen.add(node)
        for x, _ in node.inputs:
            inputs_first(x, order, seen)
        order.append(node)
    return order


WALKS = {"1. the sum": pass_on_the_sum, "2. once": never_come_back, "3. every path": every_path, "in order": in_order}


# Graphs, of Scalars or of Tensors.


def tree(x):
    return x * 3.0 + x * 4.0


def doubled_twice(x):
    b = x + x
    return b + b


def used_twice(x):
    b = x * 3.0
    b.name = "b"
    return b * 2.0 + b * 5.0


def doublings(x, n):
    for _ in range(n):
        x = x + x
    return x


def chain(x, n):
    for _ in range(n):
        x = x * 1.0
    return x


def walk(backward, function, *args):
    """d(function)/dx at x = 1 by one of the walks; how many contributions it passed on, and seconds."""
    x = Scalar(1.0)
    y = function(x, *args)
    y.grad, Scalar.passed_on = 1.0, 0
    start = time.perf_counter()
    backward(y)
    return x.grad, Scalar.passed_on, time.perf_counter() - start


def engine(function, *args):
    """The same by tinyattn."""
    x = ta.Tensor(1.0, requires_grad=True, name="x")
    y = function(x, *args)
    start = time.perf_counter()
    y.backward()
    return x.grad.item(), time.perf_counter() - start


def plot_visits(figure, counts, paths):
    axes = figure.subplots()
    axes.semilogy(counts, paths, "o-", color=_demo.ORANGE, label="every path: 2ⁿ⁺¹ - 2")
    axes.semilogy(counts, [2 * n for n in counts], "o-", color=_demo.BLUE, label="in order: 2n")
    title = f"y = x + x, {counts[-1]} times over: {paths[-1]:,} contributions, in order {2 * counts[-1]}"
    axes.set(title=title, xlabel="n", xticks=counts, ylabel="contributions passed on")
    axes.legend()


def plot_walks(figure):
    """The diamond b = 3x, y = 2b + 5b, walked back three ways: what each node receives, in its order."""
    ways = {"1. pass on the sum so far": pass_on_the_sum, "2. visit each node once": never_come_back}
    ways["from the last to the first"] = in_order
    for axes, (title, backward) in zip(figure.subplots(1, 3), ways.items()):
        x = Scalar(1.0)
        y = used_twice(x)
        y.grad, Scalar.passed_on = 1.0, 0
        Scalar.received.clear()
        backward(y)
        (left, _), (right, _) = y.inputs
        ((b, _),) = left.inputs
        nodes = {y: ("y", 0, 3), left: ("2b", -1, 2), right: ("5b", 1, 2), b: ("b", 0, 1), x: ("x", 0, 0)}
        for node, (name, across, up) in nodes.items():
            for i, (below, slope) in enumerate(node.inputs):
                end = nodes[below][1:]
                arrow = {"arrowstyle": "->", "shrinkA": 17, "shrinkB": 17, "color": _demo.GREY, "linewidth": 1.5}
                axes.annotate("", end, (across, up), arrowprops=arrow)
                middle = (across + end[0]) / 2 + (0.12 if i or node is right or node is b else -0.42), (up + end[1]) / 2
                axes.text(*middle, f"× {slope:g}", color=_demo.GREY)
            got = [f"{gradient:g}" for receiver, gradient in Scalar.received if receiver is node] or ["1"]
            total = " + ".join(got) + f" = {node.grad:g}" * (len(got) > 1)
            wrong = node is x and node.grad != 21
            axes.plot(across, up, "o", markersize=26, color=_demo.ORANGE if wrong else _demo.SKY)
            axes.text(across, up, name, ha="center", va="center")
            axes.text(across + 0.3, up - 0.05, total, weight="bold", color=_demo.ORANGE if wrong else "black")
        axes.set(title=f"{title}: {x.grad:g}" + " (right is 21)" * (x.grad != 21), xlim=(-1.6, 2.2), ylim=(-0.5, 3.5))
        axes.set_axis_off()


def main(demo):
    demo.heading("dy/dx by each walk")
    graphs = {
        "3x + 4x, a tree": (tree, 7.0),
        "b = x + x, y = b + b": (doubled_twice, 4.0),
        "b = 3x, y = 2b + 5b": (used_twice, 21.0),
    }
    found = {name: [walk(w, f)[0] for w in WALKS.values()] + [engine(f)[0]] for name, (f, _) in graphs.items()}
    demo.table(
        "",
        ["graph", "right", *WALKS, "tinyattn"],
        [(name, f"{graphs[name][1]:g}", *(f"{g:g}" for g in row)) for name, row in found.items()],
    )
    demo.say()
    right = {name: [g == graphs[name][1] for g in row] for name, row in found.items()}
    demo.claim("on a tree, every walk is right", all(right["3x + 4x, a tree"]))
    demo.claim("passing on the sum counts b = x + x twice: 8 instead of 4", found["b = x + x, y = b + b"][0] == 8)
    demo.claim("not coming back loses a branch of 2b + 5b: 6 instead of 21", found["b = 3x, y = 2b + 5b"][1] == 6)
    demo.claim("every path, the order and tinyattn are right everywhere", all(all(row[2:]) for row in right.values()))

    demo.heading("What every path costs: x + x, n times over")
    counts = list(range(2, 17 if demo.quick else 19, 2))
    paths = [walk(every_path, doublings, n) for n in counts]
    order = [walk(in_order, doublings, n) for n in counts]
    demo.table(
        "",
        ["n", "every path: passed on", "time", "in order: passed on", "time"],
        [
            (n, f"{p[1]:,}", f"{1e3 * p[2]:,.2f} ms", o[1], f"{1e3 * o[2]:.2f} ms")
            for n, p, o in zip(counts, paths, order)
        ],
    )
    rate = paths[-1][2] / paths[-1][1]
    gradient, seconds = engine(doublings, 60)
    demo.say(
        f"\n60 doublings: {2**61:.1e} contributions would take {rate * 2**61 / 3.15e7:,.0f} years here; "
        f"tinyattn takes {1e3 * seconds:.1f} ms.\n"
    )
    demo.claim(
        "every path: 2ⁿ⁺¹ - 2 contributions are passed on; in order 2n, one for each edge of the graph",
        all(p[1] == 2 ** (n + 1) - 2 and o[1] == 2 * n for n, p, o in zip(counts, paths, order)),
    )
    demo.claim("60 doublings: tinyattn's gradient is 2⁶⁰ to the last digit", gradient == 2.0**60)
    demo.plot("visits", plot_visits, counts, [p[1] for p in paths], size=(7, 4))

    demo.heading("Why not recursion")
    length = 20_000 if demo.quick else 200_000
    try:
        walk(in_order, chain, length)
        end = "went through"
    except RecursionError:
        end = "RecursionError"
    gradient, seconds = engine(chain, length)
    demo.say(
        f"a chain of {length:,} operations: recursive order: {end} (limit {sys.getrecursionlimit():,} calls); "
        f"tinyattn: {seconds:.2f} s\n"
    )
    demo.claim(
        "a recursive order ends at Python's limit, tinyattn's loop does not",
        end == "RecursionError" and gradient == 1.0,
    )

    demo.measured(
        "{wrong:g} instead of 4; {n} doublings: {paths:,} contributions against {order}; {length:,} ops: {end}",
        wrong=found["b = x + x, y = b + b"][0],
        n=counts[-1],
        paths=paths[-1][1],
        order=order[-1][1],
        length=length,
        end=end,
    )
    x = ta.Tensor(1.0, requires_grad=True, name="x")
    demo.plot("walks", plot_walks, size=(12, 4.2))
    demo.graph("diamond", used_twice(x), show="gradients", title="b = 3x, y = 2b + 5b: gradients meet in b")


if __name__ == "__main__":
    _demo.run(main, __doc__)
