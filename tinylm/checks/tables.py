"""The check tables: recorded data, one JSON file a task.

    {"task": 2, "function": "group_advantages",
     "mistakes": {name: {"says", "read"}},
     "checks": {name: {"looks_at", "read", "cases": [case]}}}

A case is a dict:
    says        the case in words
    inputs      the arguments in order: plain, {"float64": numbers}, or {"stage": attribute}
    options     arguments by keyword; without them the defaults are at work
    observe     the observers whose sight is compared
    replace     the functions whose places stand-ins take; `script` is what those return
    calls       how often the function is called (once)
    changed     other inputs, for observers that call it once more
    atol, rtol  tolerances, where they are not the usual ones
    axes, rows, labels, changed_row    for the words of a message
    hints       what is observed to tell mistakes apart; it may be anything in what is right
    right       a list of behaviours, of which one must be met
    mistakes    {name: the same of a mistake}, where that is not what is right

The tables here are recorded by `python -m autograde.record`.
"""

import base64
import json
import zlib
from functools import cache
from pathlib import Path

FUNCTIONS = ("sample_group", "group_advantages", "k3_kl", "grpo_loss", "grpo_step")
FOLDER = Path(__file__).parent / "tables"


@cache
def table_of(function):
    """The table of one of the five functions, by name."""
    file = FOLDER / f"task{1 + FUNCTIONS.index(function)}.json"
    return json.loads(file.read_text(encoding="utf-8"))


def pack(table):
    """A table as one line of text, to stand in a notebook cell."""
    text = json.dumps(table, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def unpack(text):
    """The table that `pack` made into text. Raises ValueError for anything else."""
    try:
        return json.loads(zlib.decompress(base64.b64decode(text)))
    except (ValueError, zlib.error) as error:
        raise ValueError(f"this text is not a packed table ({error}); make it with pack.") from None
