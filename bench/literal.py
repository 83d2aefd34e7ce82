"""The original lab read word for word: what the course would cost without its fast path.

Three functions under the names that tinylm.rollout uses, with the same arguments and the same
rollout dict. Every sampled token pays for a full forward over all that stands before it, repeated
prompts are computed again for every row, and log-probs come from one plain forward over all ids.
`python -m bench.step` times a GRPO step on these against the same step on tinylm's own; a test
holds both to the same numbers. Bad input is not looked at here.
"""

import torch
import torch.nn.functional as F

from tinylm.addition import END, MAX_ANSWER_TOKENS, PAD, encode


@torch.no_grad()
def sample(model, prompts, temperature=1.0, greedy=False, max_new_tokens=MAX_ANSWER_TOKENS,
           generator=None):
    """Sample one answer for each prompt. Arguments and result as in `tinylm.sample`."""
    ids = encode(prompts).to(model.device)                                  # (B, L)
    L = ids.shape[1]
    alive = torch.ones(len(prompts), dtype=torch.bool, device=model.device)
    for _ in range(max_new_tokens):
        logits = model(ids)[:, -1]                                          # (B, V)
        if greedy:
            token = logits.argmax(-1)
        else:
            probs = F.softmax(logits / temperature, -1)
            token = torch.multinomial(probs, 1, generator=generator)[:, 0]
        ids = torch.cat([ids, torch.where(alive, token, PAD)[:, None]], 1)
        alive = alive & (token != END)
        if not alive.any():
            break
    return {"ids": ids, "prompt_len": L, "mask": (ids[:, L:] != PAD).to(logits.dtype)}


def sequence_logprobs(model, out):
    """Log-probs (nats) of the sampled tokens, (B, T), 0.0 where the mask is 0; gradients flow."""
    ids, L = out["ids"], out["prompt_len"]
    logp = F.log_softmax(model(ids[:, :-1])[:, L - 1:], -1)                 # (B, T, V)
    return logp.gather(-1, ids[:, L:, None])[..., 0] * out["mask"]


@torch.no_grad()
def token_entropy(model, out):
    """Mean entropy (nats) of the model's next-token distribution at the response positions."""
    ids, L = out["ids"], out["prompt_len"]
    logp = F.log_softmax(model(ids[:, :-1])[:, L - 1:], -1)                 # (B, T, V)
    entropy = -(logp.exp() * logp).sum(-1)
    mask = out["mask"]
    return float((entropy * mask).sum() / mask.sum().clamp(min=1.0))
