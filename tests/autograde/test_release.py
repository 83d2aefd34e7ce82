"""A release hides what it must, carries what it must, and leaves the old notebooks if it fails."""

import re
import shutil
from pathlib import Path

import nbformat
import pytest

from autograde import __main__ as command
from autograde import hidden, inline, release, sources
from tinylm.checks import unpack
from tinylm.labfile import TASKS, TEMPLATE

NAMES = [path.name for path in sources.notebooks()]
K3 = "03-k3-kl.ipynb"


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """All notebooks, freshly released: {name: notebook}."""
    target = tmp_path_factory.mktemp("notebooks")
    release.release(target=target)
    return {path.name: nbformat.read(path, as_version=4) for path in sorted(target.iterdir())}


@pytest.fixture(scope="module")
def fresh(everything):
    """The graded ones of them."""
    return {name: everything[name] for name in NAMES}


@pytest.fixture
def source(tmp_path):
    """A source folder with notebook 03 alone, to be spoiled."""
    folder = tmp_path / "source"
    folder.mkdir()
    shutil.copy(sources.SOURCE / K3, folder)
    return folder


@pytest.fixture
def target(tmp_path):
    """A folder with a released notebook that must survive what fails."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    (folder / K3).write_text("the old one")
    return folder


def edit(folder, name, change):
    """Apply `change` to the cell `name` of notebook 03, or to the notebook where name is None."""
    notebook = nbformat.read(folder / K3, as_version=4)
    change(notebook if name is None else sources.cell(notebook, name))
    nbformat.write(notebook, folder / K3)


def replace(old, new):
    def change(cell):
        assert old in cell.source
        cell.source = cell.source.replace(old, new)
    return change


def section(number):
    """The stub of a task as it stands in the learner's lab.py, read with nothing of ours."""
    text = (TEMPLATE / "lab.py").read_text()
    return re.search(rf"^# =+ Task {number}\n(.*?)\n\n\n# =+ ", text, re.M | re.S)[1]


# ------------------------------------------------------------ what a release is

def test_all_notebooks_are_there(everything):
    assert [name[:2] for name in everything] == [f"{number:02}" for number in range(8)]
    assert [name for name in everything if name[:2] not in ("00", "06", "07")] == NAMES


def test_notebooks_to_read_travel_without_outputs_and_tags(everything):
    for name in everything.keys() - set(NAMES):
        for cell in everything[name].cells:
            assert not cell.metadata and not cell.get("outputs"), (name, cell.id)


@pytest.mark.parametrize("number", range(1, 6))
def test_a_solution_cell_is_the_stub_of_the_lab_file(fresh, number):
    cell = sources.cell(fresh[NAMES[number - 1]], "solution")
    assert cell.source == section(number)
    assert f'raise NotImplementedError("Task {number}: {TASKS[number - 1]}")' in cell.source


def test_nothing_is_left_of_solutions_and_hidden_tests(fresh):
    for name, notebook in fresh.items():
        text = nbformat.writes(notebook)
        lines = {line.strip() for cell in notebook.cells for line in cell.source.splitlines()}
        source = nbformat.read(sources.SOURCE / name, as_version=4)
        solution = sources.cell(source, "solution").source.partition("BEGIN SOLUTION")[2]
        solved = {line.strip() for line in solution.splitlines()[1:-1]}
        assert solved and not solved & lines, name
        for word in ("BEGIN", "END SOLUTION", "table=", "autograde", "HIDDEN"):
            assert word not in text, (name, word)
        assert sources.cell(source, "answer").source[:40] not in text


def test_hidden_cells_show_one_line(fresh):
    cells = [cell for notebook in fresh.values() for cell in notebook.cells
             if cell.id.startswith("hidden-")]
    assert len(cells) > 20
    assert all(re.fullmatch(r"# hidden-\w+: runs when your work is graded", cell.source)
               for cell in cells)


def test_only_what_must_travels(source, target):
    def spoil(notebook):
        notebook.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {}}}
        notebook.metadata["author"] = "me"
        notebook.metadata["language_info"]["version"] = "3.11.7"
        cell = sources.cell(notebook, "numbers")
        cell.metadata.update(tags=["nbval-ignore-output"], collapsed=True, mine="x")
        cell.outputs = [nbformat.v4.new_output("stream", text="0x7f00")]
        cell.execution_count = 7

    edit(source, None, spoil)
    release.release(source, target)
    notebook = nbformat.read(target / K3, as_version=4)
    assert set(notebook.metadata) == {"kernelspec", "language_info", "tinylm"}
    assert notebook.metadata.language_info == {"name": "python"}
    for cell in notebook.cells:
        assert set(cell.metadata) <= {"nbgrader", "deletable", "editable"}
        assert not cell.get("outputs") and cell.get("execution_count") is None


def test_cells_keep_their_ids(fresh):
    for name, notebook in fresh.items():
        source = nbformat.read(sources.SOURCE / name, as_version=4)
        assert [cell.id for cell in notebook.cells] == [cell.id for cell in source.cells]


def test_checks_are_read_only_and_the_solution_is_not(fresh):
    for notebook in fresh.values():
        for cell in notebook.cells:
            if cell.id.startswith(("check-", "hidden-", "setup")):
                assert cell.metadata.editable is False and cell.metadata.deletable is False
        assert "editable" not in sources.cell(notebook, "solution").metadata


# ------------------------------------------------------------ which release it is

def test_every_notebook_knows_its_release(fresh):
    ids = {notebook.metadata.tinylm["release"] for notebook in fresh.values()}
    assert ids == {sources.release_id(sources.SOURCE, hidden.hidden_seed())}


def test_the_release_id_follows_text_and_seed_but_not_outputs(source):
    before = sources.release_id(source, 1)
    assert sources.release_id(source, 2) != before
    edit(source, "numbers", lambda cell: cell.update(outputs=[], execution_count=None))
    assert sources.release_id(source, 1) == before
    edit(source, "why", replace("reward", "Reward"))
    assert sources.release_id(source, 1) != before


# ------------------------------------------------------------ hidden tables

def test_a_hidden_cell_carries_its_own_table(source):
    notebook = nbformat.read(source / K3, as_version=4)
    notebook, _ = inline.InlineTables().preprocess(notebook, {})
    cell = sources.cell(notebook, "hidden-values")
    packed = re.search(r"table='(.*)'\)", cell.source)[1]
    table = unpack(packed)
    assert list(table["checks"]) == ["values"]
    assert table["checks"]["values"]["cases"][0]["inputs"] == \
        hidden.hidden(3)["checks"]["values"]["cases"][0]["inputs"]
    assert "autograde" not in cell.source and len(cell.source) < 4000


def test_the_hidden_table_is_not_the_one_that_learners_have():
    from tinylm.checks.tables import table_of

    assert hidden.hidden(3)["checks"]["values"]["cases"] != \
        table_of("k3_kl")["checks"]["values"]["cases"]


def test_the_seed_comes_from_the_instructors_file(tmp_path, monkeypatch):
    monkeypatch.setattr(hidden, "INSTRUCTOR", tmp_path / "instructor.toml")
    assert hidden.hidden_seed() == hidden.DEFAULT_SEED
    hidden.INSTRUCTOR.write_text("hidden_seed = 271828182845\n")
    assert hidden.hidden_seed() == 271828182845


@pytest.mark.parametrize("text", ["", "hidden_seed = 'x'", "hidden_seed = -1", "= 1", "seed = 3"])
def test_an_instructors_file_without_a_seed_is_refused(tmp_path, monkeypatch, text):
    monkeypatch.setattr(hidden, "INSTRUCTOR", tmp_path / "instructor.toml")
    hidden.INSTRUCTOR.write_text(text)
    with pytest.raises(sources.SourceError, match="hidden_seed"):
        hidden.hidden_seed()


# ------------------------------------------------------------ what is refused

@pytest.mark.parametrize("name, old, new", [
    ("hidden-values", "### BEGIN HIDDEN TESTS", "### BEGIN HIDEN TESTS"),
    ("hidden-values", "### BEGIN HIDDEN TESTS", "### begin hidden tests"),
    ("hidden-values", "### BEGIN HIDDEN TESTS", "### HIDDEN TESTS"),
    ("hidden-values", "### END HIDDEN TESTS", "### END HIDDEN TEST"),
    ("solution", "### BEGIN SOLUTION", "### BEGIN SOULTION"),
    ("solution", "### END SOLUTION", "### END SOLUTON"),
    ("solution", "# TODO (Task 3): two lines.", "# TODO (Task 3): write d, then exp(d) - d - 1."),
    ("hidden-values", "from autograde.hidden import hidden\n\n", "import autograde\n\n"),
    ("hidden-values", '"values"', "'values'"),
    ("numbers", "k1 = ", "d = ref_logp - logp\n    k1 = "),
    ("numbers", "k1 = ", "open('/home/someone/notes.txt')\n    k1 = "),
    ("numbers", "k1 = ", "from autograde.reference import lab\n    k1 = "),
])
def test_a_release_that_gives_something_away_is_refused(source, target, name, old, new):
    edit(source, name, replace(old, new))
    with pytest.raises(sources.SourceError):
        release.release(source, target)
    assert (target / K3).read_text() == "the old one"


def test_a_model_answer_that_would_travel_is_refused(source, target):
    edit(source, "answer", lambda cell: cell.metadata.update(nbgrader={
        **cell.metadata.nbgrader, "solution": False, "grade": False, "locked": True}))
    with pytest.raises(sources.SourceError, match="model answer"):
        release.release(source, target)


def test_one_bad_notebook_leaves_all_the_old_ones(source, target):
    shutil.copy(sources.SOURCE / NAMES[1], source)
    (target / NAMES[1]).write_text("old as well")
    edit(source, "hidden-values", replace("### BEGIN HIDDEN TESTS", "### BEGIN HIDEN TESTS"))
    with pytest.raises(sources.SourceError, match="03-k3-kl.ipynb: cell 'hidden-values'"):
        release.release(source, target)
    assert (target / NAMES[1]).read_text() == "old as well"


def test_a_source_that_is_no_notebook_is_refused(source, target):
    (source / K3).write_text("{")
    with pytest.raises(sources.SourceError):
        release.release(source, target)
    assert (target / K3).read_text() == "the old one"


def test_a_second_release_changes_nothing(source, target):
    assert release.release(source, target) == [target / K3]
    assert release.release(source, target) == []


def test_the_command_says_one_sentence_and_exits_with_2(monkeypatch, capsys):
    def fails():
        raise sources.SourceError("03-k3-kl.ipynb: cell 'answer' holds the model answer.")

    monkeypatch.setattr(release, "release", fails)
    assert command.main(["release"]) == 2
    assert capsys.readouterr().err == "03-k3-kl.ipynb: cell 'answer' holds the model answer.\n"


def test_no_sources_is_said(tmp_path):
    with pytest.raises(sources.SourceError, match="no notebooks"):
        release.release(tmp_path, tmp_path / "notebooks")
    assert not Path(tmp_path / "notebooks").exists()
