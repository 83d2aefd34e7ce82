"""The reference solution: numbers worked by hand, and the plain-Python version of the formulas."""

import copy
import math
from types import SimpleNamespace

import plain
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tinylm
from tinylm import GRPOConfig
from tinylm.addition import END, PAD
from tinylm.labfile import load_lab
from tinylm.model import ModelConfig, TinyLM

lab = load_lab("autograde/reference/lab.py")
double = torch.float64
some = settings(max_examples=50, deadline=None)


# -------------------------------------------------------------------- by hand
def test_four_right_of_eight_give_advantages_of_one():
    adv = lab.group_advantages(torch.tensor([1.0, 0, 1, 0, 1, 0, 1, 0]), 8)
    assert adv.tolist() == pytest.approx([0.9998, -0.9998] * 4, abs=1e-5)


def test_a_group_of_four_by_hand():
    """One right of four: mean 1/4, std sqrt(3)/4, so sqrt(3) for the right one, -1/sqrt(3) else."""
    adv = lab.group_advantages(torch.tensor([0.0, 0, 1, 0], dtype=double), 4, eps=0.0)
    assert adv.tolist() == pytest.approx([-(3 ** -0.5), -(3 ** -0.5), 3 ** 0.5, -(3 ** -0.5)])
    plain_adv = lab.group_advantages(torch.tensor([0.0, 0, 1, 0], dtype=double), 4, False)
    assert plain_adv.tolist() == [-0.25, -0.25, 0.75, -0.25]


def test_an_all_equal_group_gets_zero():
    adv = lab.group_advantages(torch.tensor([1.0, 1, 0, 1]), 2)
    assert adv[:2].tolist() == [0.0, 0.0]
    assert lab.group_advantages(torch.tensor([1.0, 0.0]), 1).tolist() == [0.0, 0.0]


def test_k3_by_hand():
    logp = torch.tensor([[math.log(0.5), math.log(0.25)]], dtype=double)
    ref = torch.tensor([[math.log(0.25), math.log(0.5)]], dtype=double)
    expected = [[0.5 + math.log(2) - 1, 2 - math.log(2) - 1]]
    torch.testing.assert_close(lab.k3_kl(logp, ref), torch.tensor(expected, dtype=double))


def test_the_loss_of_two_tokens_by_hand():
    """Ratios 1.5 and 0.5, A = 1, then A = -1: min(1.5, 1.2), min(0.5, 0.8); min(-1.5, -1.2), ..."""
    logp = torch.tensor([[1.5, 0.5], [1.5, 0.5]], dtype=double).log() - 3
    old = torch.full((2, 2), -3.0, dtype=double)
    loss, stats = lab.grpo_loss(logp, old, logp, torch.tensor([1.0, -1.0], dtype=double),
                                torch.ones(2, 2, dtype=double))
    assert float(loss) == pytest.approx(-((1.2 + 0.5) / 2 + (-1.5 - 0.8) / 2) / 2)
    assert stats == pytest.approx({"kl": 0.0, "clip_frac": 0.5, "ratio_max": 1.5})


def test_at_the_first_inner_step_the_loss_is_zero_and_its_gradient_is_not():
    logp = torch.tensor([[-1.0, -2.0], [-0.5, -1.5]], dtype=double, requires_grad=True)
    adv = torch.tensor([1.0, -1.0], dtype=double)
    loss, _ = lab.grpo_loss(logp, logp.detach(), logp.detach(), adv, torch.ones(2, 2).double())
    loss.backward()
    assert float(loss.detach()) == pytest.approx(0.0, abs=1e-15)
    assert logp.grad.tolist() == [[-0.25, -0.25], [0.25, 0.25]]


# -------------------------------------------------------- against plain Python
@some
@given(st.integers(1, 5), st.integers(1, 6), st.booleans(), st.randoms(use_true_random=False))
def test_advantages_equal_the_plain_version(P, G, scale_std, rng):
    rewards = [rng.choice([0.0, 1.0, rng.uniform(-2, 2)]) for _ in range(P * G)]
    adv = lab.group_advantages(torch.tensor(rewards, dtype=double), G, scale_std)
    assert adv.tolist() == pytest.approx(plain.advantages(rewards, G, scale_std), abs=1e-9)


def fixture(rng, B, T):
    """Log-probs of three different policies, unequal lengths, garbage where the mask is 0."""
    def table(low, high):
        return [[rng.uniform(low, high) for _ in range(T)] for _ in range(B)]
    logp = table(-4, -0.1)
    old, ref = ([[x + rng.uniform(-0.6, 0.6) for x in row] for row in logp] for _ in range(2))
    lengths = [rng.randint(1, T) for _ in range(B)]
    mask = [[float(t < n) for t in range(T)] for n in lengths]
    for rows in (logp, old, ref):
        for row, n in zip(rows, lengths, strict=True):
            row[n:] = [rng.uniform(-20, 0) for _ in row[n:]]
    return logp, old, ref, [rng.uniform(-2, 2) for _ in range(B)], mask


@some
@given(st.integers(1, 5), st.integers(1, 5), st.floats(0.01, 0.5), st.floats(0, 1),
       st.randoms(use_true_random=False))
def test_the_loss_equals_the_plain_version_in_values_and_gradients(B, T, clip_eps, beta, rng):
    tables = fixture(rng, B, T)
    logp, *others = (torch.tensor(x, dtype=double) for x in tables)
    logp.requires_grad_()
    loss, stats = lab.grpo_loss(logp, *others, clip_eps, beta)
    loss.backward()
    expected, expected_stats = plain.loss_and_stats(*tables, clip_eps, beta)
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert stats == pytest.approx(expected_stats, rel=1e-9, abs=1e-9)
    assert all(type(value) is float for value in stats.values())
    if not near_an_edge(tables, clip_eps):
        numeric = plain.gradient(
            lambda table: plain.loss_and_stats(table, *tables[1:], clip_eps, beta)[0], tables[0])
        torch.testing.assert_close(logp.grad, torch.tensor(numeric, dtype=double),
                                   rtol=1e-5, atol=1e-7)


def near_an_edge(tables, clip_eps):
    """Whether a ratio lies on a kink of the clip, where finite differences mean nothing."""
    logp, old = tables[:2]
    ratios = [math.exp(a - b) for x, y in zip(logp, old, strict=True)
              for a, b in zip(x, y, strict=True)]
    return any(abs(rho - edge) < 1e-4 for rho in ratios for edge in (1 - clip_eps, 1 + clip_eps))


@some
@given(st.randoms(use_true_random=False))
def test_k3_equals_the_plain_version_in_values_and_gradients(rng):
    logp = [[rng.uniform(-4, -0.1) for _ in range(4)] for _ in range(3)]
    ref = [[x + rng.uniform(-2, 2) for x in row] for row in logp]
    tensor = torch.tensor(logp, dtype=double, requires_grad=True)
    k3 = lab.k3_kl(tensor, torch.tensor(ref, dtype=double))
    k3.sum().backward()
    expected = [[plain.k3(a, b) for a, b in zip(x, y, strict=True)]
                for x, y in zip(logp, ref, strict=True)]
    torch.testing.assert_close(k3.detach(), torch.tensor(expected, dtype=double))
    numeric = plain.gradient(
        lambda table: sum(plain.k3(a, b) for x, y in zip(table, ref, strict=True)
                          for a, b in zip(x, y, strict=True)), logp)
    torch.testing.assert_close(tensor.grad, torch.tensor(numeric, dtype=double),
                               rtol=1e-5, atol=1e-7)


# ----------------------------------------------------------- sampling and step
def test_a_group_answers_its_prompt_in_contiguous_rows():
    policy = tinylm.load_or_train_sft()
    torch.manual_seed(0)
    groups = lab.sample_group(policy, ["37+48=", "5+5="], ["85", "10"], 3, temperature=0.7)
    L = groups["out"]["prompt_len"]
    prompts = [tinylm.addition.decode(row) for row in groups["out"]["ids"][:, :L]]
    assert prompts == ["37+48="] * 3 + ["5+5="] * 3
    assert groups["responses"] == tinylm.decode_responses(groups["out"])
    assert groups["rewards"].tolist() == [
        float(r == a) for r, a in zip(groups["responses"], ["85"] * 3 + ["10"] * 3, strict=True)]
    assert groups["rewards"].dtype == torch.float32


def test_a_step_equals_plain_gradient_descent(monkeypatch):
    """One step with SGD on a tiny model: the loss by loops, its gradient by finite differences."""
    torch.manual_seed(1)
    policy = TinyLM(ModelConfig(4, 1, 1)).double()
    ref = copy.deepcopy(policy)
    with torch.no_grad():
        for p in ref.parameters():
            p.add_(0.1 * torch.randn_like(p))
    out = {"ids": torch.tensor([[1, 10, 1, 11, 2, END], [1, 10, 1, 11, 3, 4],
                                [2, 10, 2, 11, END, PAD], [2, 10, 2, 11, 4, END]]),
           "prompt_len": 4, "mask": torch.tensor([[1.0, 1], [1, 1], [1, 0], [1, 1]]).double()}
    rewards = [1.0, 0.0, 0.0, 1.0]
    monkeypatch.setattr(lab, "sample_group", lambda *_: {
        "out": out, "responses": [], "rewards": torch.tensor(rewards, dtype=double)})
    cfg = GRPOConfig(G=2, inner_steps=3, max_grad_norm=0.05, clip_eps=0.1, beta=0.3)
    expected, losses = plain_step(copy.deepcopy(policy), ref, out, rewards, cfg, lr=0.5)
    stats = lab.grpo_step(policy, ref, torch.optim.SGD(policy.parameters(), lr=0.5), [], [], cfg)
    for mine, wanted in zip(policy.parameters(), expected, strict=True):
        torch.testing.assert_close(mine.detach(), wanted, rtol=1e-4, atol=1e-7)
    assert stats["loss"] == pytest.approx(losses[-1], rel=1e-4, abs=1e-7)
    assert stats["reward"] == 0.5 and stats["frac_zero_signal"] == 0.0
    assert all(type(value) is float for value in stats.values())


def plain_step(policy, ref, out, rewards, cfg, lr):
    """cfg.inner_steps of gradient descent with a clipped norm; the parameters after it, losses."""
    def table(model):
        with torch.no_grad():
            return tinylm.sequence_logprobs(model, out).tolist()

    adv = plain.advantages(rewards, cfg.G)
    old, base, mask = table(policy), table(ref), out["mask"].tolist()
    parameters = [p.data for p in policy.parameters()]
    losses = []

    def loss():
        return plain.loss_and_stats(table(policy), old, base, adv, mask, cfg.clip_eps, cfg.beta)[0]

    for _ in range(cfg.inner_steps):
        losses.append(loss())
        flat = [p.view(-1) for p in parameters]
        slopes = [[_slope(loss, p, i) for i in range(len(p))] for p in flat]
        norm = math.sqrt(sum(s * s for row in slopes for s in row))
        scale = lr * min(1.0, cfg.max_grad_norm / (norm + 1e-6))
        for p, row in zip(flat, slopes, strict=True):
            p -= scale * torch.tensor(row, dtype=double)
    return parameters, losses


def _slope(loss, p, i, step=1e-6):
    p[i] += step
    above = loss()
    p[i] -= 2 * step
    below = loss()
    p[i] += step
    return (above - below) / (2 * step)


@pytest.mark.parametrize(("rewards", "share"), [
    ([1, 1, 0, 0, 1, 0, 0, 0, 0], 1 / 3), ([1, 1, 1, 0, 0, 0, 1, 1, 1], 1.0),
    ([1, 0, 0, 0, 1, 0, 0, 0, 1], 0.0),
])
def test_zero_signal_groups_are_all_right_or_all_wrong(monkeypatch, rewards, share):
    policy = TinyLM(ModelConfig(4, 1, 1))
    out = tinylm.sample(policy, ["1+1="] * 9, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(lab, "sample_group", lambda *_: {
        "out": out, "responses": [], "rewards": torch.tensor(rewards, dtype=torch.float32)})
    stats = lab.grpo_step(policy, copy.deepcopy(policy), torch.optim.SGD(policy.parameters(), 0.1),
                          [], [], GRPOConfig(G=3))
    assert stats["frac_zero_signal"] == pytest.approx(share)


def test_the_step_passes_its_settings_on(monkeypatch):
    seen = {}

    def spy(policy, prompts, answers, G, temperature):
        seen.update(G=G, temperature=temperature)
        out = tinylm.sample(policy, ["1+1="] * 4, generator=torch.Generator().manual_seed(0))
        return {"out": out, "responses": [], "rewards": torch.tensor([0.0, 1, 0, 0])}

    monkeypatch.setattr(lab, "sample_group", spy)
    policy = TinyLM(ModelConfig(4, 1, 1))
    opt = SimpleNamespace(zero_grad=lambda: None, step=lambda: seen.setdefault("stepped", 0))
    lab.grpo_step(policy, policy, opt, [], [], GRPOConfig(G=4, temperature=0.3))
    assert seen == {"G": 4, "temperature": 0.3, "stepped": 0}
