"""Right solutions, in as many styles as people have: a grader may refuse none of them.

`task1.py` to `task5.py` hold ten notebook cells each, from `# %% right_1: its style` on; each cell
can stand alone as the solution cell of its task. `lab_a.py` and `lab_b.py` are whole lab files.
"""

from pathlib import Path

HERE = Path(__file__).parent
LABS = (HERE / "lab_a.py", HERE / "lab_b.py")


def solutions(task):
    """The cells of a task, {name: source}; they run where lab.py's imports have run."""
    _imports, *cells = (HERE / f"task{task}.py").read_text(encoding="utf-8").split("# %% ")
    return {cell.partition(":")[0]: "# " + cell.strip() + "\n" for cell in cells}
