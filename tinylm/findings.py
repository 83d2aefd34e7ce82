"""What the recorded runs say about G, beta and clip_eps, in sentences with numbers.

    python -m tinylm.findings

prints them, a line of Markdown for each slider; notebook 06 shows the same lines. Every number is
read off the record as the explorer reads it: the mean of the last fifty iterations over the seeds,
all else at the default. Two settings count as different where the ranges from their lowest to their
highest seed lie apart; with three seeds that is a hint and no proof.
"""

import sys
from itertools import combinations

from tinylm.curves import LAST, default_setting, final
from tinylm.runs import RecordError, load_runs


def findings(record):
    """Three lines in Markdown, on G, beta and clip_eps."""
    return [about_group_size(record), about_beta(record), about_clip(record)]


def about_group_size(record):
    sizes, G, length = record.grid["G"], default_setting()["G"], record.settings["iters"]
    reward, zero = (_seeds(record, "G", name) for name in ("reward", "frac_zero_signal"))
    middle = length * sizes[0] // G        # so many iterations draw as much as all of the smallest
    first = max(middle - LAST // 2, 0)
    then = record.curve(**default_setting())["reward"][:, first : first + LAST].mean(axis=1)
    return (f"**G.** For each iteration a larger group learns more: with G = {_list(sizes)} the "
            f"reward ends at {_means(reward)} ({_overlaps(sizes, reward)}), and the share of "
            f"groups without signal at {_means(zero)}. For each response it need not: in "
            f"{middle} iterations G = {G} draws as many as G = {sizes[0]} in {length}, and round "
            f"there, in iterations {first + 1} to {first + LAST}, its reward is {then.mean():.3f} "
            f"({_overlaps((sizes[0], G), [reward[0], then])}).")


def about_beta(record):
    betas = record.grid["beta"]
    kl, reward = (_seeds(record, "beta", name) for name in ("kl", "reward"))
    return (f"**beta.** A larger beta holds the policy nearer to its start: with beta = "
            f"{_list(betas)} the KL ends at {_means(kl)} ({_overlaps(betas, kl)}). A cost in "
            f"reward can be told for the largest alone: {_means(reward)} "
            f"({_overlaps(betas, reward)}).")


def about_clip(record):
    values = record.grid["clip_eps"]
    share, reward = (_seeds(record, "clip_eps", name) for name in ("clip_frac", "reward"))
    kl, longer = (_seeds(record, "clip_eps", name, inner_steps=4) for name in ("kl", "reward"))
    return (f"**clip_eps.** At two inner steps no effect on the reward can be told: with clip_eps "
            f"= {_list(values)} the clip acts on a share of {_means(share)} of the tokens, and the "
            f"reward ends at {_means(reward)} ({_overlaps(values, reward)}). At four inner steps a "
            f"wider clip lets the policy move further, to a KL of {_means(kl)} "
            f"({_overlaps(values, kl)}), and wins nothing by it: the reward ends at "
            f"{_means(longer)} ({_overlaps(values, longer)}).")


def _seeds(record, slider, quantity, **changes):
    """For each position of a slider the final numbers of its seeds, all else at the default."""
    setting = default_setting() | changes
    return [final(record.curve(**setting | {slider: value})[quantity])
            for value in record.grid[slider]]


def _means(groups):
    return _list([f"{seeds.mean():.3f}" for seeds in groups])


def _overlaps(values, groups):
    """Which settings can be told apart by the ranges of their seeds, in a few words."""
    met, apart = [], []
    for (a, one), (b, other) in combinations(zip(values, groups, strict=True), 2):
        overlap = one.min() <= other.max() and other.min() <= one.max()
        (met if overlap else apart).append(f"{a:g} and {b:g}")
    if not apart:
        return "all overlap" if len(groups) > 2 else "both overlap"
    if not met:
        return "no two overlap"
    return ("those of " + ", of ".join(met) + " overlap" if len(met) <= len(apart) else
            "all overlap but those of " + ", of ".join(apart))


def _list(items):
    *most, end = (item if isinstance(item, str) else f"{item:g}" for item in items)
    return f"{', '.join(most)} and {end}"


def main():
    """Print the sentences of the shipped record. Returns the exit status."""
    try:
        print("\n".join(f"- {sentence}" for sentence in findings(load_runs())))
    except RecordError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
