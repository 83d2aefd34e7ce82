"""What a learner is told: a few short lines for a check that is not passed.

Found and expected are shown with as few digits as tell them apart, shapes with the names of their
axes, places with the group or the response they belong to.
"""

from tinylm.checks.compare import ABSENT

SHOWN = 8                    # so many items of a list are shown, and then dots


def not_passed(check, function, case, behaviour, gap, told, note):
    """The message for one case of a check.

    Args:
        check, function: their names.
        case: the case of the table, `behaviour` what the function did in it.
        gap: the first Difference from what is right.
        told: a dict of what to "read" again and, for a known mistake, what it "says".
        note: anything else to say, or "".
    """
    if "raised" in behaviour:
        lines = _raised(function, behaviour["raised"])
    elif behaviour["returned"] == "NoneType":
        lines = {"Found": f"{function} returned nothing (None)",
                 "To do": "end it with a line `return ...`"}
    else:
        lines = _parted(case, gap)
    lines = {"Case": case["says"], **lines, "Mistake": told.get("says", ""),
             "Read again": told["read"], "Note": note}
    return "\n".join([f"{check}: not right yet",
                      *(f"  {label + ':':<12}{line}" for label, line in lines.items() if line)])


def _raised(function, raised):
    if raised["type"] == "NotImplementedError" and raised["says"].startswith("Task "):
        return {"Found": f"{function} is still the stub",
                "To do": "write it, under this name, in the place of the line "
                         "`raise NotImplementedError(...)`; run its cell, then this one"}
    lines = {"Found": f"{function} stopped with {raised['type']}: {raised['says']}"}
    return {**lines, "Stopped in": raised["where"]} if raised["where"] else lines


def _parted(case, gap):
    """Where found and expected part first."""
    what, *place = gap.path
    where = f", at {place}{_belongs(case, what, place)}" if place else ""
    found, expected = _apart(gap.found, gap.expected)
    if what.startswith("the shape of"):
        expected = f"{case['axes']} = {expected}" if "axes" in case else expected
    return {"Looked at": what + where, "Found": found, "Expected": expected}


def _belongs(case, what, place):
    """The group of a row, or what a pair of indices counts."""
    if len(place) == 2:
        names = ("step", "parameter") if "opt.step" in what else ("response", "token")
        return f" ({names[0]} {place[0]}, {names[1]} {place[1]})"
    if "labels" in case:
        return f" ({case['labels'][place[0]]})"
    if "rows" in case and not what.endswith("of a group"):
        return f" (group {place[0] // case['inputs']['G']})"
    return ""


def _apart(found, expected):
    """Both as text, numbers with so many digits that they differ."""
    texts = ("", "")
    for digits in range(4, 17):
        texts = _shown(found, digits), _shown(expected, digits)
        if texts[0] != texts[1]:
            break
    return texts


def _shown(value, digits):
    if value is ABSENT:
        return "nothing: it is missing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value + 0.0:.{digits}g}"               # + 0.0 takes the sign from -0.0
    if isinstance(value, list):
        items = [_shown(item, digits) for item in value[:SHOWN]]
        dots = [f"... {len(value)} in all"] if len(value) > SHOWN else []
        return "[" + ", ".join(items + dots) + "]"
    return str(value)[:200] or '""'
