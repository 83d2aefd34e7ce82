"""Task 2, group_advantages: how the comparison within a group goes wrong."""

# ruff: noqa: F811  every entry bears the name of the task's function

import torch

from autograde.mistakes import mistake


# ------------------------------------------------------- the formula
@mistake(
    14, "variance-for-std",
    "this divides by the variance; the task asks for its square root, the std.",
    "the docstring's formula for A_i", ("population_std",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = r - r.mean(dim=1, keepdim=True)
    if scale_std:
        adv = adv / (r.var(dim=1, keepdim=True, unbiased=False) + eps)  # <-
    return adv.reshape(-1)


@mistake(
    19, "mean-not-subtracted",
    "the rewards are divided by the std, but the group's mean is never subtracted.",
    "the docstring's formula for A_i", ("values",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    adv = rewards.reshape(-1, G)  # <-
    if scale_std:
        adv = adv / (adv.std(dim=1, keepdim=True, unbiased=False) + eps)
    return adv.reshape(-1)


@mistake(
    23, "advantages-in-rows",
    "the advantages have the shape (P, G); they must come back in the shape of the rewards, "
    "(P*G,).",
    "the docstring: returns a (P*G,) tensor", ("values",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = r - r.mean(dim=1, keepdim=True)
    if scale_std:
        adv = adv / (r.std(dim=1, keepdim=True, unbiased=False) + eps)
    return adv  # <-


@mistake(
    None, "missing-parentheses",
    "only the mean is divided by the std: put parentheses round r - mean.",
    "the docstring's formula for A_i", ("values",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    mean = r.mean(dim=1, keepdim=True)
    if not scale_std:
        return (r - mean).reshape(-1)
    return (r - mean / (r.std(dim=1, keepdim=True, unbiased=False) + eps)).reshape(-1)  # <-


@mistake(
    None, "mean-minus-reward",
    "the sign is turned round: a response better than its group must get a positive advantage.",
    "the docstring's formula for A_i", ("values",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = r.mean(dim=1, keepdim=True) - r  # <-
    if scale_std:
        adv = adv / (r.std(dim=1, keepdim=True, unbiased=False) + eps)
    return adv.reshape(-1)


@mistake(
    None, "distance-from-mean",
    "these are the distances from the mean, without their sign: a response worse than its group "
    "must get a negative advantage.",
    "the docstring's formula for A_i", ("values",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = (r - r.mean(dim=1, keepdim=True)).abs()  # <-
    if scale_std:
        adv = adv / (r.std(dim=1, keepdim=True, unbiased=False) + eps)
    return adv.reshape(-1)


@mistake(
    None, "divided-by-mean",
    "this divides by the group's mean; the task asks to divide by its std.",
    "the docstring's formula for A_i", ("population_std",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    mean = r.mean(dim=1, keepdim=True)
    adv = r - mean
    if scale_std:
        adv = adv / (mean + eps)  # <-
    return adv.reshape(-1)


@mistake(
    None, "mean-of-the-others",
    "each reward is compared with the mean of the other G - 1 (the leave-one-out baseline of "
    "RLOO); GRPO takes the mean of all G.",
    "the docstring: mean and std are taken over the G responses", ("population_std",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = r - (r.sum(dim=1, keepdim=True) - r) / max(G - 1, 1)  # <-
    if scale_std:
        adv = adv / (r.std(dim=1, keepdim=True, unbiased=False) + eps)
    return adv.reshape(-1)


# ------------------------------------------------------- which std
@mistake(
    11, "sample-std",
    "this is the sample std: it divides by G - 1, the task asks to divide by G.",
    "the docstring's line on the population std", ("population_std",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = r - r.mean(dim=1, keepdim=True)
    if scale_std:
        adv = adv / (r.std(dim=1, keepdim=True) + eps)  # <-
    return adv.reshape(-1)


@mistake(
    22, "nan-for-one",
    "the sample std is turned into the population std by a factor, which is NaN for a group of "
    "one: there the advantage is 0.",
    "the docstring's line on the population std", ("population_std",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = r - r.mean(dim=1, keepdim=True)
    if scale_std:
        adv = adv / (r.std(dim=1, keepdim=True) * ((G - 1) / G) ** 0.5 + eps)  # <-
    return adv.reshape(-1)


@mistake(
    None, "mean-distance-for-std",
    "this divides by the mean distance from the mean; the std is the root of the mean square.",
    "the docstring's line on the population std", ("population_std",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = r - r.mean(dim=1, keepdim=True)
    if scale_std:
        adv = adv / (adv.abs().mean(dim=1, keepdim=True) + eps)  # <-
    return adv.reshape(-1)


# ------------------------------------------------------- which group
@mistake(
    12, "whole-batch",
    "mean and std are taken over the whole batch; each group has its own.",
    "the docstring: over the G responses of the same prompt", ("groups",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    adv = rewards - rewards.mean()  # <-
    if scale_std:
        adv = adv / (rewards.std(unbiased=False) + eps)
    return adv


@mistake(
    None, "batch-std",
    "the mean is the group's, but the std is that of the whole batch; each group has its own.",
    "the docstring: over the G responses of the same prompt", ("groups",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = r - r.mean(dim=1, keepdim=True)
    if scale_std:
        adv = adv / (r.std(unbiased=False) + eps)  # <-
    return adv.reshape(-1)


@mistake(
    None, "normalised-twice",
    "the advantages are normalised once more over the whole batch; the groups' own is all there "
    "is.",
    "the docstring: over the G responses of the same prompt", ("groups",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = r - r.mean(dim=1, keepdim=True)
    if scale_std:
        adv = adv / (r.std(dim=1, keepdim=True, unbiased=False) + eps)
        adv = adv / (adv.std(unbiased=False) + eps)  # <-
    return adv.reshape(-1)


@mistake(
    13, "reshaped-to-g-p",
    "the rewards are reshaped to (G, P), so that a column mixes several prompts; they lie in "
    "memory as (P, G).",
    "the docstring: grouped contiguously, as in sample_group", ("groups",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(G, -1)  # <-
    adv = r - r.mean(dim=0)
    if scale_std:
        adv = adv / (r.std(dim=0, unbiased=False) + eps)
    return adv.reshape(-1)


@mistake(
    None, "groups-of-p",
    "the groups have P members; they must have G: reshape to (P, G), as in reshape(-1, G).",
    "the hint: reshape to (P, G)", ("groups",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(G, -1)  # <-
    adv = r - r.mean(dim=1, keepdim=True)
    if scale_std:
        adv = adv / (r.std(dim=1, keepdim=True, unbiased=False) + eps)
    return adv.reshape(-1)


@mistake(
    None, "down-the-columns",
    "mean and std run down the columns (dim=0), over different prompts; a group is a row (dim=1).",
    "the hint: subtract the row mean", ("groups",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = r - r.mean(dim=0, keepdim=True)  # <-
    if scale_std:
        adv = adv / (r.std(dim=0, keepdim=True, unbiased=False) + eps)
    return adv.reshape(-1)


@mistake(
    20, "no-keepdim",
    "without keepdim=True the row means have the shape (P,) and are subtracted along the columns.",
    "the documentation of Tensor.mean on keepdim", ("groups",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = r - r.mean(dim=1)  # <-
    if scale_std:
        adv = adv / (r.std(dim=1, unbiased=False) + eps)
    return adv.reshape(-1)


@mistake(
    None, "transposed-back",
    "the advantages come back in the order of the columns; they must stand where their rewards "
    "stood.",
    "the hint: reshape back to (P*G,)", ("groups",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G).T
    adv = r - r.mean(dim=0)
    if scale_std:
        adv = adv / (r.std(dim=0, unbiased=False) + eps)
    return adv.reshape(-1)  # <-


# ------------------------------------------------------- eps, and groups that are all equal
@mistake(
    15, "eps-under-the-root",
    "eps stands under the square root; it is added to the std itself.",
    "the docstring on eps: added to the std", ("eps",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = r - r.mean(dim=1, keepdim=True)
    if scale_std:
        adv = adv / torch.sqrt(r.var(dim=1, keepdim=True, unbiased=False) + eps)  # <-
    return adv.reshape(-1)


@mistake(
    16, "no-eps",
    "eps is not used, so a group whose rewards are all equal gives 0/0, which is NaN.",
    "the docstring on eps", ("eps",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = r - r.mean(dim=1, keepdim=True)
    if scale_std:
        adv = adv / r.std(dim=1, keepdim=True, unbiased=False)  # <-
    return adv.reshape(-1)


@mistake(
    17, "tiny-eps",
    "1e-8 is added in place of eps; that is no larger than the rounding of seven rewards of 0.1, "
    "and turns it into an advantage.",
    "the docstring on eps", ("eps",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = r - r.mean(dim=1, keepdim=True)
    if scale_std:
        adv = adv / (r.std(dim=1, keepdim=True, unbiased=False) + 1e-8)  # <-
    return adv.reshape(-1)


@mistake(
    None, "eps-hard-coded",
    "1e-4 is added whatever eps is; use the argument.",
    "the docstring on eps", ("eps",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = r - r.mean(dim=1, keepdim=True)
    if scale_std:
        adv = adv / (r.std(dim=1, keepdim=True, unbiased=False) + 1e-4)  # <-
    return adv.reshape(-1)


@mistake(
    None, "eps-after-the-division",
    "eps is added to the quotient; add it to the std, inside the parentheses.",
    "the docstring's formula for A_i", ("eps",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = r - r.mean(dim=1, keepdim=True)
    if scale_std:
        adv = adv / r.std(dim=1, keepdim=True, unbiased=False) + eps  # <-
    return adv.reshape(-1)


@mistake(
    None, "eps-as-a-floor",
    "the std is raised to eps where it is smaller; eps is to be added to every std.",
    "the docstring on eps: added to the std", ("eps",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = r - r.mean(dim=1, keepdim=True)
    if scale_std:
        adv = adv / r.std(dim=1, keepdim=True, unbiased=False).clamp(min=eps)  # <-
    return adv.reshape(-1)


@mistake(
    21, "drops-equal-groups",
    "groups whose rewards are all equal are left out; they must stay, with advantage 0.",
    "the docstring's last sentence", ("eps",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    r = r[r.std(dim=1, unbiased=False) > 0]  # <-
    adv = r - r.mean(dim=1, keepdim=True)
    if scale_std:
        adv = adv / (r.std(dim=1, keepdim=True, unbiased=False) + eps)
    return adv.reshape(-1)


# ------------------------------------------------------- scale_std
@mistake(
    18, "scale-std-ignored",
    "scale_std is not looked at: with scale_std=False the std must be left out.",
    "the docstring on scale_std", ("scale_std",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = r - r.mean(dim=1, keepdim=True)
    adv = adv / (r.std(dim=1, keepdim=True, unbiased=False) + eps)  # <-
    return adv.reshape(-1)


@mistake(
    18, "scale-std-inverted",
    "scale_std is turned round: divide by the std when it is True.",
    "the docstring on scale_std", ("scale_std",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = r - r.mean(dim=1, keepdim=True)
    if not scale_std:  # <-
        adv = adv / (r.std(dim=1, keepdim=True, unbiased=False) + eps)
    return adv.reshape(-1)


@mistake(
    None, "rewards-without-scale",
    "with scale_std=False the rewards come back as they are; the group's mean is still subtracted.",
    "the docstring on scale_std", ("scale_std",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    if not scale_std:
        return rewards  # <-
    r = rewards.reshape(-1, G)
    adv = r - r.mean(dim=1, keepdim=True)
    return (adv / (r.std(dim=1, keepdim=True, unbiased=False) + eps)).reshape(-1)


# ------------------------------------------------------- the argument
@mistake(
    24, "writes-into-rewards",
    "the rewards are changed in place (view shares their memory, -= writes into it); leave them as"
    " they were.",
    "the documentation of Tensor.view", ("input",),
)
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    adv = rewards.view(-1, G)
    adv -= adv.mean(dim=1, keepdim=True)  # <-
    if scale_std:
        adv /= adv.std(dim=1, keepdim=True, unbiased=False) + eps
    return adv.reshape(-1)
