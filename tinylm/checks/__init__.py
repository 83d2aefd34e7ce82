"""Is a function right? The same checks in notebook cells, in pytest and in grading.

    check(k3_kl, "gradient")     prints "gradient: right", or says what was found and expected
    checks_of("k3_kl")           the checks of a task, and what each looks at

A check runs a function on recorded inputs and compares what it does with recorded behaviour: what
is right, and what each known mistake does. Nothing here computes the answer to a task. Points are
not known here; neither is how a hidden table comes into being (see `python -m autograde.record`).
"""

import inspect
from dataclasses import dataclass

from tinylm.checks.behaviour import run
from tinylm.checks.compare import difference, tolerance
from tinylm.checks.tables import FUNCTIONS, pack, table_of, unpack
from tinylm.checks.words import not_passed

__all__ = ["CheckFailed", "check", "checks_of", "gap", "judge", "pack", "run", "unpack"]


class CheckFailed(AssertionError):
    """A check is not passed. The message says what was found, what was expected and what to do."""

    def _render_traceback_(self):
        return [str(self)]                  # IPython shows this in place of a traceback


@dataclass(frozen=True)
class Verdict:
    """What a check has found out.

    Attributes:
        passed: whether everything was as it should be.
        message: one line if so, else what was found and expected.
        mistake: the name of the known mistake that the function makes, or None.
    """

    passed: bool
    message: str
    mistake: str | None = None


def check(fn, name, table=None):
    """Run one check of a task.

    Args:
        fn: the function itself, under the name that the task gives it.
        name: the check, one of `checks_of`.
        table: another table than the one that tinylm carries, as a dict or as packed text.

    Prints one line if it is passed, and raises CheckFailed if not.
    """
    verdict = judge(fn, name, table)
    if not verdict.passed:
        raise CheckFailed(verdict.message)
    print(verdict.message)


def checks_of(function):
    """The checks of one of the five functions, given by name: {check: what it looks at}."""
    if function not in FUNCTIONS:
        raise ValueError(f"{function!r} is none of the five functions: {', '.join(FUNCTIONS)}.")
    return {name: entry["looks_at"] for name, entry in table_of(function)["checks"].items()}


def judge(fn, name, table=None):
    """The Verdict of `check`, without printing or raising it."""
    function = getattr(fn, "__name__", None)
    if not inspect.isfunction(inspect.unwrap(fn)) or function not in FUNCTIONS:
        return Verdict(False, f"{name}: {_what_is_given(fn)}")
    table = table_of(function) if table is None else table
    table = unpack(table) if isinstance(table, str) else table
    if table["function"] != function:
        return Verdict(False, f"{name}: this checks {table['function']}, and was given {function}")
    if name not in table["checks"]:
        raise ValueError(f"{function} has no check {name!r}; it has {', '.join(table['checks'])}.")
    return _judged(fn, function, name, table)


def gap(behaviour, case):
    """The first Difference of a behaviour, as `run` gives it, from what is right; None if right.

    There may be two right behaviours: with the stand-ins called, and with their work done inline.
    """
    gaps = [difference(behaviour, right, *tolerance(case)) for right in case["right"]]
    return None if None in gaps else gaps[0 if behaviour["called"] else -1]


def _judged(fn, function, name, table):
    entry = table["checks"][name]
    behaviours = [run(fn, case) for case in entry["cases"]]
    printed = sum(behaviour["printed"] for behaviour in behaviours)
    note = f"{printed} lines that {function} printed are not shown here" if printed else ""
    for case, behaviour in zip(entry["cases"], behaviours, strict=True):
        apart = gap(behaviour, case)
        if apart:
            mistake = _known_mistake(fn, name, table, behaviours)
            told = {"read": entry["read"], **table["mistakes"].get(mistake, {})}
            message = not_passed(name, function, case, behaviour, apart, told, note)
            return Verdict(False, message, mistake)
    return Verdict(True, f"{name}: right" + (f" ({note})" if note else ""))


def _what_is_given(fn):
    if inspect.isfunction(fn):
        return (f"the function is called {fn.__name__}; define it under the name that the task "
                f"gives it, which is one of {', '.join(FUNCTIONS)}")
    return (f"check was given a {type(fn).__name__}; give it the function itself, without "
            "parentheses, as in check(k3_kl, ...)")


def _known_mistake(fn, name, table, behaviours):
    """The one mistake that does exactly this: in this check, or else in all of the task's."""
    cases = table["checks"][name]["cases"]
    alike = [mistake for mistake in table["mistakes"]
             if _shows(mistake, cases) and _does(mistake, cases, behaviours)]
    for entry in table["checks"].values() if len(alike) > 1 else ():
        behaviours = [run(fn, case) for case in entry["cases"]]
        alike = [mistake for mistake in alike if _does(mistake, entry["cases"], behaviours)]
    return alike[0] if len(alike) == 1 else None


def _shows(mistake, cases):
    """Whether these cases tell a mistake by what it returns; an error alone may have any cause."""
    return any("raised" not in behaviour
               for case in cases for behaviour in case["mistakes"].get(mistake, ()))


def _does(mistake, cases, behaviours):
    """Whether the behaviours are those of a mistake, case by case."""
    return all(
        any(_is(behaviour, known, case) for known in case["mistakes"].get(mistake, case["right"]))
        for case, behaviour in zip(cases, behaviours, strict=True))


def _is(behaviour, known, case):
    alike = ("raised" in behaviour) == ("raised" in known)
    return alike and difference(behaviour, known, *tolerance(case)) is None
