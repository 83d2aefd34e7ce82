"""The tests of lab.py: `python -m pytest -q -k task1` runs those of Task 1, without -k all five.

They are the checks of the notebooks, one test a check.
"""

from pathlib import Path

import pytest

from tinylm.checks import checks_of, judge
from tinylm.labfile import TASKS, load_lab

LAB = Path(__file__).with_name("lab.py")


@pytest.fixture(scope="module")
def lab():
    return load_lab(LAB)


@pytest.mark.parametrize("name, check", [
    pytest.param(name, check, id=f"task{number}-{name}-{check}")
    for number, name in enumerate(TASKS, 1) for check in checks_of(name)])
def test_lab(lab, name, check):
    verdict = judge(getattr(lab, name, None), check)
    if not verdict.passed:
        pytest.fail(verdict.message, pytrace=False)
