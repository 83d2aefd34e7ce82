"""The recorded numbers behind the pictures: made anew from the reference, and compared."""

import json

import pytest
import torch

from autograde import pictures
from autograde.__main__ import main
from tinylm import plots


def close(value, other, tolerance):
    """Whether two records say the same, numbers within the tolerance."""
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(
            close(value[key], other[key], tolerance) for key in value)
    if isinstance(value, list | tuple):
        return len(value) == len(other) and all(
            close(*pair, tolerance) for pair in zip(value, other, strict=True))
    if isinstance(value, str):
        return value == other
    return value == pytest.approx(other, abs=tolerance)


def test_the_estimators_are_those_of_the_reference():
    assert close(pictures.estimators(), plots.recorded("estimators"), 2e-5)


def test_the_step_is_that_of_the_reference_on_the_recorded_answers():
    """Which answers are sampled may differ between processors; what becomes of them may not."""
    record = plots.recorded("step")
    out = {"ids": torch.tensor(record["ids"]), "prompt_len": record["prompt_len"],
           "mask": torch.tensor(record["mask"], dtype=torch.float32)}
    assert close(pictures.walk(out), record, 2e-3)


def test_another_mask_or_answer_is_another_step():
    record = plots.recorded("step")
    out = {"ids": torch.tensor(record["ids"]), "prompt_len": record["prompt_len"],
           "mask": torch.tensor(record["mask"], dtype=torch.float32)}
    out["ids"][0, record["prompt_len"]] = out["ids"][1, record["prompt_len"]]
    assert not close(pictures.walk(out), record, 2e-3)


def test_recording_writes_a_whole_file_and_leaves_the_random_state_alone(tmp_path, monkeypatch,
                                                                         capsys):
    file = tmp_path / "pictures.json"
    monkeypatch.setattr(pictures, "FILE", file)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    assert main(["pictures"]) == 0 and str(file) in capsys.readouterr().out
    assert torch.equal(before, torch.get_rng_state())
    table = json.loads(file.read_text(encoding="utf-8"))
    assert set(table) == set(plots.RECORDED) and list(tmp_path.iterdir()) == [file]
    assert len(table["step"]["ids"]) == pictures.G * len(pictures.PROMPTS)
    assert file.stat().st_size < 200_000
