"""A transformer small enough for a laptop, an addition task, and the fast path for GRPO on them.

The names that the lab uses are here; each lives in the module that its task names: addition (the
task), model (TinyLM), rollout (sampling and log-probs), sft (the starting policy), training (the
outer loop). Nothing here solves one of the five tasks.
"""

from tinylm.addition import make_batch, reward
from tinylm.model import TinyLM
from tinylm.rollout import (
    accuracy,
    decode_responses,
    sample,
    sequence_logprobs,
    token_entropy,
)
from tinylm.sft import load_or_train_sft
from tinylm.training import GRPOConfig

__all__ = [
    "GRPOConfig",
    "TinyLM",
    "accuracy",
    "decode_responses",
    "load_or_train_sft",
    "make_batch",
    "reward",
    "sample",
    "sequence_logprobs",
    "token_entropy",
]
