"""nbgrader as typed, from release to export, in a course of its own; points are read where graders
read them, in the gradebook.

One course is graded once for all tests. Each submission stands for one way in which learners hand
something in.
"""

import copy
import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell
from nbgrader.api import Gradebook

from autograde import sources
from autograde.mistakes import all_mistakes
from tinylm.labfile import TASKS, TEMPLATE

ROOT = Path(__file__).parents[2]
NBGRADER = Path(sys.executable).with_name("nbgrader")
NAMES = [path.stem for path in sources.notebooks()]
WRITTEN = "Because the rewards of a group are compared with each other."


# ------------------------------------------------------------ what is handed in

def right(number):
    """What a learner writes who gets task `number` right."""
    return sources.solution(sources.read(sources.notebooks()[number - 1]))


def hand_in(folder, released, solution=None, change=None):
    """Put a released notebook into a folder, with a solution, and with a change to its cells."""
    folder.mkdir(parents=True, exist_ok=True)
    notebook = nbformat.read(released, as_version=4)
    if solution is not None:
        sources.cell(notebook, "solution").source = solution
    if change is not None:
        change(notebook.cells, lambda name: sources.cell(notebook, name))
    if not all("id" in cell for cell in notebook.cells):
        notebook.nbformat_minor = 4
    (folder / released.name).write_text(json.dumps(notebook))


class Submission:
    """What one student hands in."""

    def __init__(self, course, student):
        self.folder = course / "submitted" / student / "grpo"
        self.released = course / "released" / "grpo"

    def notebook(self, number, solution=None, change=None):
        hand_in(self.folder, self.released / f"{NAMES[number - 1]}.ipynb", solution, change)


def mistake(name):
    """The source of a known wrong solution."""
    return next(mistake for mistake in all_mistakes() if mistake.name == name).source()


def hand_in_everything(course):
    as_released, all_right = Submission(course, "as_released"), Submission(course, "all_right")
    lab_file = Submission(course, "lab_file")
    for number in range(1, 6):
        as_released.notebook(number)
        lab_file.notebook(number)
        all_right.notebook(number, right(number),
                           lambda cells, cell: cell("answer").update(source=WRITTEN))
    (lab_file.folder / "lab.py").write_text(filled_lab_file())
    wrong_two = Submission(course, "wrong_two")
    wrong_two.notebook(2, mistake("sample-std"), passed_over)
    wrong_two.notebook(5, right(5))
    Submission(course, "rearranged").notebook(1, right(1), rearranged)
    Submission(course, "older_format").notebook(3, right(3), older)
    Submission(course, "crash_in_check").notebook(
        3, right(3).replace("    d = ", "    if tricky:\n        os._exit(1)\n    d = "), tricky)
    Submission(course, "other_name").notebook(3, right(3).replace("def k3_kl", "def kl_k3"))


def passed_over(cells, cell):
    """Test cells that were told to be content."""
    cell("check-population_std").source = "print('population_std: right')"
    cell("hidden-population_std").metadata["tags"] = ["skip-execution"]


def rearranged(cells, cell):
    """Cells deleted, copied, moved, edited; marks changed, tags set, a schema of tomorrow."""
    fake = copy.deepcopy(cell("check-types"))
    fake.metadata.nbgrader.update(grade_id="mine", points=100)
    fake.source = "pass"
    double = copy.deepcopy(cell("solution"))
    double.id = "solution-2"
    double_check = copy.deepcopy(cell("check-rows"))
    double_check.id = "check-rows-2"
    cell("solution").source = "raise SystemExit"
    cell("check-temperature").metadata.nbgrader.update(grade=False, solution=True, locked=False)
    cell("check-responses").metadata.nbgrader.update(schema_version=17, points=1000)
    cell("check-responses").metadata["tags"] = ["skip-execution"]
    cell("check-rewards").source = "print('as good as right')"
    cell("check-rewards").cell_type = "markdown"
    del cell("check-rewards")["outputs"], cell("check-rewards")["execution_count"]
    cell("hidden-rows").metadata["nbgrader"] = {}
    gone = [cell("setup"), cell("check-types"), cell("hidden-temperature"), cell("answer")]
    position = 1 + cells.index(cell("solution"))
    cells[position:position] = [double]
    cells += [double_check, fake]
    cells[:] = [one for one in cells if all(one is not other for other in gone)]


def older(cells, cell):
    """Saved by a program that knows no cell ids, and without one of the checks."""
    cells.remove(cell("check-values"))
    for one in cells:
        del one["id"]


def tricky(cells, cell):
    """Lines that make one check end its kernel, and no other."""
    cells.insert(cells.index(cell("solution")), new_code_cell("import os\n\ntricky = False"))
    position = cells.index(cell("check-direction"))
    cells[position:position + 1] = [new_code_cell("tricky = True"), cells[position],
                                    new_code_cell("tricky = False")]


def filled_lab_file():
    """A lab.py filled in with an editor: helpers at the top, an import under another name."""
    text = (TEMPLATE / "lab.py").read_text()
    text = text.replace("from tinylm.training import train\n", """from tinylm.training import train
import torch as t

COUNT = 1


def difference(a, b):
    return COUNT * (a - b)
""")
    for number, name in enumerate(TASKS, 1):
        stub = f'    raise NotImplementedError("Task {number}: {name}")\n'
        body = right(number).split('"""\n', 1)[1]
        assert stub in text
        text = text.replace(stub, body + "\n")
    text = text.replace("d = ref_logp - logp\n", "d = difference(ref_logp, logp)\n")
    return text.replace("return torch.exp(d) - d - 1", "return t.exp(d) - d - 1")


# ------------------------------------------------------------ the course

class Course:
    """A folder in which nbgrader's commands are typed."""

    def __init__(self, folder):
        self.folder = folder
        shutil.copytree(sources.SOURCE, folder / "source" / "grpo")
        shutil.copy(ROOT / "autograde" / "nbgrader_config.py", folder)

    def nbgrader(self, *words):
        """Type a command; it must succeed. Returns what it said."""
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        done = subprocess.run([NBGRADER, *words], cwd=self.folder, env=environment, timeout=600,
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def gradebook(self):
        return Gradebook(f"sqlite:///{self.folder / 'gradebook.db'}")

    def points(self, student, number):
        """{cell: points, None where a grader has not been} of one notebook."""
        with self.gradebook as gradebook:
            found = gradebook.find_submission_notebook(NAMES[number - 1], "grpo", student)
            return {grade.name: grade.auto_score if grade.manual_score is None
                    else grade.manual_score for grade in found.grades}

    def lost(self, student, number):
        """The test cells without points."""
        return {name for name, points in self.points(student, number).items()
                if name != "answer" and points != 1}

    def output(self, student, number, name):
        """All that a cell put out when it was graded, as text."""
        path = self.folder / "autograded" / student / "grpo" / f"{NAMES[number - 1]}.ipynb"
        cell = sources.cell(nbformat.read(path, as_version=4), name)
        return "".join(one.get("text", "") + one.get("evalue", "") for one in cell.outputs)

    def page(self, student, number):
        """The feedback on one notebook."""
        return (self.folder / "feedback" / student / "grpo" / f"{NAMES[number - 1]}.html"
                ).read_text()

    def exported(self):
        self.nbgrader("export")
        with open(self.folder / "grades.csv") as file:
            return {row["student_id"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    course = Course(tmp_path_factory.mktemp("course"))
    course.nbgrader("generate_assignment", "grpo")
    hand_in_everything(course.folder)
    course.nbgrader("autograde", "grpo", "--Execute.walls=auto")     # none on some systems
    course.nbgrader("generate_feedback", "grpo")
    return course


CELLS = {number: {name for name, _, kind in sources.graded_cells(sources.read(path))
                  if kind != "by hand"}
         for number, path in enumerate(sources.notebooks(), 1)}


# ------------------------------------------------------------ points

@pytest.mark.parametrize("number", range(1, 6))
def test_released_notebooks_as_they_are_get_nothing_and_fail_cleanly(course, number):
    assert course.lost("as_released", number) == CELLS[number]
    assert course.points("as_released", number)["answer"] == 0
    for name in CELLS[number]:
        said = course.output("as_released", number, name)
        assert "NotImplementedError" in said or "stub" in said, said
        assert "Traceback" not in said


@pytest.mark.parametrize("number", range(1, 6))
def test_right_solutions_get_everything(course, number):
    assert course.lost("all_right", number) == set()
    assert course.points("all_right", number)["answer"] is None
    assert set(course.points("all_right", number)) == CELLS[number] | {"answer"}


def test_one_wrong_function_costs_its_own_cells(course):
    assert course.lost("wrong_two", 2) == {"check-population_std", "hidden-population_std"}


def test_a_wrong_task_2_costs_nothing_in_task_5(course):
    assert course.lost("wrong_two", 5) == set()


@pytest.mark.parametrize("number", range(1, 6))
def test_a_lab_file_fills_cells_that_were_left_as_stubs(course, number):
    assert course.lost("lab_file", number) == set()
    assert course.points("lab_file", number)["answer"] == 0


def test_cells_that_were_moved_about_cost_nothing(course):
    """And what was not handed in at all is no written answer that waits for a grader."""
    points = course.points("rearranged", 1)
    assert course.lost("rearranged", 1) == set()
    assert set(points) == CELLS[1] | {"answer"} and points["answer"] == 0


def test_an_older_format_of_notebooks_costs_nothing(course):
    assert course.lost("older_format", 3) == set()


def test_notebooks_that_are_not_there_get_nothing(course):
    assert set(course.points("rearranged", 2).values()) == {0}


def test_a_crash_in_a_check_costs_that_check(course):
    assert course.lost("crash_in_check", 3) == {"check-direction"}
    assert "ended its kernel" in course.output("crash_in_check", 3, "check-direction")


def test_a_function_under_another_name_is_told_so(course):
    assert course.lost("other_name", 3) == CELLS[3]
    assert "stub" in course.output("other_name", 3, "check-values")


def test_nothing_is_kept_while_nbgrader_runs(course):
    assert "nothing is kept" in course.output("all_right", 3, "keep")


# ------------------------------------------------------------ what people read

def test_feedback_shows_no_hidden_test(course):
    for student, number in [("all_right", 3), ("wrong_two", 2), ("as_released", 5)]:
        page = course.page(student, number)
        assert "HIDDEN TESTS" not in page and "table=" not in page
        assert "hidden-" in page and "check-" in page
    with course.gradebook as gradebook:
        cells = gradebook.find_notebook(NAMES[1], "grpo").source_cells
        packed = [re.search(r"table='(.{40})", cell.source)[1] for cell in cells
                  if cell.name.startswith("hidden-")]
    assert packed and not any(text in course.page("wrong_two", 2) for text in packed)


def test_feedback_on_a_hidden_check_does_not_show_its_numbers(course):
    hidden = course.output("wrong_two", 2, "hidden-population_std")
    visible = course.output("wrong_two", 2, "check-population_std")
    numbers = re.findall(r"-?\d\.\d{3,}", hidden)
    assert numbers and not any(number in course.page("wrong_two", 2)
                               for number in numbers if number not in visible)


def test_feedback_says_of_a_hidden_check_whether_it_is_right(course):
    assert course.page("wrong_two", 2).count("not right on other numbers") == 1
    assert "not right on other numbers" not in course.page("all_right", 2)


def test_feedback_says_what_is_pending(course):
    assert "Not graded yet" in course.page("all_right", 3)
    assert "Not graded yet" not in course.page("as_released", 3)


def test_export_tells_pending_from_nothing(course):
    grades = course.exported()
    assert (grades["all_right"]["score"], grades["all_right"]["pending"],
            grades["all_right"]["state"]) == ("50.0", "10.0", "pending")
    assert (grades["as_released"]["score"], grades["as_released"]["pending"],
            grades["as_released"]["state"]) == ("0.0", "0", "graded")
    assert grades["lab_file"]["score"] == "50.0"
    assert grades["all_right"]["max_score"] == "60.0"


def test_validate_reads_as_it_grades(course):
    released = course.folder / "released" / "grpo" / f"{NAMES[1]}.ipynb"
    for name, solution in (("fine", right(2)), ("wrong", mistake("sample-std"))):
        hand_in(course.folder / name, released, solution,
                lambda cells, cell: cell("answer").update(source=WRITTEN))
        shutil.copy(TEMPLATE / "lab.py", course.folder / name)
    assert "Success! Your notebook passes all the tests." in course.nbgrader(
        "validate", f"fine/{released.name}")
    said = course.nbgrader("validate", f"wrong/{released.name}")
    assert "VALIDATION FAILED ON 1 CELL(S)" in said and '"population_std"' in said


# ------------------------------------------------------------ once more

def test_grading_again_keeps_what_a_grader_gave(course):
    with course.gradebook as gradebook:
        grade = gradebook.find_grade("answer", NAMES[2], "grpo", "all_right")
        grade.manual_score = 1.5
        comment = gradebook.find_comment("answer", NAMES[2], "grpo", "all_right")
        comment.manual_comment = "Say which divergence."
        gradebook.db.commit()
    course.nbgrader("autograde", "grpo", "--Execute.walls=auto", "--student", "all_right",
                    "--notebook", NAMES[2], "--force")
    assert course.points("all_right", 3)["answer"] == 1.5
    assert course.lost("all_right", 3) == set()
    with course.gradebook as gradebook:
        comment = gradebook.find_comment("answer", NAMES[2], "grpo", "all_right")
        assert comment.comment == "Say which divergence."
    row = course.exported()["all_right"]
    assert (row["score"], row["pending"], row["state"]) == ("51.5", "8.0", "pending")
