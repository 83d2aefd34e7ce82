"""The learners' zip: opened and looked at."""

import json
import os
import re
import subprocess
import sys
import zipfile

import nbformat
import pytest

from autograde import bundle, hidden, sources
from tinylm.checks import pack

COMMON = {"with torch.no_grad():"}       # a line that says nothing of a solution


@pytest.fixture(scope="module")
def zipped(tmp_path_factory):
    return bundle.bundle(tmp_path_factory.mktemp("dist") / "tinylm-grpo.zip")


@pytest.fixture(scope="module")
def contents(zipped):
    """{path inside: bytes}."""
    with zipfile.ZipFile(zipped) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_what_learners_need_is_in_it(contents):
    for name in ("README.md", "LICENSE", "Makefile", "pyproject.toml", "environment.yml",
                 "constraints.txt", "notebooks/03-k3-kl.ipynb", "tinylm/labfile.py",
                 "tinylm/template/lab.py", "tinylm/template/test_lab.py", "figures/training.svg"):
        assert f"tinylm-grpo/{name}" in contents
    assert any(name.startswith("tinylm-grpo/tinylm/data/") for name in contents)
    assert any(name.startswith("tinylm-grpo/tinylm/checks/tables/") for name in contents)


def test_its_readme_speaks_of_nothing_that_is_missing(contents):
    text = contents["tinylm-grpo/README.md"].decode()
    assert "make lab" in text and "--lab work/lab.py" in text
    for word in ("autograde", "tests\n", "make test", "make mistakes", "docs/"):
        assert word not in text, word
    for target in re.findall(r"\]\(([^)#\s]+)\)", text):
        assert target.startswith("https://") or f"tinylm-grpo/{target}" in contents, target


def test_nothing_of_the_instructors_is_in_it(contents):
    for name in contents:
        parts = name.split("/")
        assert not {"autograde", "source", "reference", "mistakes", "tests", "bench", "__pycache__",
                    "instructor.toml", "gradebook.db"} & set(parts), name
        assert not any(part.startswith(".") for part in parts), name


def test_no_solution_is_in_it(contents):
    lines = {line for name, content in contents.items() for line in _lines(name, content)}
    assert "raise NotImplementedError(\"Task 3: k3_kl\")" in lines
    for path in sources.notebooks():
        source = sources.cell(sources.read(path), "solution").source
        solution = source.partition("BEGIN SOLUTION")[2].splitlines()[1:-1]
        solution = {line.strip() for line in solution if len(line.strip()) > 20} - COMMON
        assert solution and not solution & lines, path.name


def _lines(name, content):
    """The lines of a text file, or of the cells of a notebook."""
    if name.endswith(".ipynb"):
        cells = nbformat.reads(content.decode(), as_version=4).cells
        return [line.strip() for cell in cells for line in cell.source.splitlines()]
    return [line.strip() for line in content.decode(errors="replace").splitlines()]


def test_no_hidden_table_is_in_it(contents):
    text = b"\n".join(contents.values())
    for task in range(1, 6):
        for name, check in hidden.hidden(task)["checks"].items():
            for case in check["cases"]:
                for numbers in _long_lists(case["inputs"]):
                    assert json.dumps(numbers)[1:-1].encode() not in text, (task, name)
    assert b"hidden_seed" not in text and b"BEGIN HIDDEN" not in text
    assert pack(hidden.hidden(3))[:60].encode() not in text


def _long_lists(value):
    """The lists of at least four different numbers with decimals in an input."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return
    if all(isinstance(item, float) for item in value) and len(set(value)) > 3:
        yield value
    for item in value:
        yield from _long_lists(item)


def test_the_same_tree_gives_the_same_bytes(zipped, tmp_path):
    again = bundle.bundle(tmp_path / "again.zip")
    assert again.read_bytes() == zipped.read_bytes()


def test_a_tree_without_notebooks_is_refused_and_the_old_zip_stays(tmp_path):
    old = tmp_path / "old.zip"
    old.write_bytes(b"old")
    with pytest.raises(sources.SourceError, match="the bundle is to hold"):
        bundle.bundle(old, root=tmp_path)
    assert old.read_bytes() == b"old"


def test_it_is_enough_to_start(zipped, tmp_path):
    with zipfile.ZipFile(zipped) as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / "tinylm-grpo"
    subprocess.run([sys.executable, "-m", "tinylm", "start"], cwd=folder, check=True, timeout=120,
                   env=os.environ | {"PYTHONPATH": str(folder)}, capture_output=True)
    started = nbformat.read(folder / "work" / "03-k3-kl.ipynb", as_version=4)
    assert 'raise NotImplementedError("Task 3: k3_kl")' in sources.cell(started, "solution").source
    check = 'from lab import k3_kl; from tinylm.checks import check; check(k3_kl, "values")'
    found = subprocess.run([sys.executable, "-c", check], cwd=folder / "work", timeout=120,
                           env=os.environ | {"PYTHONPATH": str(folder)}, capture_output=True,
                           text=True)
    assert found.returncode == 1 and "CheckFailed" in found.stderr
