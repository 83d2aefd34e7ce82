"""Task 5, grpo_step: how the parts are joined wrongly."""

# ruff: noqa: F811  every entry bears the name of the task's function

import torch

from autograde.mistakes import mistake
from autograde.reference.lab import group_advantages, grpo_loss, sample_group
from tinylm import sequence_logprobs, token_entropy


# ------------------------------------------------------- the rollout and its advantages
@mistake(
    62, "resampled-in-each-step",
    "new responses are sampled in each inner step; the inner steps share one batch.",
    "the docstring's step 1, which is not repeated", ("rollout",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    for _ in range(cfg.inner_steps):
        groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)  # <-
        out, rewards = groups["out"], groups["rewards"]
        adv = group_advantages(rewards, cfg.G, cfg.scale_std)
        with torch.no_grad():
            old_logp = sequence_logprobs(policy, out)
            ref_logp = sequence_logprobs(ref, out)
        entropy = token_entropy(policy, out)
        logp = sequence_logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    None, "sampled-from-ref",
    "the responses are sampled from the reference; the policy learns from its own.",
    "the docstring's step 1", ("rollout",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(ref, prompts, answers, cfg.G, cfg.temperature)  # <-
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
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    None, "rewards-as-advantages",
    "the rewards themselves weigh the tokens; the group's advantages must.",
    "the docstring's step 2", ("rollout",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = rewards  # <-
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
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    None, "advantages-in-groups-of-p",
    "group_advantages is given the number of prompts; it takes the group size, cfg.G.",
    "the docstring's step 2", ("rollout",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, len(prompts), cfg.scale_std)  # <-
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
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    None, "ones-for-mask",
    "grpo_loss is given a mask of ones, so the padding counts; give it the mask of the rollout.",
    'the docstring of tinylm.sample on "mask"', ("rollout",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        old_logp = sequence_logprobs(policy, out)
        ref_logp = sequence_logprobs(ref, out)
    entropy = token_entropy(policy, out)
    for _ in range(cfg.inner_steps):
        logp = sequence_logprobs(policy, out)
        mask = torch.ones_like(out["mask"])  # <-
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, mask, cfg.clip_eps, cfg.beta)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


# ------------------------------------------------------- the old policy and the reference
@mistake(
    57, "old-recomputed",
    "old_logp is computed anew in each inner step, so the ratio is always 1 and the clip never "
    "acts; compute it once, before the loop.",
    "the docstring's step 3: fixed for the whole iteration", ("old_and_ref",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        ref_logp = sequence_logprobs(ref, out)
    entropy = token_entropy(policy, out)
    for _ in range(cfg.inner_steps):
        logp = sequence_logprobs(policy, out)
        old_logp = logp.detach()  # <-
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    58, "old-with-gradient",
    "old_logp is computed with gradients, which cancel those of logp; compute it under "
    "torch.no_grad().",
    "the docstring's step 3", ("old_and_ref",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    old_logp = sequence_logprobs(policy, out)  # <-
    with torch.no_grad():
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
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    59, "ref-for-old",
    "grpo_loss is given ref_logp as old_logp; the ratio is taken to the policy that sampled.",
    "the docstring's step 3", ("old_and_ref",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        ref_logp = sequence_logprobs(ref, out)
        old_logp = ref_logp  # <-
    entropy = token_entropy(policy, out)
    for _ in range(cfg.inner_steps):
        logp = sequence_logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    None, "policies-exchanged",
    "old_logp comes from the reference and ref_logp from the policy; it is the other way round.",
    "the docstring's step 3", ("old_and_ref",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        old_logp = sequence_logprobs(ref, out)  # <-
        ref_logp = sequence_logprobs(policy, out)
    entropy = token_entropy(policy, out)
    for _ in range(cfg.inner_steps):
        logp = sequence_logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    65, "ref-from-policy",
    "ref_logp comes from the policy, so the KL term does not see the reference.",
    "the docstring's step 3", ("old_and_ref",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        old_logp = sequence_logprobs(policy, out)
        ref_logp = sequence_logprobs(policy, out)  # <-
    entropy = token_entropy(policy, out)
    for _ in range(cfg.inner_steps):
        logp = sequence_logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    65, "ref-updated",
    "the policy's weights are copied into the reference; it must stay as it was.",
    "the docstring of grpo_loss on ref_logp: frozen", ("old_and_ref",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
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
    ref.load_state_dict(policy.state_dict())  # <-
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


# ------------------------------------------------------- the inner steps
@mistake(
    63, "one-inner-step",
    "there is one update whatever cfg.inner_steps is.",
    "the docstring's step 4", ("inner_steps",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        old_logp = sequence_logprobs(policy, out)
        ref_logp = sequence_logprobs(ref, out)
    entropy = token_entropy(policy, out)
    for _ in range(1):  # <-
        logp = sequence_logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    None, "one-step-too-many",
    "there is one inner step too many.",
    "the docstring's step 4", ("inner_steps",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        old_logp = sequence_logprobs(policy, out)
        ref_logp = sequence_logprobs(ref, out)
    entropy = token_entropy(policy, out)
    for _ in range(cfg.inner_steps + 1):  # <-
        logp = sequence_logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    None, "one-update-after-the-loop",
    "the gradients are summed over the inner steps and the policy is updated once; update it in "
    "each.",
    "the docstring's step 4", ("inner_steps",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        old_logp = sequence_logprobs(policy, out)
        ref_logp = sequence_logprobs(ref, out)
    entropy = token_entropy(policy, out)
    opt.zero_grad()
    for _ in range(cfg.inner_steps):
        logp = sequence_logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)  # <-
    opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    None, "logp-before-the-loop",
    "logp is computed once, before the loop; each inner step needs it from the policy as it is "
    "then.",
    "the docstring's step 4", ("inner_steps",), named=False,
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        old_logp = sequence_logprobs(policy, out)
        ref_logp = sequence_logprobs(ref, out)
    entropy = token_entropy(policy, out)
    logp = sequence_logprobs(policy, out)  # <-
    for _ in range(cfg.inner_steps):
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


# ------------------------------------------------------- the update
@mistake(
    60, "no-zero-grad",
    "the gradients are never set to zero, so they pile up from step to step.",
    "the docstring's step 4", ("optimizer",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
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
        loss.backward()  # <-
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    None, "zero-grad-after-backward",
    "zero_grad comes after backward and wipes out the gradient; it comes before.",
    "the docstring's step 4", ("optimizer",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
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
        loss.backward()
        opt.zero_grad()  # <-
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    61, "clipped-after-the-step",
    "the gradient norm is clipped after opt.step(), when the update is made; clip before.",
    "the docstring's step 4", ("optimizer",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
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
        opt.step()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)  # <-
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    61, "norm-not-clipped",
    "the gradient norm is not clipped.",
    "the docstring's step 4", ("optimizer",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
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
        opt.step()  # <-
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    None, "values-clipped",
    "each entry of the gradient is clipped; the task asks to clip the norm of all together.",
    "the documentation of torch.nn.utils.clip_grad_norm_", ("optimizer",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
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
        torch.nn.utils.clip_grad_value_(policy.parameters(), cfg.max_grad_norm)  # <-
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    None, "uphill",
    "the loss is negated once more, so the policy walks away from reward; grpo_loss has negated "
    "it.",
    "the docstring of grpo_loss: loss = -that", ("optimizer",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
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
        (-loss).backward()  # <-
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    None, "never-steps",
    "opt.step() is never called, so nothing is learned.",
    "the docstring's step 4", ("optimizer",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
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
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)  # <-
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


# ------------------------------------------------------- the statistics
@mistake(
    64, "loss-of-first-step",
    "the loss returned is that of the first inner step; the task asks for the last.",
    "the docstring on what is returned", ("stats",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        old_logp = sequence_logprobs(policy, out)
        ref_logp = sequence_logprobs(ref, out)
    entropy = token_entropy(policy, out)
    for step in range(cfg.inner_steps):
        logp = sequence_logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        if step == 0:
            first_loss = loss.item()
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": first_loss,  # <-
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    64, "kl-of-first-step",
    "the kl returned is that of the first inner step; the task asks for the last.",
    "the docstring on what is returned", ("stats",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        old_logp = sequence_logprobs(policy, out)
        ref_logp = sequence_logprobs(ref, out)
    entropy = token_entropy(policy, out)
    for step in range(cfg.inner_steps):
        logp = sequence_logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        if step == 0:
            first_kl = s["kl"]
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": first_kl,  # <-
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    64, "clip-frac-of-first-step",
    "the clip_frac returned is that of the first inner step, where it is always 0; the task asks "
    "for the last.",
    "the docstring on what is returned", ("stats",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        old_logp = sequence_logprobs(policy, out)
        ref_logp = sequence_logprobs(ref, out)
    entropy = token_entropy(policy, out)
    for step in range(cfg.inner_steps):
        logp = sequence_logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        if step == 0:
            first_clip_frac = s["clip_frac"]
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": first_clip_frac,  # <-
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    None, "averaged-over-inner-steps",
    "loss, kl and clip_frac are averaged over the inner steps; the task asks for the last.",
    "the docstring on what is returned", ("stats",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        old_logp = sequence_logprobs(policy, out)
        ref_logp = sequence_logprobs(ref, out)
    entropy = token_entropy(policy, out)
    every = []
    for _ in range(cfg.inner_steps):
        logp = sequence_logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        every.append((loss.item(), s["kl"], s["clip_frac"]))
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    mean_loss, kl, clip_frac = (sum(x) / len(x) for x in zip(*every, strict=True))  # <-
    return {
        "reward": float(rewards.mean()),
        "loss": mean_loss,
        "kl": kl,
        "clip_frac": clip_frac,
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    66, "all-wrong-only",
    "frac_zero_signal counts the groups that are all wrong; those that are all right teach "
    "nothing either.",
    "the docstring on frac_zero_signal: rewards all equal", ("stats",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
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
    equal = (r == 0).all(dim=1)  # <-
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    66, "all-right-only",
    "frac_zero_signal counts the groups that are all right; those that are all wrong teach "
    "nothing either.",
    "the docstring on frac_zero_signal: rewards all equal", ("stats",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
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
    equal = (r == 1).all(dim=1)  # <-
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    67, "responses-counted",
    "frac_zero_signal counts responses that equal the first of their group; count groups in which"
    " all do.",
    "the docstring on frac_zero_signal: fraction of groups", ("stats",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
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
    equal = r == r[:, :1]  # <-
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    67, "fraction-with-signal",
    "this is the fraction of groups with a signal: 1 minus frac_zero_signal.",
    "the docstring on frac_zero_signal: rewards all equal", ("stats",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
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
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": 1 - float(equal.float().mean()),  # <-
        "entropy": entropy,
    }


@mistake(
    None, "zero-signal-of-batch",
    "frac_zero_signal asks whether all rewards of the batch are equal; ask it of each group.",
    "the docstring on frac_zero_signal: fraction of groups", ("stats",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
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
    equal = (rewards == rewards[0]).all()  # <-
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    None, "rewards-summed",
    "the reward returned is a sum; the task asks for the mean.",
    "the docstring on what is returned", ("stats",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
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
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.sum()),  # <-
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    None, "last-reward",
    "the reward returned is that of the last response; the task asks for the mean.",
    "the docstring on what is returned", ("stats",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
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
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards[-1]),  # <-
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    70, "entropy-of-ref",
    "the entropy is that of the reference; the task asks for the policy's.",
    "the docstring on entropy", ("stats",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        old_logp = sequence_logprobs(policy, out)
        ref_logp = sequence_logprobs(ref, out)
    entropy = token_entropy(ref, out)  # <-
    for _ in range(cfg.inner_steps):
        logp = sequence_logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    70, "entropy-of-mean-distribution",
    "the probabilities are averaged over all positions, padding too, before the entropy is taken;"
    " take the entropy of each position, then the mean.",
    "the docstring of tinylm.token_entropy", ("stats",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        old_logp = sequence_logprobs(policy, out)
        ref_logp = sequence_logprobs(ref, out)
    with torch.no_grad():
        logits = policy(out["ids"])[:, out["prompt_len"] - 1:-1]
    p = logits.softmax(dim=-1).mean(dim=(0, 1))  # <-
    entropy = float(torch.special.entr(p).sum())
    for _ in range(cfg.inner_steps):
        logp = sequence_logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    None, "entropy-of-padding",
    "the entropy is averaged over the padding too; the mean runs over the sampled positions.",
    "the docstring of tinylm.token_entropy", ("stats",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        old_logp = sequence_logprobs(policy, out)
        ref_logp = sequence_logprobs(ref, out)
    with torch.no_grad():
        logits = policy(out["ids"])[:, out["prompt_len"] - 1:-1]
    p = logits.softmax(dim=-1)
    entropy = float(torch.special.entr(p).sum(dim=-1).mean())  # <-
    for _ in range(cfg.inner_steps):
        logp = sequence_logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    None, "entropy-from-samples",
    "the entropy is estimated as the mean of -logp of the sampled tokens; token_entropy takes the"
    " whole distribution.",
    "the docstring on entropy: from token_entropy", ("stats",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        old_logp = sequence_logprobs(policy, out)
        ref_logp = sequence_logprobs(ref, out)
    entropy = float(-old_logp.sum() / out["mask"].sum())  # <-
    for _ in range(cfg.inner_steps):
        logp = sequence_logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    69, "stats-as-tensors-in-step",
    "reward, loss and frac_zero_signal are tensors; they must be floats.",
    "the docstring: a dict of floats", ("stats",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
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
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": rewards.mean(),  # <-
        "loss": loss.detach(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": equal.float().mean(),
        "entropy": entropy,
    }


@mistake(
    69, "entropy-missing",
    'the dict has no "entropy".',
    "the docstring on what is returned", ("stats",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        old_logp = sequence_logprobs(policy, out)
        ref_logp = sequence_logprobs(ref, out)
    for _ in range(cfg.inner_steps):
        logp = sequence_logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, cfg.beta)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {  # <-
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
    }


# ------------------------------------------------------- the settings
@mistake(
    68, "temperature-hard-coded",
    "temperature is 1.0 whatever cfg says; use cfg.temperature.",
    "the docstring's steps, which name each setting", ("config",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, 1.0)  # <-
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
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    68, "scale-std-hard-coded",
    "scale_std is True whatever cfg says; use cfg.scale_std.",
    "the docstring's steps, which name each setting", ("config",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, True)  # <-
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
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    68, "clip-eps-of-step-hard-coded",
    "clip_eps is 0.2 whatever cfg says; use cfg.clip_eps.",
    "the docstring's steps, which name each setting", ("config",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        old_logp = sequence_logprobs(policy, out)
        ref_logp = sequence_logprobs(ref, out)
    entropy = token_entropy(policy, out)
    for _ in range(cfg.inner_steps):
        logp = sequence_logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], 0.2, cfg.beta)  # <-
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    68, "beta-of-step-hard-coded",
    "beta is 0.04 whatever cfg says; use cfg.beta.",
    "the docstring's steps, which name each setting", ("config",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, cfg.G, cfg.temperature)
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, cfg.G, cfg.scale_std)
    with torch.no_grad():
        old_logp = sequence_logprobs(policy, out)
        ref_logp = sequence_logprobs(ref, out)
    entropy = token_entropy(policy, out)
    for _ in range(cfg.inner_steps):
        logp = sequence_logprobs(policy, out)
        loss, s = grpo_loss(logp, old_logp, ref_logp, adv, out["mask"], cfg.clip_eps, 0.04)  # <-
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    None, "max-grad-norm-hard-coded",
    "max_grad_norm is 1.0 whatever cfg says; use cfg.max_grad_norm.",
    "the docstring's steps, which name each setting", ("optimizer",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
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
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)  # <-
        opt.step()
    r = rewards.reshape(-1, cfg.G)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }


@mistake(
    None, "group-size-hard-coded",
    "G is 8 whatever cfg says; use cfg.G.",
    "the docstring's steps, which name each setting", ("config",),
)
def grpo_step(policy, ref, opt, prompts, answers, cfg):
    groups = sample_group(policy, prompts, answers, 8, cfg.temperature)  # <-
    out, rewards = groups["out"], groups["rewards"]
    adv = group_advantages(rewards, 8, cfg.scale_std)
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
    r = rewards.reshape(-1, 8)
    equal = (r == r[:, :1]).all(dim=1)
    return {
        "reward": float(rewards.mean()),
        "loss": loss.item(),
        "kl": s["kl"],
        "clip_frac": s["clip_frac"],
        "frac_zero_signal": float(equal.float().mean()),
        "entropy": entropy,
    }
