"""Task 4, grpo_loss: how the objective, its averages and its statistics go wrong."""

# ruff: noqa: F811  every entry bears the name of the task's function

import torch

from autograde.mistakes import mistake
from autograde.reference.lab import k3_kl


# ------------------------------------------------------- the minimum and the clip
@mistake(
    33, "max-for-min",
    "the larger of the two terms is taken; the objective takes the smaller, so that it never "
    "promises more than the clip allows.",
    "the docstring's formula for obj", ("surrogate",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.max(unclipped, clipped) - beta * k3  # <-
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    34, "min-by-sign",
    "for a negative advantage the larger product is taken; the minimum of the two products holds "
    "for both signs.",
    "the docstring's formula for obj", ("surrogate",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    smaller, larger = torch.min(unclipped, clipped), torch.max(unclipped, clipped)
    obj = torch.where(adv[:, None] >= 0, smaller, larger) - beta * k3  # <-
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    35, "no-clip",
    "nothing is clipped: the objective is the smaller of the unclipped and the clipped term.",
    "the docstring's formula for obj", ("surrogate",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = unclipped - beta * k3  # <-
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    36, "clipped-only",
    "only the clipped term is used, which has no gradient outside the range; take the smaller of "
    "the two.",
    "the docstring's formula for obj", ("surrogate",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = clipped - beta * k3  # <-
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    37, "log-ratio-clipped",
    "the log-ratio is clipped to -eps..eps; the ratio itself is to be clipped to 1 - eps..1 + eps.",
    "the docstring's formula for obj", ("surrogate",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = torch.exp((logp - old_logp).clamp(-clip_eps, clip_eps)) * adv[:, None]  # <-
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    38, "clip-round-zero",
    "the ratio is clipped to -eps..eps; it lies around 1, so the range is 1 - eps..1 + eps.",
    "the docstring's formula for obj", ("surrogate",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(-clip_eps, clip_eps) * adv[:, None]  # <-
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    None, "bounds-exchanged",
    "the two bounds of the clip are exchanged: the smaller one, 1 - eps, comes first.",
    "the documentation of torch.clamp", ("surrogate",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 + clip_eps, 1 - clip_eps) * adv[:, None]  # <-
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    None, "upper-bound-only",
    "the ratio is clipped from above only; for a negative advantage the lower bound, 1 - eps, "
    "matters.",
    "the docstring's formula for obj", ("surrogate",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(max=1 + clip_eps) * adv[:, None]  # <-
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    None, "clip-eps-hard-coded",
    "the clip range is 0.2 whatever clip_eps is; use the argument.",
    "the docstring on clip_eps", ("surrogate",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(0.8, 1.2) * adv[:, None]  # <-
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    43, "not-negated",
    "the sign is turned round: an optimizer goes downhill, so the loss is minus the objective.",
    "the docstring: loss = -that", ("surrogate",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = ((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()  # <-
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


# ------------------------------------------------------- the ratio
@mistake(
    39, "inverse-ratio",
    "the ratio is upside down: it is new over old, exp(logp - old_logp).",
    "the docstring's formula for rho", ("surrogate",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(old_logp - logp)  # <-
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    40, "ratio-without-exp",
    "the ratio is 1 + logp - old_logp, without exp; that is close for small differences only.",
    "the docstring's formula for rho", ("surrogate",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = 1 + logp - old_logp  # <-
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    42, "ratio-of-each-response",
    "there is one ratio a response, from summed log-probs; the task asks for one a token.",
    "the docstring: per token", ("surrogate",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(((logp - old_logp) * mask).sum(dim=1, keepdim=True)).expand_as(logp)  # <-
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    None, "logp-for-ratio",
    "this is the plain policy gradient, logp * A; the objective weighs A with the ratio.",
    "the docstring's formula for obj", ("surrogate",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = logp * adv[:, None] - beta * k3  # <-
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    None, "old-and-ref-exchanged",
    "old_logp and ref_logp are exchanged: the ratio is taken to the old policy, the KL to the "
    "reference.",
    "the docstring on old_logp and ref_logp", ("surrogate", "kl"),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - ref_logp)  # <-
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, old_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


# ------------------------------------------------------- the advantages
@mistake(
    51, "no-token-axis",
    "adv has no token axis, so it is spread over the tokens in place of the responses: write "
    "adv[:, None].",
    "the docstring on adv: shared by all tokens of its response", ("aggregation",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv  # <-
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    None, "advantages-normalised-again",
    "the advantages are normalised again over the batch; take them as they come.",
    "the docstring on adv", ("surrogate",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)  # <-
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    None, "kl-mean-over-tokens",
    "the KL term is averaged over all tokens of the batch; it belongs inside obj, so it is "
    "averaged over each response's own tokens first.",
    "the docstring's paragraph that begins with Aggregate", ("aggregation",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    surrogate = torch.min(unclipped, clipped)
    loss = -((surrogate * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    loss = loss + beta * (k3 * mask).sum() / mask.sum()  # <-
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


# ------------------------------------------------------- the KL term
@mistake(
    44, "kl-added",
    "beta * k3 is added to the objective; it is a penalty, so it is subtracted there.",
    "the docstring's formula for obj", ("kl",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) + beta * k3  # <-
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    45, "no-kl",
    "the KL term is missing from the objective.",
    "the docstring's formula for obj", ("kl",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped)  # <-
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    45, "beta-ignored",
    "k3 is subtracted without beta, which is its weight.",
    "the docstring's formula for obj", ("kl",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - k3  # <-
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    None, "beta-hard-coded",
    "the KL term weighs 0.04 whatever beta is; use the argument.",
    "the docstring on beta", ("kl",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - 0.04 * k3  # <-
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    46, "kl-to-old",
    "the KL is measured against the old policy; it must be against the reference, ref_logp.",
    "the docstring on ref_logp", ("kl",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, old_logp)  # <-
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    None, "kl-by-k1",
    "the penalty is k1, logp - ref_logp, whose expected gradient is 0; the task asks for k3.",
    "the docstring's formula for obj", ("kl",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * (logp - ref_logp)  # <-
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    None, "kl-times-advantage",
    "the KL term is multiplied by the advantage; it stands outside of that product.",
    "the docstring's formula for obj", ("kl",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3 * adv[:, None]  # <-
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    None, "kl-inside-min",
    "beta * k3 is subtracted from one of the two terms only; subtract it from their minimum.",
    "the docstring's formula for obj", ("kl",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped - beta * k3)  # <-
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


# ------------------------------------------------------- the averages
@mistake(
    47, "mean-of-all-tokens",
    "the mean runs over all tokens of the batch, so that long responses weigh more; each response"
    " is averaged first.",
    "the docstring on the aggregate", ("aggregation",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -(obj * mask).sum() / mask.sum()  # <-
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    48, "divided-by-t",
    "each response is divided by T, padding included; divide by the number of its own tokens.",
    "the docstring on the aggregate: divide by |y_i|", ("aggregation",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -(obj * mask).mean(dim=1).mean()  # <-
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    49, "no-mask",
    "the padding is averaged too: multiply by the mask before summing, divide by the mask's sum.",
    "the docstring on mask", ("aggregation",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -obj.mean(dim=1).mean()  # <-
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    None, "kl-unmasked",
    "only the surrogate is masked; the KL term of the padding is summed with it.",
    "the docstring on mask", ("aggregation",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) * mask - beta * k3
    loss = -(obj.sum(dim=1) / mask.sum(dim=1)).mean()  # <-
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    None, "sum-of-tokens",
    "each response's tokens are summed and not divided by their number, so that long responses "
    "weigh more.",
    "the docstring on the aggregate: divide by |y_i|", ("aggregation",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -(obj * mask).sum(dim=1).mean()  # <-
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    50, "sum-of-responses",
    "the responses are summed; take their mean.",
    "the docstring on the aggregate: average over the B responses", ("aggregation",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).sum()  # <-
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


# ------------------------------------------------------- the gradient
@mistake(
    41, "ratio-detached",
    "the ratio is detached: the value is right, but nothing teaches the policy.",
    "the docstring on logp: with grad", ("gradient",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp).detach()  # <-
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    None, "kl-detached",
    "k3 is computed without gradient: the value is right, but the penalty pulls at nothing.",
    "the hint: only the stats belong under torch.no_grad()", ("kl",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    with torch.no_grad():
        k3 = k3_kl(logp, ref_logp)  # <-
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


# ------------------------------------------------------- the statistics
@mistake(
    52, "clip-frac-out-of-range",
    "clip_frac counts every ratio outside of the range, also where the minimum took the unclipped"
    " term.",
    "the docstring on clip_frac", ("stats",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float((((rho - 1).abs() > clip_eps) * mask).sum() / n),  # <-
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    None, "clip-frac-reversed",
    "clip_frac counts the tokens whose clipped term was the larger one; it must be the smaller.",
    "the docstring on clip_frac", ("stats",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped > unclipped) * mask).sum() / n),  # <-
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    53, "clip-frac-of-padding",
    "clip_frac is divided by B*T, padding included; divide by the number of real tokens.",
    "the docstring on clip_frac: fraction of real tokens", ("stats",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).mean()),  # <-
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    None, "clip-frac-of-responses",
    "clip_frac is averaged over each response first; it is a fraction of all real tokens.",
    "the docstring on clip_frac: fraction of real tokens", ("stats",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float((((clipped < unclipped) * mask).sum(1) / mask.sum(1)).mean()),  # <-
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    54, "ratio-max-of-padding",
    "ratio_max looks at the padding too; take the largest ratio of the real tokens.",
    "the docstring on ratio_max: over real tokens", ("stats",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho.max()),  # <-
        }
    return loss, stats


@mistake(
    None, "ratio-max-clipped",
    "ratio_max is taken after clipping, so it never exceeds 1 + eps; take rho itself.",
    "the docstring on ratio_max: the largest rho", ("stats",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho.clamp(1 - clip_eps, 1 + clip_eps)[mask.bool()].max()),  # <-
        }
    return loss, stats


@mistake(
    55, "kl-stat-of-padding",
    "the kl statistic averages the padding too; take the mean over real tokens.",
    "the docstring on kl", ("stats",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float(k3.mean()),  # <-
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    55, "kl-stat-times-beta",
    "the kl statistic is multiplied by beta; it is k3 itself.",
    "the docstring on kl", ("stats",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((beta * k3 * mask).sum() / n),  # <-
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


@mistake(
    None, "kl-stat-of-responses",
    "the kl statistic is averaged over each response first; it is the mean over all real tokens.",
    "the docstring on kl", ("stats",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float(((k3 * mask).sum(dim=1) / mask.sum(dim=1)).mean()),  # <-
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


# ------------------------------------------------------- what is returned, and as what
@mistake(
    56, "stats-as-tensors",
    "the statistics are tensors that keep the graph alive; they must be floats.",
    "the docstring: a dict of floats", ("types",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    n = mask.sum()
    stats = {
        "kl": (k3 * mask).sum() / n,  # <-
        "clip_frac": ((clipped < unclipped) * mask).sum() / n,
        "ratio_max": rho[mask.bool()].max(),
    }
    return loss, stats


@mistake(
    None, "loss-as-float",
    "the loss is a plain number, which has no gradient; it must be a tensor.",
    "the docstring: returns (loss, stats)", ("gradient", "types"),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return float(loss), stats  # <-


@mistake(
    None, "loss-alone",
    "only the loss is returned; the task asks for (loss, stats).",
    "the docstring: returns (loss, stats)", ("types",),
)
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    loss = -((obj * mask).sum(dim=1) / mask.sum(dim=1)).mean()
    return loss  # <-
