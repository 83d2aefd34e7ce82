"""Task 5, grpo_step: ten right solutions.

The seed does not say whether the entropy is that of the policy before or after its update: both are
right, and both are here.
"""

# ruff: noqa: B905, E402, F811, I001  cells import where they need a name, and share one name

import torch

from autograde.reference.lab import group_advantages, grpo_loss, k3_kl, sample_group  # noqa: F401
from tinylm import sequence_logprobs, token_entropy


# %% right_1: the docstring line by line, the entropy asked for in the result
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    adv = group_advantages(groups["rewards"], cfg.G, cfg.scale_std)
    out = groups["out"]
    with torch.no_grad():
        old_logp = sequence_logprobs(policy, out)
        ref_logp = sequence_logprobs(ref, out)
    mask = out["mask"]
    for _ in range(cfg.inner_steps):
        logp = sequence_logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, mask, cfg.clip_eps, cfg.beta)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    grouped = groups["rewards"].view(-1, cfg.G)
    return {
        "reward": groups["rewards"].mean().item(),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": (grouped.amax(1) == grouped.amin(1)).float().mean().item(),
        "entropy": token_entropy(policy, out),
    }


# %% right_2: old_logp is the first inner step's logp, detached
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    ref_logp = sequence_logprobs(ref, out).detach()
    entropy, old_logp = token_entropy(policy, out), None
    for _ in range(cfg.inner_steps):
        logp = sequence_logprobs(policy, out)
        if old_logp is None:
            old_logp = logp.detach()
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    equal = [len(set(group.tolist())) == 1 for group in rewards.split(cfg.G)]
    return dict(reward=float(rewards.mean()), loss=float(loss.detach()), kl=s["kl"],
                clip_frac=s["clip_frac"], frac_zero_signal=sum(equal) / len(equal), entropy=entropy)


# %% right_3: the package and its attributes
import tinylm


def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    adv = group_advantages(groups["rewards"], cfg.G, cfg.scale_std)
    with torch.no_grad():
        old, frozen = (tinylm.sequence_logprobs(model, groups["out"]) for model in (policy, ref))
    for _ in range(cfg.inner_steps):
        new = tinylm.sequence_logprobs(policy, groups["out"])
        loss, stats = grpo_loss(
            new, old, frozen, adv, groups["out"]["mask"], clip_eps=cfg.clip_eps, beta=cfg.beta
        )
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    stats.pop("ratio_max")
    stats["reward"] = groups["rewards"].mean().item()
    stats["loss"] = loss.item()
    first = groups["rewards"][::cfg.G].repeat_interleave(cfg.G)
    differs = (groups["rewards"] != first).reshape(-1, cfg.G).any(dim=1)
    stats["frac_zero_signal"] = 1 - differs.double().mean().item()
    stats["entropy"] = tinylm.token_entropy(policy, groups["out"])
    return stats


# %% right_4: the own lab file, with attributes
import lab


def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = lab.sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = lab.group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        old_logp = lab.sequence_logprobs(policy, out)
        ref_logp = lab.sequence_logprobs(ref, out)
    result = {"reward": rewards.mean().item(), "entropy": lab.token_entropy(policy, out)}
    for _ in range(cfg.inner_steps):
        logp = lab.sequence_logprobs(policy, out)
        loss, s = lab.grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
        result.update(loss=loss.item(), kl=s["kl"], clip_frac=s["clip_frac"])
    r = rewards.reshape(-1, cfg.G)
    result["frac_zero_signal"] = r.eq(r[:, :1]).all(dim=1).sum().item() / len(prompts)
    return result


# %% right_5: aliases, every argument by keyword
from lab import group_advantages as advantages_of
from lab import grpo_loss as loss_of
from lab import sample_group as rollouts
from tinylm import sequence_logprobs as logprobs
from tinylm import token_entropy as entropy_of


def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = rollouts(
        model=policy, prompts=prompts, answers=answers, G=cfg.G, temperature=cfg.temperature
    )
    adv = advantages_of(rewards=groups["rewards"], G=cfg.G, scale_std=cfg.scale_std)
    with torch.no_grad():
        fixed = dict(
            old_logp=logprobs(model=policy, out=groups["out"]),
            ref_logp=logprobs(model=ref, out=groups["out"]),
            adv=adv, mask=groups["out"]["mask"], clip_eps=cfg.clip_eps, beta=cfg.beta,
        )
    entropy = entropy_of(model=policy, out=groups["out"])
    for _ in range(cfg.inner_steps):
        loss, s = loss_of(logp=logprobs(model=policy, out=groups["out"]), **fixed)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(
            parameters=policy.parameters(), max_norm=cfg.max_grad_norm, norm_type=2.0
        )
        opt.step()
    r = groups["rewards"].reshape(len(prompts), cfg.G)
    same = torch.all(torch.eq(r, r[:, 0].unsqueeze(1)), dim=1)
    return {
        "entropy": entropy, "frac_zero_signal": torch.mean(same, dtype=torch.float64).item(),
        "clip_frac": s["clip_frac"], "kl": s["kl"], "loss": loss.item(),
        "reward": torch.mean(groups["rewards"]).item(),
    }


# %% right_6: helper functions
@torch.no_grad()
def frozen_logprobs(policy, ref, out):
    return sequence_logprobs(policy, out), sequence_logprobs(ref, out)


def update(policy, opt, loss, max_grad_norm):
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), max_grad_norm)
    opt.step()


def zero_signal(rewards, G):
    groups = [rewards[i:i + G] for i in range(0, len(rewards), G)]
    return sum(1.0 for group in groups if (group == group[0]).all()) / len(groups)


def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    old_logp, ref_logp = frozen_logprobs(policy, ref, out)
    for _ in range(cfg.inner_steps):
        logp = sequence_logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        update(policy, opt, loss, cfg.max_grad_norm)
    return {
        "reward": rewards.mean().item(),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": zero_signal(rewards, cfg.G),
        "entropy": token_entropy(policy, out),
    }


# %% right_7: a loop that counts, and statistics from lists
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    entropy = token_entropy(policy, groups["out"])
    rewards = groups["rewards"].tolist()
    adv = group_advantages(groups["rewards"], cfg.G, cfg.scale_std)
    torch.set_grad_enabled(False)
    old_logp = sequence_logprobs(policy, groups["out"])
    ref_logp = sequence_logprobs(ref, groups["out"])
    torch.set_grad_enabled(True)
    history, step = [], 0
    while step < cfg.inner_steps:
        opt.zero_grad()
        logp = sequence_logprobs(policy, groups["out"])
        loss, s = grpo_loss(
            logp, old_logp, ref_logp, adv, groups["out"]["mask"], cfg.clip_eps, cfg.beta
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(policy.parameters()), cfg.max_grad_norm)
        opt.step()
        history.append((loss.item(), s["kl"], s["clip_frac"]))
        step += 1
    silent = 0
    for i in range(0, len(rewards), cfg.G):
        group = rewards[i:i + cfg.G]
        if max(group) == min(group):
            silent += 1
    return {
        "reward": sum(rewards) / len(rewards),
        "loss": history[-1][0],
        "kl": history[-1][1],
        "clip_frac": history[-1][2],
        "frac_zero_signal": silent / len(prompts),
        "entropy": entropy,
    }


# %% right_8: imported inside the function, gradients clipped for the optimizer's parameters
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    from operator import itemgetter

    from lab import group_advantages, grpo_loss, sample_group
    from tinylm.rollout import sequence_logprobs, token_entropy
    from torch.nn.utils import clip_grad_norm_

    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = itemgetter("out", "rewards")(groups)
    adv = group_advantages(rewards, cfg.G, cfg.scale_std).detach()
    old_logp = sequence_logprobs(policy, out).detach()
    with torch.no_grad():
        ref_logp = sequence_logprobs(ref, out)
    parameters = [p for group in opt.param_groups for p in group["params"]]
    for _ in range(cfg.inner_steps):
        loss, s = grpo_loss(
            sequence_logprobs(policy, out), old_logp, ref_logp, adv, out["mask"],
            cfg.clip_eps, cfg.beta,
        )
        opt.zero_grad(set_to_none=False)
        loss.backward()
        clip_grad_norm_(parameters, cfg.max_grad_norm)
        opt.step()
    r = rewards.unflatten(0, (-1, cfg.G))
    equal = torch.tensor([len(group.unique()) == 1 for group in r])
    return {
        "reward": rewards.sum().item() / rewards.numel(),
        "loss": loss.detach().cpu().item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": equal.float().mean().item(),
        "entropy": token_entropy(policy, out),
    }


# %% right_9: partial and closures
from functools import partial


def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, temperature=cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    with torch.no_grad():
        old_logp, ref_logp = map(partial(sequence_logprobs, out=out), (policy, ref))
        adv = group_advantages(rewards, cfg.G, scale_std=cfg.scale_std)
    objective = partial(
        grpo_loss, old_logp=old_logp, ref_logp=ref_logp, adv=adv, mask=out["mask"],
        clip_eps=cfg.clip_eps, beta=cfg.beta,
    )

    def inner_step():
        loss, s = objective(sequence_logprobs(policy, out))
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
        return {"loss": float(loss.detach()), "kl": s["kl"], "clip_frac": s["clip_frac"]}

    entropy = token_entropy(policy, out)
    last = [inner_step() for _ in range(cfg.inner_steps)][-1]
    spread = rewards.reshape(-1, cfg.G).max(dim=1).values - rewards.reshape(-1, cfg.G).min(1).values
    zero = (spread == 0).count_nonzero().item() / len(spread)
    return {**last, "reward": float(rewards.mean()), "frac_zero_signal": zero, "entropy": entropy}


# %% right_10: gradients switched on for the update only
@torch.no_grad()
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    batch = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    adv = group_advantages(batch["rewards"], cfg.G, cfg.scale_std)
    models = {"old_logp": policy, "ref_logp": ref}
    fixed = {name: sequence_logprobs(model, batch["out"]) for name, model in models.items()}
    stats = {"reward": batch["rewards"].mean().item()}
    stats |= {"entropy": token_entropy(policy, batch["out"])}
    for _ in range(cfg.inner_steps):
        with torch.enable_grad():
            logp = sequence_logprobs(policy, batch["out"])
            loss, s = grpo_loss(logp, **fixed, adv=adv, mask=batch["out"]["mask"],
                                clip_eps=cfg.clip_eps, beta=cfg.beta)
            opt.zero_grad()
            loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    rows = batch["rewards"].reshape(-1, cfg.G)
    equal = (rows[:, 1:] == rows[:, :-1]).all(dim=1)
    stats |= {"loss": loss.item(), "kl": s["kl"], "clip_frac": s["clip_frac"]}
    stats["frac_zero_signal"] = equal.to(rows.dtype).mean().item()
    return stats
