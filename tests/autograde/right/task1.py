"""Task 1, sample_group: ten right solutions."""

# ruff: noqa: B905, E402, F811, I001  cells import where they need a name, and share one name

import torch

from tinylm import decode_responses, reward, sample


# %% right_1: comprehensions, every argument by keyword
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [prompt for prompt in prompts for _ in range(G)]
    answers = [answer for answer in answers for _ in range(G)]
    out = sample(model=model, prompts=prompts, temperature=temperature)
    responses = decode_responses(out=out)
    rewards = [reward(response=r, answer=a) for r, a in zip(responses, answers)]
    return dict(out=out, responses=responses, rewards=torch.tensor(rewards, dtype=torch.float32))


# %% right_2: loops and append, every argument by position
def sample_group(model, prompts, answers, G, temperature=1.0):
    rows = []
    for i in range(len(prompts)):
        for _ in range(G):
            rows.append(prompts[i])
    out = sample(model, rows, temperature)
    responses = decode_responses(out)
    rewards = []
    for i in range(len(prompts)):
        for j in range(G):
            rewards.append(reward(responses[i * G + j], answers[i]))
    result = {}
    result["out"] = out
    result["responses"] = responses
    result["rewards"] = torch.FloatTensor(rewards)
    return result


# %% right_3: itertools
from itertools import chain, repeat


def sample_group(model, prompts, answers, G, temperature=1.0):
    def spread(items):
        return list(chain.from_iterable(repeat(item, G) for item in items))

    out = sample(model, spread(prompts), temperature=temperature)
    responses = decode_responses(out)
    rewards = torch.tensor(list(map(reward, responses, spread(answers))))
    return {"out": out, "responses": responses, "rewards": rewards}


# %% right_4: the package and its attributes
import tinylm


def sample_group(model, prompts, answers, G, temperature=1.0):
    out = tinylm.sample(model, sum(([p] * G for p in prompts), []), temperature=temperature)
    responses = tinylm.decode_responses(out)
    rewards = [tinylm.reward(r, answers[i // G]) for i, r in enumerate(responses)]
    return {"out": out, "responses": responses, "rewards": out["mask"].new_tensor(rewards)}


# %% right_5: aliases
from tinylm import decode_responses as texts_of
from tinylm import reward as score
from tinylm import sample as draw


def sample_group(model, prompts, answers, G, temperature=1.0):
    out = draw(model, [p for p in prompts for _ in range(G)], temperature=temperature)
    texts = texts_of(out)
    keys = (a for a in answers for _ in range(G))
    return {
        "out": out,
        "responses": texts,
        "rewards": torch.tensor([score(text, key) for text, key in zip(texts, keys)]),
    }


# %% right_6: repeated indices, and a tensor filled in place
def sample_group(model, prompts, answers, G, temperature=1.0):
    who = torch.arange(len(prompts)).repeat_interleave(G).tolist()
    out = sample(model, [prompts[i] for i in who], temperature=temperature)
    responses = decode_responses(out)
    rewards = torch.zeros(len(who), device=out["ids"].device)
    for row, i in enumerate(who):
        rewards[row] += reward(responses[row], answers[i])
    return {"out": out, "responses": responses, "rewards": rewards}


# %% right_7: helper functions
def each_g_times(items, G):
    return [items[row // G] for row in range(len(items) * G)]


def scores(responses, answers):
    return torch.stack([torch.tensor(reward(*pair)) for pair in zip(responses, answers)])


def sample_group(model, prompts, answers, G, temperature=1.0):
    rollout = sample(model, each_g_times(prompts, G), temperature=temperature)
    responses = decode_responses(rollout)
    rewards = scores(responses, each_g_times(answers, G))
    return {"out": rollout, "responses": responses, "rewards": rewards}


# %% right_8: imported inside the function
def sample_group(model, prompts, answers, G, temperature=1.0):
    from tinylm.addition import reward
    from tinylm.rollout import decode_responses, sample

    pairs = [(p, a) for p, a in zip(prompts, answers) for _ in range(G)]
    repeated, keys = zip(*pairs)
    out = sample(model, list(repeated), temperature=temperature, greedy=False)
    responses = [str(r) for r in decode_responses(out)]
    rewards = torch.as_tensor([float(reward(r, a)) for r, a in zip(responses, keys)])
    return {"rewards": rewards, "responses": responses, "out": out}


# %% right_9: partial
from functools import partial


def sample_group(model, prompts, answers, G, temperature=1.0):
    draw = partial(sample, model, temperature=temperature)
    out = draw([p for p in prompts for _ in range(G)])
    responses = decode_responses(out)
    groups = [responses[i:i + G] for i in range(0, len(responses), G)]
    rewards = torch.tensor([[reward(r, a) for r in group] for group, a in zip(groups, answers)])
    return {"out": out, "responses": responses, "rewards": rewards.flatten()}


# %% right_10: without gradients, and one group's rewards after the other
@torch.no_grad()
def sample_group(model, prompts, answers, G, temperature=1.0):
    who = sorted(list(range(len(prompts))) * G)
    out = sample(model, [prompts[i] for i in who], temperature=temperature)
    responses = decode_responses(out)
    rewards = torch.empty(0)
    for i, answer in enumerate(answers):
        group = [reward(r, answer) for r in responses[i * G:(i + 1) * G]]
        rewards = torch.cat([rewards, torch.tensor(group)])
    return {"out": out, "responses": responses, "rewards": rewards}
