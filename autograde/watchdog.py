"""A thread that ends a sandbox which takes more than its limits.

rlimits bound each process; this looks at all of them together, five times a second: wall clock,
memory, how many there are, how many files they made. It reads /proc and talks to nobody, so what
the program prints or ignores does not matter. Between two looks a program may take more.
"""

import os
import threading
import time
from pathlib import Path

PERIOD = 0.2                 # seconds
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Watchdog(threading.Thread):
    """Watches from `start()` to `stop()`.

    Attributes:
        reason: a sentence once the sandbox had to be ended, else None.
        deadline: on the clock time.monotonic(), when it has to end.
    """

    def __init__(self, child, places, limits, end):
        """Watch a sandbox.

        Args:
            child: the pid from which all its processes come.
            places: folders whose file systems are its own.
            limits: a `sandbox.Limits`.
            end: called without arguments, from the thread, to end it.
        """
        super().__init__(daemon=True, name="watchdog")
        self.child, self.places, self.limits, self.end = child, places, limits, end
        self.deadline = time.monotonic() + limits.seconds
        self.reason = None
        self._stopped = threading.Event()

    def stop(self):
        self._stopped.set()

    def run(self):
        while not self._stopped.wait(PERIOD):
            try:
                self.reason = self._too_much()
            except Exception as error:           # nobody must go on unwatched
                self.reason = f"It could not be watched any more ({error!r})."
            if self.reason:
                self.end()
                return

    def _too_much(self):
        """What there is too much of, in a sentence, or None."""
        limits, processes = self.limits, _below(self.child)
        if time.monotonic() > self.deadline:
            return "It took more time than it has."
        if len(processes) > limits.processes:
            return f"It started more than {limits.processes} processes."
        if _resident(processes) > limits.together and _shares(processes) > limits.together:
            return f"Its processes took more than {limits.together >> 20} MB of memory together."
        if sum(map(_names, self.places)) > limits.names:
            return f"It made more than {limits.names} files."
        return None


def _below(pid):
    """The pids of a process and of all that it started, and that these started."""
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        for task in _listed(f"/proc/{one}/task"):
            waiting += map(int, _text(f"/proc/{one}/task/{task}/children").split())
    return found


def _resident(processes):
    """Bytes of memory; what processes share is counted for each."""
    sizes = (_text(f"/proc/{pid}/statm").split() for pid in processes)
    return sum(int(size[1]) * PAGE for size in sizes if size)


def _shares(processes):
    """Bytes of memory; of what is shared each process counts its share. Takes its time."""
    total = 0
    for pid in processes:
        lines = _text(f"/proc/{pid}/smaps_rollup").splitlines()
        share = next((line for line in lines if line.startswith("Pss:")), None)
        total += int(share.split()[1]) << 10 if share else _resident([pid])
    return total


def _names(folder):
    """How many files and folders the file system of a folder holds."""
    try:
        found = os.statvfs(folder)
    except OSError:                              # the sandbox has ended
        return 0
    return found.f_files - found.f_ffree


def _listed(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _text(path):
    """What a file in /proc says; nothing, if the process has ended."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""
