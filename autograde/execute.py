"""The source notebooks are run, one after the other, as a learner would who gets everything right.

They run in a folder of their own, which holds the reference lab file. `execute` writes the outputs
back into the sources, without anything that belongs to one machine or moment; `compare` runs them
with nbval, which says where outputs are no longer what they were.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from autograde.sources import SOURCE, SourceError, notebooks, read, reading, reference, write
from tinylm import labfile

SANITIZE = Path(__file__).with_name("nbval_sanitize.cfg")
MACHINE_OR_MOMENT = re.compile(r"0x[0-9a-f]{6,}|/(?:home|root|tmp|Users|work)/|\d+ ?ms\b")
WIDGET = "application/vnd.jupyter.widget-view+json"
SECONDS = 120                # a cell may take


@contextmanager
def learners_folder(source=SOURCE):
    """A folder with copies of the source notebooks and the reference lab.py."""
    with tempfile.TemporaryDirectory(prefix="lab-") as folder:
        folder = Path(folder)
        for path in notebooks(source) + reading(source):
            shutil.copyfile(path, folder / path.name)
        labfile.write(folder / "lab.py", reference(source).encode())
        yield folder


def execute(source=SOURCE):
    """Run every notebook and write its outputs back. Returns the paths of those that changed.

    Raises SourceError, naming notebook and cell, if a cell fails, writes on stderr, or puts out an
    address, a path or a time; that notebook and those after it stay as they were.
    """
    changed = []
    with learners_folder(source) as folder:
        for path in notebooks(source) + reading(source):
            before = read(path)
            after = _executed(read(path), path.name, folder)
            if after != before:
                write(after, path)
                changed.append(path)
    return changed


def _executed(notebook, name, folder):
    metadata = notebook.metadata.copy()
    client = NotebookClient(notebook, timeout=SECONDS, shutdown_kernel="immediate",
                            record_timing=False, coalesce_streams=True,
                            resources={"metadata": {"path": str(folder)}})
    try:
        client.execute()
    except CellExecutionError as error:
        raise SourceError(f"{name} does not run: {error.ename}: {error.evalue}") from None
    notebook.metadata = metadata             # the kernel's version and its widgets stay behind
    for cell in notebook.cells:
        if cell.cell_type == "code":
            _forget_widgets(cell)
            _refuse_traces(cell, name)
    return notebook


def _forget_widgets(cell):
    """Leave of a widget its picture and its words: its view ends with the kernel."""
    for output in cell.outputs:
        output.get("data", {}).pop(WIDGET, None)


def _refuse_traces(cell, name):
    """Raise SourceError for an output that would be another one elsewhere, or tomorrow."""
    for output in cell.outputs:
        if output.get("name") == "stderr":
            raise SourceError(f"{name}, cell {cell.id}, writes on stderr: {output.text[:80]!r}.")
        text = output.get("text") or output.get("data", {}).get("text/plain", "")
        if found := MACHINE_OR_MOMENT.search(text):
            raise SourceError(f"{name}, cell {cell.id}, puts out {found[0]!r}, which belongs to "
                              "one machine or moment; print something that stays.")


def compare(source=SOURCE):
    """Run the sources with nbval in a folder aside. Returns pytest's exit status."""
    with learners_folder(source) as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval",
                   "--nbval-current-env", f"--nbval-sanitize-with={SANITIZE}",
                   f"--nbval-cell-timeout={SECONDS}", f"--rootdir={folder}", str(folder)]
        return subprocess.run(command, cwd=folder).returncode
