"""The checkpoint: what ships, what is trained anew, and what a broken file leads to."""

import multiprocessing
import os

import pytest
import torch

import tinylm
from tinylm import sft
from tinylm.addition import HELD_OUT
from tinylm.sft import CheckpointError, SFTRecipe, load, load_or_train_sft, train_sft

QUICK = SFTRecipe(steps=2, batch=4)


@pytest.fixture
def quick(monkeypatch):
    """A recipe of two steps in place of the real one."""
    monkeypatch.setattr(sft, "RECIPE", QUICK)
    monkeypatch.setattr(sft.train_sft.__wrapped__, "__defaults__", (QUICK, None))


def weights(policy):
    return torch.cat([p.detach().flatten() for p in policy.parameters()])


def test_training_the_recipe_anew_gives_the_shipped_policy_s_accuracies():
    shipped, anew = load_or_train_sft(), train_sft()
    for greedy in (False, True):
        assert tinylm.accuracy(anew, n=HELD_OUT, greedy=greedy) == pytest.approx(
            tinylm.accuracy(shipped, n=HELD_OUT, greedy=greedy), abs=0.12)


def test_the_start_leaves_room_to_learn():
    assert 0.20 <= tinylm.accuracy(load_or_train_sft()) <= 0.45


def test_a_path_with_nothing_there_is_trained_once_and_cached(quick, tmp_path):
    path = tmp_path / "new" / "policy.pt"
    first = load_or_train_sft(path)
    stamp = path.stat().st_mtime_ns
    assert torch.equal(weights(first), weights(load_or_train_sft(path)))
    assert path.stat().st_mtime_ns == stamp and os.listdir(path.parent) == ["policy.pt"]


@pytest.mark.parametrize("kind", [
    "truncated", "empty", "text", "pickle", "other recipe", "weights"])
def test_a_file_that_is_no_checkpoint_is_named_and_replaced(quick, tmp_path, capsys, kind):
    path = tmp_path / "policy.pt"
    good = load_or_train_sft(path)
    if kind == "truncated":
        path.write_bytes(path.read_bytes()[:1000])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("not a model")
    elif kind == "pickle":
        torch.save(Evil(tmp_path / "touched"), path)
    else:
        saved = torch.load(path, weights_only=True)
        if kind == "weights":
            saved["weights"].popitem()
        else:
            saved["recipe"]["steps"] += 1
        torch.save(saved, path)
    with pytest.raises(CheckpointError, match=str(path)):
        load(path)
    assert torch.equal(weights(load_or_train_sft(path)), weights(good))
    assert str(path) in capsys.readouterr().out
    assert torch.equal(weights(load(path)), weights(good))
    assert not (tmp_path / "touched").exists()


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_broken_shipped_file_is_replaced_in_the_user_s_cache(
        quick, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sft, "shipped_path", lambda: tmp_path / "gone.pt")
    monkeypatch.setattr(sft, "user_cache_path", lambda name: tmp_path / "cache")
    load_or_train_sft()
    assert (tmp_path / "cache" / sft.FILE_NAME).exists() and not (tmp_path / "gone.pt").exists()
    assert "gone.pt" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_said_before_training(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(sft, "train_sft", lambda: pytest.fail("trained first"))
    with pytest.raises(PermissionError, match="cannot be written"):
        load_or_train_sft(tmp_path / "file" / "policy.pt")


def test_two_processes_that_train_at_once_both_get_a_whole_policy(tmp_path):
    path = tmp_path / "policy.pt"
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        results = pool.map(_train_in_a_process, [str(path)] * 4, chunksize=1)
    assert len(set(results)) == 1 and os.listdir(tmp_path) == ["policy.pt"]


def _train_in_a_process(path):
    torch.set_num_threads(1)
    sft.RECIPE = QUICK
    sft.train_sft.__wrapped__.__defaults__ = (QUICK, None)
    return float(weights(load_or_train_sft(path)).double().sum())


def test_training_is_repeatable_and_leaves_the_global_random_state_alone():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = weights(train_sft(QUICK))
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    assert torch.equal(first, weights(train_sft(QUICK)))


def test_the_sloppy_teacher_gets_the_carry_wrong_and_nothing_else():
    assert [sft.sloppy_answer(a, b) for a, b in [(37, 48), (31, 48), (5, 5), (0, 0)]] == [
        "75", "89", "0", "10"]
    right, wrong, prompt_len = sft.taught_sequences()
    assert right.shape == wrong.shape and prompt_len == 6
    assert torch.equal(right[:, :6], wrong[:, :6]) and (right != wrong).any(1).all()
