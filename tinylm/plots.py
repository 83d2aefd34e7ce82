"""One function a figure: data in, matplotlib figure out. Nothing is computed or trained here.

Figures carry their own light background, so they read the same on a dark page, and use the colours
of Okabe and Ito, which survive colour-blindness. Lines are labelled where they end.
"""

from contextlib import contextmanager

import matplotlib
from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#777777"
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e5e5",
    "axes.axisbelow": True,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "tinylm",           # the same data give the same file
}


@contextmanager
def style():
    with matplotlib.rc_context(STYLE):
        yield


def training(history, cfg):
    """A training run: reward and accuracies, KL, entropy, against the iteration.

    Args:
        history: as `tinylm.training.train` returns it.
        cfg: its GRPOConfig, named in the caption.

    Returns a matplotlib Figure with three panels side by side.
    """
    with style():
        figure = Figure(figsize=(11, 3.9), layout="constrained")
        answers, kl, entropy = figure.subplots(1, 3, width_ratios=(1.7, 1, 1))
        iterations = range(1, len(history["reward"]) + 1)
        _line(answers, iterations, history["reward"], GREY, "reward of the samples", 0.7)
        _line(answers, history["eval_iter"], history["acc_sampled"], BLUE, "accuracy, sampled", 2)
        _line(answers, history["eval_iter"], history["acc_greedy"], ORANGE, "accuracy, greedy", 2)
        answers.set(title="Right answers", ylim=(0, 1), ylabel="share")
        answers.legend(loc="lower right", frameon=False)
        _line(kl, iterations, history["kl"], GREEN, "KL", 1)
        kl.set(title="KL to the SFT policy (k3)", ylim=(0, None), ylabel="nats a token")
        _line(entropy, iterations, history["entropy"], PURPLE, "entropy", 1)
        entropy.set(title="Entropy of the policy", ylim=(0, None), ylabel="nats a token")
        for axes in (answers, kl, entropy):
            axes.set_xlabel("iteration")
            axes.set_xlim(0, max(1, len(history["reward"])))
        figure.supxlabel(caption(cfg), fontsize=8, color=GREY)
    return figure


def _line(axes, x, y, colour, label, width):
    axes.plot(list(x), y, color=colour, label=label, linewidth=width)


def caption(cfg):
    """The settings of a run in one line."""
    return (f"G {cfg.G}, P {cfg.prompts_per_iter}, inner steps {cfg.inner_steps}, lr {cfg.lr:g}, "
            f"clip_eps {cfg.clip_eps:g}, beta {cfg.beta:g}, temperature {cfg.temperature:g}, "
            f"{'std' if cfg.scale_std else 'no std'}, seed {cfg.seed}")


def save(figure, stem):
    """Write `stem`.svg and `stem`.png, whole or not at all. Returns both paths."""
    from tinylm.files import replacing

    paths = [stem.with_suffix(suffix) for suffix in (".svg", ".png")]
    for path in paths:
        with replacing(path) as temporary, style():
            figure.savefig(temporary, format=path.suffix[1:], dpi=144,
                           metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths
