"""Recording the numbers behind two pictures, so that nothing a learner imports computes them.

    python -m autograde pictures

runs the reference solution and writes tinylm/data/pictures.json: `estimators`, the three estimates
of a KL while two policies drift apart, and `step`, one real batch on its way through a GRPO step.
The other pictures draw closed forms, or what they sample, and need no record.
"""

from importlib import resources

import torch

from autograde.record import text_of
from autograde.reference import lab
from tinylm import GRPOConfig, load_or_train_sft, sequence_logprobs
from tinylm.files import replacing
from tinylm.rollout import decode_responses

FILE = resources.files("tinylm") / "data" / "pictures.json"

# Two policies over six tokens: a reference, and a policy that moves its mass to the rare ones.
REFERENCE = (0.34, 0.24, 0.16, 0.12, 0.08, 0.06)
DIRECTION = (-1.0, -0.6, -0.2, 0.2, 0.6, 1.0)
DRIFTS = [step / 20 for step in range(41)]
BATCHES, TOKENS = 100, 16    # dots in the picture, and sampled tokens behind each

# Both groups are mixed, and one answer is longer than the others; the seed was chosen for that.
PROMPTS, ANSWERS, G, SEED = ["37+48=", "72+16="], ["85", "88"], 4, 3


def main():
    """Record both pictures. Returns the path of the file."""
    table = {"estimators": estimators(), "step": step()}
    with replacing(FILE) as temporary:
        temporary.write_text(text_of(_rounded(table)) + "\n", encoding="utf-8")
    return FILE


def estimators():
    """k1, k2 and k3 for each drift: exact mean and spread of a batch's estimate, and samples of it.

    The same random numbers serve every drift, so that a dot moves and does not jump.
    """
    reference = torch.tensor(REFERENCE, dtype=torch.float64)
    uniform = torch.rand(BATCHES, TOKENS, dtype=torch.float64,
                         generator=torch.Generator().manual_seed(0))
    names = ("k1", "k2", "k3")
    table = {"drift": DRIFTS, "names": list(names), "tokens": TOKENS, "ref": list(REFERENCE),
             "policy": [], "kl": [], "mean": {name: [] for name in names},
             "spread": {name: [] for name in names}, "estimates": {name: [] for name in names}}
    for drift in DRIFTS:
        logits = reference.log() + drift * torch.tensor(DIRECTION, dtype=torch.float64)
        policy = logits.softmax(0)
        log_ratio = policy.log() - reference.log()
        table["policy"].append(policy.tolist())
        table["kl"].append(float((policy * log_ratio).sum()))
        drawn = torch.searchsorted(policy.cumsum(0), uniform).clamp(max=len(policy) - 1)
        values = (log_ratio, log_ratio**2 / 2, lab.k3_kl(policy.log(), reference.log()))
        for name, value in zip(names, values, strict=True):
            mean = (policy * value).sum()
            variance = (policy * (value - mean) ** 2).sum()
            table["mean"][name].append(float(mean))
            table["spread"][name].append(float((variance / TOKENS).sqrt()))
            table["estimates"][name].append(value[drawn].mean(1).tolist())
    return table


def step():
    """One batch from the shipped policy, at the defaults of GRPOConfig, with one inner step."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        out = lab.sample_group(load_or_train_sft(), PROMPTS, ANSWERS, G)["out"]
    return walk(out)


def walk(out):
    """What a GRPO step makes of a rollout of PROMPTS, G answers each: see the keys of the result.

    Ratios and loss terms are those of the second inner step, after one step of the optimizer.
    """
    policy, cfg = load_or_train_sft(), GRPOConfig()
    responses = decode_responses(out)
    rewards = torch.tensor([lab.reward(response, answer) for response, answer in zip(
        responses, [answer for answer in ANSWERS for _ in range(G)], strict=True)])
    advantages = lab.group_advantages(rewards, G, cfg.scale_std)
    mask, settings = out["mask"], (cfg.clip_eps, cfg.beta)
    with torch.no_grad():
        old_logp = sequence_logprobs(policy, out)
    _update(policy, out, old_logp, advantages, cfg)
    with torch.no_grad():
        logp = sequence_logprobs(policy, out)
        loss, _ = lab.grpo_loss(logp, old_logp, old_logp, advantages, mask, *settings)
        ratio = (logp - old_logp).exp() * mask

    def alone(i, t):
        """Token t of answer i by itself: its term of the objective, and whether the clip acts."""
        if not mask[i, t]:
            return 0.0, 0
        ours, theirs = logp[i, t].reshape(1, 1), old_logp[i, t].reshape(1, 1)
        loss, stats = lab.grpo_loss(ours, theirs, theirs, advantages[i : i + 1], torch.ones(1, 1),
                                    *settings)
        return -float(loss), int(stats["clip_frac"])

    tokens = [[alone(i, t) for t in range(mask.shape[1])] for i in range(len(mask))]
    terms = [[term for term, _ in row] for row in tokens]
    return {
        "prompts": PROMPTS, "answers": ANSWERS, "G": G, "clip_eps": cfg.clip_eps, "beta": cfg.beta,
        "prompt_len": out["prompt_len"], "ids": out["ids"].tolist(), "mask": mask.int().tolist(),
        "responses": responses, "rewards": rewards.tolist(), "advantages": advantages.tolist(),
        "ratio": ratio.tolist(), "terms": terms,
        "clipped": [[acts for _, acts in row] for row in tokens],
        "means": [sum(row) / int(mask[i].sum()) for i, row in enumerate(terms)],
        "loss": float(loss),
    }


def _update(policy, out, old_logp, advantages, cfg):
    """The first inner step; at the start of a run the reference is the policy itself."""
    opt = torch.optim.Adam(policy.parameters(), lr=cfg.lr)
    loss, _ = lab.grpo_loss(sequence_logprobs(policy, out), old_logp, old_logp, advantages,
                            out["mask"], cfg.clip_eps, cfg.beta)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_grad_norm)
    opt.step()


def _rounded(value):
    """Numbers to five decimals, more than a picture shows."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return round(value, 5) + 0.0 if isinstance(value, float) else value
