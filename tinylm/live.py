"""A training run in the background: start it, follow it, look inside its batches, stop it.

    run = LiveRun(GRPOConfig(G=4))      # the grpo_step of your lab.py, from here on
    run.history, run.state              # at any moment, as far as it has come
    run.batch(12).rewards               # what iteration 12 looked like inside
    run.stop()

The run has a process of its own, because torch's random state belongs to a whole process: whatever
the notebook draws or computes meanwhile, the curve is bit for bit that of `train_grpo`. The process
only sends; it is ended by `stop`, or when the notebook's own process ends in whatever way.
"""

import functools
import inspect
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from tinylm import labfile
from tinylm.training import STATS, GRPOConfig, TrainingError, check_config, train

KEPT = 500                   # batches that a run keeps, the newest; each is some 40 kB
START = ("import pickle, sys; job = pickle.load(sys.stdin.buffer); sys.path[:] = job.pop('path'); "
         "from tinylm.live import work; work(**job)")


@dataclass(frozen=True)
class Batch:
    """One iteration from inside: P prompts, B = P * G answers of up to T tokens.

    Arrays are NumPy's. The log-probs are those that the last inner step gave to `grpo_loss`.
    """

    iteration: int
    prompts: list            # P strings
    answers: list            # P strings, the right ones
    responses: list          # B strings; the G of one prompt stand together
    rewards: np.ndarray      # (B,)
    advantages: np.ndarray   # (B,)
    ids: np.ndarray          # (B, L + T) token ids, prompt and answer
    prompt_len: int          # L
    mask: np.ndarray         # (B, T) 1 for real tokens
    logp: np.ndarray         # (B, T) under the policy before the last inner step's update
    old_logp: np.ndarray     # (B, T) under the policy that sampled
    ref_logp: np.ndarray     # (B, T) under the reference
    clip_eps: float
    beta: float
    loss: float              # what `grpo_loss` returned in the last inner step

    def token_losses(self, grpo_loss):
        """The loss of each token, (B, T) and 0 for padding, as the given `grpo_loss` sees it.

        It is asked about every token as if that were a batch of its own. So of a right one the
        means over each response's own tokens have the mean `loss`.
        """
        losses = np.zeros_like(self.logp)
        for i, t in np.argwhere(self.mask > 0):
            losses[i, t] = self.token(i, t, grpo_loss)[0]
        return losses

    def token(self, i, t, grpo_loss):
        """What the given `grpo_loss` returns for one token alone: (loss, stats)."""
        one = [torch.from_numpy(x[i:i + 1, t:t + 1])
               for x in (self.logp, self.old_logp, self.ref_logp, self.mask)]
        adv = torch.from_numpy(self.advantages[i:i + 1])
        return grpo_loss(*one[:3], adv, one[3], self.clip_eps, self.beta)


class LiveRun:
    """A run that has begun with the making of this object.

    Args:
        cfg: a GRPOConfig.
        lab: the lab file; by default lab.py of the learner's folder.
        sft_path: as in `tinylm.training.train`.

    Attributes:
        state: "starting", "running", "finished", "stopped" or "failed".
        message: where it failed, a sentence that says why; else None.
        lab: path of the lab file.

    Raises ValueError for settings that make no sense.
    """

    def __init__(self, cfg, lab=None, sft_path=None):
        check_config(cfg)
        self.cfg, self.state, self.message = cfg, "starting", None
        self.lab = Path(lab) if lab else labfile.learner_folder() / "lab.py"
        self._history, self._batches = {}, {}
        self._lock, self._over, self._stopped = threading.Lock(), threading.Event(), False
        self._complaints = tempfile.TemporaryFile()
        # In a session of its own, for ^C in the notebook is not meant for the run. With -P no file
        # in the learner's folder takes the place of a module of Python's.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", START], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._complaints, start_new_session=True)
        pickle.dump({"path": sys.path, "lab": str(self.lab), "settings": asdict(cfg),
                     "sft_path": sft_path, "threads": torch.get_num_threads()}, self._process.stdin)
        self._process.stdin.flush()
        threading.Thread(target=self._follow, daemon=True).start()

    @property
    def history(self):
        """The history so far, as `train` returns it: a copy, whole for every iteration."""
        with self._lock:
            return {name: list(values) for name, values in self._history.items()}

    @property
    def iteration(self):
        """The number of iterations so far."""
        return len(self._history.get("reward", ()))

    @property
    def batches(self):
        """The iterations of which a batch is kept, in order: at most the last `KEPT`."""
        with self._lock:
            return sorted(self._batches)

    def batch(self, iteration):
        """The `Batch` of an iteration. Raises LookupError, with a sentence, if there is none."""
        with self._lock:
            if iteration in self._batches:
                return self._batches[iteration]
        kept = self.batches
        here = f"kept are those of {kept[0]} to {kept[-1]}" if kept else (
            "none can be seen if your grpo_step does not call sample_group and grpo_loss")
        raise LookupError(f"there is no batch of iteration {iteration}; {here}.")

    def wait(self, timeout=None):
        """Wait until the run is over, at most `timeout` seconds. Returns whether it is."""
        return self._over.wait(timeout)

    def stop(self):
        """End the run; the history so far stays. A run that is over already is left as it is."""
        self._stopped = True
        self._process.kill()

    # -------------------------------------------------------- the thread that listens

    def _follow(self):
        end = None
        try:
            while end is None:
                end = self._take(*pickle.load(self._process.stdout))
        except (EOFError, pickle.UnpicklingError):           # it ended in the midst of the run
            self._process.wait()
            end = ("stopped", None) if self._stopped else ("failed", self._last_words())
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._complaints):
            pipe.close()
        self.message = end[1]
        self.state = end[0]
        self._over.set()

    def _take(self, history, batch, end):
        """Keep what was sent. Returns (state, message) if that was the end, else None."""
        with self._lock:
            for name, values in history.items():
                self._history.setdefault(name, []).extend(values)
            if batch is not None:
                self._batches[batch.iteration] = batch
                if len(self._batches) > KEPT:
                    del self._batches[min(self._batches)]
        if end is None:
            self.state = "running"
        return end

    def _last_words(self):
        self._complaints.seek(0)
        words = self._complaints.read().decode(errors="replace").strip().splitlines()
        why = f"its last words: {words[-1]}" if words else "most often there was too little memory"
        return f"the process of the run ended with status {self._process.returncode}; {why}"


# ------------------------------------------------------------ the run's own process

def work(lab, settings, sft_path, threads):
    """Train, and send on what happens; the process of a `LiveRun` does this and nothing else."""
    channel = _channel()
    torch.set_num_threads(threads)

    def send(history=None, batch=None, end=None):
        pickle.dump((history or {}, batch, end), channel)
        channel.flush()

    sent = dict.fromkeys((*STATS, "eval_iter", "acc_sampled", "acc_greedy"), 0)

    def on_iteration(iteration, history):
        send({name: history[name][start:] for name, start in sent.items()}, watch.batch(iteration))
        sent.update({name: len(history[name]) for name in sent})

    try:
        step = labfile.step_in(lab)
        watch = _Watch(vars(sys.modules["lab"]))
        train(step, GRPOConfig(**settings), sft_path, verbose=False, on_iteration=on_iteration)
        send(end=("finished", None))
    except (labfile.LabError, TrainingError, PermissionError) as error:
        send(end=("failed", str(error)))
    except (Exception, SystemExit) as error:
        send(end=("failed", labfile.what_went_wrong(error, lab)))


def _channel():
    """The way to the notebook, a binary file. When the notebook's process ends, this one does too.

    What the learner's code prints goes nowhere, and nothing can be typed into it.
    """
    lifeline, channel, nowhere = os.dup(0), os.dup(1), os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)

    def end_with_the_notebook():
        os.read(lifeline, 1)                 # returns when the other end is closed
        os._exit(1)

    threading.Thread(target=end_with_the_notebook, daemon=True).start()
    return os.fdopen(channel, "wb")


class _Watch:
    """Notes what sample_group and grpo_loss of a lab are given and return, and changes neither.

    Args:
        names: the lab module's names. Both functions are replaced in it under any name they have,
            so that the step calls the watched ones.
    """

    def __init__(self, names):
        self.calls = {}
        for name in ("sample_group", "grpo_loss"):
            original = names.get(name)
            if inspect.isfunction(original):
                watched = self._watched(name, original)
                names.update({key: watched for key, value in names.items() if value is original})

    def _watched(self, name, original):
        signature = inspect.signature(original)

        @functools.wraps(original)
        def watched(*args, **kwargs):
            returned = original(*args, **kwargs)
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            self.calls[name] = _copied(list(given.arguments.values())), _copied(returned)
            return returned

        return watched

    def batch(self, iteration):
        """The Batch of the last calls; None if one was not made, or the shapes do not fit."""
        calls, self.calls = self.calls, {}
        try:
            (_, prompts, answers, *_), group = calls["sample_group"]
            (*arrays, clip_eps, beta), (loss, _) = calls["grpo_loss"]
            logp, old_logp, ref_logp, advantages, mask = arrays
            batch = Batch(iteration=iteration, prompts=prompts, answers=answers,
                          responses=group["responses"],
                          rewards=np.asarray(group["rewards"], np.float32), advantages=advantages,
                          ids=group["out"]["ids"], prompt_len=group["out"]["prompt_len"], mask=mask,
                          logp=logp, old_logp=old_logp, ref_logp=ref_logp,
                          clip_eps=clip_eps, beta=beta, loss=float(loss))
            B, T = mask.shape
            shapes = {x.shape for x in (logp, old_logp, ref_logp)} | {(*advantages.shape, T)}
            fits = shapes == {(B, T)} and len(batch.responses) == len(batch.rewards) == B
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        return batch if fits else None


def _copied(value):
    """Tensors as arrays, lists and dicts with all in them, plain values; None for anything else."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy().copy()
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(item) for item in value]
    return value if isinstance(value, str | int | float) else None
