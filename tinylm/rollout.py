"""From prompts to answers, and from answers to log-probs: all the speed of the course lives here.

A rollout is the dict that `sample` returns:
    "ids": (B, L + T) long, prompts left-padded to L, then the sampled tokens, padded on the right;
    "prompt_len": L;
    "mask": (B, T) float, 1.0 up to and including the end token, 0.0 after it.

Nothing is computed twice. Each distinct prompt is read once, and its keys and values are handed to
all of its rows; rows that have gone the same way so far go on as one. The learner's code stays as
literal as the formulas.
"""

import math

import torch
import torch.nn.functional as F

from tinylm.addition import END, MAX_ANSWER_TOKENS, PAD, decode, encode, held_out_batch, reward
from tinylm.model import Cache

ACCURACY_SEED = 15           # `accuracy` draws from a stream of its own


@torch.no_grad()
def sample(model, prompts, temperature=1.0, greedy=False, max_new_tokens=MAX_ANSWER_TOKENS,
           generator=None):
    """Sample one answer for each prompt; stop as soon as all have ended.

    Args:
        model: a TinyLM.
        prompts: list of B strings.
        temperature: tokens are drawn from softmax(logits / temperature).
        greedy: take the likeliest token instead.
        max_new_tokens: the most tokens an answer may have, its end token among them.
        generator: a torch.Generator; without one the global random state is used.

    Returns the rollout (see the head of this module), on the model's device.
    Raises ValueError for a temperature that is not positive, or a prompt the model cannot read.
    """
    if not (isinstance(temperature, int | float) and 0 < temperature < math.inf):
        raise ValueError(
            f"temperature is {temperature!r}; expected a number above 0 "
            "(for the likeliest answer, pass greedy=True)."
        )
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens is {max_new_tokens}; expected 1 or more.")
    prompt_ids = encode(prompts).to(model.device)
    model.check_length(prompt_ids.shape[1] + max_new_tokens)
    ids, way = _distinct(prompt_ids)                     # every way once, and which one a row went
    cache, tokens = Cache(), []
    alive = torch.ones(len(prompts), dtype=torch.bool, device=model.device)
    while True:
        logits = model(ids, cache)[:, -1][way]                              # (B, V)
        token = logits.argmax(-1) if greedy else _draw(logits / temperature, generator)
        tokens.append(torch.where(alive, token, PAD))
        alive = alive & (token != END)
        if len(tokens) == max_new_tokens or not alive.any():
            break
        step, way = _distinct(torch.stack([way, tokens[-1]], 1))
        cache, ids = cache.rows(step[:, 0]), step[:, 1:]
    response = torch.stack(tokens, 1)                                       # (B, T)
    return {
        "ids": torch.cat([prompt_ids, response], 1),
        "prompt_len": prompt_ids.shape[1],
        "mask": (response != PAD).to(logits.dtype),
    }


def _draw(logits, generator):
    """One token a row, distributed as softmax(logits); drawn where the generator lives."""
    probs = logits.softmax(-1)
    if generator is not None:
        probs = probs.to(generator.device)
    return torch.multinomial(probs, 1, generator=generator)[:, 0].to(logits.device)


def decode_responses(out):
    """The answers of a rollout as B strings, without padding and end token."""
    return [decode(row) for row in out["ids"][:, out["prompt_len"]:].tolist()]


def response_logits(model, out):
    """What the model gives at the response positions, each different row once; gradients flow.

    Returns (logits, ids, row): logits (rows, T, V) and ids (rows, L + T) of the different rows,
    and for each row of the rollout which of them it is, (B,) long.
    """
    L = out["prompt_len"]
    ids, row = _distinct(out["ids"])
    prompts, index = _distinct(ids[:, :L])
    cache = Cache()
    logits = model(prompts, cache)[:, -1:].index_select(0, index)           # (rows, 1, V)
    if ids.shape[1] > L + 1:
        later = model(ids[:, L:-1], cache.rows(index))                      # (rows, T-1, V)
        logits = torch.cat([logits, later], 1)
    return logits, ids, row


def sequence_logprobs(model, out):
    """Log-probs (nats) of the sampled tokens under `model`, at temperature 1.

    Args:
        model: the policy or the reference.
        out: a rollout of B rows and T response positions.

    Returns: (B, T); 0.0 where the mask is 0. Gradients flow to the model's parameters.
    """
    logits, ids, row = response_logits(model, out)
    token = ids[:, out["prompt_len"]:, None]
    logp = F.log_softmax(logits, -1).gather(-1, token)[..., 0]              # (rows, T)
    return logp.index_select(0, row) * out["mask"]


@torch.no_grad()
def token_entropy(model, out):
    """Mean entropy (nats) of the model's next-token distribution at the response positions."""
    logits, _, row = response_logits(model, out)
    logp = F.log_softmax(logits, -1)
    entropy = -(logp.exp() * logp).sum(-1).index_select(0, row)             # (B, T)
    mask = out["mask"]
    return float((entropy * mask).sum() / mask.sum().clamp(min=1.0))


def accuracy(model, n=500, greedy=False):
    """Share of right answers on the first `n` held-out problems: always the same, never trained on.

    Sampled answers are drawn at temperature 1 from a random stream of its own, so that measuring
    changes nothing else. Returns a float in [0, 1].
    """
    prompts, answers = held_out_batch(n)
    generator = torch.Generator(model.device).manual_seed(ACCURACY_SEED)
    responses = decode_responses(sample(model, prompts, greedy=greedy, generator=generator))
    return sum(map(reward, responses, answers)) / n


def _distinct(ids):
    """Each different row of `ids` once, and for every row which of them it is, (B,) long."""
    seen = {}
    index = [seen.setdefault(row, len(seen)) for row in map(tuple, ids.tolist())]
    return torch.tensor(list(seen), device=ids.device), torch.tensor(index, device=ids.device)
