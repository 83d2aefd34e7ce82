"""What arrives in a folder of submissions, and what becomes of it: a tree that nbgrader can grade,
and a row for everyone. Nothing is run here.
"""

import io
import json
import os
import re
import stat
import zipfile
from pathlib import Path

import nbformat
import pytest
from hypothesis import given, settings, strategies

from autograde import sources, unpack
from autograde.arrivals import arrivals, as_id
from autograde.intake import intake, released_notebooks
from autograde.links import LinkError, RefuseLinks
from autograde.release import NOTEBOOKS
from autograde.salvage import NoNotebook, Salvaged
from autograde.sources import SourceError

COURSE = released_notebooks()
NAMES = list(COURSE)
K3 = next(name for name in NAMES if name.startswith("03"))
SOLVED = sources.solution(sources.read(sources.SOURCE / f"{K3}.ipynb"))


def released(name=K3):
    """A released notebook, as the dict that its JSON is."""
    return json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))


def cell(notebook, name):
    return next(one for one in notebook["cells"] if one.get("id") == name)


def solved(change=None):
    """Notebook 03 with its solution; `change` may do more to it."""
    notebook = released()
    cell(notebook, "solution")["source"] = SOLVED
    if change is not None:
        change(notebook)
    return notebook


class Inbox:
    """A folder of submissions, and where they go."""

    def __init__(self, folder):
        self.folder, self.target = folder / "in", folder / "out"
        self.folder.mkdir()

    def put(self, path, content=None):
        """A file among the submissions: a notebook as a dict, text, or bytes."""
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        content = content if content is not None else solved()
        content = json.dumps(content) if isinstance(content, dict) else content
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def zipped(self, path, entries):
        """A zip file among the submissions, of {name or ZipInfo: content}."""
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(as_zip(entries))
        return path

    def whole(self, student):
        """A learner's folder with all the notebooks."""
        for name in NAMES:
            self.put(f"{student}/{name}.ipynb", released(name))

    def take_in(self):
        before = contents(self.folder)
        rows = {row.student: row for row in intake(self.folder, self.target)}
        assert contents(self.folder) == before
        there = {path.name for path in self.target.iterdir()} if self.target.exists() else set()
        assert there == {name for name, row in rows.items() if row.status != "not gradable"}
        return rows

    def only(self):
        (row,) = self.take_in().values()
        return row

    def taken(self, student, name=K3):
        """A notebook as it is to be graded."""
        return nbformat.read(self.target / student / "grpo" / f"{name}.ipynb", as_version=4)


def as_zip(entries):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            content = json.dumps(content) if isinstance(content, dict) else content
            archive.writestr(name, content)
    return file.getvalue()


def contents(folder):
    """What would be another one if anything had been changed."""
    return {path: (path.lstat().st_mtime_ns, path.lstat().st_size) for path in folder.rglob("*")}


@pytest.fixture
def inbox(tmp_path):
    return Inbox(tmp_path)


def is_solved(notebook):
    """Whether the solution stands in the cell that is marked for it, and the cell alone."""
    marked = [one for one in notebook.cells
              if one.metadata.get("nbgrader", {}).get("grade_id") == "solution"]
    return [one.source for one in marked] == [SOLVED]


def marks(notebook):
    return {one.metadata.nbgrader["grade_id"]: dict(one.metadata.nbgrader)
            for one in notebook.cells if "nbgrader" in one.metadata}


# ------------------------------------------------------------ whose it is

def test_folders_zips_and_the_tree_of_nbgrader(inbox):
    inbox.whole("ada")
    inbox.zipped("bob.zip", {f"{name}.ipynb": released(name) for name in NAMES})
    inbox.zipped("cy.zip", {f"my work/grpo/{name}.ipynb": released(name) for name in NAMES})
    for name in NAMES:
        inbox.put(f"dan/grpo/{name}.ipynb", released(name))
        inbox.put(f"dan/other/{name}.ipynb", "not this one")
    inbox.put("dan/grpo/timestamp.txt", "2025-03-01 12:00:00 UTC")
    rows = inbox.take_in()
    assert list(rows) == ["ada", "bob", "cy", "dan"]
    assert all(row.status == "gradable" and row.reason == "" for row in rows.values())
    assert len({row.digest for row in rows.values()}) == 2           # dan's has a time
    assert not any(paper.notes for row in rows.values() for paper in row.papers.values())
    for student in rows:
        assert {path.name for path in (inbox.target / student / "grpo").iterdir()} - {
            "timestamp.txt"} == {f"{name}.ipynb" for name in NAMES}
        for name in NAMES:
            assert marks(inbox.taken(student, name)) == COURSE[name].marks


def test_a_download_of_canvas(inbox):
    inbox.put(f"lovelaceada_1815_42_{K3}-1.ipynb")
    inbox.put("lovelaceada_1815_43_lab.py", "x = 1\n")
    inbox.put(f"byronallegra_LATE_1817_44_{K3}.ipynb")
    inbox.zipped("hopper_1906_45_grpo.zip", {f"grpo/{K3}.ipynb": solved()})
    inbox.put("turing_1912_46_report.pdf", b"%PDF")
    rows = inbox.take_in()
    assert list(rows) == ["byronallegra_1817", "hopper_1906", "lovelaceada_1815", "turing_1912"]
    ada = rows["lovelaceada_1815"]
    assert (ada.name, ada.platform, ada.number) == ("lovelaceada", "Canvas", "1815")
    assert not ada.late
    assert (inbox.target / "lovelaceada_1815" / "grpo" / "lab.py").read_text() == "x = 1\n"
    assert rows["byronallegra_1817"].late
    assert all(rows[name].papers[K3].there for name in list(rows)[:3])
    assert "no notebook of this assignment" in rows["turing_1912"].reason
    assert "report.pdf" in rows["turing_1912"].reason


def test_a_download_of_moodle(inbox):
    inbox.put(f"Ada Lovelace_1815_assignsubmission_file_/{K3}.ipynb")
    inbox.put("Ada Lovelace_1815_assignsubmission_onlinetext_/onlinetext.html", "<p>Hello</p>")
    inbox.put(f"Zoë Å. O'Neil_1816_assignsubmission_file_{K3}.ipynb")
    inbox.zipped("Bo_Li_1817_assignsubmission_file_/work.zip", {f"{K3}.ipynb": solved()})
    rows = inbox.take_in()
    assert set(rows) == {"Ada-Lovelace_1815", "Zoë-Å.-O-Neil_1816", "Bo_Li_1817"}
    assert all(row.papers[K3].there and row.platform == "Moodle" for row in rows.values())
    assert rows["Zoë-Å.-O-Neil_1816"].name == "Zoë Å. O'Neil"


def test_what_does_not_belong_to_anybody_is_said_or_passed_over(inbox):
    inbox.put(f"{K3}.ipynb")
    inbox.put("alone.ipynb")
    inbox.put("grades.csv", "a,b")
    for junk in (".DS_Store", "__MACOSX/ada/._x", "Thumbs.db", "desktop.ini"):
        inbox.put(junk, "x")
    rows = inbox.take_in()
    assert set(rows) == {K3, "alone", "grades.csv"}
    assert "names no learner" in rows[K3].reason and rows["alone"].papers[K3].there
    assert "grades.csv" in rows["grades.csv"].reason


def test_two_of_one_name_are_one_learner_and_two_alike_are_two(inbox):
    inbox.put(f"ada/{K3}.ipynb", released())
    inbox.zipped("ada.zip", {f"{K3}.ipynb": solved()})
    inbox.put(f"Ada/{K3}.ipynb")
    inbox.put(f"a d a/{K3}.ipynb")
    inbox.put(f"a-d-a/{K3}.ipynb")
    rows = inbox.take_in()
    assert set(rows) == {"Ada", "ada-2", "a-d-a", "a-d-a-2"}
    assert is_solved(inbox.taken("ada-2"))
    assert f"ada.zip/{K3}.ipynb is graded, and not ada/{K3}.ipynb" in str(rows["ada-2"].papers[K3])


@pytest.mark.parametrize("name, expected", [
    ("Ada Lovelace", "Ada-Lovelace"), ("../../etc", "etc"), ("a[b]*?{c}+", "a-b-c"),
    ("", "_"), (".hidden", "hidden"), ("-x", "x"), ("con", "_con"), ("LPT1.txt", "_LPT1.txt"),
    ("名前", "名前"), ("e\u0301", "é"), ("x" * 300, "x" * 60), ("a\nb\0c", "a-b-c"),
    ("<script>", "script")])
def test_an_id_is_a_folder_on_any_system(name, expected):
    assert as_id(name) == expected


@pytest.mark.parametrize("make, reason", [
    (lambda path: None, "is not there"), (lambda path: path.touch(), "is a file"),
    (lambda path: path.mkdir(), "there is nothing in")])
def test_a_folder_without_submissions_is_refused(tmp_path, make, reason):
    make(tmp_path / "in")
    with pytest.raises(SourceError, match=reason):
        arrivals(tmp_path / "in")


@pytest.mark.parametrize("target", ["in", "in/out", "."])
def test_submissions_are_not_written_into_themselves(inbox, target):
    inbox.put(f"ada/{K3}.ipynb")
    with pytest.raises(SourceError, match="neither of them in the other"):
        intake(inbox.folder, inbox.folder.parent / target)


# ------------------------------------------------------------ which notebook it is

@pytest.mark.parametrize("called", [
    f"{K3} (1).ipynb", f"{K3}-Copy1.ipynb", f"Copy of {K3}.ipynb", f"{K3.upper()}.IPYNB",
    f"{K3.replace('-', '_')}_final_lovelace.ipynb", f"{K3}.ipynb.txt", f"{K3}.ipynb.json",
    "homework.ipynb", "01-sample-group.ipynb", f"deep/er/{K3}.ipynb", f"{K3} – kopie.ipynb"])
def test_a_renamed_notebook_is_known(inbox, called):
    inbox.put(f"ada/{called}")
    row = inbox.only()
    assert row.status == "partly" and [row.papers[name].there for name in NAMES].count(True) == 1
    assert is_solved(inbox.taken("ada"))
    assert (f"It was called {Path(called).name}." in row.papers[K3].notes) == (
        Path(called).name != f"{K3}.ipynb")


def test_without_marks_and_ids_the_name_says_it_and_without_a_name_the_function(inbox):
    def bare(notebook):
        for one in notebook["cells"]:
            one.pop("id"), one.pop("metadata")
        notebook["nbformat_minor"] = 4
    inbox.put(f"ada/{K3} (2).ipynb", solved(bare))
    inbox.put("bob/final.ipynb", solved(bare))
    rows = inbox.take_in()
    for student in ("ada", "bob"):
        paper = rows[student].papers[K3]
        assert paper.there and "Missing, and back again as released: answer" in str(paper.notes)
        assert SOLVED in [one.source for one in inbox.taken(student).cells]


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_the_one_with_work_in_it_counts(inbox, order):
    names = [f"ada/{K3}.ipynb", f"ada/{K3} (1).ipynb"][::order]
    inbox.put(names[0], solved())
    inbox.put(names[1], released())
    row = inbox.only()
    assert is_solved(inbox.taken("ada"))
    assert any("more than once" in note and names[0] in note for note in row.papers[K3].notes)


def test_of_two_alike_the_right_name_counts_then_the_newer(inbox):
    other = solved(lambda one: cell(one, "answer").update(source="newer"))
    os.utime(inbox.put(f"ada/{K3}.ipynb"), (1, 1))
    os.utime(inbox.put(f"ada/{K3} (1).ipynb", other), (2, 2))
    os.utime(inbox.put(f"bob/{K3} (2).ipynb", other), (2, 2))
    os.utime(inbox.put(f"bob/{K3} (3).ipynb"), (1, 1))
    inbox.take_in()
    assert "newer" not in str(inbox.taken("ada")) and "newer" in str(inbox.taken("bob"))


def test_missing_and_extra_notebooks(inbox):
    inbox.put(f"ada/{K3}.ipynb")
    inbox.put("ada/scratch.ipynb", nbformat.v4.new_notebook())
    inbox.put("ada/00-meet-tinylm.ipynb", nbformat.v4.new_notebook())
    inbox.put("ada/04-grpo-loss.html", "<html>")
    row = inbox.only()
    assert row.status == "partly" and f"{NAMES[0]} is missing" in row.reason
    assert K3 not in row.reason
    assert "04-grpo-loss.html was handed in, and no notebook" in row.reason
    assert row.notes == ["ada/scratch.ipynb is no notebook of this assignment, and was left out."]


# ------------------------------------------------------------ notebooks of all kinds

def test_the_marks_are_as_released_whatever_was_handed_in(inbox):
    def change(notebook):
        flipped = cell(notebook, "check-values")["metadata"]["nbgrader"]
        flipped.update(grade=False, solution=True, locked=False, schema_version=99, points=100)
        cell(notebook, "check-shape")["metadata"]["tags"] = ["skip-execution"]
        cell(notebook, "check-gradient")["source"] = "print('right')"
        notebook["cells"].remove(cell(notebook, "check-direction"))
        invented = {"grade": True, "grade_id": "mine", "points": 100, "locked": False,
                    "schema_version": 3, "solution": False}
        notebook["cells"] += [
            {**cell(notebook, "check-nonnegative"), "id": "again"},
            {"cell_type": "code", "source": "", "metadata": {"nbgrader": invented}},
            {"cell_type": "code", "source": "", "metadata": {"nbgrader": ["odd"]}},
            {"cell_type": "code", "source": "", "metadata": {"nbgrader": {"grade_id": 7}}}]
    inbox.put(f"ada/{K3}.ipynb", solved(change))
    row = inbox.only()
    taken = marks(inbox.taken("ada"))
    assert taken == {name: mark for name, mark in COURSE[K3].marks.items()
                     if name != "check-direction"}
    cells = inbox.taken("ada").cells
    assert sum("nbgrader" in one.metadata for one in cells) == len(taken)
    assert all(set(one.metadata) <= {"nbgrader"} for one in cells)
    assert cells[-4].metadata.nbgrader.grade_id == "check-nonnegative"
    assert row.papers[K3].notes == [
        "Missing, and back again as released: check-direction.",
        "There more than once, and the last one counts: check-nonnegative.",
        "Marked otherwise, and marked as released again: check-values.",
        "Changed, though read-only, and graded as released: check-gradient."]


def colab(notebook):
    """As Google's Colab saves one: no cell ids but in the metadata, and its own settings."""
    notebook.update(nbformat_minor=0)
    notebook["metadata"].update(colab={"provenance": []}, accelerator="GPU")
    for one in notebook["cells"]:
        one["metadata"].update(id=one.pop("id"), outputId="3f-1b", colab={"base_uri": "https://x"})


def colab_without_marks(notebook):
    colab(notebook)
    for one in notebook["cells"]:
        one["metadata"].pop("nbgrader", None)


def vs_code(notebook):
    notebook["metadata"].update(language_info={"name": "python"}, orig_nbformat=4)
    for one in notebook["cells"]:
        one["metadata"]["vscode"] = {"languageId": "python"}
        one["source"] = one["source"] if isinstance(one["source"], str) else "".join(one["source"])


def of_tomorrow(notebook):
    notebook.update(nbformat_minor=99, mystery={"x": 1})
    notebook["cells"][0]["mystery"] = [1, 2]


def without_version(notebook):
    del notebook["nbformat"], notebook["nbformat_minor"]


def with_outputs(notebook):
    for one in notebook["cells"]:
        if one["cell_type"] == "code":
            one.update(outputs=[{"output_type": "stream", "name": "stdout", "text": "x" * 10_000},
                                {"output_type": "nonsense"}], execution_count="seven")
    notebook["metadata"]["widgets"] = {"state": {"x": "y" * 10_000}}


def with_equal_ids(notebook):
    for one in notebook["cells"]:
        one["id"] = "same"


def with_odd_ids(notebook):
    for one in notebook["cells"]:
        one["id"] = ["<b>", 3]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("program", [colab, colab_without_marks, vs_code, of_tomorrow, with_outputs,
                                     without_version, with_equal_ids, with_odd_ids])
def test_what_other_programs_write_costs_nothing(inbox, program):
    inbox.put(f"ada/{K3}.ipynb", solved(program))
    row = inbox.only()
    taken = inbox.taken("ada")
    assert row.papers[K3].there and is_solved(taken) and marks(taken) == COURSE[K3].marks
    nbformat.validate(taken)
    assert set(taken.metadata) == {"kernelspec", "tinylm"}
    assert not any(one.outputs for one in taken.cells if one.cell_type == "code")
    notes = {colab_without_marks: ["Without a mark, and known by its id"]}.get(program, [])
    assert [note.partition(":")[0] for note in row.papers[K3].notes] == notes


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_other_encodings_of_text(inbox, encoding):
    inbox.put(f"ada/{K3}.ipynb", json.dumps(solved(), ensure_ascii=False).encode(encoding))
    assert inbox.only().papers[K3].there and is_solved(inbox.taken("ada"))


def test_an_old_format_is_converted(inbox):
    notebook = nbformat.v4.downgrade(nbformat.reads(json.dumps(solved()), as_version=4))
    inbox.put(f"ada/{K3}.ipynb", nbformat.v3.writes_json(notebook))
    row = inbox.only()
    assert "has the old format 3, converted to 4" in row.papers[K3].notes[0]
    assert SOLVED in [one.source for one in inbox.taken("ada").cells]


def test_another_release_is_graded_and_noted(inbox):
    inbox.put(f"ada/{K3}.ipynb", solved(lambda one: one["metadata"].update(
        tinylm={"release": "0123456789ab"})))
    inbox.put(f"bob/{K3}.ipynb", solved(lambda one: one["metadata"].pop("tinylm")))
    inbox.put(f"eve/{K3}.ipynb", solved(lambda one: one["metadata"].update(
        tinylm={"release": "<script>"})))
    rows = inbox.take_in()
    assert "another release, 0123456789ab; this one is" in rows["ada"].papers[K3].notes[0]
    assert inbox.taken("ada").metadata.tinylm.release == "0123456789ab"
    for student in ("bob", "eve"):
        assert "does not say from which release" in rows[student].papers[K3].notes[0]


def test_pictures_in_an_answer_stay_and_nothing_else(inbox):
    picture = {"image/png": "iVBORw0KGgo="}
    inbox.put(f"ada/{K3}.ipynb", solved(lambda one: cell(one, "answer").update(attachments={
        "drawing.png": picture, "x.svg": {"image/svg+xml": "<svg/>"},
        "y.png": {"image/png": '"><script>'}, "z": 3})))
    inbox.only()
    (answer,) = (one for one in inbox.taken("ada").cells if one.id == "answer")
    assert answer.attachments == {"drawing.png": picture}


DEEP = b"[" * 100_000 + b"]" * 100_000
UNREADABLE = {
    "empty": (b"", "is empty"),
    "blank": (b"\0\0  \n", "is empty"),
    "cut off": (json.dumps(released()).encode()[:1000], "is cut off or damaged: it is no JSON"),
    "merge conflict": (b'{\n<<<<<<< HEAD\n"cells": []}', "is no JSON, line 2"),
    "web page": (b"<!DOCTYPE html><html></html>", "is a web page"),
    "binary": (b"\x89PNG\xff\xfe\xfa", "is no text in UTF-8"),
    "list": (b"[]", "its JSON is no object"),
    "no cells": (b'{"nbformat": 4}', "it has no list of cells"),
    "cells of text": (b'{"cells": "many", "nbformat": 4}', "it has no list of cells"),
    "nested": (DEEP, "nested too deep"),
    "nested in a notebook": (b'{"nbformat": 4, "cells": [' + DEEP + b"]}", "nested too deep"),
    "a long number": (b'{"nbformat": ' + b"9" * 10_000 + b"}", "it is no JSON"),
    "format of tomorrow": (b'{"nbformat": 5, "cells": []}', "says that its format is '5'"),
    "format of text": (b'{"nbformat": "<b>", "cells": []}', "says that its format is '<b>'"),
    "old and odd": (b'{"nbformat": 3, "worksheets": 7}', "cannot be converted"),
    "too many cells": (json.dumps({"nbformat": 4, "cells": [{}] * 1001}).encode(), "1,001 cells"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_what_cannot_be_read_is_told_and_the_rest_is_graded(inbox, kind):
    data, reason = UNREADABLE[kind]
    with pytest.raises(NoNotebook, match=re.escape(reason)):
        Salvaged(data)
    inbox.whole("ada")
    inbox.put(f"ada/{K3}.ipynb", data)
    inbox.whole("bob")
    rows = inbox.take_in()
    assert rows["ada"].status == "partly" and rows["bob"].status == "gradable"
    assert rows["ada"].reason.startswith(f"{K3}: ada/{K3}.ipynb ")
    assert reason in rows["ada"].reason
    assert not (inbox.target / "ada" / "grpo" / f"{K3}.ipynb").exists()


@pytest.mark.parametrize("odd", [
    None, 3, "text", [], {}, {"cell_type": "code", "source": 3}, {"cell_type": ["code"]},
    {"cell_type": "code", "source": ["x", 3]}, {"cell_type": "video", "source": ""}])
def test_cells_that_are_none_are_left_out(inbox, odd):
    inbox.put(f"ada/{K3}.ipynb", solved(lambda one: one["cells"].insert(0, odd)))
    row = inbox.only()
    assert "has 1 cells that are none, left out" in row.papers[K3].notes[0]
    assert is_solved(inbox.taken("ada"))


@given(strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.floats()
    | strategies.text(max_size=5) | strategies.sampled_from(["solution", "code", "markdown"]),
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(
        strategies.sampled_from(["cell_type", "source", "metadata", "nbgrader", "grade_id", "id",
                                 "attachments", "x.png", "image/png"]), inner), max_leaves=12))
@settings(max_examples=150)
def test_any_json_is_a_notebook_or_told_to_be_none(part):
    notebook = released()
    for raw in (part, {"cells": part}, {"nbformat": part, "cells": []}, {"cells": [part]},
                {"metadata": part, "cells": []}, {**notebook, "cells": [part] * 2},
                {"nbformat": 3, "worksheets": part}):
        try:
            salvaged = Salvaged(json.dumps(raw).encode())
        except NoNotebook:
            continue
        nbformat.validate(salvaged.notebook)


def test_half_a_letter_does_not_stop_anything(inbox):
    text = json.dumps(solved()).replace(json.dumps(SOLVED)[1:-1], "x = '\\ud83d'")
    inbox.put(f"ada/{K3}.ipynb", text)
    assert inbox.only().papers[K3].there
    assert "x = '?'" in [one.source for one in inbox.taken("ada").cells]


# ------------------------------------------------------------ what comes along

def test_the_lab_file_is_kept(inbox):
    inbox.put(f"ada/{K3}.ipynb")
    inbox.put("ada/lab.py", b"\xef\xbb\xbfx = 1\n")
    inbox.put("ada/old/lab.py", "x = 0\n")
    inbox.put(f"bob/{K3}.ipynb")
    inbox.put("bob/lab (1).py", "x = 2\n")
    inbox.put(f"cy/{K3}.ipynb")
    inbox.put("cy/lab.py", "def f(:\n")
    inbox.put("dan/lab.py", "x = 3\n")
    rows = inbox.take_in()
    assert (inbox.target / "ada/grpo/lab.py").read_text() == "x = 1\n"
    assert "ada/lab.py is the lab.py that counts" in rows["ada"].notes[0]
    assert (inbox.target / "bob/grpo/lab.py").read_text() == "x = 2\n"
    assert not (inbox.target / "cy/grpo/lab.py").exists()
    assert rows["cy"].notes == ["cy/lab.py is no Python, line 1, so that it fills no stub."]
    assert rows["dan"].status == "not gradable" and "it holds lab.py" in rows["dan"].reason


def test_files_that_would_shadow_others_are_left_out(inbox):
    inbox.put(f"ada/{K3}.ipynb")
    for name in ("torch.py", "tinylm.py", "numpy/__init__.py", "helpers.py", "test_lab.py",
                 "lab_extra.py", "data.csv"):
        inbox.put(f"ada/{name}", "x = 1\n")
    row = inbox.only()
    assert [path.name for path in (inbox.target / "ada" / "grpo").iterdir()] == [f"{K3}.ipynb"]
    assert row.notes == [
        "Left out, since only notebooks and lab.py are graded: ada/helpers.py, ada/lab_extra.py, "
        "ada/numpy/__init__.py, ada/tinylm.py, ada/torch.py.",
        "A file would have taken the place of numpy, tinylm, torch."]


def test_a_time_that_is_none_counts_for_nothing(inbox):
    inbox.put(f"ada/{K3}.ipynb")
    inbox.put("ada/timestamp.txt", "yesterday, honestly")
    row = inbox.only()
    assert "holds no time" in row.notes[0]
    assert not (inbox.target / "ada" / "grpo" / "timestamp.txt").exists()


# ------------------------------------------------------------ what must not get in

def test_links_are_not_followed(inbox, tmp_path):
    secret = tmp_path / f"{K3}.ipynb"
    secret.write_text(json.dumps(solved()))
    inbox.put(f"bob/{K3}.ipynb")
    (inbox.folder / "ada").mkdir()
    (inbox.folder / "ada" / f"{K3}.ipynb").symlink_to(secret)
    (inbox.folder / "ada" / "all").symlink_to(inbox.folder / "bob")
    (inbox.folder / "ada" / "round").symlink_to(inbox.folder / "ada")
    (inbox.folder / "eve").symlink_to(inbox.folder / "bob")
    (inbox.folder / "gone.zip").symlink_to(tmp_path / "nothing")
    rows = inbox.take_in()
    for student, name in (("ada", f"ada/{K3}.ipynb"), ("eve", "eve"), ("gone", "gone.zip")):
        assert rows[student].status == "not gradable"
        assert f"{name} is a link and was not followed." in rows[student].notes
        assert "link" in rows[student].reason
    assert rows["bob"].status == "partly"


def test_pipes_and_devices_are_not_opened(inbox):
    inbox.put(f"ada/{K3}.ipynb")
    os.mkfifo(inbox.folder / "ada" / "lab.py")
    os.mkfifo(inbox.folder / "bob.zip")
    rows = inbox.take_in()
    assert rows["ada"].notes == ["ada/lab.py is neither a file nor a folder."]
    assert rows["bob"].reason == "bob.zip is neither a file nor a folder."


def link_entry(name):
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry


def test_nothing_gets_out_of_a_zip(inbox, tmp_path):
    out = ["../escaped.ipynb", "/tmp/escaped.ipynb", "..\\escaped.ipynb", "C:\\escaped.ipynb",
           "x/../../escaped.ipynb", "\\\\server\\escaped.ipynb"]
    inbox.zipped("ada.zip", {
        **{name: solved() for name in out}, link_entry(f"{NAMES[0]}.ipynb"): "/etc/passwd",
        f"folder\\{K3}.ipynb": solved(), "a/./b//lab.py": "x = 1\n"})
    row = inbox.only()
    assert is_solved(inbox.taken("ada"))
    assert (inbox.target / "ada" / "grpo" / "lab.py").exists()
    assert sum("leads out of ada.zip" in note for note in row.notes) == len(out)
    assert f"ada.zip/{NAMES[0]}.ipynb is a link and was not followed." in row.notes
    assert not list(tmp_path.rglob("*escaped*")) and not Path("/tmp/escaped.ipynb").exists()


def test_zips_in_folders_and_in_zips(inbox):
    inner = as_zip({f"grpo/{K3}.ipynb": solved(), "__MACOSX/._x.ipynb": "x", "grpo/.DS_Store": "x",
                    "grpo/.ipynb_checkpoints/x-checkpoint.ipynb": "x"})
    inbox.zipped("ada/hand-in.ZIP", {"inner.zip": inner, "more.rar": "x"})
    row = inbox.only()
    assert is_solved(inbox.taken("ada"))
    assert row.notes == ["ada/hand-in.ZIP/more.rar was not opened; expected a zip file."]


def bomb():
    """Zips in zips, too deep to be honest."""
    data = as_zip({f"{K3}.ipynb": solved()})
    for _ in range(15):
        data = as_zip({"next.zip": data})
    return data


def locked():
    data = bytearray(as_zip({f"{K3}.ipynb": solved()}))
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + place] |= 1
    return bytes(data)


def lying():
    """A file that claims to be small."""
    data = bytearray(as_zip({f"{K3}.ipynb": solved()}))
    size = data.index(b"PK\x01\x02") + 24
    data[size:size + 4] = (10).to_bytes(4, "little")
    return bytes(data)


def packed_otherwise():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr(f"{K3}.ipynb", b"0" * 1_000_000)
    return file.getvalue()


ZIPS = {
    "no zip": (lambda: b"PK but no more", "ada.zip cannot be read"),
    "empty file": (lambda: b"", "ada.zip cannot be read"),
    "cut off": (lambda: as_zip({f"{K3}.ipynb": solved()})[:-30], "ada.zip cannot be read"),
    "empty": (lambda: as_zip({}), "The submission is empty"),
    "locked": (locked, "is locked with a password"),
    "lying": (lying, "cannot be read|is cut off"),
    "packed otherwise": (packed_otherwise, "is packed in an unusual way"),
    "zips in zips": (bomb, "more than 10 folders or zip files in each other"),
    "many": (lambda: as_zip({f"{i}.txt": "" for i in range(6_000)}), "more than 5,000 files"),
    "large": (lambda: as_zip({f"{K3}.ipynb": "0" * (25 << 20)}), "has 25 MB; expected at most 20"),
    "large together": (lambda: as_zip({f"{i}.ipynb": "0" * (19 << 20) for i in range(7)}),
                       "more than 100 MB of notebooks"),
}


@pytest.mark.parametrize("kind", ZIPS)
def test_zips_that_cannot_be_graded_say_why(inbox, kind):
    data, reason = ZIPS[kind]
    inbox.put("ada.zip", data())
    inbox.put(f"bob/{K3}.ipynb")
    rows = inbox.take_in()
    assert rows["ada"].status == "not gradable" and rows["bob"].status == "partly"
    assert re.search(reason, rows["ada"].reason)


def test_a_huge_file_is_not_read(inbox):
    with open(inbox.put(f"ada/{K3}.ipynb", "{"), "r+b") as file:
        file.truncate(5 << 30)                   # takes no room on disk
    with open(inbox.put("bob.zip", "PK"), "r+b") as file:
        file.truncate(5 << 30)
    inbox.folder.joinpath("cy").mkdir()
    rows = inbox.take_in()
    assert rows["ada"].reason.startswith(f"{K3}: ada/{K3}.ipynb has 5120 MB; expected at most 20")
    assert "bob.zip cannot be read (has 5120 MB" in rows["bob"].reason
    assert rows["cy"].reason == "The submission is empty."


def test_a_tree_without_end_is_given_up(inbox, monkeypatch):
    monkeypatch.setattr(unpack, "MOST_NAMES", 50)
    for i in range(60):
        inbox.put(f"ada/{i}.txt", "x")
    deep = "/".join(["d"] * 20)
    inbox.put(f"bob/{deep}/{K3}.ipynb")
    inbox.put(f"cy/{K3}.ipynb")
    rows = inbox.take_in()
    assert "more than 50 files" in rows["ada"].reason
    assert "more than 10 folders" in rows["bob"].reason and rows["cy"].papers[K3].there


def test_names_cannot_break_the_page_that_shows_them(inbox):
    inbox.put(f"ada/{K3}.ipynb")
    inbox.put("ada/evil\n\x1b[31m\u202e.py", "x")
    row = inbox.only()
    assert row.notes and all(note.isprintable() for note in row.notes)


# ------------------------------------------------------------ again, and by hand

def test_taking_in_again_replaces_what_changed_and_touches_nothing_else(inbox):
    inbox.put(f"ada/{K3}.ipynb")
    inbox.put(f"bob/{K3}.ipynb")
    inbox.put("bob/lab.py", "x = 1\n")
    first = inbox.take_in()
    before = {path: path.stat().st_mtime_ns for path in inbox.target.rglob("*.ipynb")}
    (inbox.folder / "bob" / "lab.py").unlink()
    inbox.put(f"bob/{K3}.ipynb", released())
    second = inbox.take_in()
    assert first["ada"] == second["ada"] and first["bob"].digest != second["bob"].digest
    assert not is_solved(inbox.taken("bob")) and not (inbox.target / "bob/grpo/lab.py").exists()
    after = {path: path.stat().st_mtime_ns for path in inbox.target.rglob("*.ipynb")}
    assert {path.parts[-3] for path in after if after[path] != before[path]} == {"bob"}


def test_what_can_no_longer_be_graded_is_not_graded_as_it_was(inbox):
    inbox.put(f"ada/{K3}.ipynb")
    inbox.put(f"bob/{K3}.ipynb")
    inbox.take_in()
    inbox.put(f"ada/{K3}.ipynb", "")
    assert {path.name for path in inbox.target.iterdir()} == {"ada", "bob"}
    rows = {row.student: row for row in intake(inbox.folder, inbox.target)}
    assert rows["ada"].status == "not gradable"
    assert not (inbox.target / "ada" / "grpo").exists()


def test_nbgrader_by_hand_refuses_links(tmp_path):
    resources = {"metadata": {"path": str(tmp_path)}}
    notebook = nbformat.v4.new_notebook()
    assert RefuseLinks().preprocess(notebook, resources) == (notebook, resources)
    (tmp_path / "lab.py").symlink_to("/etc/passwd")
    with pytest.raises(LinkError, match="lab.py is a link"):
        RefuseLinks().preprocess(notebook, resources)
