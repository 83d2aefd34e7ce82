"""What learners get back: no hidden tests, and no 0 where a grader has not been yet.

Both preprocessors stand in nbgrader's generate_feedback; they change the page, not the gradebook.
"""

from nbconvert.preprocessors import Preprocessor
from nbformat.v4 import new_output
from nbgrader.api import Gradebook
from nbgrader.utils import has_failed, is_grade, is_locked, is_solution
from traitlets import Bool

BEGIN, END = "### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS"
RIGHT, NOT_RIGHT = "right on other numbers\n", "not right on other numbers\n"
PENDING = "Not graded yet: the points of this answer are still to come."


class HideTests(Preprocessor):
    """Take out the tests between the marks, and leave of their outcome whether it is right."""

    enabled = Bool(True).tag(config=True)

    def preprocess_cell(self, cell, resources, index):
        if is_locked(cell) and BEGIN in cell.source:
            before, _, rest = cell.source.partition(BEGIN)
            cell.source = (before + rest.partition(END)[2]).strip()
            outcome = NOT_RIGHT if has_failed(cell) else RIGHT
            cell.outputs = [new_output("stream", text=outcome)]
        return cell, resources


class MarkPending(Preprocessor):
    """Say in the comment of a written answer that nobody has graded it yet."""

    enabled = Bool(True).tag(config=True)

    def preprocess(self, notebook, resources):
        of = resources["nbgrader"]
        with Gradebook(of["db_url"]) as gradebook:
            submitted = gradebook.find_submission_notebook(
                of["notebook"], of["assignment"], of["student"])
            self.waiting = {grade.name for grade in submitted.grades if is_pending(grade)}
        return super().preprocess(notebook, resources)

    def preprocess_cell(self, cell, resources, index):
        if is_grade(cell) and is_solution(cell) and not cell.metadata.nbgrader.get("comment"):
            if cell.metadata.nbgrader["grade_id"] in self.waiting:
                cell.metadata.nbgrader["comment"] = PENDING
        return cell, resources


def is_pending(grade):
    """Whether a grade of the gradebook has no points yet, neither by hand nor by a test."""
    return grade.manual_score is None and grade.auto_score is None
