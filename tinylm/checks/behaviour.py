"""What a function does with a case, written down as plain data.

`run` gives a learner's function fresh copies of a case's inputs, with stand-ins in the place of the
functions it may call, and lets observers write down what came of it. It neither prints nor warns,
and leaves nothing changed behind. It does not judge: that is `compare`'s.
"""

import inspect
import linecache
import traceback

import torch

from tinylm.checks.observers import OBSERVERS
from tinylm.checks.places import replaced
from tinylm.checks.plain import kind
from tinylm.checks.silence import quiet
from tinylm.checks.stage import Stage


def run(fn, case):
    """The behaviour of `fn` in one case of a table: a dict of plain data.

    Each observer that the case names adds what it saw, under words that can stand in a sentence.
    Beside them stand "returned" (the type of the result), "printed" (how many lines) and "called"
    (which stand-ins), and, if the function raised, "raised" with "type", "says" and "where".
    """
    stage = Stage(case)
    trial = Trial(fn, case, stage)
    with quiet() as printed, replaced(fn, stage.stand_ins()), torch.enable_grad():
        try:
            behaviour = trial.behaviour()
        except Raised as raised:
            behaviour = {"raised": _told(raised.error, fn)}
    called = sorted({call.name for call in stage.calls})
    return {**behaviour, "printed": printed.lines, "called": called}


class Raised(Exception):
    """Carries what a learner's function raised past our own code."""

    def __init__(self, error):
        self.error = error


class Trial:
    """One function on one case: what observers look at.

    Attributes:
        case, stage: the case, and the stage with its stand-ins and the calls made.
        inputs: the arguments by name, as the function left them.
        logp: the leaf that the argument `logp` was made from, or None.
        returned: what the function returned.
    """

    def __init__(self, fn, case, stage):
        self.fn, self.case, self.stage = fn, case, stage

    def behaviour(self):
        self.inputs, self.logp = self._fresh_inputs({})
        for _ in range(self.case.get("calls", 1)):
            self.returned = self._call(self.inputs, self.case.get("options", {}))
        seen = {"returned": kind(self.returned)}
        for name in self.case["observe"]:
            seen.update(OBSERVERS[name](self))
        return seen

    def attempt(self, inputs=None, options=None):
        """Another call, some of inputs and options changed: (what it returned, leaf of logp)."""
        fresh, leaf = self._fresh_inputs(inputs or {})
        options = {**self.case.get("options", {}), **(options or {})}
        return self._call(fresh, options), leaf

    def again(self, inputs):
        """What another call returns when some inputs are changed."""
        return self.attempt(inputs)[0]

    def gradient(self, output, leaf):
        """The gradient by a leaf of the sum of `output`; None where none reaches it."""
        if kind(output) != "float tensor" or not output.requires_grad:
            return None
        try:
            return torch.autograd.grad(output, leaf, torch.ones_like(output), allow_unused=True)[0]
        except RuntimeError as error:
            raise Raised(error) from None

    def _fresh_inputs(self, changed):
        inputs = {**self.case["inputs"], **changed}
        inputs = {name: self.stage.decoded(value) for name, value in inputs.items()}
        leaf = inputs.get("logp")
        if leaf is not None:
            leaf.requires_grad_()
            inputs["logp"] = leaf.clone()        # as in training, where logp is no leaf
        return inputs, leaf

    def _call(self, inputs, options):
        try:
            return self.fn(*inputs.values(), **options)
        except (Exception, SystemExit) as error:
            raise Raised(error) from None


def _told(error, fn):
    """An error as plain data: its type, its message, and the learner's line that it came from."""
    where = ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        if frame.f_globals is inspect.unwrap(fn).__globals__:
            line = linecache.getline(frame.f_code.co_filename, number).strip()
            where = f"line {number}: {line}" if line else f"line {number}"
    says = str(error).split("\n")[0]
    return {"type": type(error).__name__, "says": says if len(says) < 200 else says[:200] + "...",
            "where": where}
