"""The tests of lab.py: `python -m pytest -q -k task1` runs those of Task 1, without -k all five."""

from pathlib import Path

import pytest

from tinylm.labfile import TASKS, kept

LAB = Path(__file__).with_name("lab.py")


@pytest.mark.parametrize("name", [pytest.param(name, id=f"task{number}-{name}")
                                  for number, name in enumerate(TASKS, 1)])
def test_is_written(name):
    assert name in kept(LAB), f"{name} in {LAB.name} is still the stub"
