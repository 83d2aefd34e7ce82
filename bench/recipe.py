"""How good is the start that ships, and how was it chosen? Two tables.

    python -m bench.recipe            the shipped policy: GRPO at the defaults, seeds 0 to 4
    python -m bench.recipe --tried    every recipe that was tried: SFT, then GRPO with two seeds

Both use the reference lab and print Markdown. Seconds depend on the machine and on what else runs
on it; accuracies are those of `tinylm.accuracy` on all held-out problems.
"""

import argparse
import copy
import time
from contextlib import contextmanager
from dataclasses import replace
from statistics import mean
from unittest import mock

import torch
import torch.nn.functional as F
from joblib import Parallel, delayed

from tinylm import GRPOConfig, accuracy, load_or_train_sft, model, training
from tinylm.addition import HELD_OUT
from tinylm.labfile import load_lab
from tinylm.model import ModelConfig
from tinylm.sft import RECIPE, train_sft

LAB = "autograde/reference/lab.py"


def sized(width, depth, heads):
    return replace(RECIPE, model=ModelConfig(width, depth, heads))


# What was tried: a name, the recipe, and a change to the architecture if there is one.
TRIED = [
    ("shipped", RECIPE, None),
    ("width 32", sized(32, 2, 4), None),
    ("width 96", sized(96, 2, 4), None),
    ("depth 1", sized(64, 1, 4), None),
    ("depth 3", sized(64, 3, 4), None),
    ("2 heads", sized(64, 2, 2), None),
    ("GELU", RECIPE, "gelu"),
    ("RMSNorm", RECIPE, "rms_norm"),
    ("one sloppy teacher throughout", replace(RECIPE, careful=0), None),
    ("one careful teacher, stopped at 300 steps", replace(RECIPE, steps=300, careful=300), None),
    ("one careful teacher, stopped at 350 steps", replace(RECIPE, steps=350, careful=350), None),
    ("one careful teacher, 600 steps", replace(RECIPE, careful=600), None),
    ("second teacher wrong 45 times in 100", replace(RECIPE, wrong=0.45), None),
    ("second teacher wrong 65 times in 100", replace(RECIPE, wrong=0.65), None),
    ("batch 128, half the steps", replace(RECIPE, batch=128, steps=300, careful=180), None),
    ("lr 2e-3", replace(RECIPE, lr=2e-3), None),
    ("lr 8e-3", replace(RECIPE, lr=8e-3), None),
    ("SFT seed 1", replace(RECIPE, seed=1), None),
    ("SFT seed 2", replace(RECIPE, seed=2), None),
]


@contextmanager
def architecture(change):
    """TinyLM with another activation or norm."""
    if change == "gelu":
        with mock.patch.object(model.F, "relu", F.gelu):
            yield
    elif change == "rms_norm":
        with mock.patch.object(model.nn, "LayerNorm", torch.nn.RMSNorm):
            yield
    else:
        yield


@contextmanager
def starting_from(policy):
    """Runs begin with a copy of `policy` in place of the shipped one."""
    with mock.patch.object(training, "load_or_train_sft", lambda path: copy.deepcopy(policy)):
        yield


def accuracies(policy):
    """Sampled and greedy, on all held-out problems."""
    return accuracy(policy, HELD_OUT), accuracy(policy, HELD_OUT, greedy=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tried", action="store_true", help="every recipe that was tried")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time, one thread each")
    options = parser.parse_args()
    threads = max(1, torch.get_num_threads() // options.jobs)
    table = print_tried if options.tried else print_shipped
    table(options.jobs, threads)


def print_shipped(jobs, threads):
    policy = load_or_train_sft()
    start = accuracies(policy)
    print(f"start: sampled {start[0]:.3f}, greedy {start[1]:.3f} on {HELD_OUT} held-out problems\n")
    print("| GRPO seed | sampled | gain | greedy | gain | KL | seconds |")
    print("|---|---|---|---|---|---|---|")
    rows = Parallel(jobs)(delayed(after_grpo)(policy, seed, threads) for seed in range(5))
    for seed, (sampled, greedy, kl, seconds) in enumerate(rows):
        print(f"| {seed} | {sampled:.3f} | {sampled - start[0]:+.3f} | {greedy:.3f} "
              f"| {greedy - start[1]:+.3f} | {kl:.3f} | {seconds:.1f} |")
    gains = [row[0] - start[0] for row in rows]
    print(f"\nmean gain {mean(gains):+.3f}, smallest {min(gains):+.3f}")


def print_tried(jobs, threads):
    print("| recipe | SFT seconds | start, sampled | greedy "
          "| after GRPO, sampled | greedy | gain |")
    print("|---|---|---|---|---|---|---|", flush=True)
    rows = (delayed(tried)(*row, threads) for row in TRIED)
    for line in Parallel(jobs, return_as="generator")(rows):
        print(line, flush=True)


def tried(name, recipe, change, threads):
    torch.set_num_threads(threads)
    with architecture(change):
        begun = time.perf_counter()
        policy = train_sft(recipe)
        seconds = time.perf_counter() - begun
        start = accuracies(policy)
        rows = [after_grpo(policy, seed, threads) for seed in (0, 1)]
    after = [mean(row[i] for row in rows) for i in (0, 1)]
    return (f"| {name} | {seconds:.1f} | {start[0]:.3f} | {start[1]:.3f} "
            f"| {after[0]:.3f} | {after[1]:.3f} | {after[0] - start[0]:+.3f} |")


def after_grpo(policy, seed, threads):
    """GRPO at the defaults, starting from `policy`: accuracies, last KL, seconds."""
    torch.set_num_threads(threads)
    step = load_lab(LAB).grpo_step
    begun = time.perf_counter()
    with starting_from(policy):
        trained, history = training.train(step, GRPOConfig(seed=seed), verbose=False)
    seconds = time.perf_counter() - begun
    return *accuracies(trained), mean(history["kl"][-10:]), seconds


if __name__ == "__main__":
    main()
