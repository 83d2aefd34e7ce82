"""The task: alphabet, problems, reward."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinylm import make_batch, reward
from tinylm.addition import (
    END,
    HELD_OUT,
    PAD,
    decode,
    encode,
    held_out_batch,
    training_sums,
)


@given(st.lists(st.text("0123456789+=", min_size=1, max_size=9), min_size=1, max_size=5))
def test_decode_undoes_encode(texts):
    ids = encode(texts)
    assert ids.dtype == torch.long and ids.shape == (len(texts), max(map(len, texts)))
    assert [decode(row) for row in ids] == texts


def test_padding_stands_on_the_left():
    assert encode(["37+48=", "5+5="])[1].tolist() == [PAD, PAD, 5, 10, 5, 11]


def test_decode_stops_at_the_end_token_and_leaves_padding_out():
    assert decode([8, 5, END, 3, PAD]) == "85"
    assert decode([END, 8, 5]) == ""
    assert decode([PAD, 8, 5]) == "85"


@pytest.mark.parametrize("response", ["185", "8", "85 ", "", "085", "85=", "58", "+85"])
def test_a_near_miss_earns_nothing(response):
    assert reward(response, "85") == 0.0


def test_the_right_answer_earns_one():
    assert reward("85", "85") == 1.0 and type(reward("85", "85")) is float


@pytest.mark.parametrize(("prompts", "named"), [
    (["3x+1="], "'x'"), (["37 +48="], "' '"), ([""], "''"), ([], "no prompts"), ([3], "3"),
])
def test_what_cannot_be_read_is_named(prompts, named):
    with pytest.raises(ValueError, match=named):
        encode(prompts)


def test_batches_are_right_and_repeatable():
    prompts, answers = make_batch(200, random.Random(3))
    assert (prompts, answers) == make_batch(200, random.Random(3))
    assert all(sum(map(int, p[:-1].split("+"))) == int(a)
               for p, a in zip(prompts, answers, strict=True))


def test_held_out_problems_never_occur_in_training_in_either_order():
    taught = set(training_sums())
    prompts, answers = held_out_batch(HELD_OUT)
    sums = [tuple(map(int, p[:-1].split("+"))) for p in prompts]
    assert len(set(sums)) == HELD_OUT == 10_000 - len(taught)
    assert [str(a + b) for a, b in sums] == answers
    assert not taught & {pair for a, b in sums for pair in ((a, b), (b, a))}
    drawn = make_batch(5_000, random.Random(0))[0]
    assert not set(drawn) & set(prompts)


@pytest.mark.parametrize("n", [0, -1, 2000])
def test_more_problems_than_there_are_is_said(n):
    with pytest.raises(ValueError, match=f"{n} held-out problems"):
        held_out_batch(n)
