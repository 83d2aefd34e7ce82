"""The five properties that hold for every model and every batch."""

import random

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import tinylm
from tinylm.addition import END, PAD, VOCAB_SIZE, encode
from tinylm.model import Cache, ModelConfig, TinyLM
from tinylm.rollout import sample, sequence_logprobs, token_entropy

numbers = st.integers(0, 99)
prompts = st.builds("{}+{}=".format, numbers, numbers)
any_prompts = st.text("0123456789+=", min_size=1, max_size=8)
models = st.builds(
    lambda width, depth, heads, seed: small_model(width * heads, depth, heads, seed),
    st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, 2, 4]), st.integers(0, 99),
)
properties = settings(max_examples=100, deadline=None)


def small_model(width=8, depth=2, heads=2, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return TinyLM(ModelConfig(width, depth, heads)).double()


def rollout_of(rows, max_new_tokens=4, seed=0):
    """A rollout with random answers of all lengths, some without an end token."""
    rng = random.Random(seed)
    ids, answers, mask = encode(rows), [], []
    for _ in rows:
        length = rng.randint(1, max_new_tokens)
        answer = [rng.randrange(END) for _ in range(length)]
        if length < max_new_tokens or rng.random() < 0.5:
            answer[-1] = END
        answers.append(answer + [PAD] * (max_new_tokens - length))
        mask.append([1.0] * length + [0.0] * (max_new_tokens - length))
    return {"ids": torch.cat([ids, torch.tensor(answers)], 1), "prompt_len": ids.shape[1],
            "mask": torch.tensor(mask, dtype=torch.float64)}


def plain_logprobs(model, out):
    """The textbook way: one full forward over every row, nothing shared, nothing cached."""
    ids, start = out["ids"], out["prompt_len"]
    logp = F.log_softmax(model(ids[:, :-1])[:, start - 1:], -1)
    return logp.gather(-1, ids[:, start:, None])[..., 0] * out["mask"]


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return torch.cat([p.grad.flatten() if p.grad is not None else torch.zeros(p.numel())
                      for p in model.parameters()])


@properties
@given(models, st.lists(any_prompts, min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_a_row_depends_neither_on_its_neighbours_nor_on_their_order(model, rows, rng):
    together = model(encode(rows))
    order = list(range(len(rows)))
    rng.shuffle(order)
    shuffled = model(encode([rows[i] for i in order]))
    torch.testing.assert_close(shuffled, together[order])
    for i, row in enumerate(rows):
        torch.testing.assert_close(model(encode([row]))[0], together[i, -len(row):])


@properties
@given(models, any_prompts, st.integers(0, 5), st.integers(0, 5))
def test_a_row_does_not_depend_on_its_padding(model, row, left, right):
    ids = encode([row])
    padded = F.pad(F.pad(ids, (left, 0), value=PAD), (0, right), value=PAD)
    if ids.shape[1] + right > model.config.context:
        return
    torch.testing.assert_close(model(padded)[:, left:left + len(row)], model(ids))


@properties
@given(models, st.lists(any_prompts, min_size=1, max_size=4), st.integers(1, 3), st.integers(0, 9))
def test_logprobs_do_not_depend_on_the_other_rows(model, rows, G, seed):
    out = rollout_of([row for row in rows for _ in range(G)], seed=seed)
    logp = sequence_logprobs(model, out)
    for i in range(len(logp)):
        alone = {"ids": out["ids"][i:i + 1], "prompt_len": out["prompt_len"],
                 "mask": out["mask"][i:i + 1]}
        torch.testing.assert_close(sequence_logprobs(model, alone)[0], logp[i])


@properties
@given(models, st.lists(any_prompts, min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 4),
       st.integers(0, 9))
def test_the_fast_path_equals_a_plain_forward_in_values_and_gradients(model, rows, G, T, seed):
    rows = [row for row in rows for _ in range(G)]
    random.Random(seed).shuffle(rows)                   # repeats anywhere, not only side by side
    out = rollout_of(rows, T, seed)
    weights = torch.rand(out["mask"].shape, dtype=torch.float64,
                         generator=torch.Generator().manual_seed(seed))
    fast, plain = sequence_logprobs(model, out), plain_logprobs(model, out)
    torch.testing.assert_close(fast, plain, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gradients(model, (fast * weights).sum()),
                               gradients(model, (plain * weights).sum()), rtol=1e-7, atol=1e-9)


@properties
@given(models, st.lists(prompts, min_size=1, max_size=4), st.integers(0, 99))
def test_cached_sampling_follows_the_model_s_own_distribution(model, rows, seed):
    """Greedy decoding shows it exactly: each token is the argmax of a plain forward."""
    out = sample(model, rows, greedy=True)
    start = out["prompt_len"]
    plain = model(out["ids"][:, :-1])[:, start - 1:].argmax(-1)
    chosen = out["ids"][:, start:]
    assert torch.equal(chosen[out["mask"].bool()], plain[out["mask"].bool()])


def plain_sample(model, rows, temperature, generator):
    """The textbook way to sample: a full forward over all rows for every token."""
    ids, L = encode(rows), len(encode(rows)[0])
    alive = torch.ones(len(rows), dtype=torch.bool)
    while alive.any() and ids.shape[1] < L + 4:
        probs = (model(ids)[:, -1] / temperature).softmax(-1)
        token = torch.multinomial(probs, 1, generator=generator)[:, 0]
        ids = torch.cat([ids, torch.where(alive, token, PAD)[:, None]], 1)
        alive &= token != END
    return ids


@properties
@given(models, st.lists(prompts, min_size=1, max_size=3), st.integers(1, 6),
       st.floats(0.3, 3.0), st.integers(0, 99))
def test_the_same_draws_give_the_same_samples_as_plain_sampling(model, rows, G, temperature, seed):
    """Rows part and go on in groups of their own; none may end in another one's way."""
    rows = [row for row in rows for _ in range(G)]
    random.Random(seed).shuffle(rows)
    fast, plain = (torch.Generator().manual_seed(seed) for _ in range(2))
    out = sample(model, rows, temperature, generator=fast)
    assert torch.equal(out["ids"], plain_sample(model, rows, temperature, plain))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_samples_are_distributed_as_softmax_of_logits_over_temperature(temperature):
    """First tokens, and second tokens after the likeliest first one, against a plain forward."""
    model, n = small_model(seed=3), 20_000
    prompt = "37+48="
    out = sample(model, [prompt] * n, temperature, max_new_tokens=2,
                 generator=torch.Generator().manual_seed(1))
    response = out["ids"][:, out["prompt_len"]:]
    first = response[:, 0]
    compare_counts(first, model(encode([prompt]))[0, -1] / temperature)
    likeliest = int(first[first != END].mode().values)
    after = torch.cat([encode([prompt]), torch.tensor([[likeliest]])], 1)
    compare_counts(response[first == likeliest, 1], model(after)[0, -1] / temperature)


def compare_counts(tokens, logits):
    """Pearson's chi-squared test; tokens expected five times or less are counted as one."""
    counts = torch.bincount(tokens, minlength=VOCAB_SIZE).double()
    assert counts[PAD] == 0
    expected = logits.softmax(-1).detach() * len(tokens)
    often = expected > 5
    counts = torch.cat([counts[often], counts[~often].sum()[None]])
    expected = torch.cat([expected[often], expected[~often].sum()[None]])
    statistic = ((counts - expected) ** 2 / expected.clamp(min=1e-3)).sum()
    assert torch.special.gammaincc(often.sum() / 2, statistic / 2) > 1e-4


class Bigram(torch.nn.Module):
    """A stand-in with known logits: the next token depends on the last one alone."""

    def __init__(self, table):
        super().__init__()
        self.table = torch.nn.Parameter(table)
        self.device = table.device

    def forward(self, ids, cache=None):
        if cache is not None and cache.pad is None:
            cache.pad = torch.zeros(len(ids), dtype=torch.long)
        return self.table[ids]


def test_known_logits_give_known_logprobs_and_entropy():
    table = torch.full((VOCAB_SIZE, VOCAB_SIZE), -1e4)
    table[:, 3] = torch.log(torch.tensor(0.25))
    table[:, END] = torch.log(torch.tensor(0.75))
    out = {"ids": torch.cat([encode(["1+1="] * 2), torch.tensor([[3, END], [END, PAD]])], 1),
           "prompt_len": 4, "mask": torch.tensor([[1.0, 1.0], [1.0, 0.0]])}
    model = Bigram(table)
    expected = torch.tensor([[0.25, 0.75], [0.75, 1.0]]).log() * out["mask"]
    torch.testing.assert_close(sequence_logprobs(model, out), expected)
    assert token_entropy(model, out) == pytest.approx(0.5623351446188083)   # of (1/4, 3/4), in nats


def test_a_cache_read_in_pieces_equals_one_read_at_once():
    model = small_model()
    ids = encode(["37+48=", "5+5="])
    cache = Cache()
    pieces = torch.cat([model(ids[:, :3], cache), model(ids[:, 3:5], cache),
                        model(ids[:, 5:], cache)], 1)
    real = ids != PAD
    torch.testing.assert_close(pieces[real], model(ids)[real])


def test_answers_of_one_token():
    model = small_model()
    out = rollout_of(["1+1=", "1+1=", "22+3="], max_new_tokens=1)
    torch.testing.assert_close(sequence_logprobs(model, out), plain_logprobs(model, out))


def test_measuring_changes_no_random_state():
    model = small_model()
    torch.manual_seed(4)
    random.seed(4)
    before = torch.get_rng_state(), random.getstate()
    tinylm.accuracy(model, n=20)
    tinylm.accuracy(model, n=20, greedy=True)
    sample(model, ["1+1="], generator=torch.Generator().manual_seed(0))
    assert torch.equal(before[0], torch.get_rng_state()) and before[1] == random.getstate()


def test_sampling_repeats_bit_for_bit():
    model = small_model()
    draws = [sample(model, ["1+1="] * 50, generator=torch.Generator().manual_seed(7))["ids"]
             for _ in range(2)]
    assert torch.equal(*draws)
