"""A submission in the form in which it was released, whatever happened to its cells.

nbgrader grades by the marks in a submitted notebook's own metadata, and stumbles where they were
changed: a deleted test cell waits for a grader for ever, a cell that was copied or has an odd
schema version ends the whole batch. The gradebook knows every mark, so here they are written anew.
What learners wrote, and where, stays as it is; nbgrader's OverwriteCells then puts back the text of
the cells that they were not to change.
"""

from nbformat.v4 import new_code_cell, new_markdown_cell
from nbgrader.api import Gradebook
from nbgrader.preprocessors import NbGraderPreprocessor

SCHEMA = 3                   # of nbgrader's cell metadata


class RestoreCells(NbGraderPreprocessor):
    """Give every cell the marks that it has in the gradebook, and add what is missing.

    Of several copies of a cell the last one counts. Test cells and written answers that are missing
    come back at the end, other cells at the beginning, where a definition further down still wins.
    """

    def preprocess(self, notebook, resources):
        of = resources["nbgrader"]
        with Gradebook(of["db_url"]) as gradebook:
            known = _marks(gradebook.find_notebook(of["notebook"], of["assignment"]))
        present = {}
        for cell in notebook.cells:
            cell.metadata.pop("tags", None)          # some of them keep a cell from being run
            name = _name_of(cell.metadata.pop("nbgrader", None))
            if name in known:
                present[name] = cell
        for name, cell in present.items():
            cell.metadata["nbgrader"] = known[name][0]
        missing = [name for name in known if name not in present]
        if missing:
            self.log.warning("Cells that were missing come back: %s", ", ".join(missing))
        added = {name: _new_cell(*known[name]) for name in missing}
        first = [cell for name, cell in added.items() if not known[name][0]["grade"]]
        last = [cell for name, cell in added.items() if known[name][0]["grade"]]
        notebook.cells = first + notebook.cells + last
        return notebook, resources


def _name_of(mark):
    """The grade_id in a cell's nbgrader metadata, as far as that is what it should be."""
    name = mark.get("grade_id") if isinstance(mark, dict) else None
    return name if isinstance(name, str) else None


def _marks(notebook):
    """For each cell that the gradebook knows: (its nbgrader metadata, its text)."""
    points = {cell.name: cell.max_score for cell in notebook.grade_cells}
    solutions = {cell.name for cell in notebook.solution_cells}
    marks = {}
    for cell in notebook.source_cells:
        mark = {
            "cell_type": cell.cell_type, "checksum": cell.checksum, "grade": cell.name in points,
            "grade_id": cell.name, "locked": cell.locked, "schema_version": SCHEMA,
            "solution": cell.name in solutions, "task": False,
        }
        if cell.name in points:
            mark["points"] = points[cell.name]
        marks[cell.name] = mark, cell.source
    return marks


def _new_cell(mark, source):
    new = new_code_cell if mark["cell_type"] == "code" else new_markdown_cell
    return new(source, metadata={"nbgrader": mark})
