"""What came out of a submission, as it is kept and read again."""

import pytest

from autograde import results
from autograde.results import Answer, Check, Result


def test_a_result_comes_back_as_it_was_kept_and_counts_the_lower_of_two(tmp_path):
    checks = [Check(3, "03-k3-kl", "check-values", "values", False, 1.0, 1.0, 0.0, "right"),
              Check(3, "03-k3-kl", "hidden-values", "values", True, 1.0, 1.0, 1.0, "right"),
              Check(3, "03-k3-kl", "check-shape", "shape", False, 1.0, 1.0, None, "right")]
    answers = [Answer(3, "03-k3-kl", "answer", 2.0), Answer(2, "02", "answer", 2.0, 1.5)]
    kept = Result("ada", status=results.GRADED, checks=checks, answers=answers, review=["Look."])
    results.save(kept, tmp_path)
    back = results.load(tmp_path / "ada.json")
    assert back == kept
    assert (back.automatic, back.by_hand, back.pending, back.score, back.worth) == (2, 1.5, 2, 3.5,
                                                                                    7)
    assert [check.disagrees for check in back.checks] == [True, False, False]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"student": "ada"}'])
def test_a_broken_file_raises_and_gives_no_result(tmp_path, text):
    (tmp_path / "ada.json").write_text(text)
    with pytest.raises((ValueError, TypeError, KeyError)):
        results.load(tmp_path / "ada.json")
