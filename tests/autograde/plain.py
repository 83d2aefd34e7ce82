"""GRPO in plain Python: loops over floats, no tensors, written from the formulas alone.

The reference solution is tested against this. Gradients come from finite differences.
"""

import math


def advantages(rewards, G, scale_std=True, eps=1e-4):
    result = []
    for start in range(0, len(rewards), G):
        group = rewards[start:start + G]
        mean = sum(group) / G
        std = math.sqrt(sum((r - mean) ** 2 for r in group) / G)
        result += [(r - mean) / (std + eps) if scale_std else r - mean for r in group]
    return result


def k3(logp, ref_logp):
    ratio = math.exp(ref_logp) / math.exp(logp)
    return ratio - math.log(ratio) - 1


def loss_and_stats(logp, old, ref, adv, mask, clip_eps=0.2, beta=0.04):
    """Everything as nested lists of floats: logp[i][t], adv[i], mask[i][t]."""
    total, kls, clipped, ratios = 0.0, [], 0, []
    for i, row in enumerate(logp):
        terms = []
        for t, here in enumerate(row):
            if not mask[i][t]:
                continue
            rho = math.exp(here) / math.exp(old[i][t])
            low, high = 1 - clip_eps, 1 + clip_eps
            inside = low if rho < low else high if rho > high else rho
            kl = k3(here, ref[i][t])
            terms.append(min(rho * adv[i], inside * adv[i]) - beta * kl)
            kls.append(kl)
            ratios.append(rho)
            clipped += inside * adv[i] < rho * adv[i]
        total += sum(terms) / len(terms)
    stats = {"kl": sum(kls) / len(kls), "clip_frac": clipped / len(kls), "ratio_max": max(ratios)}
    return -total / len(logp), stats


def gradient(function, table, step=1e-6):
    """d function / d table[i][t] by central differences, for a nested list of floats."""
    result = [[0.0] * len(row) for row in table]
    for i, row in enumerate(table):
        for t, value in enumerate(row):
            row[t] = value + step
            above = function(table)
            row[t] = value - step
            below = function(table)
            row[t] = value
            result[i][t] = (above - below) / (2 * step)
    return result
