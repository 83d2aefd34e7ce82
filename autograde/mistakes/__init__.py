"""How people go wrong: a catalogue of wrong solutions, one runnable function a mistake.

A module a task. Each function is what a learner would hand in, under the seed's name and signature,
and goes wrong in one place, marked `# <-`. Its decorator says which mistake it is, what the learner
is told, and which check teaches it. `row` is the mistake's number in the project's list of 70
mistakes; entries without a row were added here. A row that names several mistakes has several
entries. What each mistake returns, and how a learner's result is compared with it, is no concern of
this package.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

FUNCTIONS = ("sample_group", "group_advantages", "k3_kl", "grpo_loss", "grpo_step")

_catalogue = []


@dataclass(frozen=True)
class Mistake:
    task: int                    # 1 to 5
    row: int | None              # in the list of 70, or None
    name: str                    # a short slug, such as "sample-std"; no two are equal
    says: str                    # one sentence for a learner whose result is exactly this one
    read: str                    # what to read again
    caught_by: tuple[str, ...]   # the checks of its task in which it must lose points
    function: Callable           # the wrong function; it sees the names that lab.py imports
    named: bool                  # False: the result alone does not tell it from other mistakes

    def source(self):
        """The function as text that can be pasted into a solution cell, without its decorator."""
        text = textwrap.dedent(inspect.getsource(self.function))
        definition = ast.parse(text).body[0].lineno
        return "".join(text.splitlines(keepends=True)[definition - 1:])


def mistake(row, name, says, read, caught_by, named=True):
    """Enter the decorated function into the catalogue; see `Mistake` for the arguments."""

    def enter(function):
        task = 1 + FUNCTIONS.index(function.__name__)
        _catalogue.append(Mistake(task, row, name, says, read, caught_by, function, named))
        return function

    return enter


def all_mistakes():
    """Every mistake, task by task, in the order of the modules' lines."""
    for task in range(1, 1 + len(FUNCTIONS)):
        import_module(f"{__name__}.task{task}")
    return sorted(_catalogue, key=lambda entry: entry.task)
