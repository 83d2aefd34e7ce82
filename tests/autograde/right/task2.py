"""Task 2, group_advantages: ten right solutions."""

# ruff: noqa: E402, F811, I001  cells import where they need a name, and share one name

import torch


# %% right_1: view and methods
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.view(-1, G)
    centred = r - r.mean(1, keepdim=True)
    scale = r.std(1, unbiased=False, keepdim=True) + eps if scale_std else 1.0
    return (centred / scale).view(-1)


# %% right_2: loops over floats
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    values, advantages = rewards.tolist(), []
    for start in range(0, len(values), G):
        group = values[start:start + G]
        mean = sum(group) / G
        std = (sum((r - mean) ** 2 for r in group) / G) ** 0.5
        for r in group:
            advantages.append((r - mean) / (std + eps) if scale_std else r - mean)
    return torch.tensor(advantages, dtype=rewards.dtype, device=rewards.device)


# %% right_3: the statistics module
from statistics import fmean, pstdev


def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    groups = [chunk.tolist() for chunk in rewards.split(G)]
    return rewards.new_tensor([
        (r - fmean(group)) / (pstdev(group) + eps if scale_std else 1)
        for group in groups for r in group
    ])


# %% right_4: one group after the other, and cat
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    parts = []
    for group in rewards.chunk(len(rewards) // G):
        part = group - group.mean()
        if scale_std:
            part = part / (group.std(correction=0) + eps)
        parts.append(part)
    return torch.cat(parts)


# %% right_5: unflatten, flatten and var_mean
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.unflatten(0, (-1, G))
    var, mean = torch.var_mean(r, dim=-1, keepdim=True, correction=0)
    if not scale_std:
        return (r - mean).flatten()
    return ((r - mean) / (var.sqrt() + eps)).flatten()


# %% right_6: einsum
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(len(rewards) // G, G)
    centred = r - torch.einsum("pg->p", r)[:, None] / G
    if scale_std:
        variance = torch.einsum("pg,pg->p", centred, centred) / G
        centred = torch.einsum("pg,p->pg", centred, 1 / (variance.sqrt() + eps))
    return centred.reshape(-1)


# %% right_7: an own copy, changed in place
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    adv = rewards.clone().view(-1, G)
    adv -= adv.mean(dim=1, keepdim=True)
    if scale_std:
        adv /= adv.square().mean(dim=1, keepdim=True).sqrt_().add_(eps)
    return adv.view(-1)


# %% right_8: flat, with each group's numbers repeated
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    rows = rewards.reshape(-1, G)
    mean = rows.mean(dim=1).repeat_interleave(G)
    std = torch.std(rows, dim=1, unbiased=False).repeat_interleave(G)
    scale = std + eps if scale_std else torch.ones_like(std)
    return torch.divide(rewards - mean, scale)


# %% right_9: sums by group number
def averages(x, group, G):
    sums = x.new_zeros(len(x) // G).index_add_(0, group, x)
    return (sums / G)[group]


def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    group = torch.arange(len(rewards), device=rewards.device) // G
    adv = rewards - averages(rewards, group, G)
    if scale_std:
        adv = adv / (averages(adv**2, group, G) ** 0.5 + eps)
    return adv


# %% right_10: columns, that is the groups transposed
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    columns = rewards.reshape(-1, G).transpose(0, 1)
    std, mean = torch.std_mean(columns, dim=0, unbiased=False)
    adv = torch.sub(columns, mean)
    if scale_std is True:
        adv = torch.div(adv, torch.add(std, eps))
    return adv.transpose(0, 1).reshape(rewards.shape)
