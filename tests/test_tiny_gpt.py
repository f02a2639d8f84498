"""Ctrl-C in demos/tiny_gpt.py: the step is finished, what was learned is kept, the training can go on from there."""

import signal
from pathlib import Path

import numpy as np
import pytest

DEMOS = Path(__file__).parent.parent / "demos"


class Reader:
    """Stands in for the demo: reads what the training says, and presses Ctrl-C where it is told to."""

    def __init__(self, interrupt_at=None):
        self.interrupt_at = interrupt_at

    def track(self, items, what):
        for self.step, item in enumerate(items, 1):
            if self.step == self.interrupt_at:
                signal.raise_signal(signal.SIGINT)
            yield item

    def say(self, text):
        pass


def test_ctrl_c_keeps_what_was_learned(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(DEMOS)
    tiny_gpt = pytest.importorskip("tiny_gpt")
    text = tiny_gpt.Text(tiny_gpt.TEXT)
    text.held_out = text.held_out[:200]

    def make():
        return tiny_gpt.Run(text, 0, steps=7, width=8, layers=1, context=6, batch=3, lr=1e-2)

    handler = signal.getsignal(signal.SIGINT)
    whole, stopped, resumed = make(), make(), make()
    assert whole.train(Reader(), looks=2)
    assert not stopped.train(Reader(interrupt_at=4), looks=2)
    assert stopped.step == 4  # the step in which it came was done
    assert signal.getsignal(signal.SIGINT) is handler

    stopped.save(tmp_path / "model.npz")
    resumed.load(tmp_path / "model.npz")
    assert resumed.step == 4
    assert resumed.train(Reader(), looks=2)
    for name, array in whole.model.state_dict().items():
        np.testing.assert_array_equal(resumed.model.state_dict()[name], array, err_msg=name)


def test_a_second_ctrl_c_ends(monkeypatch):
    monkeypatch.syspath_prepend(DEMOS)
    tiny_gpt = pytest.importorskip("tiny_gpt")
    with tiny_gpt.ctrl_c_noted() as noted:
        signal.raise_signal(signal.SIGINT)
        assert noted
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
