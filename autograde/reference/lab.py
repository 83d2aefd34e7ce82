"""Lab 15: GRPO on TinyLM, from group sampling to the training loop.

Your file. Five tasks, in order; each is marked TODO. Run the tests for one task at a time:

    python -m pytest -q -k task1

Chapter: https://learn.xhelio.ai/rl/learn/15-rlvr-grpo/

Everything below "given: helpers and the training loop" is complete. Read train_grpo once: it is the
outer loop that calls your grpo_step.
"""

import torch
import torch.nn.functional as F

from tinylm import (
    GRPOConfig,
    accuracy,
    decode_responses,
    load_or_train_sft,
    make_batch,
    reward,
    sample,
    sequence_logprobs,
    token_entropy,
)
from tinylm.training import train


# ============================================================== Task 1
def sample_group(model, prompts, answers, G, temperature=1.0):
    """Sample a group of G responses for every prompt and score them.

    Args:
        model: the policy (a TinyLM).
        prompts: list of P prompt strings, e.g. ["37+48=", "5+5="].
        answers: list of P answer strings, e.g. ["85", "10"].
        G: group size (responses per prompt).
        temperature: sampling temperature.

    Returns a dict:
        "out": the dict returned by tinylm.sample for the P*G repeated prompts. Rows are grouped
            contiguously: rows 0..G-1 answer prompt 0, rows G..2G-1 answer prompt 1, and so on.
        "responses": list of P*G decoded response strings.
        "rewards": float tensor of shape (P*G,), the verifiable reward
            tinylm.reward(response, answer) of each row (1.0 or 0.0).
    """
    prompts = [p for p in prompts for _ in range(G)]
    answers = [a for a in answers for _ in range(G)]
    out = sample(model, prompts, temperature=temperature)
    responses = decode_responses(out)
    rewards = [reward(r, a) for r, a in zip(responses, answers)]
    rewards = torch.tensor(rewards, device=out["ids"].device)
    return {"out": out, "responses": responses, "rewards": rewards}


# ============================================================== Task 2
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    """Group-relative advantages, one number per response.

    Args:
        rewards: (P*G,) tensor, grouped contiguously as in sample_group.
        G: group size.
        scale_std: if True, divide by the group's standard deviation (GRPO); if False, only
            subtract the group mean.
        eps: added to the std so all-equal groups do not divide by zero.

    Returns: (P*G,) tensor with A_i = (r_i - mean(group)) / (std(group) + eps) where mean and std
    are taken over the G responses of the same prompt. Use the population std (divide by G, i.e.
    torch.std(..., unbiased=False)). A group whose rewards are all equal gets advantage 0 for
    every response.
    """
    r = rewards.reshape(-1, G)
    adv = r - r.mean(dim=1, keepdim=True)
    if scale_std:
        adv = adv / (r.std(dim=1, keepdim=True, unbiased=False) + eps)
    return adv.reshape(-1)


# ============================================================== Task 3
def k3_kl(logp, ref_logp):
    """Per-token k3 estimator of KL(pi_theta || pi_ref).

    Args:
        logp: (B, T) log pi_theta(y_t | ...) of the sampled tokens.
        ref_logp: (B, T) log pi_ref(y_t | ...) of the same tokens.

    Returns: (B, T) tensor k3 = pi_ref/pi_theta - log(pi_ref/pi_theta) - 1, computed from
    log-probs: with d = ref_logp - logp, k3 = exp(d) - d - 1. Every entry is >= 0. Gradients must
    flow through logp (not through ref_logp, which should come from a frozen model anyway).
    """
    d = ref_logp - logp
    return torch.exp(d) - d - 1


# ============================================================== Task 4
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    """The GRPO loss (DeepSeekMath's objective, negated so we can minimize it).

    Args:
        logp: (B, T) log-probs of the sampled tokens under the current policy (with grad).
        old_logp: (B, T) log-probs under the policy that sampled them (no grad).
        ref_logp: (B, T) log-probs under the frozen reference model (no grad).
        adv: (B,) one advantage per response, shared by all its tokens.
        mask: (B, T) 1.0 for real response tokens, 0.0 for padding.
        clip_eps: PPO clip range epsilon.
        beta: KL coefficient.

    Per token:
        rho = exp(logp - old_logp)
        obj = min(rho * A, clip(rho, 1 - eps, 1 + eps) * A) - beta * k3

    Aggregate: average obj over each response's own tokens (divide by |y_i|), then average over
    the B responses. loss = -that.

    Returns (loss, stats) where stats is a dict of floats:
        "kl": mean k3 over all real tokens of the batch,
        "clip_frac": fraction of real tokens where the clipped term was the smaller one (i.e.
            where the clip changed the objective),
        "ratio_max": the largest rho over real tokens.
    """
    rho = torch.exp(logp - old_logp)
    unclipped = rho * adv[:, None]
    clipped = rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    k3 = k3_kl(logp, ref_logp)
    obj = torch.min(unclipped, clipped) - beta * k3
    per_response = (obj * mask).sum(dim=1) / mask.sum(dim=1)
    loss = -per_response.mean()
    with torch.no_grad():
        n = mask.sum()
        stats = {
            "kl": float((k3 * mask).sum() / n),
            "clip_frac": float(((clipped < unclipped) * mask).sum() / n),
            "ratio_max": float(rho[mask.bool()].max()),
        }
    return loss, stats


# ============================================================== Task 5
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    """One GRPO iteration: sample groups, score, compute advantages, then update.

    Steps:
        1. groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
        2. adv = group_advantages(groups["rewards"], cfg.G, cfg.scale_std)
        3. With torch.no_grad(): old_logp = sequence_logprobs(policy, out) and
           ref_logp = sequence_logprobs(ref, out). These stay fixed for the whole iteration.
        4. Repeat cfg.inner_steps times: logp = sequence_logprobs(policy, out);
           loss, s = grpo_loss(logp, old_logp, ref_logp, adv, mask, cfg.clip_eps, cfg.beta);
           opt.zero_grad(); loss.backward(); clip grad norm to cfg.max_grad_norm; opt.step().

    Returns a dict of floats: "reward" (mean reward of the samples), "loss" (last inner step),
    "kl", "clip_frac" (from the last inner step), "frac_zero_signal" (fraction of groups whose
    rewards are all equal), "entropy" (mean per-token entropy of the policy at the sampled
    positions, from `token_entropy`).
    """
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        old_logp = sequence_logprobs(policy, out)
        ref_logp = sequence_logprobs(ref, out)
    entropy = token_entropy(policy, out)
    for _ in range(cfg.inner_steps):
        logp = sequence_logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    return {
        "reward": float(rewards.mean()),
        "loss": float(loss.detach()),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float((r == r[:, :1]).all(dim=1).float().mean()),
        "entropy": entropy,
    }


# ============================================================= given: helpers and the training loop
# GRPOConfig and token_entropy are given too: tinylm has them (training.py and rollout.py).
def train_grpo(cfg, sft_path=None, verbose=True):
    """Run GRPO from the cached SFT checkpoint. Returns (policy, history).

    The outer loop is `tinylm.training.train`; it calls the grpo_step of this file. Without a path
    it starts from the checkpoint that tinylm ships; with one, the SFT model is trained once (about
    5 s) and cached there. History holds per-iteration stats and the periodic evaluations.
    """
    return train(grpo_step, cfg, sft_path=sft_path, verbose=verbose)
