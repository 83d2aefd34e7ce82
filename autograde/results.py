"""What came out of one submission: plain data, a JSON file each.

A Result is what grading a class is to keep of each submission; everything that people read is made
from these files. Nothing makes them yet: `python -m autograde grade` is still to come.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tinylm.files import replacing

GRADED, PARTLY, NOT = "graded", "partly", "not gradable"
RIGHT, WRONG, UNWRITTEN, CRASHED, MISSING = "right", "wrong", "not written", "crashed", "missing"


@dataclass
class Check:
    """One test cell of a submission.

    Attributes:
        task: 1 to 5.
        notebook: its name, without .ipynb.
        cell: the name of the cell, as "check-values" or "hidden-values".
        name: the check, as "values".
        hidden: whether learners cannot see it.
        worth: the points there are.
        by_notebook: the points that the cell got when the notebook was run.
        by_second: those that the second opinion gives, or None if there is none.
        outcome: "right", "wrong", "not written" (the stub is still there), "crashed" (the kernel
            died, or time ran out) or "missing" (the notebook is).
        message: the first line that a failed check says; empty for a hidden one.
        mistake: the name of the known mistake that it is exactly, or None.
    """

    task: int
    notebook: str
    cell: str
    name: str
    hidden: bool
    worth: float
    by_notebook: float = 0.0
    by_second: float | None = None
    outcome: str = MISSING
    message: str = ""
    mistake: str | None = None

    @property
    def points(self):
        """What counts: where the two disagree, the lower one, until somebody has looked."""
        return self.by_notebook if self.by_second is None else min(self.by_notebook, self.by_second)

    @property
    def disagrees(self):
        return self.by_second is not None and self.by_second != self.by_notebook


@dataclass
class Answer:
    """One written answer: the points it is worth, and those that a grader gave, None until then."""

    task: int
    notebook: str
    cell: str
    worth: float
    points: float | None = None


@dataclass
class Result:
    """What came out of one submission.

    Attributes:
        student, name, platform, number, late, digest: as in `intake.Row`.
        status: "graded", "partly" (some notebooks are missing or unreadable) or "not gradable".
        reason: why not, or why only partly, in a sentence; else empty.
        checks, answers: of all notebooks of the assignment, also of those that are missing.
        review: sentences, each a reason why a person should look at this submission.
        notes: sentences on what intake found and mended; nobody has to act on them.
        release: the release that the graded notebooks belong to.
        seconds: how long the grading took.
    """

    student: str
    name: str = ""
    platform: str | None = None
    number: str | None = None
    late: bool = False
    digest: str = ""
    status: str = NOT
    reason: str = ""
    checks: list[Check] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    review: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    release: str = ""
    seconds: float = 0.0

    @property
    def automatic(self):
        return sum(check.points for check in self.checks)

    @property
    def by_hand(self):
        return sum(answer.points or 0.0 for answer in self.answers)

    @property
    def pending(self):
        """The points that wait for a grader."""
        return sum(answer.worth for answer in self.answers if answer.points is None)

    @property
    def score(self):
        return self.automatic + self.by_hand

    @property
    def worth(self):
        return sum(one.worth for one in [*self.checks, *self.answers])


def save(result, folder):
    """Write a Result to folder/STUDENT.json, in one step."""
    with replacing(Path(folder) / f"{result.student}.json") as temporary:
        temporary.write_text(json.dumps(asdict(result), indent=1) + "\n", encoding="utf-8")


def load(path):
    """The Result in a file. Raises OSError, ValueError, TypeError or KeyError if there is none."""
    plain = json.loads(Path(path).read_text(encoding="utf-8"))
    plain["checks"] = [Check(**one) for one in plain["checks"]]
    plain["answers"] = [Answer(**one) for one in plain["answers"]]
    return Result(**plain)
