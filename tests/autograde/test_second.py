"""The second opinion: learners' functions behind walls, on other numbers, compared outside."""

import copy

import pytest

from autograde import sources
from autograde.mistakes import all_mistakes
from autograde.second import second_opinion, tables
from tinylm.checks import checks_of
from tinylm.labfile import TASKS

pytestmark = pytest.mark.needs("bwrap")
TRICK = """
import tinylm.checks
from tinylm.checks import compare
class Equal:
    def __eq__(self, other): return True
    def __getattr__(self, name): return self
def k3_kl(logp, ref_logp): return Equal()
compare.difference = lambda *_: None
tinylm.checks.difference = lambda *_: None
import os
for descriptor in range(3, 20):
    try: os.write(descriptor, b'["found", 3, "values", [{}, {}, {}]]\\n')
    except OSError: pass
"""


@pytest.fixture
def right():
    """The five source notebooks, as if a learner had handed them in."""
    return {path.stem: copy.deepcopy(sources.read(path)) for path in sources.notebooks()}


def wrong(verdicts, task):
    return {name for (number, name), verdict in verdicts.items() if number == task and not verdict}


def test_all_of_the_reference_is_right(right):
    verdicts = second_opinion(right)
    assert set(verdicts) == {(task, name) for task, function in enumerate(TASKS, 1)
                             for name in checks_of(function)}
    assert set(verdicts.values()) == {True}


def test_an_exit_and_a_mistake_cost_their_own_task(right):
    sources.cell(right["02-group-advantages"], "solution").source = "import os\nos._exit(1)"
    k1 = next(one for one in all_mistakes() if one.name == "k1")
    sources.cell(right["03-k3-kl"], "solution").source = k1.source()
    verdicts = second_opinion(right)
    assert wrong(verdicts, 2) == set(checks_of("group_advantages"))
    assert {"values", "nonnegative"} <= wrong(verdicts, 3) < set(checks_of("k3_kl"))
    assert all(not wrong(verdicts, task) for task in (1, 4, 5))


def test_who_fools_the_comparer_and_forges_lines_gets_nothing(right):
    notebook = right["03-k3-kl"]
    sources.cell(notebook, "solution").source = TRICK
    assert wrong(second_opinion({"03-k3-kl": notebook}), 3) >= {"values", "direction", "gradient"}


def test_an_endless_loop_ends_and_what_is_defined_after_it_counts(right, monkeypatch):
    monkeypatch.setattr("autograde.second.CELL", 3)
    notebook = right["03-k3-kl"]
    sources.cell(notebook, "setup").source += "\nwhile True: pass"
    assert not wrong(second_opinion({"03-k3-kl": notebook}), 3)


def test_the_numbers_are_neither_the_visible_nor_the_hidden_ones():
    from autograde.hidden import hidden

    for task in (2, 3, 4):
        others = tables()[str(task)]["checks"]
        for name, entry in hidden(task)["checks"].items():
            assert [case["inputs"] for case in entry["cases"]] != [
                case["inputs"] for case in others[name]["cases"]]
