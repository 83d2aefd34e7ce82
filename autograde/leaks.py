"""What a released notebook must not hold: solutions, hidden tests, outputs, traces of a machine.

nbgrader goes by its marks, and a mark with a typo releases what it was to hide, with exit status 0.
So nothing here trusts a mark: a released notebook is compared, cell by cell, with its source and
with the stubs of tinylm's lab file.
"""

import ast
import difflib
import re

from nbgrader.preprocessors import NbGraderPreprocessor

from autograde import sources
from tinylm import cells
from tinylm.labfile import TASKS, TEMPLATE

MARKS = ("BEGIN SOLUTION", "END SOLUTION", "BEGIN HIDDEN TESTS", "END HIDDEN TESTS",
         "BEGIN MARK SCHEME", "END MARK SCHEME")
INSTRUCTORS_WORDS = ("autograde", "hidden(", "table=")
LOCAL_PATH = re.compile(r"(?<![\w/.])(/(home|root|Users|tmp|work|mnt|opt|var)/|[A-Za-z]:\\\w)")
CELL_METADATA = {"nbgrader", "deletable", "editable"}
NOTEBOOK_METADATA = {"kernelspec", "language_info", "tinylm"}


class LeakError(Exception):
    """A release that would give something away; the message is one sentence."""


class RefuseLeaks(NbGraderPreprocessor):
    """The last step of a release: raises LeakError rather than let a leak pass."""

    def preprocess(self, notebook, resources):
        name = f"{resources['nbgrader']['notebook']}.ipynb"
        source = sources.read(sources.Path(resources["metadata"]["path"]) / name)
        found = leaks(source, notebook)
        if found:
            raise LeakError(f"{name}: {found[0]}")
        return notebook, resources


def leaks(source, released):
    """What the released notebook gives away or lacks, a sentence each; empty if all is well."""
    found = []
    if [cell.get("id") for cell in source.cells] != [cell.get("id") for cell in released.cells]:
        found.append("its cells are not those of the source, in their order.")
    stub = _stub(source)
    solved = _solved(source, stub)
    for original, cell in zip(source.cells, released.cells, strict=False):
        problems = [*_in_any(cell, solved), *_in_marked(original, cell, stub), *_in_metadata(cell)]
        found += [f"cell {cell.get('id')!r} {problem}" for problem in problems]
    if extra := sorted(set(released.metadata) - NOTEBOOK_METADATA):
        found.append(f"the notebook's metadata holds {', '.join(extra)}.")
    return found


def _in_any(cell, solved):
    """What no cell may hold."""
    for line in cell.source.splitlines():
        if like := _like_a_mark(line):
            yield f"still has a mark, or nearly one: {line.strip()!r} (nbgrader knows {like!r})."
        if line.strip() in solved:
            yield f"holds a line of the solution: {line.strip()!r}."
    if LOCAL_PATH.search(cell.source):
        yield "holds a path of one machine."
    if cell.cell_type == "code":
        for word in INSTRUCTORS_WORDS:
            if word in cell.source:
                yield f"holds {word!r}, which belongs to the instructor."


def _in_marked(original, cell, stub):
    """What the cells with something to hide must show instead."""
    name = cell.get("id", "")
    if name == "solution" and cell.source != stub:
        yield "is not the stub of lab.py; look at the marks of its solution."
    if name.startswith("hidden-") and cell.source != _shown(original):
        yield "shows more than the line above its marks; look at the marks of its hidden tests."
    if name == "answer" and cell.source == original.source:
        yield "holds the model answer."


def _in_metadata(cell):
    """What is wrong with the rest of one cell."""
    if cell.get("outputs") or cell.get("execution_count"):
        yield "has outputs."
    if extra := sorted(set(cell.metadata) - CELL_METADATA):
        yield f"has metadata that should stay behind: {', '.join(extra)}."


def _like_a_mark(line):
    """The mark that a comment may have been meant to be, or None."""
    text = line.strip()
    if not text.startswith(("#", "<!--")):
        return None
    close = difflib.get_close_matches(text.strip("#<!->= ").upper(), MARKS, n=1, cutoff=0.75)
    return close[0] if close else None


def _stub(source):
    """The stub in tinylm's lab file for the function that the solution cell defines."""
    text = (TEMPLATE / "lab.py").read_text(encoding="utf-8")
    body = ast.parse(text).body
    stub = cells.definition_of(TASKS[sources.task_of(source) - 1], body)
    return cells.text_of([stub], body, text)


def _solved(source, stub):
    """The lines of the solution that the stub does not have, if they are long enough to matter."""
    lines = {line.strip() for line in sources.cell(source, "solution").source.splitlines()}
    return {line for line in lines if len(line) > 12 and not _like_a_mark(line)} - {
        line.strip() for line in stub.splitlines()}


def _shown(hidden):
    """What learners see of a hidden cell: the comment that opens it."""
    return hidden.source.partition("\n")[0]
