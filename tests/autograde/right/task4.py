"""Task 4, grpo_loss: ten right solutions."""

# ruff: noqa: B905, E402, F811, I001  cells import where they need a name, and share one name

import torch
import torch.nn.functional as F

from autograde.reference.lab import k3_kl


# %% right_1: torch's functions, line by line
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    A = adv.unsqueeze(1)
    rho = torch.exp(logp - old_logp)
    clipped_rho = torch.clamp(rho, 1 - clip_eps, 1 + clip_eps)
    k3 = k3_kl(logp, ref_logp)
    obj = torch.minimum(rho * A, clipped_rho * A) - beta * k3
    per_response = torch.sum(obj * mask, dim=1) / torch.sum(mask, dim=1)
    loss = -torch.mean(per_response)
    with torch.no_grad():
        kl = torch.sum(k3 * mask) / torch.sum(mask)
        clip_frac = torch.sum((clipped_rho * A < rho * A) * mask) / torch.sum(mask)
        ratio_max = torch.max(rho[mask == 1])
    return loss, {"kl": kl.item(), "clip_frac": clip_frac.item(), "ratio_max": ratio_max.item()}


# %% right_2: losses from the start, so that the larger one counts
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    ratio = (logp - old_logp).exp()
    loss1 = -adv[:, None] * ratio
    loss2 = -adv[:, None] * ratio.clip(1 - clip_eps, 1 + clip_eps)
    k3 = k3_kl(logp, ref_logp)
    per_token = torch.max(loss1, loss2) + beta * k3
    loss = ((per_token * mask).sum(-1) / mask.sum(-1)).mean()
    real = mask.bool()
    stats = {
        "kl": k3.detach()[real].mean().item(),
        "clip_frac": (loss2 > loss1)[real].to(mask.dtype).mean().item(),
        "ratio_max": ratio.detach()[real].max().item(),
    }
    return loss, stats


# %% right_3: torch.where, by the sign of the advantage
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    A = adv[:, None].expand_as(rho)
    bounded = torch.where(A > 0, rho.clamp(max=1 + clip_eps), rho.clamp(min=1 - clip_eps))
    k3 = k3_kl(logp, ref_logp)
    obj = torch.where(mask > 0, bounded * A - beta * k3, 0.0)
    loss = -(obj.sum(1) / mask.count_nonzero(dim=1)).mean()
    with torch.no_grad():
        hit = ((A > 0) & (rho > 1 + clip_eps)) | ((A < 0) & (rho < 1 - clip_eps))
        return loss, {
            "kl": float(torch.where(mask > 0, k3, 0.0).sum() / mask.sum()),
            "clip_frac": float(hit.logical_and(mask > 0).sum() / mask.sum()),
            "ratio_max": float(torch.where(mask > 0, rho, -torch.inf).max()),
        }


# %% right_4: loops over responses and tokens
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    B, T = logp.shape
    k3 = k3_kl(logp, ref_logp)
    total, kls, clips, ratios = 0.0, [], [], []
    for b in range(B):
        tokens = []
        for t in range(T):
            if not mask[b, t]:
                continue
            rho = torch.exp(logp[b, t] - old_logp[b, t])
            inside = rho.clamp(1 - clip_eps, 1 + clip_eps)
            is_clipped = bool(inside * adv[b] < rho * adv[b])
            tokens.append((inside if is_clipped else rho) * adv[b] - beta * k3[b, t])
            kls.append(k3[b, t].item())
            clips.append(is_clipped)
            ratios.append(rho.item())
        total = total + sum(tokens) / len(tokens)
    n = len(ratios)
    return -total / B, {"kl": sum(kls) / n, "clip_frac": sum(clips) / n, "ratio_max": max(ratios)}


# %% right_5: einsum
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    plain = torch.einsum("bt,b->bt", rho, adv)
    clipped = torch.einsum("bt,b->bt", rho.clamp(1 - clip_eps, 1 + clip_eps), adv)
    k3 = k3_kl(logp, ref_logp)
    lengths = torch.einsum("bt->b", mask)
    obj = torch.min(plain, clipped) - beta * k3
    loss = -torch.einsum("bt,bt,b->", obj, mask, 1 / lengths) / len(adv)
    with torch.no_grad():
        per_token = mask / lengths.sum()
        kl = torch.einsum("bt,bt->", k3, per_token)
        clip_frac = torch.einsum("bt,bt->", (clipped < plain).to(mask.dtype), per_token)
        ratio_max = (rho * mask).max()
    stats = dict(kl=kl, clip_frac=clip_frac, ratio_max=ratio_max)
    return loss, {key: float(value) for key, value in stats.items()}


# %% right_6: only the real tokens, in one row
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    real = mask.bool()
    length = real.sum(dim=1)
    A, n = adv.repeat_interleave(length), length.repeat_interleave(length)
    logp, old_logp, ref_logp = logp[real], old_logp[real], ref_logp[real]
    rho = torch.exp(logp - old_logp)
    pair = torch.stack([rho * A, rho.clamp(1 - clip_eps, 1 + clip_eps) * A])
    k3 = k3_kl(logp, ref_logp)
    loss = -((pair.amin(dim=0) - beta * k3) / n).sum() / len(adv)
    clip_frac = (pair[1] < pair[0]).double().mean().item()
    return loss, {"kl": k3.mean().item(), "clip_frac": clip_frac, "ratio_max": rho.max().item()}


# %% right_7: own tensors, changed in place
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = (logp - old_logp).exp()
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps)
    clipped *= adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped)
    obj -= beta * k3
    obj *= mask
    per_response = obj.sum(1)
    per_response /= mask.sum(1)
    loss = per_response.mean().neg_()
    with torch.no_grad():
        n = mask.sum()
        hits = (clipped < unclipped).to(mask.dtype)
        hits.mul_(mask)
        stats = {"kl": ((k3 * mask).sum() / n).item(), "clip_frac": (hits.sum() / n).item()}
        stats["ratio_max"] = rho.masked_fill(mask == 0, 0).max().item()
    return loss, stats


# %% right_8: helper functions
def masked_mean(x, mask, dim=None):
    return (x * mask).sum(dim) / mask.sum(dim)


def surrogate(rho, adv, clip_eps):
    both = torch.stack([rho, rho.clamp(1 - clip_eps, 1 + clip_eps)]) * adv[None, :, None]
    return both.min(dim=0).values, both[1] < both[0]


def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = torch.exp(logp - old_logp)
    gain, was_clipped = surrogate(rho, adv, clip_eps)
    penalty = k3_kl(logp, ref_logp)
    objective = masked_mean(gain, mask, dim=1) - beta * masked_mean(penalty, mask, dim=1)
    stats = {
        "kl": float(masked_mean(penalty.detach(), mask)),
        "clip_frac": float(masked_mean(was_clipped, mask)),
        "ratio_max": float(rho.detach()[mask.bool()].max()),
    }
    return -objective.mean(), stats


# %% right_9: relu takes away what the clip forbids
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    keep = mask != 0
    # Padding may hold anything: there the ratio is 1 and the KL 0 before it is masked.
    log_rho = torch.where(keep, logp - old_logp, torch.zeros_like(logp))
    k3 = k3_kl(torch.where(keep, logp, ref_logp), ref_logp)
    rho = log_rho.exp()
    unclipped = rho.mul(adv.view(-1, 1))
    excess = F.relu(unclipped - rho.clamp(1 - clip_eps, 1 + clip_eps).mul(adv.view(-1, 1)))
    obj = (unclipped - excess).sub(k3, alpha=beta)
    loss = obj.mul(mask).sum(-1).mul(mask.sum(-1).reciprocal()).mean().neg()
    with torch.no_grad():
        tokens = mask.sum().item()
        stats = {
            "kl": k3.sum().item() / tokens,
            "clip_frac": excess.gt(0).logical_and(keep).sum().item() / tokens,
            "ratio_max": rho[keep].max().item(),
        }
    return loss, stats


# %% right_10: one response after the other, and lists
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    objectives, ratios, k3s, clips = [], [], [], []
    for new, old, ref, A, m in zip(logp, old_logp, ref_logp, adv, mask):
        new, old, ref = (x[m.bool()] for x in (new, old, ref))
        rho = torch.exp(new - old)
        low, high = rho.new_tensor([1 - clip_eps, 1 + clip_eps])
        clipped = torch.maximum(torch.minimum(rho, high), low)
        k3 = k3_kl(new, ref)
        objectives.append((torch.min(rho * A, clipped * A) - beta * k3).mean())
        ratios += rho.tolist()
        k3s += k3.tolist()
        clips += (clipped * A < rho * A).tolist()
    stats = {
        "kl": sum(k3s) / len(k3s),
        "clip_frac": sum(clips) / len(clips),
        "ratio_max": max(ratios),
    }
    return -torch.stack(objectives).mean(), stats
