"""What `second` runs behind walls: a learner's notebooks, and their functions on other numbers.

It reads a plan from stdin and writes a line of JSON for each finished check: what the function did,
as plain data. It knows inputs and no answers, judges nothing, and imports nothing of the
instructor's: behind walls there is nothing of it. A plan is

    {"cell": seconds, "notebook": seconds, "deaths": count, "most": bytes,
     "notebooks": [{"task": 3, "function": "k3_kl", "steps": [source or null],
                    "checks": {name: [case]}}]}

and where a step is null, the checks are run on the function as it is then. Each notebook has a
process of its own, forked once torch is there: what it changes ends with it, and a cell or a check
that ends its process is left out when the notebook is run again. Where there is no such fork the
notebooks are run right here, so a plan should then hold only one.
"""

import inspect
import json
import os
import select
import signal
import sys
import time
from contextlib import suppress

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from tinylm import widgets  # noqa: F401  the setup cells import it; here it is imported once
from tinylm.checks import run

GRACE = 5                    # seconds between asking a process to stop and ending it
LOOK = 0.1                   # seconds between two looks at it
FILE = 64 << 20              # bytes that a file may have, walls or not


def main():
    plan = json.load(sys.stdin)
    said = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    for notebook in plan["notebooks"]:
        task = notebook["task"]
        if sys.platform == "linux":
            _supervise(notebook, plan, said)
        else:
            _learner(notebook, set(), lambda *told, task=task: _relay(told, task, said))
        _say(said, "done", task)


def _say(descriptor, *what):
    data = json.dumps(what).encode() + b"\n"
    while data:
        data = data[os.write(descriptor, data):]


def _relay(told, task, said):
    """Pass a finished check on, with its task."""
    if told[0] == "found":
        _say(said, "found", task, *told[1:])


# ------------------------------------------------------------ beside the learner's process

def _supervise(notebook, plan, said):
    """Run a notebook in processes, each without the steps at which those before it ended."""
    deadline, left = time.monotonic() + plan["notebook"], plan["most"]
    skipped = set()
    for _ in range(1 + plan["deaths"]):
        child = _Child(notebook, skipped, plan, said)
        child.follow(deadline, left)
        left -= child.told
        if child.at is None or left <= 0 or time.monotonic() > deadline:
            return
        skipped |= {child.at, *child.found}


class _Child:
    """The process of one notebook. Whatever it tells may be made up.

    Attributes:
        at: the step that it is in; None once it has come to its end.
        found: the checks that it has finished.
        told: how many bytes it told.
    """

    def __init__(self, notebook, skipped, plan, said):
        self.task, self.patience, self.said = notebook["task"], plan["cell"], said
        self.at, self.found, self.told, self.begun = "start", set(), 0, time.monotonic()
        self.reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                os.close(said)
                os.close(self.reader)
                _learner(notebook, skipped, lambda *what: _say(writer, *what))
            finally:
                os._exit(0)
        os.close(writer)

    def follow(self, deadline, most):
        """Listen until it ends, stops making progress, or has told or taken too much."""
        unread, asked = b"", False
        try:
            while self.at is not None and self.told <= most and time.monotonic() < deadline:
                ended = not select.select([self.reader], [], [], LOOK)[0] and self._has_ended()
                chunk = b"" if ended else self._read()
                if chunk == b"":
                    return
                self.told += len(chunk or b"")
                *lines, unread = (unread + (chunk or b"")).split(b"\n")
                asked = asked and not lines
                for line in lines:
                    self._hear(line)
                over = time.monotonic() - self.begun - self.patience
                if over > GRACE:
                    return
                if over > 0 and not asked:
                    os.kill(self.pid, signal.SIGINT)
                    asked = True
        finally:
            self._end()

    def _read(self):
        """What there is to read: None if nothing yet, no bytes if nothing more will come."""
        ready = select.select([self.reader], [], [], 0)[0]
        return os.read(self.reader, 1 << 16) if ready else None

    def _has_ended(self):
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _hear(self, line):
        try:
            what, key, *rest = json.loads(line)
        except (ValueError, TypeError, RecursionError):
            return
        self.begun = time.monotonic()
        if what == "found" and len(rest) == 2:
            self.found.add(str(key))
            with suppress(ValueError, RecursionError):
                _say(self.said, "found", self.task, *rest)
        else:
            self.at = str(key) if what == "at" else None

    def _end(self):
        with suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.reader)


# ------------------------------------------------------------ the learner's process

def _learner(notebook, skipped, tell):
    """Run the steps of a notebook, as a kernel would; tell where it is, and what was found."""
    shell, last = _shell(), None
    for number, source in enumerate(notebook["steps"]):
        if source is None:
            fn = shell.user_ns.get(notebook["function"])
            if fn is not last:
                _run_checks(fn, notebook, number, skipped, tell)
            last = fn
        elif str(number) not in skipped:
            tell("at", str(number))
            with suppress(BaseException):        # a cell may fail as it likes
                shell.run_cell(source, store_history=False)
    tell("end", "")


def _shell():
    settings = Config()
    settings.HistoryManager.enabled = False
    settings.InteractiveShell.banner1 = ""
    return InteractiveShell.instance(config=settings)


def _run_checks(fn, notebook, number, skipped, tell):
    if not _is_called(fn, notebook["function"]):
        return
    for name, cases in notebook["checks"].items():
        key = f"{number} {name}"
        if key not in skipped:
            tell("at", key)
            with suppress(BaseException):        # among others: what JSON cannot say
                tell("found", key, name, [run(fn, case) for case in cases])


def _is_called(fn, name):
    """Whether it is a function of this name, as `tinylm.checks.judge` wants it."""
    try:
        return inspect.isfunction(inspect.unwrap(fn)) and fn.__name__ == name
    except Exception:
        return False


def _limit_files():
    """Bound what is written without walls as well, where the system can."""
    with suppress(ImportError, ValueError, OSError):
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))


if __name__ == "__main__":
    _limit_files()
    main()
