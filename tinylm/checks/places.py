"""Stand-ins take the places of the functions that a learner's function may call.

Wherever it would find them: its globals, `lab` and tinylm, modules under any alias, closures,
partials. What was replaced is known by identity, and all is put back.
"""

import contextlib
import functools
import inspect
import sys
import types

from tinylm import rollout
from tinylm.checks.tables import FUNCTIONS


@contextlib.contextmanager
def replaced(fn, stand_ins):
    """Put stand-ins where `fn` would find the functions of these names; put all back afterwards.

    tinylm's functions are known by identity, under any alias. The five tasks are known by the name
    they have in the globals of `fn` or in `lab`, and from then on by identity too.
    """
    spaces = list(_namespaces(fn))
    by_identity = {}
    for name, stand_in in stand_ins.items():
        task = name in FUNCTIONS
        originals = [space.get(name) for space in spaces] if task else [getattr(rollout, name)]
        by_identity.update((id(it), stand_in) for it in originals if callable(it))
    done = []
    try:
        for space in spaces:
            for name, value in list(space.items()):
                bound = isinstance(value, functools.partial)
                stand_in = by_identity.get(id(value.func if bound else value))
                if stand_in:
                    done.append((space, name, value))
                    space[name] = (functools.partial(stand_in, *value.args, **value.keywords)
                                   if bound else stand_in)
        yield
    finally:
        for space, name, value in reversed(done):
            space[name] = value


def _namespaces(fn):
    """Where `fn` and the functions beside it look names up, each once."""
    spaces = [vars(module) for name, module in list(sys.modules.items())
              if name in ("lab", "tinylm")
              or name.startswith("tinylm.") and not name.startswith("tinylm.checks")]
    waiting, seen = [fn, inspect.unwrap(fn)], []
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.append(function)
        spaces += [function.__globals__, cells := _Cells(function)]
        waiting += [value for value in cells.values() if isinstance(value, types.FunctionType)]
    beside = list(inspect.unwrap(fn).__globals__.values())
    for value in beside:
        if isinstance(value, types.ModuleType):
            spaces.append(vars(value))
        elif isinstance(value, types.FunctionType):
            spaces += [value.__globals__, _Cells(value)]
    return {id(space): space for space in spaces}.values()


class _Cells:
    """The closure of a function, as a dict is used here."""

    def __init__(self, function):
        names, cells = function.__code__.co_freevars, function.__closure__ or ()
        self.cells = dict(zip(names, cells, strict=True))

    def items(self):
        for name, cell in self.cells.items():
            with contextlib.suppress(ValueError):        # a cell that is not filled yet
                yield name, cell.cell_contents

    def values(self):
        return [value for _, value in self.items()]

    def get(self, name):
        return dict(self.items()).get(name)

    def __setitem__(self, name, value):
        self.cells[name].cell_contents = value
