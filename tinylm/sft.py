"""The start of every run: a TinyLM that was taught addition (supervised fine-tuning, SFT), twice.

The first teacher is careful. The second, who has the last word, gets the carry wrong more often
than not. So the policy can add, but has picked up a habit: sampled, it is right about one time in
three. GRPO, told only which answers are right, has that habit to undo. How the recipe was chosen
stands in docs/recipe.md.

The trained policy ships with the package, so that everybody starts from the same one;
`load_or_train_sft(path)` trains it anew where there is none.
"""

import pickle
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path

import torch
import torch.nn.functional as F
from platformdirs import user_cache_path

from tinylm.addition import END, MAX_ANSWER_TOKENS, PAD, as_text, encode, training_sums
from tinylm.files import replacing
from tinylm.model import ModelConfig, TinyLM
from tinylm.threads import one_thread

FILE_NAME = "tinylm_sft.pt"


@dataclass(frozen=True)
class SFTRecipe:
    model: ModelConfig = field(default_factory=ModelConfig)
    steps: int = 600
    careful: int = 360          # steps with the first teacher; the rest are with the second
    wrong: float = 0.55         # how often the second one gets the carry wrong
    batch: int = 64
    lr: float = 4e-3            # falls linearly to 0 after the warm-up
    warmup: int = 30            # steps
    max_grad_norm: float = 1.0
    seed: int = 0


RECIPE = SFTRecipe()


class CheckpointError(Exception):
    """A file that is no checkpoint of this recipe; the message says what is wrong with it."""


def load_or_train_sft(path=None):
    """The SFT policy, on torch's default device.

    Args:
        path: where it is cached. If nothing is there, the policy is trained (about 5 s on two
            cores) and kept there. None means the checkpoint that tinylm ships.

    A file that is truncated, of another recipe or no checkpoint is trained anew and replaced; a
    shipped one that is broken is replaced in the user's cache folder. Files are loaded without
    pickle and replaced in one step, so two kernels may come here at once.
    Raises PermissionError, before any training, where `path` cannot be written.
    """
    if path is None:
        path = shipped_path()
        try:
            return load(path).to(torch.get_default_device())
        except (CheckpointError, FileNotFoundError) as error:
            path = user_cache_path("tinylm") / FILE_NAME
            print(f"the shipped SFT policy is unusable ({error}); using {path} instead.")
    try:
        policy = load(path)
    except FileNotFoundError:
        policy = train_into(path)
    except CheckpointError as error:
        print(f"{error}; training the SFT policy anew (about 5 s).")
        policy = train_into(path)
    return policy.to(torch.get_default_device())


def shipped_path():
    """The checkpoint inside the package."""
    return Path(str(resources.files("tinylm") / "data" / FILE_NAME))


def load(path):
    """The policy in a checkpoint file, on the CPU. Raises CheckpointError, or FileNotFoundError."""
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except (RuntimeError, ValueError, EOFError, OSError, KeyError, pickle.UnpicklingError):
        raise CheckpointError(f"{path} is not a complete checkpoint") from None
    if not (isinstance(saved, dict) and set(saved) == {"recipe", "weights"}):
        raise CheckpointError(f"{path} is not a checkpoint of tinylm")
    if saved["recipe"] != asdict(RECIPE):
        raise CheckpointError(f"{path} was trained with another recipe")
    policy = empty_model()
    try:
        policy.load_state_dict(saved["weights"])
    except (RuntimeError, TypeError, AttributeError):
        raise CheckpointError(f"{path} holds weights that do not fit its recipe") from None
    return policy


def train_into(path):
    """Train the SFT policy and keep it at `path`."""
    with replacing(path) as temporary:
        policy = train_sft()
        torch.save({"recipe": asdict(RECIPE), "weights": policy.state_dict()}, temporary)
    return policy


@one_thread()
def train_sft(recipe=RECIPE, on_step=None):
    """Teach a new TinyLM by next-token prediction on the teacher's answers.

    Args:
        recipe: an SFTRecipe.
        on_step: called as on_step(step, loss, policy) after each step, loss in nats a token.

    Returns the policy, on the CPU. The global random state stays as it was.
    """
    generator = torch.Generator().manual_seed(recipe.seed)
    right, wrong, prompt_len = taught_sequences()
    policy = empty_model(recipe)
    opt = torch.optim.Adam(policy.parameters(), lr=recipe.lr, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: _rate(step, recipe))
    for step in range(recipe.steps):
        row = torch.randint(len(right), (recipe.batch,), generator=generator)
        slip = torch.rand(recipe.batch, 1, generator=generator) < recipe.wrong
        ids = torch.where(slip & (step >= recipe.careful), wrong[row], right[row])   # (batch, L+T)
        logits = policy(ids[:, :-1])[:, prompt_len - 1:]                    # (batch, T, V)
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, prompt_len:].flatten(),
                               ignore_index=PAD)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), recipe.max_grad_norm)
        opt.step()
        schedule.step()
        if on_step is not None:
            on_step(step + 1, float(loss.detach()), policy)
    return policy


def _rate(step, recipe):
    return min(1, (step + 1) / recipe.warmup) * (1 - step / recipe.steps)


def empty_model(recipe=RECIPE):
    """An untrained TinyLM of the recipe's sizes, on the CPU; the global random state is kept."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(recipe.seed)
        return TinyLM(recipe.model)


def taught_sequences():
    """Every training problem as a sequence, with the right answer and with the sloppy one.

    Returns (right, wrong, L): right and wrong are (N, L + T) long, prompts left-padded to L,
    answers closed by the end token and padded to T on the right.
    """
    sums = training_sums()
    prompts, answers = as_text(sums)
    prompt_ids = encode(prompts)
    sloppy = [sloppy_answer(a, b) for a, b in sums]
    right, wrong = (torch.cat([prompt_ids, _closed(texts)], 1) for texts in (answers, sloppy))
    return right, wrong, prompt_ids.shape[1]


def sloppy_answer(a, b):
    """a + b with the carry forgotten, or with one too many: 37+48 gives "75", 31+48 "89"."""
    carries = a % 10 + b % 10 >= 10
    return str(a + b - 10 if carries else a + b + 10)


def _closed(texts):
    """Answers as (N, MAX_ANSWER_TOKENS) ids: the text, the end token, then padding."""
    rows = [encode([text])[0].tolist() + [END] for text in texts]
    return torch.tensor([row + [PAD] * (MAX_ANSWER_TOKENS - len(row)) for row in rows])
