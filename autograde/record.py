"""Recording the check tables: what is right, and what each known mistake does.

    python -m autograde.record

draws the fixtures, runs the reference solution and all of `autograde.mistakes` on them, and writes
the tables that tinylm carries. `record(task, seed)` with another seed makes a table for hidden
cells. Nothing is recorded from a learner's code, and nothing here is needed to run a check.
"""

import inspect
import json
import math
import random

from autograde.fixtures import FIXTURES
from autograde.mistakes import all_mistakes
from autograde.reference import lab as reference
from tinylm.checks import run
from tinylm.checks.compare import ABSENT, difference, differences, tolerance
from tinylm.checks.tables import FOLDER, FUNCTIONS
from tinylm.files import replacing

SEED = 0                     # of the tables that learners have
DRAWS = 10                   # tries to draw numbers in which every mistake shows
SIGNAL = 100                 # so many tolerances a mistake must be away in the checks that teach it


def main():
    """Record the five tables of tinylm."""
    for task in range(1, 1 + len(FUNCTIONS)):
        file = FOLDER / f"task{task}.json"
        text = text_of(record(task, SEED)) + "\n"
        with replacing(file) as temporary:
            temporary.write_text(text, encoding="utf-8")
        print(f"{file.name}: {len(text) / 1000:.0f} kB")


def record(task, seed):
    """The table of a task, 1 to 5, as a dict of plain data; the same seed gives the same table.

    Raises ValueError for a check that cannot show a mistake that it is to catch.
    """
    function = FUNCTIONS[task - 1]
    mistakes = [mistake for mistake in all_mistakes() if mistake.task == task]
    checks = {name: _check(function, name, mistakes, seed) for name in FIXTURES[function]}
    known = {mistake.name: {"says": mistake.says, "read": mistake.read}
             for mistake in mistakes if mistake.named}
    return {"task": task, "function": function, "mistakes": known, "checks": checks}


def _check(function, name, mistakes, seed):
    """The first draw of a check that shows all mistakes that it is to catch, SIGNAL from right."""
    fixture, right = FIXTURES[function][name], getattr(reference, function)
    looks_at, read = (" ".join(part.split()) for part in inspect.getdoc(fixture).split("\n\n"))
    for draw in range(DRAWS):
        cases = fixture(random.Random(f"{function} {name} {seed} {draw}"))
        check = {"looks_at": looks_at, "read": read,
                 "cases": [_recorded(case, right, mistakes) for case in cases]}
        unseen = [mistake.name for mistake in mistakes
                  if name in mistake.caught_by and effect(mistake.function, check) < SIGNAL]
        if not unseen:
            return check
    raise ValueError(f"{DRAWS} draws of the check {name} of {function} do not show "
                     f"{', '.join(unseen)}: its fixture hides them, or they are not its business.")


def effect(fn, check):
    """How far a function is from what is right, in tolerances, in the case that shows it best."""
    return max(min(max((gap.size for gap in differences(run(fn, case), right, *tolerance(case))),
                       default=0.0) for right in case["right"]) for case in check["cases"])


def _recorded(case, right, mistakes):
    """The case with what is right, and with the mistakes that show in it."""
    accepted = [{key: value for key, value in behaviour.items() if key not in case.get("hints", ())}
                for behaviour in _behaviours(right, case)]
    wrong = {}
    for mistake in mistakes:
        found = [{**{key: ABSENT for key in accepted[0] if "raised" not in behaviour}, **behaviour}
                 for behaviour in _behaviours(mistake.function, case)]
        if not all(any(difference(behaviour, other, *tolerance(case)) is None for other in accepted)
                   for behaviour in found):
            wrong[mistake.name] = found
    return {**case, "right": accepted, "mistakes": wrong}


def _behaviours(fn, case):
    """What a function does in a case, with the stand-in for k3_kl and with the formula written out.

    A grpo_loss may call k3_kl or not; each way is right, and each is wrong in the same way.
    """
    cases = [case]
    if case.get("replace") == ["k3_kl"]:
        cases.append({**case, "replace": []})
    found = [_seen(run(fn, case), _decimals(case)) for case in cases]
    return found[:1] if found[0] == found[-1] else found


def _seen(behaviour, decimals):
    """What observers saw, or the type of the error: the part of a behaviour that is compared."""
    if "raised" in behaviour:
        return {"raised": {"type": behaviour["raised"]["type"]}}
    return {key: _rounded(value, decimals) for key, value in behaviour.items()
            if key not in ("returned", "printed", "called")}


def _decimals(case):
    """So many decimals are recorded: those that count in this case, or twelve."""
    return math.ceil(-math.log10(case["atol"])) if "atol" in case else 12


def _rounded(value, decimals):
    """Numbers to ten digits at most, since the last ones differ between processors."""
    if isinstance(value, list):
        return [_rounded(item, decimals) for item in value]
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{round(value, decimals):.10g}") + 0.0             # + 0.0: no -0.0
    return value


def text_of(value, indent=0):
    """JSON, a line for each entry of a dict and for each list of numbers or strings."""
    inner, outer = "\n" + " " * (indent + 1), "\n" + " " * indent
    if isinstance(value, dict) and value:
        entries = [f"{json.dumps(key)}: {text_of(item, indent + 1)}" for key, item in value.items()]
        return "{" + ",".join(inner + entry for entry in entries) + outer + "}"
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return "[" + ",".join(inner + text_of(item, indent + 1) for item in value) + outer + "]"
    return json.dumps(value)


if __name__ == "__main__":
    main()
