"""A whole lab by somebody who likes aliases, loops and small helpers."""

from math import e
from statistics import fmean, pstdev

import torch

from tinylm import GRPOConfig  # noqa: F401  notebooks import it from here
from tinylm import decode_responses as to_text
from tinylm import reward as score
from tinylm import sample as draw
from tinylm import sequence_logprobs as logprobs
from tinylm import token_entropy as entropy_of
from tinylm.training import train


def _repeat(items, G):
    repeated = []
    for item in items:
        repeated.extend([item] * G)
    return repeated


def _split(rewards, G):
    return [rewards[i:i + G] for i in range(0, len(rewards), G)]


def sample_group(model, prompts, answers, G, temperature=1.0):
    result = {"out": draw(model, _repeat(prompts, G), temperature=temperature)}
    result["responses"] = to_text(result["out"])
    scores = map(score, result["responses"], _repeat(answers, G))
    result["rewards"] = torch.tensor(list(scores), device=result["out"]["ids"].device)
    return result


def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    adv = []
    for group in _split(rewards.tolist(), G):
        mean = fmean(group)
        scale = pstdev(group) + eps if scale_std else 1.0
        adv += [(r - mean) / scale for r in group]
    return rewards.new_tensor(adv)


def k3_kl(logp, ref_logp):
    d = ref_logp - logp
    return torch.pow(e, d) - (1 + d)


def _bounded(rho, A, clip_eps):
    """The ratio, held back on the side on which the advantage pulls."""
    return rho.clamp(max=1 + clip_eps) if A > 0 else rho.clamp(min=1 - clip_eps)


def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    losses, k3s, ratios, cuts = [], [], [], []
    for i, A in enumerate(adv.tolist()):
        real = mask[i] == 1
        rho = torch.exp(logp[i][real] - old_logp[i][real])
        bounded = _bounded(rho, A, clip_eps)
        k3 = k3_kl(logp[i][real], ref_logp[i][real])
        losses.append((beta * k3 - bounded * A).mean())
        with torch.no_grad():
            k3s.append(k3)
            ratios.append(rho)
            cuts.append((bounded != rho) & (A != 0))
    return sum(losses) / len(losses), {
        "kl": torch.cat(k3s).mean().item(),
        "clip_frac": torch.cat(cuts).double().mean().item(),
        "ratio_max": torch.cat(ratios).max().item(),
    }


def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    stats = {
        "reward": fmean(rewards.tolist()),
        "frac_zero_signal": fmean(len(set(g)) == 1 for g in _split(rewards.tolist(), cfg.G)),
        "entropy": entropy_of(policy, out),
    }
    ref_logp = logprobs(ref, out).detach()
    old_logp = logprobs(policy, out).detach()
    for _ in range(cfg.inner_steps):
        logp = logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        stats.update(loss=loss.item(), kl=s["kl"], clip_frac=s["clip_frac"])
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    return stats


def train_grpo(cfg, sft_path=None, verbose=True):
    return train(grpo_step, cfg, sft_path=sft_path, verbose=verbose)
