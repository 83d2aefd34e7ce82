"""The functions that the bench times compute the same, so that their times can be compared."""

import pytest
import torch

from bench import literal
from tinylm import TinyLM, rollout

G = 4
PROMPTS = [p for p in ["37+48=", "5+5=", "99+1=", "0+0=", "12+7="] for _ in range(G)]


@pytest.fixture(scope="module")
def policy():
    """An untrained model whose likeliest answers to `PROMPTS` are of three lengths."""
    with torch.random.fork_rng():
        torch.manual_seed(28)
        return TinyLM().double()


@pytest.fixture(scope="module")
def out(policy):
    """A rollout with answers of several lengths: some rows end before the last position."""
    out = rollout.sample(policy, PROMPTS, generator=torch.Generator().manual_seed(5))
    assert 0 < out["mask"].mean() < 1
    return out


def test_greedy_answers_are_the_same(policy):
    fast, slow = (side.sample(policy, PROMPTS, greedy=True) for side in (rollout, literal))
    assert len(set(fast["mask"].sum(1).tolist())) == 3
    torch.testing.assert_close(fast, slow, rtol=0, atol=0)


@pytest.mark.parametrize("max_new_tokens", [1, 2, 7])
def test_rollouts_have_one_shape(policy, max_new_tokens):
    fast, slow = (side.sample(policy, PROMPTS, greedy=True, max_new_tokens=max_new_tokens)
                  for side in (rollout, literal))
    torch.testing.assert_close(fast, slow, rtol=0, atol=0)


def test_log_probs_and_their_gradients_are_the_same(policy, out):
    weight = torch.linspace(-1, 1, out["mask"].numel()).view_as(out["mask"]).double()
    found = []
    for side in (rollout, literal):
        logp = side.sequence_logprobs(policy, out)
        gradients = torch.autograd.grad((logp * weight).sum(), list(policy.parameters()))
        found.append((logp, gradients))
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-11)


def test_entropy_is_the_same(policy, out):
    fast, slow = (side.token_entropy(policy, out) for side in (rollout, literal))
    assert fast == pytest.approx(slow, rel=1e-9)
