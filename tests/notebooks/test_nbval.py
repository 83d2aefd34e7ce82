"""The outputs of the source notebooks are what they were, on other machines as well.

Threads and vector units change the last digits of what a model computes, so both runs differ in
them: a number that depends on a model must not stand in an output.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from autograde import execute, sources

ROOT = Path(__file__).parents[2]
MACHINES = [
    pytest.param({"OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "default"}, id="plain"),
    pytest.param({"OMP_NUM_THREADS": "2"}, id="two threads"),
]


@pytest.mark.parametrize("machine", MACHINES)
def test_outputs_are_what_they_were(machine):
    done = subprocess.run([sys.executable, "-m", "autograde", "nbval"], cwd=ROOT, timeout=600,
                          env=os.environ | {"PYTHONPATH": str(ROOT)} | machine,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    cells = sum(cell.cell_type == "code" for path in sources.notebooks() + sources.reading()
                for cell in nbformat.read(path, as_version=4).cells)
    assert f"{cells} passed" in done.stdout


@pytest.fixture
def one_source(tmp_path):
    """A source folder with notebook 02 alone."""
    shutil.copy(sources.SOURCE / "02-group-advantages.ipynb", tmp_path)
    return tmp_path


def spoil(folder, name, change):
    path = folder / "02-group-advantages.ipynb"
    notebook = nbformat.read(path, as_version=4)
    change(sources.cell(notebook, name))
    nbformat.write(notebook, path)


def test_an_output_that_has_changed_is_found(one_source, capfd):
    def other(cell):
        cell.outputs[0].text = cell.outputs[0].text.replace("1.732", "1.731")

    spoil(one_source, "example", other)
    assert execute.compare(one_source) == 1
    assert "1 failed" in capfd.readouterr().out


def test_execute_writes_outputs_back(one_source):
    path = one_source / "02-group-advantages.ipynb"
    committed = path.read_bytes()
    spoil(one_source, "example", lambda cell: cell.update(outputs=[], execution_count=None))
    assert execute.execute(one_source) == [path]
    assert path.read_bytes() == committed


@pytest.mark.parametrize("code, said", [
    ("print(object())", "one machine or moment"),
    ("import os; print(os.getcwd())", "one machine or moment"),
    ("import sys; print('x', file=sys.stderr)", "writes on stderr"),
    ("1 / 0", "does not run"),
])
def test_execute_refuses_what_would_not_stay(one_source, code, said):
    path = one_source / "02-group-advantages.ipynb"
    spoil(one_source, "example", lambda cell: cell.update(source=code))
    before = path.read_bytes()
    with pytest.raises(sources.SourceError, match=said):
        execute.execute(one_source)
    assert path.read_bytes() == before
