"""Sliders round pictures, a function for each picture of the course.

Run `widgets.clip()` in a notebook, then move a slider with the mouse, or with Tab and the arrow
keys. What is under all of them is `panel`; nothing is drawn before a panel is made.
"""

import torch

from tinylm import batches, plots
from tinylm.addition import as_text
from tinylm.explorer import Explorer
from tinylm.model import TinyLM
from tinylm.panel import Panel, choice, slider
from tinylm.rollout import decode_responses, sample
from tinylm.sft import load_or_train_sft

SUMS = [(72, 16), (37, 48), (86, 57), (5, 5)]    # from often right to almost never


def answers(policy=None):
    """What a policy answers to four prompts, under temperature and G; None: the shipped policy.

    The same setting shows the same answers, and a larger group goes on where the smaller one ends.
    """
    if policy is None:
        policy = load_or_train_sft()
    if not isinstance(policy, TinyLM):
        raise TypeError(f"answers was given {type(policy).__name__}; expected a TinyLM, such as "
                        "load_or_train_sft() returns.")
    prompts, right = as_text(SUMS)

    def setting(temperature, G):
        return {"responses": _sampled(policy, prompts, temperature), "G": G,
                "setting": f"temperature {temperature:.1f}"}

    picture = batches.answers(prompts, right, **setting(1.0, 8))
    return Panel(picture, lambda **values: picture.move(**setting(**values)),
                 temperature=slider("temperature", 1.0, 0.2, 2.0, 0.1),
                 G=choice("G", 8, [2, 4, 8, 16]))


def _sampled(policy, prompts, temperature):
    """Enough answers for the largest group, a list for each prompt."""
    size = plots.LARGEST_GROUP
    rows = decode_responses(sample(policy, [prompt for prompt in prompts for _ in range(size)],
                                   temperature=temperature,
                                   generator=torch.Generator().manual_seed(0)))
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def advantages():
    """The advantages of a group while the number of right answers moves, under three rules."""
    picture = plots.advantages()
    right, G = slider("right answers", 2, 0, 8), choice("G", 8, [2, 4, 8, 16])

    def fit(change):
        right.max = change.new

    G.observe(fit, "value")             # before the panel looks, so that it never sees 9 right of 8
    return Panel(picture, picture.move, right=right, G=G)


def estimators():
    """k1, k2 and k3 against the true KL while two policies drift apart."""
    table = plots.recorded("estimators")
    picture = plots.estimators(table)
    return Panel(picture, picture.move,
                 drift=choice("drift", 1.0, [(f"{d:.2f}", d) for d in table["drift"]]))


def clip():
    """The clipped objective against the ratio, with the active branch and its gradient."""
    picture = plots.clip()
    return Panel(picture, picture.move, clip_eps=slider("clip_eps", 0.2, 0.05, 0.5, 0.05),
                 rho=slider("ratio ρ", 1.4, 0.1, 1.9, 0.05))


def step():
    """One real batch on its way through a GRPO step, stage by stage."""
    picture = batches.step(plots.recorded("step"), stage=1)
    return Panel(picture, picture.move, stage=slider("stage", 1, 1, 7))


def explore(record=None, lab=None):
    """Recorded runs under four sliders, and a run of your own lab.py over them.

    Args:
        record: path of a record of runs; by default the one that tinylm ships.
        lab: path of the lab file that the button trains; by default lab.py of your folder.
    """
    return Explorer(record, lab)
