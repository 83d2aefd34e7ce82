"""Solutions to stubs, for a release; and stubs to solutions, for learners who wrote in lab.py.

Both stand at joints of nbgrader: `ClearSolutions` is its own, with the sentence of the task in the
stub; `FillStubs` runs on a submission before it is executed.
"""

import ast
from pathlib import Path

from nbgrader.preprocessors import ClearSolutions as NbGraderClearSolutions
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade, is_solution

from tinylm import cells
from tinylm.labfile import TASKS

FILLED = "# This cell was left as the stub; what follows is from the lab.py that was handed in.\n"


class ClearSolutions(NbGraderClearSolutions):
    """nbgrader's, with the stub of the original lab: raise NotImplementedError("Task 3: k3_kl")."""

    def preprocess_cell(self, cell, resources, index):
        name = _task_in(cell)
        if name:
            stub = f'raise NotImplementedError("Task {1 + TASKS.index(name)}: {name}")'
            self.code_stub = {"python": stub}
        return super().preprocess_cell(cell, resources, index)


class FillStubs(NbGraderPreprocessor):
    """A solution cell that is still the stub gets the function from the submitted lab.py.

    With the function come the imports and helpers of lab.py that it uses. A lab.py that is missing,
    does not parse, or holds the stub as well changes nothing.
    """

    def preprocess(self, notebook, resources):
        self.lab = _text_or_none(Path(resources["metadata"]["path"]) / "lab.py")
        return super().preprocess(notebook, resources)

    def preprocess_cell(self, cell, resources, index):
        name = _task_in(cell)
        if name and self.lab and _is_stub(cell.source, name):
            text = _from_lab(self.lab, name)
            if text:
                cell.source = FILLED + text
        return cell, resources


def _task_in(cell):
    """The task whose function a solution cell is for, or None."""
    if cell.cell_type != "code" or not is_solution(cell) or is_grade(cell):
        return None
    return next((name for name in TASKS if f"def {name}(" in cell.source), None)


def _is_stub(source, name):
    try:
        definition = cells.definition_of(name, ast.parse(source).body)
    except (SyntaxError, ValueError):
        return False
    return definition is not None and cells.is_stub(definition)


def _from_lab(lab, name):
    """The function with what it needs of the lab file, as text; None if it is a stub there too."""
    body = ast.parse(lab).body
    definition = cells.definition_of(name, body)
    if definition is None or cells.is_stub(definition):
        return None
    return cells.text_of(cells.needed(definition, body, TASKS), body, lab)


def _text_or_none(path):
    try:
        text = path.read_text(encoding="utf-8")
        ast.parse(text)
    except (OSError, ValueError, SyntaxError):
        return None
    return text
