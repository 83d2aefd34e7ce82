"""What does a GRPO step cost? Three contenders in turn, in one process.

    python -m bench.step

1. tinylm: the reference lab's grpo_step at the default GRPOConfig, on tinylm.rollout, fused Adam;
2. the literal seed: the same grpo_step on `bench.literal`, unfused Adam;
3. TRL's GRPOTrainer, where it is installed; `bench.trl_step` says what its time holds.

First 1 and 2 are shown to compute the same. Then both take the first steps of a default run on the
same problems, each with its own policy, so that answers sharpen as they do in training. A ratio is
taken within one repetition, so that a busy machine slows both of its sides. Work is counted in
token positions, a backward pass as two forward passes, on the very batches that were timed. Prints
Markdown.
"""

import argparse
import copy
import platform
import random
import subprocess
import sys
import time
from statistics import mean, median, quantiles
from typing import NamedTuple

import torch
from torch import nn

from bench import literal
from tinylm import GRPOConfig, load_or_train_sft, make_batch, rollout
from tinylm.labfile import load_lab

LAB = "autograde/reference/lab.py"
WARM_UP = 5                         # steps before the clock counts
LARGE = (1024, 1024, 1024)          # a product in which this machine can show what it has

DEFAULT_RUN = f"""
import resource, sys
from tinylm import GRPOConfig
from tinylm.labfile import load_lab
load_lab({LAB!r}).train_grpo(GRPOConfig(), verbose=False)
unit = 2**20 if sys.platform == "darwin" else 2**10
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repetitions", type=int, default=100, help="steps of each contender")
    parser.add_argument("--threads", type=int, default=1, choices=range(1, 65), metavar="N",
                        help="threads of torch, for all contenders (default: 1, as in training)")
    options = parser.parse_args()
    repetitions = options.repetitions
    torch.set_num_threads(options.threads)
    if repetitions < 2:
        parser.error(f"--repetitions is {repetitions}; quartiles need 2 or more.")
    memory = peak_memory()          # first: the kernel lets a child inherit its parent's peak
    policy, cfg = load_or_train_sft(), GRPOConfig()
    prove_same_work(policy, cfg)
    fast = Side("tinylm", policy, cfg, rollout, fused=True)
    slow = Side("literal seed", policy, cfg, literal, fused=False, foreach=False)
    contenders = [fast, slow, *race(fast, slow, policy, cfg, repetitions)]
    print_times(contenders, cfg, repetitions)
    print_work(fast, slow, policy)
    print(f"| peak memory of a default run | {memory} |")


# ------------------------------------------------------------------------------ the same work

def prove_same_work(policy, cfg):
    """Compare both sides on one batch in float64; an AssertionError says where they differ."""
    policy = copy.deepcopy(policy).double()
    prompts = [p for p in make_batch(cfg.prompts_per_iter, random.Random(1))[0]
               for _ in range(cfg.G)]
    out = rollout.sample(policy, prompts, generator=torch.Generator().manual_seed(1))
    weight = torch.randn(out["mask"].shape, generator=torch.Generator().manual_seed(2)).double()
    found = []
    for side in (rollout, literal):
        logp = side.sequence_logprobs(policy, out)
        gradients = torch.autograd.grad((logp * weight).sum(), list(policy.parameters()))
        greedy = side.sample(policy, prompts, greedy=True)
        found.append((greedy, logp, gradients, side.token_entropy(policy, out)))
    torch.testing.assert_close(*found)
    print(f"On {len(prompts)} answers, in float64, tinylm and the literal seed give the same "
          "log-probs, gradients and entropy, and the same greedy tokens.\n")


# ------------------------------------------------------------------------------ the race

class Forward(NamedTuple):
    """One call of a model."""
    positions: int                  # tokens read
    pairs: int                      # of a token that looks and one that is looked at
    passes: int                     # 1, or 3 where a backward pass follows


class Side:
    """The reference lab's step on the functions of one module, with its own policy.

    seconds, tokens and forwards hold an entry a step: its time, the tokens that it sampled, and
    its list of `Forward`.
    """

    def __init__(self, name, policy, cfg, functions, **adam):
        self.name, self.cfg, self.lab = name, cfg, load_lab(LAB)
        self.seconds, self.tokens, self.forwards = [], [], []
        self.lab.sequence_logprobs = functions.sequence_logprobs
        self.lab.token_entropy = functions.token_entropy
        self.lab.sample = self.keeping_rollout(functions.sample)
        self.policy, self.ref = copy.deepcopy(policy), copy.deepcopy(policy).requires_grad_(False)
        self.opt = torch.optim.Adam(self.policy.parameters(), lr=cfg.lr, **adam)
        for model in (self.policy, self.ref):
            model.register_forward_pre_hook(self.count)

    def keeping_rollout(self, sample):
        def kept(*args, **kwargs):
            self.rollout = sample(*args, **kwargs)
            return self.rollout
        return kept

    def count(self, model, args):
        ids, *cache = args
        read_before = cache[0].length if cache else 0
        positions, passes = ids.numel(), 3 if torch.is_grad_enabled() else 1
        self.forwards[-1].append(
            Forward(positions, positions * (read_before + ids.shape[1]), passes))

    def step(self, problems):
        self.forwards.append([])
        begun = time.perf_counter()
        self.lab.grpo_step(self.policy, self.ref, self.opt, *problems, self.cfg)
        self.seconds.append(time.perf_counter() - begun)
        self.tokens.append(int(self.rollout["mask"].sum()))

    def forget(self, steps):
        for kept in (self.seconds, self.tokens, self.forwards):
            del kept[:steps]


class Times(NamedTuple):
    """What is known of a contender from outside: as in `Side`."""
    name: str
    seconds: list
    tokens: list


def race(fast, slow, policy, cfg, repetitions):
    """Both sides and TRL in turn. Returns TRL's times in a list, which is empty without TRL."""
    torch.manual_seed(cfg.seed)
    rng = random.Random(cfg.seed)
    steps, order = WARM_UP + repetitions, [fast, slow]

    def both_sides():
        problems = make_batch(cfg.prompts_per_iter, rng)
        for side in order:
            side.step(problems)
        order.reverse()             # or one of them would always run on the caches TRL leaves

    trl = trl_or_why_not()
    if trl is None:
        for _ in range(steps):
            both_sides()
    else:
        seconds, tokens = trl.time_steps(steps, cfg, policy.config, both_sides)
    fast.forget(WARM_UP)
    slow.forget(WARM_UP)
    return [Times(trl.NAME, seconds[WARM_UP:], tokens[WARM_UP:])] if trl else []


def trl_or_why_not():
    """The module `bench.trl_step`; None, and a sentence, where it cannot be imported."""
    try:
        from bench import trl_step
    except ImportError as error:
        print(f"TRL is left out: {error}. It comes with: pip install -e '.[bench]'\n")
        return None
    return trl_step


# ------------------------------------------------------------------------------ what was found

def print_times(contenders, cfg, repetitions):
    print(f"A GRPO step (P = {cfg.prompts_per_iter}, G = {cfg.G}, {cfg.inner_steps} inner steps), "
          f"{repetitions} repetitions in turn; torch {torch.__version__} with "
          f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}, "
          f"Python {platform.python_version()}.\n")
    print("| | ms, median (quartiles) | sampled tokens a second | times as long as tinylm |")
    print("|---|---|---|---|")
    fast = contenders[0]
    for one in contenders:
        ratios = [theirs / ours for theirs, ours in zip(one.seconds, fast.seconds, strict=True)]
        speed = sum(one.tokens) / sum(one.seconds)
        print(f"| {one.name} | {spread([1e3 * s for s in one.seconds], '.1f')} | {speed:,.0f} "
              f"| {spread(ratios, '.2f')} |")


def spread(values, form):
    """Median, and the quartiles in parentheses."""
    low, middle, high = quantiles(values)
    return f"{middle:{form}} ({low:{form}} to {high:{form}})"


def print_work(fast, slow, policy):
    """Positions, the ceiling they set, and how far the fast side is from its floor."""
    positions = [mean(sum(f.positions * f.passes for f in step) for step in side.forwards)
                 for side in (fast, slow)]
    typical = round(median(f.positions for step in fast.forwards for f in step))
    width = policy.config.width
    work = mean(flops(step, policy) for step in fast.forwards)
    print("\n| | |\n|---|---|")
    print(f"| token positions in a step, tinylm | {positions[0]:,.0f} |")
    print(f"| token positions in a step, literal seed | {positions[1]:,.0f} |")
    print(f"| ceiling that these set to tinylm's advantage | {positions[1] / positions[0]:.2f} |")
    print(f"| arithmetic in a step, tinylm | {work / 1e9:.2f} GFLOP |")
    for name, shape in (("as large as here", (typical, width, 4 * width)), ("large", LARGE)):
        rate = sgemm_rate(*shape)
        share = work / rate / median(fast.seconds)
        print(f"| floor at the rate of a product {name}, {shape[0]} x {shape[1]} x {shape[2]}: "
              f"{rate / 1e9:.0f} GFLOP/s | {1e3 * work / rate:.1f} ms, {share:.0%} of the time |")


def flops(forwards, policy):
    """Multiplications and additions in the matrix products of these calls."""
    weights = sum(m.weight.numel() for m in policy.modules() if isinstance(m, nn.Linear))
    attention = 2 * policy.config.width * policy.config.depth
    return sum(2 * f.passes * (weights * f.positions + attention * f.pairs) for f in forwards)


def sgemm_rate(m, k, n):
    """Floating-point operations a second in an (m, k) by (k, n) product, the best of many tries."""
    a, b, c = torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)
    repeats = max(1, round(1e8 / (2 * m * k * n)))
    seconds = []
    for _ in range(50):
        begun = time.perf_counter()
        for _ in range(repeats):
            torch.mm(a, b, out=c)
        seconds.append((time.perf_counter() - begun) / repeats)
    return 2 * m * k * n / min(seconds)


def peak_memory():
    """The most memory that a default run holds, measured in a process of its own, as text."""
    try:
        import resource  # noqa: F401
    except ImportError:
        return "not measured: this system has no getrusage"
    child = subprocess.run([sys.executable, "-c", DEFAULT_RUN], capture_output=True, text=True)
    if child.returncode:
        return f"not measured: the run failed with {child.stderr.strip().splitlines()[-1]}"
    return f"{float(child.stdout.split()[-1]):.0f} MB (to stay under 700)"


if __name__ == "__main__":
    main()
