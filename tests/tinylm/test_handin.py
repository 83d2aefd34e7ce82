"""`python -m tinylm submit`: the points that it shows, and what is in the zip."""

import json
import re
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from tinylm import handin
from tinylm.__main__ import main
from tinylm.checks import checks_of
from tinylm.labfile import TASKS

ROOT = Path(__file__).resolve().parents[2]
STUBS = (ROOT / "tinylm/template/lab.py").read_text()
REFERENCE = (ROOT / "autograde/reference/lab.py").read_text()
NAMES = ["01-sample-group.ipynb", "02-group-advantages.ipynb", "03-k3-kl.ipynb",
         "04-grpo-loss.ipynb", "05-grpo-step.ipynb"]

HELPED = """\
import math

open("ran", "w").close()        # a trial


def power(x):
    return math.e ** x


def k3_kl(logp, ref_logp):
    return power(ref_logp - logp) - (ref_logp - logp) - 1


k3_kl(of_another_cell, of_another_cell)
"""


def solved(number):
    """The right function of a task, as text."""
    return re.search(rf"^# =+ Task {number}\n(.*?)\n*^# ===", REFERENCE, re.M | re.S)[1]


class Folder:
    """A learner's folder with the released notebooks and a lab.py of stubs."""

    def __init__(self, path):
        self.path = path
        path.mkdir()
        for name in NAMES:
            shutil.copy(ROOT / "notebooks" / name, path)
        (path / "lab.py").write_text(STUBS)
        (path / "test_lab.py").write_text("private = 1\n")

    def change(self, number, change):
        """Let `change` do something to the list of a notebook's cells."""
        file = self.path / NAMES[number - 1]
        notebook = json.loads(file.read_text())
        change(notebook["cells"])
        file.write_text(json.dumps(notebook))

    def write(self, number, source):
        """Write a solution cell."""
        def put(cells):
            next(cell for cell in cells if cell["id"] == "solution")["source"] = source
        self.change(number, put)

    def packed(self):
        """{name: bytes} of the zip."""
        with zipfile.ZipFile(self.path / "submission.zip") as archive:
            return {info.filename: archive.read(info) for info in archive.infolist()}

    def files(self):
        return sorted(path.name for path in self.path.iterdir())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path / "work")


@pytest.fixture
def submitted(capsys):
    """Run the command: {task: the lines about it}, and under 0 all the others."""
    def run():
        assert main(["submit"]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        told, task = {0: []}, 0
        for line in out.splitlines():
            if not line.startswith("        "):
                start = re.match(r"Task (\d)  ", line)
                task = int(start[1]) if start else 0
            told.setdefault(task, []).append(line.strip())
        return told
    return run


def points(told):
    return [re.search(r"(\S+ of \S+) points", told[number][0])[1] for number in range(1, 6)]


FULL = ["5 of 5", "6 of 6", "5 of 5", "6 of 6", "6 of 6"]


# ------------------------------------------------------------ points
def test_all_solved_in_notebooks_that_were_never_run(folder, submitted):
    for number in range(1, 6):
        folder.write(number, solved(number))
    before = {name: (folder.path / name).read_bytes() for name in [*NAMES, "lab.py"]}
    told = submitted()
    assert told[2] == ["Task 2  group_advantages  6 of 6 points"]
    assert points(told) == FULL
    assert told[0] == [
        "28 of 28 visible points; hidden checks and written answers are graded later.",
        f"wrote work/submission.zip with {', '.join(NAMES)}, lab.py"]
    assert folder.packed() == before
    assert folder.files() == sorted([*before, "test_lab.py", "submission.zip"])


def test_all_solved_in_lab(folder, submitted):
    (folder.path / "lab.py").write_text(REFERENCE)
    told = submitted()
    assert told[3] == ["Task 3  k3_kl             5 of 5 points, from lab.py"]
    assert points(told) == FULL


def test_nothing_is_written_yet(folder, submitted):
    told = submitted()
    assert told[1] == ["Task 1  sample_group      0 of 5 points", "sample_group is still to be "
                       "written, in 01-sample-group.ipynb or in lab.py."]
    assert told[0][0].startswith("0 of 28 visible points")    # no word on checks that did not run
    assert len(folder.packed()) == 6


def test_a_wrong_function_costs_its_checks_alone(folder, submitted):
    (folder.path / "lab.py").write_text(REFERENCE)
    folder.write(2, solved(2).replace("unbiased=False", "unbiased=True"))   # lab.py has it right
    told = submitted()
    assert told[2] == ["Task 2  group_advantages  5 of 6 points", "population_std: not right yet"]
    assert points(told) == [FULL[0], "5 of 6", *FULL[2:]]
    assert told[0][:2] == [
        "The cell of a check, run in its notebook, says what was found and expected.",
        "27 of 28 visible points; hidden checks and written answers are graded later."]


def test_what_a_function_uses_comes_along_and_trials_are_not_run(folder, submitted):
    folder.write(3, HELPED)
    folder.write(4, solved(4) + "\n\npower = None\n")
    folder.change(3, lambda cells: cells.append({
        "cell_type": "code", "id": "mine", "metadata": {}, "source": ["open('ran', 'w')"]}))
    (folder.path / "lab.py").write_text(STUBS + "\n\npower = None\n")
    told = submitted()
    assert told[3] == ["Task 3  k3_kl             5 of 5 points"]
    assert points(told)[3] == "6 of 6"
    assert not Path("ran").exists()


def test_a_name_from_another_cell(folder, submitted):
    folder.write(3, HELPED.replace("import math", ""))
    told = submitted()
    assert told[3][0].endswith("0 of 5 points")
    assert told[3][-1] == "k3_kl uses math, which the solution cell does not define; put it there."


def test_points_are_those_of_the_cells(folder, submitted):
    def change(cells):
        marks = {cell["id"]: cell["metadata"].get("nbgrader") for cell in cells}
        marks["check-values"]["points"] = 2.5
        cells[:] = [cell for cell in cells if cell["id"] != "check-groups"]    # grading has it back
    folder.write(2, solved(2))
    folder.change(2, change)
    assert points(submitted())[1] == "7.5 of 7.5"


def test_every_visible_check_of_the_release_has_a_cell_worth_one_point():
    for name, notebook in handin.NOTEBOOKS.items():
        cells = json.loads((ROOT / "notebooks" / notebook).read_text())["cells"]
        marks = [cell["metadata"].get("nbgrader", {}) for cell in cells]
        worth = {mark["grade_id"]: mark["points"] for mark in marks
                 if mark.get("grade_id", "").startswith("check-")}
        assert worth == {f"check-{check}": handin.POINTS for check in checks_of(name)}


def test_an_imported_lab_stays(folder, submitted, monkeypatch):
    mine = object()
    monkeypatch.setitem(sys.modules, "lab", mine)
    folder.write(3, "import lab\n\n\n" + solved(3).replace("return ", "lab.k3_kl\n    return "))
    assert points(submitted())[2] == "5 of 5"
    assert sys.modules["lab"] is mine


# ------------------------------------------------------------ what is not as it should be
@pytest.mark.parametrize("source, words", [
    ("def k3_kl(logp:\n", "The solution cell of 03-k3-kl.ipynb is not plain Python"),
    ("%%time\n" + solved(3), "lines that begin with % or ! into another cell"),
    ("return 3", "is not plain Python"),
    ("'\ud800'", "is not plain Python"),
    ("", "has no line `def k3_kl(...):` at its left margin"),
    ("def k3(logp, ref_logp):\n    return logp", "has no line `def k3_kl(...):`"),
    ("import nowhere as torch\n\n\n" + solved(3),
     "work/03-k3-kl.ipynb stops while it is read: ModuleNotFoundError: No module named 'nowhere'"),
    ("torch = exit()\n\n\n" + solved(3), "work/03-k3-kl.ipynb stops while it is read: SystemExit"),
    ("def k3_kl(logp, ref_logp):\n    raise SystemExit", "values: not right yet"),
    ("def k3_kl(logp, ref_logp):\n    print('\\d')", "values: not right yet"),
])
def test_a_solution_cell_that_cannot_count(folder, submitted, source, words):
    (folder.path / "lab.py").write_text(REFERENCE)
    folder.write(3, source)
    told = submitted()
    assert points(told) == [*FULL[:2], "0 of 5", *FULL[3:]]
    assert words in told[3][1]
    assert len(folder.packed()) == 6


@pytest.mark.parametrize("data", [
    b"{", b"[]", b"3", b"{}", b'{"cells": 3}', b'{"cells": [3]}', b'{"cells": [{"metadata": {}}]}',
    b'{"cells": [{"metadata": {"nbgrader": {"grade_id": []}}, "source": ""}]}', b"\xff\xfe",
    b"[" * 100_000])
def test_a_file_that_is_no_notebook(folder, submitted, data):
    (folder.path / NAMES[2]).write_bytes(data)
    told = submitted()
    assert told[3] == ["Task 3  k3_kl             0 of 5 points",
                       "03-k3-kl.ipynb cannot be read as a notebook; `python -m tinylm reset 03` "
                       "brings a fresh one, and yours stays beside it."]
    assert folder.packed()[NAMES[2]] == data


def test_a_notebook_that_is_missing(folder, submitted):
    (folder.path / "lab.py").write_text(REFERENCE)
    (folder.path / NAMES[1]).unlink()
    told = submitted()
    assert told[2] == [
        "Task 2  group_advantages  0 of 6 points",
        "There is no 02-group-advantages.ipynb here; `python -m tinylm start` brings one."]
    assert told[0][0].startswith("22 of 28")
    assert list(folder.packed()) == [NAMES[0], *NAMES[2:], "lab.py"]


@pytest.mark.parametrize("lab, words, earned", [
    (None, "There is no lab.py here; `python -m tinylm start` brings one.", 5),
    (b"def (", "work/lab.py does not parse (line 1): ", 5),
    (b"\xff\xfe", "lab.py is not saved as UTF-8, so nothing in it counts", 5),
    (REFERENCE.encode() + b"1 / 0\n", "work/lab.py stops while it is read: ZeroDivisionError", 28),
    (REFERENCE.encode() + b"exit()\n", "work/lab.py stops while it is read: SystemExit", 28),
    (b"print('loud')\nx = 3\n", "5 of 28 visible points", 5),
])
def test_a_lab_file_that_cannot_be_used(folder, submitted, lab, words, earned):
    folder.write(3, solved(3))
    if lab is None:
        (folder.path / "lab.py").unlink()
    else:
        (folder.path / "lab.py").write_bytes(lab)
    told = submitted()
    assert words in told[0][0]
    assert points(told)[2] == "5 of 5"
    assert told[0][-2].startswith(f"{earned} of 28 visible points")
    assert folder.packed().get("lab.py") == lab


def test_links_that_lead_outside_are_not_packed(folder, submitted, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (folder.path / "drafts").mkdir()
    (folder.path / NAMES[0]).rename(folder.path / "drafts/first.ipynb")
    (folder.path / NAMES[0]).symlink_to("drafts/first.ipynb")
    for name in (NAMES[1], "lab.py"):
        (folder.path / name).unlink()
        (folder.path / name).symlink_to(tmp_path / "secret")
    (folder.path / NAMES[2]).unlink()
    (folder.path / NAMES[2]).symlink_to(NAMES[2])
    told = submitted()
    assert told[0][0].startswith("lab.py is a link that leads out of this folder")
    assert told[2][1].startswith("02-group-advantages.ipynb is a link that leads out of this")
    assert told[3][1].startswith("There is no 03-k3-kl.ipynb here")
    packed = folder.packed()
    assert list(packed) == [NAMES[0], NAMES[3], NAMES[4]]
    assert packed[NAMES[0]] == (folder.path / "drafts/first.ipynb").read_bytes()


def test_there_is_nothing_to_hand_in(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["submit", "--folder", "mine"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith(f"there is nothing to hand in: {tmp_path / 'mine'} holds neither lab.py")
    assert list(tmp_path.iterdir()) == []


def test_the_zip_cannot_be_written(folder, capsys):
    (folder.path / "submission.zip").mkdir()
    before = folder.files()
    assert main(["submit"]) == 2
    assert capsys.readouterr().err.startswith("work/submission.zip cannot be written (")
    assert folder.files() == before


def test_a_stop_leaves_the_old_zip(folder, capsys):
    (folder.path / "submission.zip").write_bytes(b"old")
    before = folder.files()
    folder.write(2, "import signal\n\n\ndef group_advantages(rewards, G, **options):\n"
                    "    signal.raise_signal(signal.SIGINT)\n")
    assert main(["submit"]) == 130
    out, err = capsys.readouterr()
    assert out.splitlines()[-2].startswith("Task 1") and err == "stopped.\n"
    assert folder.files() == before
    assert (folder.path / "submission.zip").read_bytes() == b"old"


def test_from_inside_the_folder_and_twice(folder, submitted, monkeypatch):
    monkeypatch.chdir(folder.path)
    assert submitted()[0][-1].startswith("wrote submission.zip with")
    assert submitted()[0][-1].startswith("wrote submission.zip with")
    assert list(folder.packed()) == [*NAMES, "lab.py"]


def test_names_of_the_notebooks():
    assert handin.NOTEBOOKS == dict(zip(TASKS, NAMES, strict=True))
