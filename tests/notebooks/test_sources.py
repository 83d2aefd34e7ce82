"""The source notebooks are whole, and everything derived from them is as it would be made anew."""

import re

import nbformat
import pytest

from autograde import release, sources
from tinylm.checks import checks_of
from tinylm.labfile import TASKS

PATHS = sources.notebooks()
READING = sources.reading()
RELEASED = [release.NOTEBOOKS / path.name for path in PATHS]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("path", PATHS + READING, ids=lambda path: path.stem)
class TestEverySource:
    def test_every_code_cell_was_run_in_order(self, path):
        counts = [cell.execution_count for cell in code_cells(read(path))]
        assert counts == list(range(1, 1 + len(counts)))

    def test_nothing_went_to_stderr(self, path):
        for cell in code_cells(read(path)):
            assert all(output.get("name") != "stderr" for output in cell.outputs), cell.id

    def test_ids_say_what_a_cell_is_for(self, path):
        ids = [cell.id for cell in read(path).cells]
        assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[a-z][a-z0-9_-]+", i) for i in ids)
        assert {"why", "setup"} <= set(ids)

    def test_it_asks_before_it_shows(self, path):
        text = "\n".join(cell.source for cell in read(path).cells)
        assert text.count("**Predict") >= 2
        assert text.count("**Predict") <= len(re.findall(r"\*Your \w+:\*", text))

    def test_links_lead_somewhere(self, path):
        for cell in read(path).cells:
            for target in LINK.findall(cell.source) if cell.cell_type == "markdown" else ():
                assert target.startswith("https://") or (path.parent / target).exists(), target


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
class TestSource:
    def test_every_check_came_out_right(self, path):
        for cell in code_cells(read(path)):
            kind, _, name = cell.id.partition("-")
            if kind in ("check", "hidden"):
                assert [output.text for output in cell.outputs] == [f"{name}: right\n"], cell.id

    def test_it_has_what_a_task_needs(self, path):
        notebook = read(path)
        for cell in notebook.cells:
            if "nbgrader" in cell.metadata:
                assert cell.metadata.nbgrader["grade_id"] == cell.id
        assert {"solution", "hints", "picture", "keep", "what-if", "question", "answer"} <= {
            cell.id for cell in notebook.cells}
        assert sources.cell(notebook, "hints").source.count("<details>") == 3

    def test_every_check_of_the_task_has_a_cell(self, path):
        notebook = read(path)
        function = TASKS[sources.task_of(notebook) - 1]
        graded = {name: kind for name, _, kind in sources.graded_cells(notebook)}
        visible = {name.partition("-")[2] for name, kind in graded.items() if kind == "visible"}
        hidden = {name.partition("-")[2] for name, kind in graded.items() if kind == "hidden"}
        assert visible == set(checks_of(function)) and 4 <= len(visible) <= 6
        assert hidden and hidden <= visible
        for name in graded.keys() - {"answer"}:
            source = sources.cell(notebook, name).source
            assert f'check({function}, "{name.partition("-")[2]}"' in source

    def test_one_written_question_is_worth_two_points(self, path):
        by_hand = [(name, points) for name, points, kind in sources.graded_cells(read(path))
                   if kind == "by hand"]
        assert by_hand == [("answer", 2)]


def test_the_points_are_fifty_and_ten():
    worth = {"visible": 0, "hidden": 0, "by hand": 0}
    for path in PATHS:
        for _, points, kind in sources.graded_cells(read(path)):
            worth[kind] += points
    assert worth["visible"] + worth["hidden"] == 50 and worth["by hand"] == 10


@pytest.mark.parametrize("path", RELEASED + [release.NOTEBOOKS / path.name for path in READING],
                         ids=lambda path: path.stem)
class TestEveryReleased:
    def test_links_lead_somewhere_here_and_in_a_learner_s_folder(self, path):
        """work/ lies beside notebooks/, and holds the same notebooks."""
        for cell in read(path).cells:
            for target in LINK.findall(cell.source) if cell.cell_type == "markdown" else ():
                assert target.startswith("https://") or (path.parent / target).exists(), target
                assert target.startswith(("https://", "../figures/")) or "/" not in target, target

    def test_it_holds_no_output_and_no_path(self, path):
        for cell in code_cells(read(path)):
            assert cell.outputs == [] and cell.execution_count is None
        text = path.read_text(encoding="utf-8")
        assert not re.search(r'[" ](/(?:home|root|tmp|work)/|[A-Z]:\\\\)', text)

    def test_its_cells_are_those_of_the_source(self, path):
        source = next(one for one in PATHS + READING if one.name == path.name)
        assert [cell.id for cell in read(path).cells] == [cell.id for cell in read(source).cells]


@pytest.mark.parametrize("path", RELEASED, ids=lambda path: path.stem)
class TestReleased:
    def test_it_holds_no_solution_and_no_hidden_test(self, path):
        text = path.read_text(encoding="utf-8")
        for word in ("SOLUTION", "HIDDEN", "table=", "autograde"):
            assert word not in text
        number = sources.task_of(read(path))
        assert f'raise NotImplementedError(\\"Task {number}: {TASKS[number - 1]}\\")' in text


def test_the_released_notebooks_equal_a_fresh_release(tmp_path):
    for path in release.release(target=tmp_path):
        assert path.read_bytes() == (release.NOTEBOOKS / path.name).read_bytes(), (
            f"notebooks/{path.name} is out of date; run: python -m autograde release")


def test_the_reference_lab_file_equals_the_solutions():
    assert sources.REFERENCE.read_text(encoding="utf-8") == sources.reference(), (
        "reference/lab.py is out of date; run: python -m autograde reference")


def test_the_table_of_points_equals_the_sources():
    text = sources.INSTRUCTORS.read_text(encoding="utf-8")
    assert sources.TABLE.search(text)[0] == sources.points(), (
        "docs/instructors.md is out of date; run: python -m autograde points")
