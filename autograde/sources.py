"""The graded notebooks with their solutions, and what is read out of them.

The notebooks in `source/grpo` are the one truth: `release` makes the learners' notebooks from them,
`reference` the lab file of right solutions, `points` the table in docs/instructors.md. This module
only reads; it runs no cell and knows nothing of nbgrader's converters.
"""

import hashlib
import json
import re
from pathlib import Path

import nbformat

from tinylm import cells
from tinylm.files import replacing
from tinylm.labfile import TASKS, TEMPLATE

ROOT = Path(__file__).parents[1]
SOURCE = Path(__file__).parent / "source" / "grpo"
READING = "reading"                      # beside it: the notebooks that are not graded
REFERENCE = Path(__file__).parent / "reference" / "lab.py"
INSTRUCTORS = ROOT / "docs" / "instructors.md"
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
KINDS = {"check": "visible", "hidden": "hidden"}        # by the first word of a test cell's name
TABLE = re.compile(r"(?<=<!-- points: begin -->\n).*?(?=<!-- points: end -->)", re.DOTALL)


class SourceError(Exception):
    """A source notebook that is not as it must be; the message is one sentence."""


def notebooks(folder=SOURCE):
    """The paths of the graded notebooks, in order. Raises SourceError where there are none."""
    found = sorted(Path(folder).glob("*.ipynb"))
    if not found:
        raise SourceError(f"there are no notebooks in {folder}; expected 01 to 05, with solutions.")
    return found


def reading(folder=SOURCE):
    """The paths of the notebooks that go with the graded ones of `folder`, ungraded, in order."""
    return sorted((Path(folder).parent / READING).glob("*.ipynb"))


def read(path):
    """A notebook. Raises SourceError, naming the file, if it is none."""
    try:
        return nbformat.read(path, as_version=4)
    except (OSError, ValueError, nbformat.ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise SourceError(f"{path.name} cannot be read as a notebook: {reason}") from None


def write(notebook, path):
    """Write a notebook in one step, in the form that JupyterLab gives it."""
    with replacing(path) as temporary:
        temporary.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


def cell(notebook, name):
    """The cell with the id `name`. Raises SourceError if there is none."""
    for one in notebook.cells:
        if one.get("id") == name:
            return one
    raise SourceError(f"there is no cell {name!r} in this notebook.")


def task_of(notebook):
    """The number, 1 to 5, of the task whose function the solution cell defines."""
    defined = re.findall(r"^def (\w+)\(", cell(notebook, "solution").source, re.MULTILINE)
    for name in defined:
        if name in TASKS:
            return 1 + TASKS.index(name)
    raise SourceError(f"the solution cell defines none of {', '.join(TASKS)}.")


# ------------------------------------------------------------ the reference lab file

def reference(folder=SOURCE):
    """The text of a lab file in which all five tasks are solved."""
    text = (TEMPLATE / "lab.py").read_text(encoding="utf-8")
    for path in notebooks(folder):
        notebook = read(path)
        text = cells.with_section(text, task_of(notebook), solution(notebook))
    return text


def solution(notebook):
    """The solved function as it stands in a lab file: without marks, and without the hint above."""
    before, found, rest = cell(notebook, "solution").source.partition(BEGIN)
    body, closed, after = rest.partition(END)
    if not found or not closed:
        raise SourceError(f"the solution cell has no {BEGIN} and {END} round its solution.")
    head = re.sub(r"\n( *# .*\n)+ *$", "\n", before)
    return (head + body.strip("\n").rstrip() + after).rstrip()


def write_reference():
    """Make the reference lab file anew. Returns its path."""
    with replacing(REFERENCE) as temporary:
        temporary.write_text(reference(), encoding="utf-8")
    return REFERENCE


# ------------------------------------------------------------ which release

def release_id(folder, seed):
    """Twelve characters that name one release: its cells, and the seed of its hidden tables.

    Outputs do not count: running the sources again makes no new release.
    """
    content = [[path.stem, [[cell.get("id"), cell.source, cell.metadata.get("nbgrader")]
                            for cell in read(path).cells]] for path in notebooks(folder)]
    text = json.dumps([content, seed], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


# ------------------------------------------------------------ points

def graded_cells(notebook):
    """What is graded in a notebook, in order: (name, points, "visible", "hidden" or "by hand")."""
    found = []
    for one in notebook.cells:
        mark = one.metadata.get("nbgrader", {})
        if mark.get("grade"):
            name = mark["grade_id"]
            kind = "by hand" if mark["solution"] else KINDS[name.partition("-")[0]]
            found.append((name, mark["points"], kind))
    return found


def points(folder=SOURCE):
    """The table of points in Markdown, a row a check."""
    lines = ["| notebook | what is graded | visible | hidden | by hand |", "|---|---|--:|--:|--:|"]
    total = dict.fromkeys((*KINDS.values(), "by hand"), 0)
    for path in notebooks(folder):
        rows = {}
        for name, worth, kind in graded_cells(read(path)):
            subject = f"`{name.partition('-')[2]}`" if "-" in name else "the written question"
            rows.setdefault(subject, {})[kind] = worth
            total[kind] += worth
        for subject, worth in rows.items():
            lines.append(_row(path.stem, subject, worth))
    lines.append(_row("**all**", f"**{sum(total.values())} points**", total))
    return "\n".join(lines) + "\n"


def _row(notebook, subject, worth):
    columns = (str(worth.get(kind, "")) for kind in (*KINDS.values(), "by hand"))
    return f"| {notebook} | {subject} | {' | '.join(columns)} |"


def write_points():
    """Put the table of points into docs/instructors.md. Returns its path."""
    text = INSTRUCTORS.read_text(encoding="utf-8")
    if not TABLE.search(text):
        raise SourceError(f"{INSTRUCTORS.name} has no lines <!-- points: begin --> and "
                          "<!-- points: end --> to put the table between.")
    with replacing(INSTRUCTORS) as temporary:
        temporary.write_text(TABLE.sub(lambda _: points(), text), encoding="utf-8")
    return INSTRUCTORS
