"""What happens to a submission while it runs: crashes, limits, and the folder it runs in."""

import pytest
from nbformat.v4 import new_code_cell, new_notebook

from autograde.kernel import Execute
from autograde.wire import CUT


def code(source, graded=False):
    mark = {"grade": True, "solution": False, "locked": True, "grade_id": "x", "points": 1}
    return new_code_cell(source, metadata={"nbgrader": mark} if graded else {})


def run(*cells, **limits):
    """Run the cells; returns what each put out, as text, errors as "Name: reason"."""
    notebook = new_notebook(cells=list(cells))
    notebook, resources = Execute(shutdown_kernel="immediate", **limits).preprocess(
        notebook, {"metadata": {"path": "somewhere"}})
    assert resources == {"metadata": {"path": "somewhere"}}
    return ["".join(output.get("text", "") or f"{output.get('ename')}: {output.get('evalue')}"
                    for output in cell.outputs) for cell in notebook.cells]


def test_a_crash_costs_its_own_cell_and_what_was_defined_before_is_there_again():
    first, crash, test, after = run(
        code("x = 1\nprint('once')"),
        code("import os\ny = 2\nos._exit(3)"),
        code("print(x, 'y' in globals())", graded=True),
        code("print(x + 1)"))
    assert first == "once\n" and test == "1 False\n" and after == "2\n"
    assert crash == "DeadKernelError: This cell ended its kernel, or could not be stopped."


def test_a_test_cell_is_not_run_twice():
    outputs = run(
        code("calls = []"),
        code("calls.append(1)\nprint(len(calls))", graded=True),
        code("import os\nos._exit(3)", graded=True),
        code("print(len(calls))", graded=True))
    assert outputs[1] == "1\n" and outputs[3] == "0\n"


@pytest.mark.parametrize("ending", ["raise SystemExit", "exit()", "import sys; sys.exit(1)"])
def test_leaving_costs_nothing_in_later_cells(ending):
    assert run(code("x = 1"), code(ending), code("print(x)", graded=True))[2] == "1\n"


def test_when_the_time_is_up_the_remaining_cells_say_so():
    assert run(code("print(1)"), code("print(2)"), total=-1) == [
        "NoTimeLeft: The cells before this one took more than -1 seconds."] * 2


def test_a_cell_that_takes_too_long_is_stopped():
    slow, after = run(code("while True: pass"), code("print(1)"), timeout=2)
    assert "CellTimeoutError" in slow and after == "1\n"


def test_a_cell_that_cannot_be_stopped_costs_itself():
    endless = """import time
while True:
    try:
        time.sleep(1)
    except KeyboardInterrupt:
        pass"""
    before, stuck, after = run(code("x = 1"), code(endless, graded=True), code("print(x)"),
                               timeout=2, iopub_timeout=1)
    assert "could not be stopped" in stuck and after == "1\n"


def test_long_output_is_cut_and_the_error_after_it_stays():
    long, short = run(
        code("print('x' * 5000)\nprint('y' * 5000)\nraise ValueError('z' * 5000)", graded=True),
        code("print('a')"), most_output=1000)
    assert long.startswith("x" * 1000 + CUT) and "y" not in long
    assert long.endswith("ValueError: " + "z" * 1000) and short == "a\n"


def test_a_word_on_stderr_does_not_fail_a_test_cell():
    notebook = new_notebook(cells=[code("import sys\nprint('x', file=sys.stderr)", graded=True),
                                   code("import sys\nprint('x', file=sys.stderr)")])
    notebook, _ = Execute().preprocess(notebook, {"metadata": {"path": ""}})
    assert [cell.outputs[0].name for cell in notebook.cells] == ["stdout", "stderr"]


def test_the_kernel_finds_the_stubs_and_no_other_file():
    (said,) = run(code("import os, lab\nprint(os.listdir(), lab.k3_kl.__name__)\n"
                       "lab.k3_kl(0, 0)"))
    assert said == "['lab.py'] k3_kl\nNotImplementedError: Task 3: k3_kl"
