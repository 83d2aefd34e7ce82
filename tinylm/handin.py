"""A learner's work, checked and packed: `python -m tinylm submit`.

`submit` judges each of the five functions by the checks that learners see, says what points that
makes, and packs the five notebooks and lab.py into submission.zip. Unfinished work is packed too.

What is judged is what grading will take: the function of a notebook's solution cell or, where that
is still the stub, the one in lab.py, each with the helpers and imports that it uses. Other cells
are not run, so no notebook needs to have been run before. Hidden checks and written answers are not
looked at; nothing of them is here.
"""

import ast
import json
import zipfile
from dataclasses import dataclass, field

from tinylm import cells
from tinylm.checks import checks_of, judge
from tinylm.checks.silence import quiet
from tinylm.files import replacing
from tinylm.labfile import TASKS, TEMPLATE, LabError, as_lab, executed, learner_folder

ZIP = "submission.zip"
NOTEBOOKS = {name: f"{number:02}-{name.replace('_', '-')}.ipynb"
             for number, name in enumerate(TASKS, 1)}
POINTS = 1                   # of a check whose cell is gone; each has as many in the release
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass
class Mark:
    """What a task gets so far: points earned, points there are, and what there is to say."""

    earned: float = 0
    worth: float = 0
    origin: str = ""                             # the file whose function was judged
    says: list = field(default_factory=list)     # sentences


def submit(folder=None):
    """Check the learner's work, show the points that are visible, and pack it. Returns the zip.

    Args:
        folder: by default `work`, or the current folder if that is a learner's.

    Raises LabError where there is nothing to hand in, or the zip cannot be written.
    """
    folder = learner_folder(folder)
    files, missing = _files(folder)
    if not files:
        raise LabError(f"there is nothing to hand in: {folder.absolute()} holds neither lab.py nor "
                       "one of the five notebooks; type this in the folder that holds README.md, "
                       "or name yours with --folder.")
    lab, problem = _lab(files, missing, folder)
    if problem:
        print(problem)
    marks = []
    for number, name in enumerate(TASKS, 1):
        marks.append(_mark(name, files, missing, lab, folder))
        _show(number, name, marks[-1])
    earned, worth = sum(mark.earned for mark in marks), sum(mark.worth for mark in marks)
    if any(mark.origin and mark.earned < mark.worth for mark in marks):
        print("The cell of a check, run in its notebook, says what was found and expected.")
    print(f"{earned:g} of {worth:g} visible points; hidden checks and written answers are graded "
          "later.")
    _pack(files, folder / ZIP)
    print(f"wrote {folder / ZIP} with {', '.join(files)}")
    return folder / ZIP


def _show(number, name, mark):
    origin = ", from lab.py" if mark.origin == "lab.py" else ""
    print(f"Task {number}  {name:<16}  {mark.earned:g} of {mark.worth:g} points{origin}")
    for sentence in mark.says:
        print(f"        {sentence}")


# ------------------------------------------------------------ files in, files out

def _files(folder):
    """({name: bytes}, {name: why not}) of the six files that are handed in."""
    files, missing = {}, {}
    for name in (*NOTEBOOKS.values(), "lab.py"):
        path = folder / name
        try:
            if not path.is_file():
                missing[name] = f"There is no {name} here; `python -m tinylm start` brings one."
            elif not path.resolve().is_relative_to(folder.resolve()):
                missing[name] = (f"{name} is a link that leads out of this folder, and is not "
                                 "handed in; put the file itself here.")
            else:
                files[name] = path.read_bytes()
        except OSError as error:
            missing[name] = f"{name} cannot be read ({error.strerror}), and is not handed in."
    return files, missing


def _pack(files, target):
    try:
        with replacing(target) as temporary, zipfile.ZipFile(
                temporary, "w", compression=zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                archive.writestr(name, data)
    except PermissionError as error:
        raise LabError(str(error)) from None
    except OSError as error:
        raise LabError(f"{target} cannot be written ({error.strerror}); move away what stands "
                       "there, or make room.") from None


def _lab(files, missing, folder):
    """(the text of lab.py, what is wrong with it); the text is "" where Python cannot read it."""
    if "lab.py" not in files:
        return "", missing["lab.py"]
    try:
        text = files["lab.py"].decode("utf-8-sig")
    except UnicodeDecodeError:
        return "", "lab.py is not saved as UTF-8, so nothing in it counts; save it as UTF-8."
    try:
        with quiet():
            executed(text, folder / "lab.py")
    except LabError as error:
        return "" if _statements(text) is None else text, str(error)
    return text, ""


# ------------------------------------------------------------ one task

def _mark(name, files, missing, lab, folder):
    """The Mark of a task; `lab` is the text of lab.py."""
    notebook, mark = NOTEBOOKS[name], Mark(worth=POINTS * len(checks_of(name)))
    try:
        if notebook in missing:
            raise LabError(missing[notebook])
        named = _named_cells(files[notebook], notebook)
        points = {check: _points(named, check) for check in checks_of(name)}
        mark.worth = sum(points.values())
        mark.origin, text = _function(name, named.get("solution"), lab)
        with quiet():
            module = executed(text, folder / mark.origin)
    except LabError as error:
        mark.says = [str(error)]
        return mark
    with as_lab(module):
        verdicts = {check: judge(getattr(module, name, None), check) for check in points}
    mark.earned = sum(points[check] for check, verdict in verdicts.items() if verdict.passed)
    mark.says = [verdict.message.partition("\n")[0] for verdict in verdicts.values()
                 if not verdict.passed]
    if mark.says:
        mark.says += _strangers(name, text, mark.origin)
    return mark


def _named_cells(data, notebook):
    """{name: (text, points)} of the cells of a notebook, given as bytes; the last copy counts."""
    named = {}
    try:
        for cell in json.loads(data.decode("utf-8-sig"))["cells"]:
            given = cell.get("metadata", {}).get("nbgrader", {})
            name = given.get("grade_id", cell.get("id"))
            named[name] = "".join(cell["source"]), given.get("points")
    except UNREADABLE:
        raise LabError(f"{notebook} cannot be read as a notebook; `python -m tinylm reset "
                       f"{notebook[:2]}` brings a fresh one, and yours stays beside it.") from None
    return named


def _points(named, check):
    _, points = named.get(f"check-{check}", ("", None))
    return points if type(points) in (int, float) else POINTS


def _function(name, solution, lab):
    """(file, text of a lab file): the function that counts, alone with what it uses.

    It stands in an otherwise pristine lab file, as in grading: what another notebook or section
    does wrong, or calls by the same name, costs nothing here.

    Args:
        solution: (text, points) of the solution cell, or None where it was deleted.
        lab: the text of lab.py.

    Raises LabError where there is no function to judge.
    """
    notebook = NOTEBOOKS[name]
    if solution:
        body = _statements(solution[0])
        if body is None:
            raise LabError(f"The solution cell of {notebook} is not plain Python; run it to see "
                           "where, and put lines that begin with % or ! into another cell.")
        definition = cells.definition_of(name, body)
        if definition is None:
            raise LabError(f"The solution cell of {notebook} has no line `def {name}(...):` at its "
                           "left margin; write the function there.")
        if not cells.is_stub(definition):
            return notebook, _alone(name, definition, body, solution[0])
    body = _statements(lab)
    definition = cells.definition_of(name, body)
    if definition is None or cells.is_stub(definition):
        raise LabError(f"{name} is still to be written, in {notebook} or in lab.py.")
    return "lab.py", _alone(name, definition, body, lab)


def _alone(name, definition, body, source):
    section = cells.text_of(cells.needed(definition, body, TASKS), body, source)
    given = (TEMPLATE / "lab.py").read_text(encoding="utf-8")
    return cells.with_section(given, TASKS.index(name) + 1, section)


def _statements(source):
    """The top-level statements of a source text, or None if Python cannot compile it."""
    try:
        with quiet():                            # a warning about "\\d" is for the notebook
            compile(source, "lab.py", "exec")
            return ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _strangers(name, text, origin):
    """A sentence, or none, on what a function reads and its file does not define."""
    body = _statements(text)
    unknown = sorted(cells.used(body) - cells.known(body))
    place = "the solution cell" if origin == NOTEBOOKS[name] else origin
    return [f"{name} uses {', '.join(unknown)}, which {place} does not define; put it there."
            ] if unknown else []
