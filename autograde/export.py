"""`nbgrader export`: a CSV in which a grade that is not there yet is not a 0.

A row a student and assignment. `score` is what there is so far, `pending` the points that wait for
a grader, `state` one of: graded, pending, missing (nothing was handed in, or it was never graded).
"""

import csv
import io
from pathlib import Path

from nbgrader.api import MissingEntry
from nbgrader.plugins import ExportPlugin

from autograde.feedback import is_pending
from tinylm.files import replacing

COLUMNS = ("assignment", "student_id", "last_name", "first_name", "email", "timestamp",
           "raw_score", "late_submission_penalty", "score", "pending", "max_score", "state")


class ExportGrades(ExportPlugin):
    """The grades of all students, to grades.csv or wherever --to says."""

    def export(self, gradebook):
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for assignment in gradebook.assignments:
            for student in gradebook.students:
                if self._wanted(assignment, student):
                    writer.writerow(_row(gradebook, assignment, student))
        to = Path(self.to or "grades.csv")
        with replacing(to) as temporary:
            temporary.write_text(text.getvalue(), encoding="utf-8")
        self.log.info("Grades are in %s", to)

    def _wanted(self, assignment, student):
        return ((not self.assignment or assignment.name in map(str, self.assignment))
                and (not self.student or student.id in map(str, self.student)))


def _row(gradebook, assignment, student):
    row = {
        "assignment": assignment.name, "student_id": student.id, "last_name": student.last_name,
        "first_name": student.first_name, "email": student.email, "max_score": assignment.max_score,
        "state": "missing",
    }
    try:
        submission = gradebook.find_submission(assignment.name, student.id)
    except MissingEntry:
        return row
    pending = sum(grade.max_score for notebook in submission.notebooks
                  for grade in notebook.grades if is_pending(grade))
    penalty = submission.late_submission_penalty or 0.0
    return row | {
        "timestamp": submission.timestamp, "raw_score": submission.score,
        "late_submission_penalty": penalty, "score": max(0.0, submission.score - penalty),
        "pending": pending, "state": "pending" if pending else "graded",
    }
