"""A submission is run: a crash costs the cells it hits, and no others.

nbgrader's own Execute gives up a whole submission when its kernel dies. Here a cell that ends the
kernel, or cannot be stopped, gets an error as its output; the cells after it run in a new kernel,
in which the learner's cells before it have been run again. The folder of each kernel is made for it
and holds one file, the lab.py of stubs: what is graded is the notebook alone.

There are no walls round the kernel here; `walls` puts them there. What comes from it is bounded by
`wire`.
"""

import tempfile
import time
from pathlib import Path

from nbclient.exceptions import CellTimeoutError
from nbformat.v4 import new_output
from nbgrader.preprocessors import Execute as NbGraderExecute
from nbgrader.utils import is_grade
from traitlets import Integer

from autograde.wire import Budget, Manager
from tinylm.labfile import TEMPLATE

OUTPUTS = ("stream", "error", "display_data", "execute_result")


class KernelLost(Exception):
    """The kernel is of no more use; the rest of the notebook needs a new one."""


class Execute(NbGraderExecute):
    """Runs a notebook in as many kernels as it takes, and keeps its output within bounds."""

    total = Integer(300, help="seconds that the cells of one notebook may take").tag(config=True)
    most_output = Integer(50_000, help="characters that a cell may put out").tag(config=True)

    def __init__(self, *args, **kwargs):
        kwargs.setdefault("kernel_manager_class", Manager)
        super().__init__(*args, **kwargs)

    def preprocess(self, notebook, resources, km=None):
        self.deadline = time.monotonic() + self.total
        self.finished, self.crashed = set(), set()           # indices of cells
        while True:
            with tempfile.TemporaryDirectory(prefix="grading-") as folder:
                Path(folder, "lab.py").write_bytes((TEMPLATE / "lab.py").read_bytes())
                try:
                    super().preprocess(notebook, {"metadata": {"path": folder}}, km)
                except KernelLost:
                    continue
                return notebook, resources

    def preprocess_cell(self, cell, resources, index):
        """Run a cell; or run it again, for what it defines, if an earlier kernel was lost."""
        again = index in self.finished
        if cell.cell_type != "code" or index in self.crashed or again and is_grade(cell):
            return cell, resources
        before = cell.outputs
        if time.monotonic() > self.deadline:
            reason = f"The cells before this one took more than {self.total} seconds."
            cell.outputs = [_error("NoTimeLeft", reason)]
            return cell, resources
        self.budget = Budget(self.most_output)
        try:
            cell, resources = super().preprocess_cell(cell, resources, index)
        except Exception as error:               # dead, not to be stopped, or talking nonsense
            if isinstance(error, OSError | MemoryError) and not isinstance(error, CellTimeoutError):
                raise                            # the trouble is on this side
            cell.outputs = [*cell.outputs, _error(type(error).__name__, self.why_lost())]
            self.crashed.add(index)
            raise KernelLost from None
        finally:
            self.finished.add(index)
        if again:
            cell.outputs = before
        return cell, resources

    def why_lost(self):
        """A sentence for the cell that lost its kernel."""
        return "This cell ended its kernel, or could not be stopped."

    def process_message(self, msg, cell, cell_index):
        """Keep output within bounds; and what a test cell has on stderr costs it nothing."""
        self.budget.count()
        kind = msg["msg_type"]
        if kind in OUTPUTS:
            kept = self.budget.kept(kind, msg["content"])
            if kept is None:
                return None
            if kind == "stream" and is_grade(cell):
                kept["name"] = "stdout"
            msg = {**msg, "content": kept}
        elif kind not in ("status", "clear_output"):
            return None                          # widgets, echoes: nothing that is seen
        return super().process_message(msg, cell, cell_index)

    def on_cell_executed(self, **what):
        """nbgrader's own takes an error from the reply where it was no output; bound that too."""
        reply = what["execute_reply"]["content"]
        if reply["status"] == "error":
            reply.update(Budget(self.most_output).kept("error", reply))
        super().on_cell_executed(**what)


def _error(name, reason):
    return new_output("error", ename=name, evalue=reason, traceback=[f"{name}: {reason}"])
