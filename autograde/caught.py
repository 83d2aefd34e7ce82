"""Which check catches which mistake: every known wrong solution, run through its task's checks.

    python -m autograde mistakes

prints the counts and writes docs/mistakes-caught.md, a row a mistake, so that a reader can judge
each: a check that is not concerned should keep its points. Nothing is decided here; the checks are
in `tinylm.checks`, the mistakes in `autograde.mistakes`.
"""

from dataclasses import dataclass

from autograde.mistakes import Mistake, all_mistakes
from autograde.sources import ROOT
from tinylm.checks import checks_of, judge
from tinylm.files import replacing
from tinylm.labfile import TASKS

TARGET = ROOT / "docs" / "mistakes-caught.md"
TEACHES, LOST, KEPT = "**X**", "x", ""


@dataclass(frozen=True)
class Caught:
    """What the checks of its task made of one mistake."""

    mistake: Mistake
    lost: tuple[str, ...]        # the checks that it does not pass
    names: frozenset[str]        # the names of known mistakes that they gave it

    @property
    def is_named(self):
        return self.names == {self.mistake.name}


def main():
    """Measure, write the table, print what it comes to."""
    found = measured()
    with replacing(TARGET) as temporary:
        temporary.write_text(page(found), encoding="utf-8")
    for one in found:
        mistake = one.mistake
        print(f"task {mistake.task}  row {mistake.row or '-':>2}  {mistake.name:<32} "
              f"{', '.join(one.lost) or 'MISSED'}{'' if one.is_named else '  (not named)'}")
    print(summary(found))


def measured(mistakes=None):
    """Run all mistakes, or the given ones. Returns a list of Caught."""
    return [_measured(mistake) for mistake in mistakes or all_mistakes()]


def _measured(mistake):
    verdicts = {name: judge(mistake.function, name) for name in checks_of(TASKS[mistake.task - 1])}
    return Caught(
        mistake,
        tuple(name for name, verdict in verdicts.items() if not verdict.passed),
        frozenset(verdict.mistake for verdict in verdicts.values() if verdict.mistake),
    )


def summary(found):
    """One sentence: how many there are, how many were caught, named, missed."""
    caught = sum(bool(one.lost) for one in found)
    named = sum(one.is_named for one in found)
    misnamed = sum(bool(one.names - {one.mistake.name}) for one in found)
    return (f"{len(found)} mistakes: {caught} caught, {len(found) - caught} missed; "
            f"{named} called by their name, {misnamed} by another's.")


def page(found):
    """The tables in Markdown."""
    parts = ["# Which check catches which mistake\n",
             "Made by `make mistakes`; not to be edited. Every row is a wrong solution from "
             "`autograde/mistakes`, run\nthrough the checks of its task. "
             f"{TEACHES}: loses its points, in a check that teaches it; {LOST}: loses them, in\n"
             "another check; empty: keeps them. *row*: its number in the list of 70 that the "
             "course\nstarted from. *named*: the message calls the mistake by its name.\n",
             summary(found) + "\n"]
    for number, function in enumerate(TASKS, 1):
        checks = list(checks_of(function))
        parts.append(f"## Task {number}: {function}\n")
        parts.append("\n".join([
            f"| row | mistake | {' | '.join(f'`{name}`' for name in checks)} | named |",
            f"|--:|---|{':-:|' * len(checks)}:-:|",
            *(_row(one, checks) for one in found if one.mistake.task == number)]) + "\n")
    return "\n".join(parts)


def _row(one, checks):
    mistake = one.mistake
    marks = [(TEACHES if name in mistake.caught_by else LOST) if name in one.lost else KEPT
             for name in checks]
    named = "yes" if one.is_named else ""
    return (f"| {mistake.row or ''} | `{mistake.name}`: {mistake.says} "
            f"| {' | '.join(marks)} | {named} |")
