"""Sampling: when it stops, what the mask says, what it refuses."""

import math

import pytest
import torch

import tinylm
from tinylm.addition import ALPHABET, END, PAD, VOCAB_SIZE, encode
from tinylm.model import ModelConfig, TinyLM
from tinylm.rollout import sample


class Scripted(torch.nn.Module):
    """A stand-in that answers with a fixed text, whatever it is asked."""

    def __init__(self, *tokens):
        super().__init__()
        self.tokens, self.calls, self.device = tokens, [], torch.device("cpu")
        self.check_length = lambda *_: None

    def forward(self, ids, cache):
        if cache.pad is None:
            cache.pad = torch.zeros(len(ids), dtype=torch.long)
        logits = torch.full((*ids.shape, VOCAB_SIZE), -50.0)
        logits[..., self.tokens[len(self.calls)]] = 50.0
        self.calls.append(tuple(ids.shape))
        return logits


def test_an_end_token_at_once_gives_an_empty_answer_and_one_position():
    model = Scripted(END)
    out = sample(model, ["1+1=", "37+48="])
    assert out["ids"][:, out["prompt_len"]:].tolist() == [[END], [END]]
    assert out["mask"].tolist() == [[1.0], [1.0]]
    assert tinylm.decode_responses(out) == ["", ""]
    assert len(model.calls) == 1


def test_no_end_token_fills_all_positions():
    out = sample(Scripted(1, 2, 3, 4, 5), ["1+1="])
    assert tinylm.decode_responses(out) == ["1234"]
    assert out["mask"].tolist() == [[1.0] * 4]


def test_sampling_stops_when_all_rows_are_done():
    model = Scripted(8, 5, END, 9)
    out = sample(model, ["37+48="] * 3)
    assert len(model.calls) == 3 and out["mask"].shape == (3, 3)
    assert tinylm.decode_responses(out) == ["85"] * 3


def test_what_is_the_same_is_read_once():
    model = Scripted(8, 5, END)
    out = sample(model, ["1+1=", "2+2=", "1+1=", "1+1="])
    assert model.calls == [(2, 4), (2, 1), (2, 1)]
    model.calls.clear()
    tinylm.sequence_logprobs(model, out)
    assert model.calls == [(2, 4), (2, 2)]


def test_the_mask_covers_the_end_token_and_padding_follows():
    model = TinyLM(ModelConfig(8, 1, 2))
    out = sample(model, ["1+1=", "37+48=", "5+55="] * 40, max_new_tokens=5,
                 generator=torch.Generator().manual_seed(0))
    assert out["prompt_len"] == 6 and out["ids"].dtype == torch.long
    lengths = set()
    for row, mask in zip(out["ids"][:, 6:].tolist(), out["mask"].tolist(), strict=True):
        length = row.index(END) + 1 if END in row else len(row)
        lengths.add(length)
        assert mask == [1.0] * length + [0.0] * (len(row) - length)
        assert row[length:] == [PAD] * (len(row) - length) and PAD not in row[:length]
    assert len(lengths) > 2


@pytest.mark.parametrize("temperature", [0, -1, math.inf, math.nan, "hot", None])
def test_a_temperature_that_makes_no_sense_is_named(temperature):
    with pytest.raises(ValueError, match="temperature is"):
        sample(TinyLM(ModelConfig(8, 1, 2)), ["1+1="], temperature=temperature)


def test_a_prompt_longer_than_the_model_takes_is_refused_before_sampling():
    model = TinyLM(ModelConfig(8, 1, 2, context=8))
    with pytest.raises(ValueError, match="10 tokens.*at most 8"):
        sample(model, ["1+1=", "37+48="])
    assert sample(model, ["1+1="])["prompt_len"] == 4


def test_the_alphabet_comes_back_as_it_was():
    assert tinylm.decode_responses({"ids": encode([ALPHABET]), "prompt_len": 0}) == [ALPHABET]
