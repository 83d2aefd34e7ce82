"""A whole lab by somebody who likes modules with their attributes, and matrices."""

import torch

import tinylm
import tinylm.training
from tinylm import GRPOConfig  # noqa: F401  notebooks import it from here


def same_group(P, G, like):
    """The (P*G, P*G) matrix with 1.0 where two rows answer the same prompt."""
    return torch.block_diag(*[like.new_ones(G, G)] * P)


def sample_group(model, prompts, answers, G, temperature=1.0):
    rows = torch.arange(len(prompts)).repeat_interleave(G).tolist()
    out = tinylm.sample(model, [prompts[i] for i in rows], temperature=temperature)
    responses = tinylm.decode_responses(out)
    right = [tinylm.reward(text, answers[i]) for text, i in zip(responses, rows, strict=True)]
    return {"out": out, "responses": responses, "rewards": out["mask"].new_tensor(right)}


def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    same = same_group(len(rewards) // G, G, rewards)
    adv = rewards - same @ rewards / G
    if scale_std:
        adv = adv / ((same @ adv.square() / G).sqrt() + eps)
    return adv


def k3_kl(logp, ref_logp):
    return torch.expm1(ref_logp - logp) + logp - ref_logp


def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    rho = (logp - old_logp).exp()
    gain = torch.diag(adv) @ rho
    bounded = torch.diag(adv) @ torch.clamp(rho, min=1 - clip_eps, max=1 + clip_eps)
    k3 = k3_kl(logp, ref_logp)
    weight = mask / mask.sum(dim=1, keepdim=True) / len(mask)
    loss = (weight * (beta * k3 - torch.minimum(gain, bounded))).sum()
    real = mask.bool()
    stats = {
        "kl": k3[real].mean().item(),
        "clip_frac": torch.lt(bounded, gain)[real].double().mean().item(),
        "ratio_max": rho[real].max().item(),
    }
    return loss, stats


def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        before = tinylm.sequence_logprobs(policy, out)
        frozen = tinylm.sequence_logprobs(ref, out)
    for _ in range(cfg.inner_steps):
        now = tinylm.sequence_logprobs(policy, out)
        loss, stats = grpo_loss(now, before, frozen, adv, out["mask"], cfg.clip_eps, cfg.beta)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    grouped = rewards.reshape(-1, cfg.G)
    return {
        "reward": rewards.mean().item(),
        "loss": loss.item(),
        "kl": stats["kl"],
        "clip_frac": stats["clip_frac"],
        "frac_zero_signal": (grouped == grouped[:, [0]]).all(dim=1).double().mean().item(),
        "entropy": tinylm.token_entropy(policy, out),
    }


def train_grpo(cfg, sft_path=None, verbose=True):
    return tinylm.training.train(grpo_step, cfg, sft_path=sft_path, verbose=verbose)
