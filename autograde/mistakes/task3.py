"""Task 3, k3_kl: how two lines of KL go wrong."""

# ruff: noqa: F811  every entry bears the name of the task's function

import torch
import torch.nn.functional as F

from autograde.mistakes import mistake


# ------------------------------------------------------- another estimator
@mistake(
    26, "k1",
    "this is k1, logp - ref_logp: it can be negative; the task asks for k3.",
    "the docstring's formula for k3", ("values", "nonnegative"),
)
def k3_kl(logp, ref_logp):
    return logp - ref_logp  # <-


@mistake(
    27, "k2",
    "this is k2, half of d squared; it is close to k3 for small d only.",
    "the docstring's formula for k3", ("values",),
)
def k3_kl(logp, ref_logp):
    d = ref_logp - logp
    return d**2 / 2  # <-


@mistake(
    30, "k1-clamped",
    "this is k1 with its negative entries set to 0; k3 is positive by itself.",
    "the docstring's formula for k3", ("values",),
)
def k3_kl(logp, ref_logp):
    return (logp - ref_logp).clamp(min=0)  # <-


@mistake(
    None, "absolute-difference",
    "this is |logp - ref_logp|; k3 is exp(d) - d - 1.",
    "the docstring's formula for k3", ("values",),
)
def k3_kl(logp, ref_logp):
    return (logp - ref_logp).abs()  # <-


@mistake(
    None, "term-of-the-sum",
    "this weighs logp - ref_logp with the probability, as in the sum over all tokens; here the "
    "tokens were sampled, so the probability is in the sampling already.",
    "the docstring's formula for k3", ("values",),
)
def k3_kl(logp, ref_logp):
    return torch.exp(logp) * (logp - ref_logp)  # <-


@mistake(
    None, "torch-kl-div",
    "F.kl_div gives a term of the sum KL(ref || policy), not an estimate from sampled tokens.",
    "the docstring's formula for k3", ("values",),
)
def k3_kl(logp, ref_logp):
    return F.kl_div(logp, ref_logp, reduction="none", log_target=True)  # <-


# ------------------------------------------------------- the formula
@mistake(
    28, "minus-one-forgotten",
    "the - 1 is missing: k3 is 0 where the two models agree.",
    "the docstring's formula for k3", ("values",),
)
def k3_kl(logp, ref_logp):
    d = ref_logp - logp
    return torch.exp(d) - d  # <-


@mistake(
    None, "minus-d-forgotten",
    "the - d is missing: without it k3 can be negative.",
    "the docstring's formula for k3", ("values", "nonnegative"),
)
def k3_kl(logp, ref_logp):
    d = ref_logp - logp
    return torch.exp(d) - 1  # <-


@mistake(
    None, "plus-d",
    "d has two signs here: exp(d) and - d must use the same d = ref_logp - logp.",
    "the docstring's formula for k3", ("values", "nonnegative"),
)
def k3_kl(logp, ref_logp):
    return torch.exp(ref_logp - logp) - (logp - ref_logp) - 1  # <-


@mistake(
    32, "difference-of-probabilities",
    "exp is taken of each log-prob and the results subtracted; take exp of the difference d.",
    "the docstring's formula for k3", ("values",),
)
def k3_kl(logp, ref_logp):
    d = ref_logp - logp
    return torch.exp(ref_logp) - torch.exp(logp) - d  # <-


@mistake(
    None, "ratio-of-logs",
    "the log-probs are divided as if they were probabilities; the ratio is exp(ref_logp - logp).",
    "the docstring: computed from log-probs", ("values",),
)
def k3_kl(logp, ref_logp):
    ratio = ref_logp / logp  # <-
    return ratio - torch.log(ratio) - 1


# ------------------------------------------------------- the direction
@mistake(
    25, "sign-swapped",
    "d is logp - ref_logp, which estimates another divergence; it must be ref_logp - logp.",
    "the docstring: with d = ref_logp - logp", ("direction",),
)
def k3_kl(logp, ref_logp):
    d = logp - ref_logp  # <-
    return torch.exp(d) - d - 1


# ------------------------------------------------------- the gradient
@mistake(
    29, "logp-detached",
    "logp is detached, so the KL can teach the policy nothing: gradients must flow through logp.",
    "the docstring's last sentence", ("gradient",),
)
def k3_kl(logp, ref_logp):
    d = ref_logp - logp.detach()  # <-
    return torch.exp(d) - d - 1


@mistake(
    None, "exp-detached",
    "exp(d) is detached: the value is right, but half of the gradient is missing.",
    "the docstring's last sentence", ("gradient",),
)
def k3_kl(logp, ref_logp):
    d = ref_logp - logp
    return torch.exp(d).detach() - d - 1  # <-


# ------------------------------------------------------- the shape
@mistake(
    31, "mean-of-all",
    "this is one number; the task asks for one a token, (B, T), and the loss averages later.",
    "the docstring: returns a (B, T) tensor", ("shape",),
)
def k3_kl(logp, ref_logp):
    d = ref_logp - logp
    return (torch.exp(d) - d - 1).mean()  # <-


@mistake(
    None, "sum-of-each-response",
    "this is one number a response; the task asks for one a token, (B, T).",
    "the docstring: returns a (B, T) tensor", ("shape",),
)
def k3_kl(logp, ref_logp):
    d = ref_logp - logp
    return (torch.exp(d) - d - 1).sum(dim=1)  # <-
