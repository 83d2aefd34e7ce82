"""Hidden tables: the checks of the graded notebooks on numbers that learners do not see.

In a source notebook a hidden cell says `check(k3_kl, "values", table=hidden(3))`. Before nbgrader
saves the cell in its gradebook, `inline` puts the table itself in the place of that call.

The tables follow from a seed. It stands in `instructor.toml` beside this module, which git ignores:

    hidden_seed = 271828182845

Without that file DEFAULT_SEED is taken, which everybody can read here.
"""

import tomllib
from functools import cache
from pathlib import Path

from autograde.record import record
from autograde.sources import SourceError

DEFAULT_SEED = 15
INSTRUCTOR = Path(__file__).with_name("instructor.toml")


def hidden_seed():
    """The seed of the hidden tables. Raises SourceError for a file that does not give one."""
    if not INSTRUCTOR.exists():
        return DEFAULT_SEED
    try:
        seed = tomllib.loads(INSTRUCTOR.read_text(encoding="utf-8"))["hidden_seed"]
    except (OSError, ValueError, KeyError) as error:
        raise SourceError(f"{INSTRUCTOR.name} gives no seed ({error!r}); it needs a line such as "
                          "hidden_seed = 271828182845.") from None
    if type(seed) is not int or seed < 0:
        raise SourceError(f"hidden_seed in {INSTRUCTOR.name} is {seed!r}; expected a whole number, "
                          "0 or more.")
    return seed


def hidden(task):
    """The hidden table of a task, 1 to 5."""
    return _recorded(task, hidden_seed())


@cache
def _recorded(task, seed):
    try:
        return record(task, seed)
    except ValueError as error:          # fixtures of this seed that would miss a mistake
        raise SourceError(str(error)) from None
