"""TRL's GRPOTrainer on a GPT-2 of TinyLM's sizes, timed inside its own training loop.

A step here is what `grpo_step` is: one generation of P * G answers, scored, and the optimizer steps
on them. The clock starts in TRL's on_step_begin and stops in the on_step_end of the last of them,
so it holds generation, rewards, old and reference log-probs, loss, backward, gradient clipping, the
optimizer, and what TRL keeps about each step. Set-up, the first batch of prompts, logging and
saving lie outside.

Nothing is downloaded: the model is made from a configuration with random weights, the tokenizer
from the course's alphabet. Its answers are thus random, yet as long as an answer may be.
"""

import logging
import os
import random
import tempfile
import time
import warnings
from importlib.metadata import version

os.environ["HF_HUB_OFFLINE"] = "1"      # before the imports: they read it once

import torch  # noqa: E402
import transformers  # noqa: E402
from datasets import Dataset, disable_progress_bars  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: E402
from transformers import (  # noqa: E402
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    PrinterCallback,
    TrainerCallback,
)
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

from tinylm.addition import ALPHABET, MAX_ANSWER_TOKENS, make_batch, reward  # noqa: E402

NAME = f"TRL {version('trl')}"


def time_steps(repetitions, cfg, sizes, between):
    """Train for `repetitions` steps; call `between()` before each, off the clock.

    Args:
        repetitions: how many steps.
        cfg: the tinylm.GRPOConfig whose settings TRL takes over.
        sizes: the tinylm.model.ModelConfig whose width, depth and heads the GPT-2 takes over.
        between: a function without arguments.

    Returns (seconds, tokens): two lists, the time and the sampled tokens of each step.
    """
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    disable_progress_bars()
    logging.disable(logging.WARNING)
    clock = StepClock(cfg.inner_steps, between)
    tokens = []

    def exact_match(completions, answer, completion_ids, **_):
        tokens.append(sum(map(len, completion_ids)))
        return [reward(*pair) for pair in zip(completions, answer, strict=True)]

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = GRPOTrainer(
            model=gpt2(sizes, folder),
            processing_class=character_tokenizer(),
            reward_funcs=exact_match,
            args=settings(cfg, repetitions, folder),
            train_dataset=problems(repetitions * cfg.prompts_per_iter),
            callbacks=[clock],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    logging.disable(logging.NOTSET)
    return clock.seconds, tokens


class StepClock(TrainerCallback):
    """Times a generation together with the optimizer steps that use it."""

    def __init__(self, inner_steps, between):
        self.inner_steps, self.between, self.seconds = inner_steps, between, []

    def on_step_begin(self, args, state, control, **_):
        if state.global_step % self.inner_steps == 0:
            self.between()
            self.begun = time.perf_counter()

    def on_step_end(self, args, state, control, **_):
        if state.global_step % self.inner_steps == 0:
            self.seconds.append(time.perf_counter() - self.begun)


def gpt2(sizes, folder):
    """A GPT-2 with random weights, kept in `folder`, where TRL finds its reference model."""
    tokenizer = character_tokenizer()
    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config(
        vocab_size=len(tokenizer), n_positions=sizes.context, n_embd=sizes.width,
        n_layer=sizes.depth, n_head=sizes.heads, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        bos_token_id=tokenizer.eos_token_id, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )).save_pretrained(folder)
    return GPT2LMHeadModel.from_pretrained(folder)


def character_tokenizer():
    """The course's alphabet, an end token and a padding token."""
    vocabulary = {text: i for i, text in enumerate([*ALPHABET, "<end>", "<pad>"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()                 # or an answer would read "8 5"
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>",
                                   pad_token="<pad>", padding_side="left")


def settings(cfg, repetitions, folder):
    """TRL's configuration with the course's numbers, on the CPU, silent."""
    return GRPOConfig(
        output_dir=folder, use_cpu=True, bf16=False, gradient_checkpointing=False,
        per_device_train_batch_size=cfg.prompts_per_iter * cfg.G, num_generations=cfg.G,
        num_iterations=cfg.inner_steps, max_steps=repetitions * cfg.inner_steps,
        max_completion_length=MAX_ANSWER_TOKENS, temperature=cfg.temperature, beta=cfg.beta,
        epsilon=cfg.clip_eps, loss_type="grpo", learning_rate=cfg.lr, lr_scheduler_type="constant",
        max_grad_norm=cfg.max_grad_norm, seed=cfg.seed,
        save_strategy="no", logging_strategy="no", report_to="none", disable_tqdm=True,
    )


def problems(n):
    """Training problems as TRL's dataset."""
    prompts, answers = make_batch(n, random.Random(0))
    return Dataset.from_dict({"prompt": prompts, "answer": answers})
