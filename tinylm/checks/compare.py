"""One comparer for plain data: numbers, strings, lists and dicts, as `behaviour` records them.

What a learner's function does, what the right one does and what a known mistake does are all
compared here and nowhere else. Only plain data comes in, so nothing of a learner's own objects has
a say in the result.
"""

import math
from dataclasses import dataclass

ATOL, RTOL = 1e-6, 1e-5      # float64 leaves 1e-12; a part computed in float32 is right as well

ABSENT = {"absent": True}    # stands for what was expected and is not there


@dataclass(frozen=True)
class Difference:
    """Where found and expected part.

    Attributes:
        path: keys and indices from the root.
        found, expected: what stands there; found is ABSENT where nothing does.
        size: how far apart, in tolerances; infinite where it is not a matter of degree.
    """

    path: tuple
    found: object
    expected: object
    size: float = math.inf


def tolerance(case):
    """(atol, rtol) of a case of a table: its own, or the usual ones."""
    return case.get("atol", ATOL), case.get("rtol", RTOL)


def difference(found, expected, atol=ATOL, rtol=RTOL):
    """The first Difference between two pieces of plain data, or None.

    Keys that are found but not expected are no difference. Numbers are equal when they are at most
    atol + rtol * |expected| apart; NaN equals NaN.
    """
    return next(differences(found, expected, atol, rtol), None)


def differences(found, expected, atol=ATOL, rtol=RTOL, path=()):
    """All of them, in order."""
    if type(found) is not type(expected):
        yield Difference(path, found, expected)
    elif isinstance(expected, dict):
        for key, value in expected.items():
            yield from differences(found.get(key, ABSENT), value, atol, rtol, (*path, key))
    elif isinstance(expected, list):
        if len(found) != len(expected):
            yield Difference(path, found, expected)
            return
        for i, (mine, other) in enumerate(zip(found, expected, strict=True)):
            yield from differences(mine, other, atol, rtol, (*path, i))
    elif isinstance(expected, float):
        size = _distance(found, expected, atol, rtol)
        if size > 1:
            yield Difference(path, found, expected, size)
    elif found != expected:
        yield Difference(path, found, expected)


def _distance(found, expected, atol, rtol):
    if found == expected or math.isnan(found) and math.isnan(expected):
        return 0.0
    if not (math.isfinite(found) and math.isfinite(expected)):
        return math.inf
    return abs(found - expected) / (atol + rtol * abs(expected))
