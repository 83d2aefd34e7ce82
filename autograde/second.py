"""A second opinion: the functions of a submission on other numbers, compared out of their reach.

In a notebook the tests run in the learner's own interpreter, where a learner can change the tests.
Here the learner's cells are run once more, behind walls, in a process that is given inputs and no
answers (see `second_worker`). What the functions did comes back as text that anybody may have made
up, and is compared on this side with what the reference does. So who fools the notebook's tests
has still to give back what a right function gives on numbers that were never seen.

What this does not do: where what is right is a word, the same for all inputs, such as the type of a
result, it can be guessed. Those checks are the few that look at types and shapes.
"""

import ast
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from autograde.feedback import BEGIN
from autograde.hidden import hidden_seed
from autograde.record import record
from autograde.sandbox import MOST_OUT, Limits, NoWalls, missing
from autograde.sandbox import run as run_walled
from autograde.sources import SourceError, notebooks, read, task_of
from tinylm.checks import gap
from tinylm.checks.tables import FUNCTIONS
from tinylm.files import replacing
from tinylm.labfile import TEMPLATE

HERE = Path(__file__).parent
WORKER = HERE / "second_worker.py"
MADE_FROM = [HERE / "record.py", HERE / "fixtures.py", HERE / "reference" / "lab.py",
             *sorted((HERE / "mistakes").glob("*.py")),
             *sorted((TEMPLATE.parent / "checks").glob("*.py"))]
DRAWS = 5                    # seeds to try, of which one may hide a mistake
CELL, NOTEBOOK = 30, 300     # seconds that a cell, or a check, and a notebook may take
DEATHS = 5                   # processes that a notebook may end
MOST = MOST_OUT // 6         # bytes that a notebook may tell
START = 60                   # seconds to import torch on a slow machine


def second_opinion(notebooks, walls=True):
    """Whether the functions of a submission are right on numbers that nobody has seen.

    Args:
        notebooks: {name, as "03-k3-kl": notebook}, with the learner's cells, and with the marks of
            nbgrader on the test cells, which are not run. Other names are passed over.
        walls: False runs the cells with this user's own rights.

    Returns {(task, check): verdict} for all checks of these tasks. What a function does when the
    first test cell comes, or at the end, counts as right if it is right at one of the two. A
    verdict is None only where there are no walls to run it behind.
    """
    plans = [_plan(task, notebooks[name]) for name, task in _tasks().items() if name in notebooks]
    keys = [(plan["task"], name) for plan in plans for name in plan["checks"]]
    if not keys or walls and missing():
        return dict.fromkeys(keys)
    told = _told(plans, _walled if walls else _unwalled)
    if told is None:
        return dict.fromkeys(keys)
    return dict.fromkeys(keys, False) | {
        (task, name): True for task, name, behaviours in told
        if (task, name) in keys and _is_right(behaviours, _cases(task, name))}


@cache
def _tasks():
    return {path.stem: task_of(read(path)) for path in notebooks()}


# ------------------------------------------------------------ what is asked

def _plan(task, notebook):
    """What the worker gets to know of one notebook: the cells, and inputs without answers."""
    steps, asked = [], False
    for cell in notebook.cells:
        if _is_test(cell):
            steps += [] if asked else [None]
            asked = True
        elif cell.cell_type == "code" and not _only_shows(cell.source):
            steps.append(cell.source)
    unanswered = {name: [{key: value for key, value in case.items()
                          if key not in ("right", "mistakes")} for case in entry["cases"]]
                  for name, entry in tables()[str(task)]["checks"].items()}
    return {"task": task, "function": FUNCTIONS[task - 1], "steps": [*steps, None],
            "checks": unanswered}


def _is_test(cell):
    mark = cell.metadata.get("nbgrader")
    marked = isinstance(mark, dict) and mark.get("grade") and not mark.get("solution")
    return cell.cell_type == "code" and bool(marked or BEGIN in cell.source)


def _only_shows(source):
    """Whether a cell is nothing but a picture of the course, as widgets.answers()."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
               and isinstance(node.value.func, ast.Attribute)
               and isinstance(node.value.func.value, ast.Name)
               and node.value.func.value.id == "widgets" for node in body)


# ------------------------------------------------------------ how it is run

def _told(plans, run):
    """[(task, check, behaviours)], none of it checked; None if it cannot be run at all.

    Mostly all notebooks share one process. When it ends before its time, the notebook that it was
    at is given up, and the others are run in a new one.
    """
    together = sys.platform == "linux"           # elsewhere the worker cannot keep them apart
    waiting = [plans] if together else [[plan] for plan in plans]
    found, deadline = [], time.monotonic() + START + NOTEBOOK * len(plans)
    while waiting:
        batch = waiting.pop(0)
        seconds = int(min(START + NOTEBOOK * len(batch), deadline - time.monotonic()))
        if seconds <= 0:
            break
        try:
            lines = _lines(run(_given(batch), seconds))
        except NoWalls:
            return None
        found += [line[1:] for line in lines if line[0] == "found" and len(line) == 4]
        done = [line[1] for line in lines if line[0] == "done"]
        rest = [plan for plan in batch if plan["task"] not in done][1:]
        waiting += [rest] if rest else []
    return found


def _given(plans):
    limits = {"cell": CELL, "notebook": NOTEBOOK, "deaths": DEATHS, "most": MOST}
    return json.dumps({**limits, "notebooks": plans}).encode()


def _files():
    return {WORKER.name: WORKER.read_bytes(), "lab.py": (TEMPLATE / "lab.py").read_bytes()}


def _walled(given, seconds):
    environment = {"NBGRADER_EXECUTION": "autograde"}        # `keep` then writes nothing
    return run_walled([sys.executable, WORKER.name], given, files=_files(),
                      environment=environment, limits=Limits(seconds=seconds)).out


def _unwalled(given, seconds):
    with tempfile.TemporaryDirectory(prefix="second-") as folder, tempfile.TemporaryFile() as said:
        for name, data in _files().items():
            Path(folder, name).write_bytes(data)
        environment = os.environ | {
            "NBGRADER_EXECUTION": "autograde", "IPYTHONDIR": folder, "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(
                [str(TEMPLATE.parents[1]), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}
        process = subprocess.Popen([sys.executable, WORKER.name], cwd=folder, env=environment,
                                   stdin=subprocess.PIPE, stdout=said, stderr=subprocess.DEVNULL)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(given, timeout=seconds)
        process.kill()
        process.wait()
        said.seek(0)
        return said.read(MOST_OUT)


# ------------------------------------------------------------ what comes back

def _lines(out):
    """The lines that are lists and begin with a word; other text is not for us."""
    lines = []
    for line in out.split(b"\n"):
        with suppress(ValueError, RecursionError):
            what = json.loads(line)
            if isinstance(what, list) and len(what) >= 2 and isinstance(what[0], str):
                lines.append(what)
    return [line for line in lines if type(line[1]) is int]


def _cases(task, name):
    return tables()[str(task)]["checks"][name]["cases"]


def _is_right(behaviours, cases):
    """Whether what was told is what the reference does. Anything may have been told."""
    return (isinstance(behaviours, list) and len(behaviours) == len(cases)
            and all(isinstance(behaviour, dict) and gap({"called": [], **behaviour}, case) is None
                    for behaviour, case in zip(behaviours, cases, strict=True)))


# ------------------------------------------------------------ the numbers

@cache
def tables():
    """{"1": table, ..., "5": table} on the numbers of the second opinion.

    They follow from the seed of the hidden tables and are other ones. To record them takes ten
    seconds, so they are kept in a file that is made anew when anything behind it changes.
    """
    seed = hidden_seed()
    state = hashlib.sha256(repr(seed).encode())
    for path in MADE_FROM:
        state.update(path.read_bytes())
    file = _folder() / f"second-{state.hexdigest()[:24]}.json"
    with suppress(OSError, ValueError):
        return json.loads(file.read_text(encoding="utf-8"))
    text = json.dumps({str(task): _recorded(task, seed) for task in range(1, 6)})
    with suppress(OSError):                      # then the next process records them again
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(file) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return json.loads(text)


def _folder():
    """Where this user's programs keep what they can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tinylm-grpo"


def _recorded(task, seed):
    for draw in range(DRAWS):
        digest = hashlib.sha256(f"second opinion {seed} {draw}".encode()).digest()
        try:
            return record(task, int.from_bytes(digest[:6], "big"))
        except ValueError as error:              # these numbers would miss a mistake
            reason = error
    raise SourceError(str(reason))
