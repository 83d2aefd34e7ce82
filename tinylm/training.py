"""The outer loop of GRPO, round any step function.

`train` draws a batch, calls the step, keeps its numbers and measures the accuracy now and then. It
knows nothing of groups, clips or KL: those belong to the `grpo_step` it is given. It can be watched
and stopped; neither changes what the run computes.
"""

import math
import random
import time
from dataclasses import dataclass

import torch
from tqdm.auto import tqdm

from tinylm.addition import make_batch
from tinylm.rollout import accuracy
from tinylm.sft import load_or_train_sft
from tinylm.threads import one_thread

STATS = ("reward", "loss", "kl", "clip_frac", "frac_zero_signal", "entropy")


@dataclass
class GRPOConfig:
    iters: int = 300            # outer iterations (each samples a fresh batch)
    prompts_per_iter: int = 16  # P
    G: int = 8                  # group size
    inner_steps: int = 2        # gradient steps per batch (mu in the DeepSeekMath paper)
    lr: float = 3e-4
    clip_eps: float = 0.2
    beta: float = 0.04
    temperature: float = 1.0
    scale_std: bool = True
    max_grad_norm: float = 1.0
    eval_every: int = 10
    eval_n: int = 500
    seed: int = 0


class TrainingError(Exception):
    """A run that cannot go on. `iteration`, `policy` and `history` hold what was reached."""

    def __init__(self, message, iteration=0, policy=None, history=None):
        super().__init__(message)
        self.iteration, self.policy, self.history = iteration, policy, history


@one_thread()
def train(step, cfg, sft_path=None, verbose=True, progress=False, on_iteration=None):
    """Run GRPO from the SFT checkpoint.

    Args:
        step: a grpo_step(policy, ref, opt, prompts, answers, cfg) that updates the policy in place
            and returns a dict of floats with the keys in `STATS`.
        cfg: a GRPOConfig.
        sft_path: where the SFT policy is cached; None means the checkpoint that tinylm ships.
        verbose: print a line at every evaluation.
        progress: show a progress bar.
        on_iteration: called as on_iteration(iteration, history) after each iteration (and once with
            iteration 0, after the first evaluation). When it returns True the run stops there.

    Returns (policy, history). History holds a list per key of `STATS`, one number an iteration, and
    eval_iter, acc_sampled, acc_greedy, one an evaluation. `loss`, `kl` and `clip_frac` are those
    of the last inner step; `entropy` is what the step measures: that of the policy that sampled,
    before its update, in the reference lab.
    The run computes with one thread, whatever torch is set to (see `tinylm.threads`).
    Interrupting the kernel (or ^C) ends the run early and returns what there is.

    Raises ValueError for settings that make no sense, and TrainingError, which carries the history
    so far, when a step leaves out a key or returns a number that is not finite.
    """
    check_config(cfg)
    policy, ref = load_or_train_sft(sft_path), load_or_train_sft(sft_path)
    ref.requires_grad_(False)
    torch.manual_seed(cfg.seed)
    opt = torch.optim.Adam(policy.parameters(), lr=cfg.lr, fused=True)
    rng = random.Random(cfg.seed)
    history = {key: [] for key in (*STATS, "eval_iter", "acc_sampled", "acc_greedy")}
    start = time.time()
    evaluate(policy, 0, cfg, history)
    bar = tqdm(range(1, cfg.iters + 1), desc="GRPO", unit="iter", disable=not progress)
    try:
        stop = on_iteration is not None and on_iteration(0, history)
        for it in bar if not stop else ():
            stats = step(policy, ref, opt, *make_batch(cfg.prompts_per_iter, rng), cfg)
            record(stats, it, policy, history)
            if it % cfg.eval_every == 0 or it == cfg.iters:
                evaluate(policy, it, cfg, history)
                if verbose:
                    bar.write(progress_line(it, history, time.time() - start))
            if on_iteration is not None and on_iteration(it, history):
                break
    except KeyboardInterrupt:
        print(f"stopped after iteration {len(history['reward'])}; the history so far is kept.")
    finally:
        bar.close()
    return policy, history


def evaluate(policy, it, cfg, history):
    """Measure both accuracies and add them to the history."""
    history["eval_iter"].append(it)
    history["acc_sampled"].append(accuracy(policy, n=cfg.eval_n, greedy=False))
    history["acc_greedy"].append(accuracy(policy, n=cfg.eval_n, greedy=True))


def record(stats, it, policy, history):
    """Add one step's numbers to the history, or say what is wrong with them."""
    problem = None
    if not isinstance(stats, dict):
        problem = f"grpo_step returned {type(stats).__name__}; expected a dict of floats."
    elif missing := [key for key in STATS if key not in stats]:
        problem = f"grpo_step returned no {missing[0]!r}; expected the keys {', '.join(STATS)}."
    elif wrong := [key for key in STATS if not _is_finite(stats[key])]:
        problem = f"grpo_step returned {wrong[0]} = {stats[wrong[0]]!r}; expected a finite float."
    if problem:
        raise TrainingError(f"iteration {it}: {problem} The history before it is in this error's "
                            "`history`.", it, policy, history)
    for key in STATS:
        history[key].append(float(stats[key]))


def _is_finite(value):
    try:
        return math.isfinite(value)
    except (TypeError, ValueError, RuntimeError):
        return False


def progress_line(it, history, seconds):
    """The line that the original lab prints at an evaluation."""
    last = {key: values[-1] for key, values in history.items()}
    return (f"iter {it:4d} reward {last['reward']:.2f} sampled acc {last['acc_sampled']:.3f} "
            f"greedy acc {last['acc_greedy']:.3f} kl {last['kl']:.4f} "
            f"entropy {last['entropy']:.3f} zero-signal {last['frac_zero_signal']:.2f} "
            f"({seconds:.0f}s)")


def check_config(cfg):
    """Raise ValueError, naming the first setting that makes no sense."""
    at_least_one = ("iters", "prompts_per_iter", "G", "inner_steps", "eval_every", "eval_n")
    above_zero = ("lr", "temperature", "max_grad_norm")
    for name in at_least_one:
        value = getattr(cfg, name)
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} is {value!r}; expected a whole number, 1 or more.")
    for name in above_zero:
        value = getattr(cfg, name)
        if not (isinstance(value, int | float) and 0 < value < math.inf):
            raise ValueError(f"{name} is {value!r}; expected a number above 0.")
    for name in ("clip_eps", "beta"):
        value = getattr(cfg, name)
        if not (isinstance(value, int | float) and 0 <= value < math.inf):
            raise ValueError(f"{name} is {value!r}; expected a number, 0 or more.")
