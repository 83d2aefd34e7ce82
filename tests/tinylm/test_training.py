"""The outer loop: repeatable, watchable without changing it, stoppable, and clear when it fails."""

import math
import random

import pytest
import torch

from tinylm import GRPOConfig, load_or_train_sft
from tinylm.addition import make_batch
from tinylm.labfile import load_lab
from tinylm.training import STATS, TrainingError, train

SHORT = {"iters": 4, "prompts_per_iter": 4, "G": 4, "eval_every": 2, "eval_n": 20}


@pytest.fixture(scope="module")
def step():
    return load_lab("autograde/reference/lab.py").grpo_step


def weights(policy):
    return torch.cat([p.detach().flatten() for p in policy.parameters()])


def short(**changes):
    return GRPOConfig(**{**SHORT, **changes})


def test_the_defaults_are_the_seed_s():
    assert GRPOConfig() == GRPOConfig(300, 16, 8, 2, 3e-4, 0.2, 0.04, 1.0, True, 1.0, 10, 500, 0)


def test_history_and_printed_line(step, capsys):
    policy, history = train(step, short())
    assert set(history) == {*STATS, "eval_iter", "acc_sampled", "acc_greedy"}
    assert history["eval_iter"] == [0, 2, 4]
    assert all(len(history[key]) == 4 for key in STATS)
    assert all(type(x) is float for key in STATS for x in history[key])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    r, s, g, k, e, z = (history[key][-1] for key in (
        "reward", "acc_sampled", "acc_greedy", "kl", "entropy", "frac_zero_signal"))
    assert lines[1].startswith(
        f"iter    4 reward {r:.2f} sampled acc {s:.3f} greedy acc {g:.3f} kl {k:.4f} "
        f"entropy {e:.3f} zero-signal {z:.2f} (")


def test_the_same_seed_gives_the_same_run_bit_for_bit(step):
    runs = [train(step, short(), verbose=False) for _ in range(2)]
    assert runs[0][1] == runs[1][1] and torch.equal(*(weights(p) for p, _ in runs))
    assert runs[0][1] != train(step, short(seed=1), verbose=False)[1]


def test_watching_does_not_change_the_run(step, capsys):
    plain, history = train(step, short(), verbose=False)
    seen = []
    watched, other = train(step, short(eval_every=1, eval_n=50), progress=True,
                           on_iteration=lambda it, h: seen.append((it, len(h["reward"]))))
    assert torch.equal(weights(plain), weights(watched))
    assert all(history[key] == other[key] for key in STATS)
    assert seen == [(it, it) for it in range(5)]
    assert "GRPO" in capsys.readouterr().err


def test_the_number_of_threads_changes_nothing_and_is_left_as_it_was(step):
    before = torch.get_num_threads()
    try:
        runs = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            runs.append(train(step, short(), verbose=False)[1])
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert runs[0] == runs[1]


def test_it_is_the_seed_s_loop(step):
    """Against the loop of the original lab, written out."""
    cfg = short()
    policy, ref = load_or_train_sft(), load_or_train_sft()
    torch.manual_seed(cfg.seed)
    opt = torch.optim.Adam(policy.parameters(), lr=cfg.lr, fused=True)
    rng = random.Random(cfg.seed)
    for _ in range(cfg.iters):
        step(policy, ref, opt, *make_batch(cfg.prompts_per_iter, rng), cfg)
    torch.testing.assert_close(weights(train(step, cfg, verbose=False)[0]), weights(policy))


@pytest.mark.parametrize("stop", ["callback", "interrupt", "at once"])
def test_a_stopped_run_keeps_its_history(step, stop, capsys):
    def watch(it, history):
        if stop == "interrupt" and it == 2:
            raise KeyboardInterrupt
        return it == 2 or stop == "at once"

    _, history = train(step, short(), verbose=False, on_iteration=watch)
    assert len(history["reward"]) == (0 if stop == "at once" else 2)
    assert len(history["acc_sampled"]) == (1 if stop == "at once" else 2)
    assert ("stopped after iteration 2" in capsys.readouterr().out) == (stop == "interrupt")


@pytest.mark.parametrize(("change", "said"), [
    (lambda stats: None, "returned NoneType"),
    (lambda stats: {k: v for k, v in stats.items() if k != "kl"}, "no 'kl'"),
    (lambda stats: stats | {"loss": math.nan}, "loss = nan"),
    (lambda stats: stats | {"reward": math.inf}, "reward = inf"),
    (lambda stats: stats | {"entropy": "high"}, "entropy = 'high'"),
])
def test_a_step_that_returns_nonsense_names_the_iteration_and_loses_nothing(step, change, said):
    calls = []

    def broken(*args):
        calls.append(1)
        stats = step(*args)
        return change(stats) if len(calls) == 3 else stats

    with pytest.raises(TrainingError, match=f"iteration 3: .*{said}") as error:
        train(broken, short(), verbose=False)
    assert error.value.iteration == 3 and len(error.value.history["reward"]) == 2
    assert error.value.policy is not None


@pytest.mark.parametrize(("name", "value"), [
    ("G", 0), ("iters", 0), ("iters", 2.5), ("temperature", 0.0), ("lr", -1.0), ("beta", -0.1),
    ("clip_eps", math.nan), ("eval_every", 0), ("prompts_per_iter", 0), ("inner_steps", 0),
])
def test_settings_that_make_no_sense_are_named_before_any_work(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value!r}"):
        train(lambda *_: pytest.fail("ran"), short(**{name: value}))
