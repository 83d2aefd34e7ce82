"""For all tests: `needs("chromium")` skips where a program is missing, but never under CI=true."""

import functools
import os
import subprocess

# Tensors here are tiny: a second thread gains nothing, and waits for a core on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

# A shared machine may stall at any moment; no example is wrong for being slow.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# A call of each that exits with 0 where the program can be used: bwrap may be installed and yet be
# forbidden to make a sandbox.
PROGRAMS = {
    "bwrap": ["bwrap", "--ro-bind", "/", "/", "--unshare-all", "true"],
    "chromium": ["chromium", "--version"],
}


@functools.cache
def runs(program):
    """Whether the program is installed and a call of it succeeds."""
    try:
        return subprocess.run(PROGRAMS[program], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def pytest_runtest_setup(item):
    for mark in item.iter_markers("needs"):
        (program,) = mark.args
        if runs(program):
            continue
        sentence = f"{program} is not installed, or does not run here; .ci/run installs it as root"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{sentence}. Under CI=true no test may skip for that.", pytrace=False)
        pytest.skip(sentence)
