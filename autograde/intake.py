"""What learners handed in, turned into something that can be graded, or into a reason why not.

    rows = intake(folder, submitted)       # submitted/STUDENT/grpo/*.ipynb, and a Row for each

The folder may hold folders, zip files, or what a learning platform's download unpacks to
(`arrivals`); what is in them is read within bounds (`unpack`), and of each file that can be read a
new notebook is made (`salvage`). Here notebooks get back the names they were released under and the
marks of their cells, and go into a tree that nbgrader grades. The folder itself is only read.

What is wrong with one submission ends in its row, and the others go on. Whether the answers are
right is not asked here, and nothing is run.
"""

import ast
import hashlib
import re
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbgrader.utils import parse_utc

from autograde.arrivals import arrivals
from autograde.release import ASSIGNMENT, NOTEBOOKS
from autograde.salvage import NoNotebook, Salvaged
from autograde.sources import SourceError, notebooks, read, task_of
from autograde.strip import KERNEL, OURS
from autograde.unpack import TooMuch, Unpacked
from tinylm import cells
from tinylm.labfile import TASKS

GRADABLE, PARTLY, NOT = "gradable", "partly", "not gradable"
NOTEBOOK = re.compile(r"\.ipynb(\.txt|\.json)?$", re.IGNORECASE)   # browsers add the second
LAB = re.compile(r"lab([-_ ]?(\(?\d+\)?|copy ?\d*))?\.py", re.IGNORECASE)
GIVEN = re.compile(r"test_lab\.py|0[067]-.*\.ipynb")     # in a learner's folder, and not graded
SHADOWED = {"IPython", "ipykernel", "numpy", "tinylm", "torch", *sys.stdlib_module_names}


@dataclass
class Row:
    """What became of one submission.

    Attributes:
        student: the id under which it is graded.
        status: "gradable", "partly" (some notebooks are missing or unreadable) or "not gradable".
        reason: why not, or why only partly, in a sentence; else empty.
        papers: {notebook: Paper}, for each notebook that is graded.
        notes: sentences on the submission as a whole: what was passed over, what to look at.
        name, platform, number, late: as in `arrivals.Arrival`.
        digest: of what is to be graded; another one means that something else was handed in.
    """

    student: str
    status: str = NOT
    reason: str = ""
    papers: dict = field(default_factory=dict)
    notes: list = field(default_factory=list)
    name: str = ""
    platform: str | None = None
    number: str | None = None
    late: bool = False
    digest: str = ""


@dataclass
class Paper:
    """What became of one notebook: whether it is there, why not, and what was found in it."""

    there: bool = False
    problem: str = ""
    notes: list = field(default_factory=list)        # sentences


@dataclass(frozen=True)
class Released:
    """A notebook as learners got it.

    Attributes:
        marks, texts: {name of a cell: its nbgrader metadata}, {name of a cell: its text}.
        function: the one that is to be written in it.
        release: the id of its release, or None.
    """

    name: str
    marks: dict
    texts: dict
    function: str
    release: str | None


def intake(source, target, assignment=ASSIGNMENT, released=NOTEBOOKS):
    """Take in all submissions in a folder.

    Args:
        source: the folder with submissions; it stays as it is.
        target: the folder for nbgrader's tree; what an earlier intake left there is replaced.
        assignment: the name of a learner's folder in that tree.
        released: the folder with the released notebooks.

    Returns a Row for each submission, in the order of students. Raises SourceError where there is
    nothing to take in, or the two folders lie in each other.
    """
    _refuse_same(source, target)
    course = released_notebooks(released)
    return [take_in(arrival, target, course, assignment) for arrival in arrivals(source)]


def take_in(arrival, target, course, assignment=ASSIGNMENT):
    """Take in one Arrival. Returns its Row."""
    row = Row(arrival.student, name=arrival.name, platform=arrival.platform,
              number=arrival.number, late=arrival.late)
    folder, content = Path(target) / row.student / assignment, {}
    try:
        if _names_nobody(arrival, course):
            row.reason = (f"{row.name}.ipynb lies among the submissions, and names no learner; "
                          "expected a folder or a zip file for each.")
        else:
            content = _content(arrival, row, course, assignment)
    except TooMuch as error:
        row.reason = f"The submission {error}."
    except Exception as error:                   # whatever it is, the others go on
        row.status, row.reason = NOT, f"The submission cannot be read: {error!r}."
    if row.status == NOT:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        _write(content, folder)
        row.digest = _digest(content)
    return row


def _names_nobody(arrival, course):
    """Whether this is a notebook under the name that all learners have it under."""
    return any(NOTEBOOK.search(path.name) for called, path in arrival.parts if called == path.name
               ) and _by_name(arrival.name, course) is not None


def released_notebooks(folder=NOTEBOOKS):
    """{name: Released} of the notebooks with graded cells. Raises SourceError if there is none."""
    found = {}
    for path in notebooks(folder):
        notebook = read(path)
        marked = [cell for cell in notebook.cells if "nbgrader" in cell.metadata]
        if any(cell.metadata.nbgrader["grade"] for cell in marked):
            found[path.stem] = Released(
                path.stem,
                {cell.metadata.nbgrader["grade_id"]: cell.metadata.nbgrader for cell in marked},
                {cell.metadata.nbgrader["grade_id"]: cell.source for cell in marked},
                TASKS[task_of(notebook) - 1],
                notebook.metadata.get(OURS, {}).get("release"))
    if not found:
        raise SourceError(f"no notebook in {folder} has graded cells; make them with: "
                          "python -m autograde release.")
    return found


def _refuse_same(source, target):
    source, target = Path(source).resolve(), Path(target).resolve()
    if source.is_relative_to(target) or target.is_relative_to(source):
        raise SourceError(f"submissions are read from {source} and would be written to {target}; "
                          "expected two folders, neither of them in the other.")


# ------------------------------------------------------------ one submission

def _content(arrival, row, course, assignment):
    """{file name: bytes} of what is to be graded; fills in the row."""
    unpacked = Unpacked()
    for called, path in arrival.parts:
        inner = path / assignment
        unpacked.add(inner if _is_folder(path) and _is_folder(inner) else path, called)
    row.notes += unpacked.notes
    row.papers = {name: Paper() for name in course}
    content = {}
    for name, candidates in _sorted_out(unpacked.files, course, row).items():
        best = max(candidates, key=lambda one: one.preference(course[name]))
        content[f"{name}.ipynb"] = _finished(best, candidates, course[name], row.papers[name])
    if content:
        content |= _lab_file(unpacked.files, row) | _timestamp(unpacked.files, row)
    _note_programs(unpacked.files, row)
    _conclude(row, unpacked.files)
    return content


def _is_folder(path):
    return path.is_dir() and not path.is_symlink()


def _conclude(row, files):
    """Set status and reason, from what was found."""
    missing = {name: paper for name, paper in row.papers.items() if not paper.there}
    if not missing:
        row.status = GRADABLE
        return
    for name, paper in missing.items():
        paper.problem = paper.problem or _other_form(name, files)
    problems = [f"{name}: {paper.problem}" for name, paper in missing.items() if paper.problem]
    absent = [f"{name} is missing" for name, paper in missing.items() if not paper.problem]
    if len(missing) < len(row.papers):
        row.status = PARTLY
    if row.status == PARTLY or problems:
        row.reason = "; ".join([*problems, *absent]) + "."
    elif files:
        row.reason = ("There is no notebook of this assignment in the submission; it holds "
                      f"{_listing(file.path.name for file in files)}.")
    else:
        row.reason = row.notes[0] if row.notes else "The submission is empty."


def _other_form(name, files):
    """What there is in the place of a notebook, such as a web page of the same name."""
    for file in files:
        if _by_name(file.path.stem, [name]) and not NOTEBOOK.search(file.path.name):
            return f"{file.path} was handed in, and no notebook"
    return ""


# ------------------------------------------------------------ which notebook is which

@dataclass
class Candidate:
    """A file that may be one of the notebooks."""

    path: object
    modified: float
    salvaged: Salvaged

    def preference(self, released):
        """Of two candidates the one with more work in it, then the right name, then the newer."""
        return (_is_solved(self.salvaged.notebook, released),
                self.path.name == f"{released.name}.ipynb", self.modified, str(self.path))


def _sorted_out(files, course, row):
    """{name: candidates} for the notebooks that are there; notes what is none of them."""
    found = {}
    for file in files:
        if not NOTEBOOK.search(file.path.name):
            continue
        name = _by_name(NOTEBOOK.sub("", file.path.name), course)
        try:
            if file.problem:
                raise NoNotebook(file.problem)
            salvaged = Salvaged(file.data)
        except NoNotebook as error:
            if name:
                row.papers[name].problem = f"{file.path} {error}"
            else:
                row.notes.append(f"{file.path} {error}.")
            continue
        name = (_by_marks(salvaged.notebook, course) or name
                or _by_function(salvaged.notebook, course))
        if name:
            found.setdefault(name, []).append(Candidate(file.path, file.modified, salvaged))
        elif not GIVEN.fullmatch(file.path.name):
            row.notes.append(f"{file.path} is no notebook of this assignment, and was left out.")
    return found


def _by_marks(notebook, course):
    """The notebook of which it has more than half of the cells, and more than of any other."""
    names = {cell.metadata.nbgrader["grade_id"] for cell in notebook.cells
             if "nbgrader" in cell.metadata}
    shares = sorted(((len(names & one.marks.keys()) / len(one.marks), one.name)
                     for one in course.values()), reverse=True)
    tie = len(shares) > 1 and shares[0][0] == shares[1][0]
    return shares[0][1] if shares[0][0] > 0.5 and not tie else None


def _by_name(stem, names):
    """The notebook whose name is part of a file's: "Copy of 02_group_advantages (1)"."""
    words = f"-{_words(stem)}-"
    return next((name for name in names if f"-{_words(name)}-" in words), None)


def _words(name):
    return re.sub(r"[^0-9a-z]+", "-", name.lower()).strip("-")


def _by_function(notebook, course):
    """The notebook whose function it defines, if it defines one alone."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    defined = [name for name, one in course.items() if f"def {one.function}(" in text]
    return defined[0] if len(defined) == 1 else None


def _is_solved(notebook, released):
    """Whether anybody has written anything in the place of the stub."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and f"def {released.function}(" in cell.source:
            try:
                definition = cells.definition_of(released.function, ast.parse(cell.source).body)
            except Exception:                    # not Python yet, but not the stub either
                return True
            if definition is not None and not cells.is_stub(definition):
                return True
    return False


# ------------------------------------------------------------ one notebook

def _finished(best, candidates, released, paper):
    """The notebook as bytes, with its marks; fills in the paper."""
    if paper.problem:                            # of another file
        paper.notes.append(f"{paper.problem}.")
    paper.there, paper.problem = True, ""
    paper.notes += [f"{best.path} {note}." for note in best.salvaged.notes]
    if best.path.name != f"{released.name}.ipynb":
        paper.notes.append(f"It was called {best.path.name}.")
    if others := [str(one.path) for one in candidates if one is not best]:
        paper.notes.append(f"It was handed in more than once: {best.path} is graded, and not "
                           f"{_listing(others)}.")
    _compare_releases(best.salvaged.release, released.release, paper)
    notebook = best.salvaged.notebook
    _put_marks_back(notebook, released, paper)
    notebook.metadata = nbformat.from_dict({"kernelspec": dict(KERNEL)})
    if best.salvaged.release:
        notebook.metadata[OURS] = {"release": best.salvaged.release}
    return (nbformat.writes(notebook) + "\n").encode()


def _compare_releases(theirs, ours, paper):
    if ours and theirs is None:
        paper.notes.append("It does not say from which release it was made.")
    elif ours and theirs != ours:
        paper.notes.append(f"It was made from another release, {theirs}; this one is {ours}.")


def _put_marks_back(notebook, released, paper):
    """Give known cells their marks, the last one where there are copies; note what was changed.

    Cells that are missing, and the text of those that must not be changed, come back later, from
    the gradebook.
    """
    present, changed, found_by_id, count = {}, set(), set(), Counter()
    for cell in notebook.cells:
        mark = cell.metadata.pop("nbgrader", {"grade_id": None})
        name, known = mark["grade_id"], released.marks.get(mark["grade_id"])
        if known is None:
            continue
        count[name] += 1
        if present.get(name):
            del present[name].metadata["nbgrader"]
        cell.metadata["nbgrader"] = dict(known)
        present[name] = cell
        found_by_id |= {name} if len(mark) == 1 else set()
        changed |= {name} if any(mark[key] != known.get(key) for key in mark) else set()
    edited = [name for name, cell in present.items() if released.marks[name]["locked"]
              and cell.source.split() != released.texts[name].split()]
    for said, names in (
        ("Missing, and back again as released", released.marks.keys() - present.keys()),
        ("There more than once, and the last one counts", {n for n in count if count[n] > 1}),
        ("Marked otherwise, and marked as released again", changed),
        ("Changed, though read-only, and graded as released", edited),
        ("Without a mark, and known by its id", found_by_id),
    ):
        if names:
            paper.notes.append(f"{said}: {', '.join(sorted(names))}.")


# ------------------------------------------------------------ what comes with the notebooks

def _lab_file(files, row):
    """{"lab.py": bytes}, if one was handed in that Python can read."""
    found = [file for file in files if LAB.fullmatch(file.path.name)]
    if not found:
        return {}
    best = max(found, key=lambda file: (file.path.name == "lab.py", -len(file.path.parts),
                                        file.modified, str(file.path)))
    if len(found) > 1:
        others = _listing(str(file.path) for file in found if file is not best)
        row.notes.append(f"{best.path} is the lab.py that counts, and not {others}.")
    try:
        text = (best.data or b"").decode("utf-8-sig")
        ast.parse(text)
    except Exception as error:                   # a parser's limits raise what they like
        where = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        row.notes.append(f"{best.path} {best.problem or f'is no Python{where}'}, so that it fills "
                         "no stub.")
        return {}
    return {"lab.py": text.encode()}


def _timestamp(files, row):
    """{"timestamp.txt": bytes}, as nbgrader's exchange writes it."""
    for file in files:
        if file.path.name == "timestamp.txt" and file.data:
            try:
                parse_utc(file.data[:100].decode().strip())
                return {"timestamp.txt": file.data[:100]}
            except Exception:
                row.notes.append(f"{file.path} holds no time; nothing is counted as late.")
    return {}


def _note_programs(files, row):
    """Say which programs were left out: they might be what a notebook imports."""
    names = [file.path for file in files if file.path.suffix.lower() == ".py"
             and not LAB.fullmatch(file.path.name) and not GIVEN.fullmatch(file.path.name)]
    if names:
        row.notes.append("Left out, since only notebooks and lab.py are graded: "
                         f"{_listing(map(str, names))}.")
    taken = {part.removesuffix(".py") for path in names for part in path.parts} & SHADOWED
    if taken:
        row.notes.append(f"A file would have taken the place of {_listing(sorted(taken))}.")


def _listing(names):
    """Some names, and how many there are besides."""
    names = list(names)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


# ------------------------------------------------------------ to disk

def _write(content, folder):
    """Put what is to be graded into its folder, in one step, and nothing else."""
    if folder.is_dir() and {path.name: path.read_bytes() for path in folder.iterdir()} == content:
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".intake-", dir=folder.parent.parent) as aside:
        fresh = Path(aside) / "fresh"
        fresh.mkdir()
        for name, data in content.items():
            (fresh / name).write_bytes(data)
        if folder.exists():
            folder.rename(Path(aside) / "old")
        fresh.rename(folder)


def _digest(content):
    lines = [f"{name} {hashlib.sha256(data).hexdigest()}" for name, data in sorted(content.items())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
