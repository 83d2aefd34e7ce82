"""The grader is graded: every known mistake loses points where it is taught, and keeps the rest."""

import pytest

from autograde import caught


@pytest.fixture(scope="module")
def found():
    return caught.measured()


def test_every_mistake_loses_points_in_the_checks_that_teach_it(found):
    missed = {one.mistake.name: set(one.mistake.caught_by) - set(one.lost) for one in found}
    assert {name: checks for name, checks in missed.items() if checks} == {}


def test_no_mistake_is_given_the_name_of_another(found):
    assert {one.mistake.name: one.names for one in found
            if one.names - {one.mistake.name}} == {}


def test_at_least_sixty_are_called_by_their_name(found):
    assert sum(one.is_named for one in found) >= 60


def test_every_row_of_the_list_is_there(found):
    assert {one.mistake.row for one in found} >= set(range(1, 71))


def test_the_committed_table_is_what_the_checks_do(found):
    assert caught.TARGET.read_text(encoding="utf-8") == caught.page(found), (
        "the table is out of date; run: python -m autograde mistakes")


def test_a_mistake_that_no_check_sees_is_counted_as_missed(monkeypatch):
    """The measure itself: with a judge that passes everything nothing is caught."""
    class Passed:
        passed, mistake = True, None

    monkeypatch.setattr(caught, "judge", lambda fn, name: Passed)
    found = caught.measured(caught.all_mistakes()[:2])
    assert caught.summary(found).startswith("2 mistakes: 0 caught, 2 missed; 0 called")
