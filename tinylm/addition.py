"""The task: two-digit addition, written character by character.

A problem is a prompt such as "37+48=" and its answer "85". Both numbers lie between 0 and 99, so
a prompt has four to six characters and an answer one to three. This module knows the alphabet, the
problems, and what counts as a right answer. It leaves out everything about models.

The problems that `accuracy` asks are held out: neither `make_batch` nor the SFT data ever holds
one of them, nor the same sum with its two numbers exchanged.
"""

import random
from functools import cache

import torch

ALPHABET = "0123456789+="
END = len(ALPHABET)          # closes an answer
PAD = END + 1                # fills a row on either side; no model ever samples it
VOCAB_SIZE = PAD + 1
MAX_ANSWER_TOKENS = 4        # three digits and the end token

LARGEST = 99                 # the largest number in a sum
HELD_OUT = 1000              # of the 10,000 problems: one in ten

_ID = {character: i for i, character in enumerate(ALPHABET)}


def encode(texts):
    """Token ids of `texts`, padded on the left to one length.

    Args:
        texts: list of B strings over `ALPHABET`, none of them empty.

    Returns: (B, L) long tensor, L the length of the longest text.
    Raises ValueError, naming the text and the character, for anything outside the alphabet.
    """
    if not texts:
        raise ValueError('no prompts were given; expected a list such as ["37+48="].')
    rows = [_ids_of(text) for text in texts]
    width = max(map(len, rows))
    return torch.tensor([[PAD] * (width - len(row)) + row for row in rows])


def _ids_of(text):
    if not isinstance(text, str) or not text:
        raise ValueError(f'{text!r} is not a prompt; expected a string such as "37+48=".')
    try:
        return [_ID[character] for character in text]
    except KeyError as error:
        raise ValueError(
            f"prompt {text!r} holds the character {error.args[0]!r}; "
            f"the model reads only these: {' '.join(ALPHABET)}"
        ) from None


def decode(ids):
    """The text of one row of token ids, up to its end token; padding is left out."""
    ids = ids.tolist() if isinstance(ids, torch.Tensor) else list(ids)
    if END in ids:
        ids = ids[: ids.index(END)]
    return "".join(ALPHABET[i] for i in ids if i != PAD)


def reward(response, answer):
    """The verifiable reward: 1.0 if `response` is exactly the string `answer`, else 0.0."""
    return 1.0 if response == answer else 0.0


def make_batch(n, rng):
    """Draw `n` training problems, uniformly and with repetition.

    Args:
        n: how many.
        rng: a `random.Random`; it alone decides the draw.

    Returns (prompts, answers): two lists of n strings. Held-out problems never occur.
    """
    sums = []
    while len(sums) < n:
        a, b = rng.randint(0, LARGEST), rng.randint(0, LARGEST)
        if _key(a, b) not in _held_out():
            sums.append((a, b))
    return as_text(sums)


def held_out_batch(n):
    """The first `n` held-out problems, always the same ones in the same order, as two lists."""
    if not 1 <= n <= HELD_OUT:
        raise ValueError(f"{n} held-out problems were asked for; there are {HELD_OUT}: "
                         f"choose n between 1 and {HELD_OUT}.")
    return as_text(_held_out_problems()[:n])


def training_sums():
    """All pairs (a, b) that training may see: every problem that is not held out."""
    numbers = range(LARGEST + 1)
    return [(a, b) for a in numbers for b in numbers if _key(a, b) not in _held_out()]


def as_text(sums):
    """Pairs (a, b) as (prompts, answers)."""
    return [f"{a}+{b}=" for a, b in sums], [str(a + b) for a, b in sums]


def _key(a, b):
    return (a, b) if a <= b else (b, a)


@cache
def _held_out():
    """Sums (a, b) with a <= b: one in ten of those with a < b, and of the doubles."""
    numbers = range(LARGEST + 1)
    rng = random.Random(15)
    unequal = rng.sample([(a, b) for a in numbers for b in numbers if a < b], 495)
    return frozenset(unequal + [(a, a) for a in rng.sample(numbers, 10)])


@cache
def _held_out_problems():
    problems = sorted({pair for a, b in _held_out() for pair in ((a, b), (b, a))})
    random.Random(15).shuffle(problems)
    return problems
