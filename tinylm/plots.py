"""One function a figure: data in, a `Picture` out, which is a matplotlib Figure.

Curves and bars stand here; pictures made of rows of answers stand in `batches`. Nothing is trained
or sampled, and nothing is computed but what a figure shows. Axes never jump, and lines are labelled
where they are. In a notebook `plots.clip()` draws a still picture; `widgets.clip()` adds sliders.
"""

import hashlib
import json
from importlib import resources

import numpy as np

from tinylm.files import replacing
from tinylm.picture import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    RUST,
    Picture,
    check_between,
    signed,
    style,
)

LARGEST_GROUP = 16           # the largest G that a picture has room for
RECORDED = ("estimators", "step")


@style()
def training(history, cfg):
    """A training run: reward and accuracies, KL, entropy, against the iteration.

    Args:
        history: as `tinylm.training.train` returns it; or, for several runs that differ in their
            seed alone, with a row for each seed. Then lines are means over the seeds, and bands go
            from the lowest to the highest.
        cfg: its GRPOConfig, named in the caption.
    """
    curves = {name: np.atleast_2d(np.asarray(values, float)) for name, values in history.items()
              if name != "eval_iter"}                            # (seeds, iterations)
    seeds, length = curves["reward"].shape
    figure = Picture(1100, 390, "Three panels against the iteration: the share of right answers, "
                     "the KL to the SFT policy, and the entropy of the policy.")
    figure.set_layout_engine("constrained")
    answers, kl, entropy = figure.subplots(1, 3, width_ratios=(1.7, 1, 1))
    iterations, evaluations = range(1, length + 1), history["eval_iter"]
    _line(answers, iterations, curves["reward"], GREY, "reward of the samples", 0.7)
    _line(answers, evaluations, curves["acc_sampled"], BLUE, "accuracy, sampled", 2)
    _line(answers, evaluations, curves["acc_greedy"], ORANGE, "accuracy, greedy", 2)
    answers.set(title="Right answers", ylim=(0, 1), ylabel="share")
    answers.legend(loc="lower right", frameon=False)
    _line(kl, iterations, curves["kl"], GREEN, "KL", 1)
    kl.set(title="KL to the SFT policy (k3)", ylim=(0, None), ylabel="nats a token")
    _line(entropy, iterations, curves["entropy"], PURPLE, "entropy", 1)
    entropy.set(title="Entropy of the policy", ylim=(0, None), ylabel="nats a token")
    for axes in (answers, kl, entropy):
        axes.set_xlabel("iteration")
        axes.set_xlim(0, max(1, length))
    which = f"seed {cfg.seed}" if seeds == 1 else f"means and ranges of {seeds} seeds"
    figure.supxlabel(f"{caption(cfg)}, {which}", fontsize=8, color=GREY)
    return figure.start(lambda: _training_words(curves))


def _line(axes, x, seeds, colour, label, width):
    """The mean of the seeds, and the band from the lowest to the highest if there are several."""
    axes.plot(list(x), seeds.mean(axis=0), color=colour, label=label, linewidth=width)
    if len(seeds) > 1:
        axes.fill_between(list(x), seeds.min(axis=0), seeds.max(axis=0), color=colour, alpha=0.2,
                          linewidth=0)


def _training_words(curves):
    number, length = curves["reward"].shape
    first, last = ({name: curve[:, at].mean() for name, curve in curves.items() if curve.size}
                   for at in (0, -1))
    words = (f"{length} iterations{f', means of {number} seeds' if number > 1 else ''}: sampled "
             f"accuracy from {first['acc_sampled']:.3f} to {last['acc_sampled']:.3f}, greedy from "
             f"{first['acc_greedy']:.3f} to {last['acc_greedy']:.3f}.")
    if length:
        words += (f" KL ends at {last['kl']:.3f} nats a token, "
                  f"entropy at {last['entropy']:.3f}.")
    return words


def caption(cfg):
    """The settings of a run, all but its seed, in one line."""
    return (f"G {cfg.G}, P {cfg.prompts_per_iter}, inner steps {cfg.inner_steps}, lr {cfg.lr:g}, "
            f"clip_eps {cfg.clip_eps:g}, beta {cfg.beta:g}, temperature {cfg.temperature:g}, "
            f"{'std' if cfg.scale_std else 'no std'}")


@style()
def clip(clip_eps=0.2, rho=1.4):
    """The clipped objective of one token against its ratio, for both signs of the advantage.

    Args:
        clip_eps: the clip range, 0.01 to 0.9.
        rho: the ratio at which the active branch and its gradient are marked, 0.1 to 1.9.

    The two straight pieces of each curve are drawn from where they bend: PPO's equation 7
    (Schulman et al. 2017), as DeepSeekMath's equation 3 takes it over.
    """
    figure = Picture(760, 360, "The clipped objective of one token against its ratio: left for a "
                     "right answer, advantage plus 1, right for a wrong one, advantage minus 1.")
    axes = figure.subplots(1, 2, gridspec_kw={
        "left": 0.085, "right": 0.985, "bottom": 0.15, "top": 0.9, "wspace": 0.22})
    sides = [_clip_side(one, A) for one, A in zip(axes, (1, -1), strict=True)]

    def move(clip_eps, rho):
        check_between("clip_eps", clip_eps, 0.01, 0.9)
        check_between("rho", rho, 0.1, 1.9)
        said = [side(clip_eps, rho) for side, _ in sides]
        return f"clip_eps {clip_eps:.2f}, ratio {rho:.2f}. " + " ".join(said)

    def pin():
        return [artist for _, pin_side in sides for artist in pin_side()]

    return figure.start(move, pin, clip_eps=clip_eps, rho=rho)


def _clip_side(axes, A):
    """One sign of the advantage. Returns a function that sets the side, and one that pins it."""
    kind = "Right answer, A = +1" if A > 0 else "Wrong answer, A = −1"
    steps = [0, 0.5, 1, 1.5, 2]
    axes.set(title=kind, xlim=(0, 2), ylim=(-0.1, 2.2) if A > 0 else (-2.2, 0.1), xticks=steps,
             yticks=[A * step for step in steps], xlabel="ratio ρ = π(token) / π_old(token)")
    if A > 0:
        axes.set_ylabel("objective, larger is better")
    axes.plot([0, 2], [0, 2 * A], color=GREY, linewidth=1, linestyle=(0, (4, 3)))
    axes.text(1.72 if A > 0 else 0.2, 1.84 if A > 0 else -0.1, "ρ · A", color=GREY, va="center",
              ha="right" if A > 0 else "left")
    band = axes.axvspan(0, 1, color=INK, alpha=0.07, linewidth=0, animated=True, zorder=1.1)
    curve, = axes.plot([], [], color=BLUE, linewidth=2.5, animated=True, label="objective")
    active, = axes.plot([], [], color=ORANGE, linewidth=2.5, animated=True, zorder=3,
                        label="active branch")
    point, = axes.plot([], [], "o", color=ORANGE, markersize=9, animated=True, zorder=4,
                       label="here")
    edges = axes.text(1, 0.06 * A, "", color=GREY, ha="center", va="center", fontsize=9,
                      animated=True)
    label = axes.text(0, 0, "", color=RUST, weight="bold", va="center", animated=True, zorder=4,
                      bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1})

    def move(clip_eps, rho):
        bend = 1 + clip_eps * A
        clipped = rho > bend if A > 0 else rho < bend
        height, slope = (bend if clipped else rho) * A, 0 if clipped else A
        band.set(x=1 - clip_eps, width=2 * clip_eps)
        x, y = [0, bend, 2], [0, bend, bend] if A > 0 else [-bend, -bend, -2]
        curve.set_data(x, y)
        piece = slice(0, 2) if clipped != (A > 0) else slice(1, 3)
        active.set_data(x[piece], y[piece])
        point.set_data([rho], [height])
        edges.set_text(f"{1 - clip_eps:.2f} to {1 + clip_eps:.2f}")
        label.set(text=f"gradient {signed(slope, 0)}", **_beside(rho, height, slope, A))
        return _clip_words(A, bend, clipped, height, slope)

    def pin():
        bend = curve.get_xdata()[1]
        name = axes.text(1.98 if A > 0 else 0.02, bend * A + 0.08, f"clip_eps {abs(bend - 1):.2f}",
                         color=GREY, fontsize=9, ha="right" if A > 0 else "left")
        return [*axes.plot(*curve.get_data(), color=BLUE, linewidth=2.5, alpha=0.3), name]

    return move, pin


def _beside(rho, height, slope, A):
    """Where the name of the gradient covers no line: the side to which the curve does not turn."""
    if slope == 0:
        return {"x": min(rho - 0.1, 1.4) if A > 0 else max(rho + 0.1, 0.6), "y": height - 0.16,
                "ha": "left" if A > 0 else "right"}
    side = 1 if rho < 1 else -1
    return {"x": rho + 0.1 * side, "y": height - 0.16 * side * A,
            "ha": "left" if side > 0 else "right"}


def _clip_words(A, bend, clipped, height, slope):
    side = "above" if A > 0 else "below"
    return (f"{'Right' if A > 0 else 'Wrong'} answer: "
            + (f"the ratio is {side} {bend:.2f}, the clipped branch is active, "
               if clipped else "the unclipped branch is active, ")
            + f"objective {signed(height)}, gradient {signed(slope, 0)}.")


@style()
def advantages(right=2, G=8):
    """The advantages of a group in which `right` answers are right, under three rules.

    Args:
        right: how many of the G answers are right, 0 to G.
        G: group size, 2 to 16.

    One bar an answer. Drawn from the closed form for rewards of 0 and 1 (eps left out): with k
    right of G and the population std, sqrt((G - k) / k) for a right answer and -sqrt(k / (G - k))
    for a wrong one; the sample std makes both smaller by sqrt((G - 1) / G).
    """
    figure = Picture(760, 360, "Bars: the advantage of each answer of a group, under three rules: "
                     "mean only, population std, sample std.")
    panels = figure.subplots(1, 3, sharey=True, gridspec_kw={
        "left": 0.08, "right": 0.985, "bottom": 0.06, "top": 0.9, "wspace": 0.08})
    titles = ("minus the mean, no std", "over the population std", "over the sample std")
    sides = [_group_bars(axes, title) for axes, title in zip(panels, titles, strict=True)]
    panels[0].set(ylabel="advantage", ylim=(-5.2, 5.2), yticks=range(-4, 5, 2))

    def move(right, G):
        _check_group(right, G)
        rules = _group_levels(right, G)
        for side, (up, down) in zip(sides, rules, strict=True):
            side(right, G, up, down)
        return _group_words(right, G, rules)

    return figure.start(move, right=right, G=G)


def _check_group(right, G):
    if not (isinstance(G, int) and 2 <= G <= LARGEST_GROUP):
        raise ValueError(f"G is {G!r}; expected a whole number from 2 to {LARGEST_GROUP}.")
    if not (isinstance(right, int) and 0 <= right <= G):
        raise ValueError(f"right is {right!r}; expected a whole number from 0 to G = {G}.")


def _group_levels(k, G):
    """(advantage of a right answer, of a wrong one) for each of the three rules."""
    if k in (0, G):
        return [(0.0, 0.0)] * 3
    up, down, shrink = ((G - k) / k) ** 0.5, -((k / (G - k)) ** 0.5), ((G - 1) / G) ** 0.5
    return [((G - k) / G, -k / G), (up, down), (up * shrink, down * shrink)]


def _group_bars(axes, title):
    """One rule. Returns a function that sets its bars."""
    axes.set(title=title, xlim=(-0.02, 1.02), xticks=[])
    axes.spines.bottom.set_visible(False)
    axes.axhline(0, color=INK, linewidth=0.8)
    bars = axes.bar([0.0] * LARGEST_GROUP, 0.0, align="edge", animated=True)
    names = [axes.text(0, 0, "", ha="center", va="center", color=colour, weight="bold",
                       animated=True) for colour in (BLUE, RUST)]
    nothing = axes.text(0.5, 0.6, "", ha="center", color=INK, animated=True)

    def move(right, G, up, down):
        for i, bar in enumerate(bars):
            bar.set(visible=i < G, x=(i + 0.06) / G, width=0.88 / G,
                    height=up if i < right else down, facecolor=BLUE if i < right else ORANGE)
        same = right in (0, G)
        names[0].set(text="" if same else f"✓ right\n{signed(up)}",
                     position=(min(max(right / G / 2, 0.14), 0.86), up + 0.7))
        names[1].set(text="" if same else f"✗ wrong\n{signed(down)}",
                     position=(max(min((1 + right / G) / 2, 0.86), 0.14), down - 0.7))
        nothing.set_text(f"all {'right' if right else 'wrong'}: 0 for each" if same else "")

    return move


def _group_words(right, G, rules):
    if right in (0, G):
        return (f"{right} of {G} right: all rewards are equal, every advantage is 0, "
                "and the group teaches nothing.")
    mean, population, sample = (f"{signed(up)} and {signed(down)}" for up, down in rules)
    return (f"{right} of {G} right. A right answer and a wrong one get: minus the mean only, "
            f"{mean}; over the population std, {population}; over the sample std, {sample}, "
            f"smaller by a factor of {rules[2][0] / rules[1][0]:.3f}.")


@style()
def estimators(table, drift=1.0):
    """k1, k2 and k3 against the true KL while two policies drift apart.

    Args:
        table: `recorded("estimators")`.
        drift: how far the policy has moved; one of table["drift"].

    Each dot is an estimate from one batch of sampled tokens. Expectation and spread are exact sums
    over the tokens. The estimators are those of Schulman, "Approximating KL divergence" (2020).
    """
    figure = Picture(760, 380, "Left: how likely each token is under the policy and the reference. "
                     "Right: dots, the estimates k1, k2 and k3 of their KL from sampled batches.")
    left, right = figure.subplots(1, 2, gridspec_kw={
        "left": 0.085, "right": 0.985, "bottom": 0.14, "top": 0.9, "wspace": 0.14,
        "width_ratios": (1, 2.4)})
    policies, clouds = _policy_bars(left, table), _clouds(right, table)

    def move(drift):
        if drift not in table["drift"]:
            raise ValueError(f"drift is {drift!r}; expected one of the recorded ones, "
                             f"{table['drift'][0]} to {table['drift'][-1]}.")
        i = table["drift"].index(drift)
        policies(i)
        return f"Drift {drift:.2f}: the true KL is {table['kl'][i]:.3f} nats. " + clouds(i)

    return figure.start(move, drift=drift)


def _policy_bars(axes, table):
    tokens = range(len(table["ref"]))
    axes.set(title="the two policies", xlabel="token", ylabel="probability", ylim=(0, 0.5),
             xticks=tokens)
    axes.grid(axis="x", visible=False)
    axes.bar([i + 0.2 for i in tokens], table["ref"], 0.38, color=GREY)
    bars = axes.bar([i - 0.2 for i in tokens], 0.0, 0.38, color=BLUE, animated=True)
    axes.text(0.97, 0.95, "policy", color=BLUE, weight="bold", ha="right", transform=axes.transAxes)
    axes.text(0.97, 0.88, "reference", color=GREY, weight="bold", ha="right",
              transform=axes.transAxes)

    def move(i):
        for bar, p in zip(bars, table["policy"][i], strict=True):
            bar.set_height(p)

    return move


def _clouds(axes, table):
    """A row of dots for each estimator. Returns a function that sets them and says how they lie."""
    axes.set(title=f"each dot: an estimate from {table['tokens']} tokens, in nats",
             xlim=(-0.4, 1.75), ylim=(2.5, -0.85), xticks=(0, 0.5, 1, 1.5), yticks=range(3),
             yticklabels=table["names"])
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    truth = axes.axvline(0, color=INK, linewidth=1.2, animated=True)
    label = axes.text(0, -0.68, "", color=INK, ha="left", va="center", animated=True)
    rows = [_cloud(axes, table, name, y) for y, name in enumerate(table["names"])]

    def move(i):
        kl = table["kl"][i]
        truth.set_xdata([kl, kl])
        label.set(text=f"true KL {kl:.3f}", position=(kl + 0.02, -0.68))
        return " ".join(row(i) for row in rows)

    return move


def _cloud(axes, table, name, y):
    estimates = table["estimates"][name]
    heights = [y + 0.44 * ((0.618 * n) % 1) - 0.22 for n in range(len(estimates[0]))]
    dots, = axes.plot([], [], "o", color=BLUE, alpha=0.35, markersize=4, markeredgewidth=0,
                      animated=True, label=f"{name} estimates")
    spread, = axes.plot([], [], color=ORANGE, linewidth=2, animated=True, zorder=3,
                        label=f"{name} spread")
    middle, = axes.plot([], [], "D", color=ORANGE, markersize=8, animated=True, zorder=4,
                        label=f"{name} mean")
    label = axes.text(1.73, y - 0.37, "", color=RUST, ha="right", va="center", animated=True)

    def move(i):
        mean, std = table["mean"][name][i], table["spread"][name][i]
        bias = signed(mean - table["kl"][i], 3)
        dots.set_data(estimates[i], heights)
        spread.set_data([mean - std, mean + std], [y, y])
        middle.set_data([mean], [y])
        label.set_text(f"bias {bias}   spread {std:.3f}")
        below = sum(estimate < 0 for estimate in estimates[i])
        return (f"{name}: bias {bias}, spread {std:.3f}"
                + (f", {below} of {len(heights)} batches below zero." if below else "."))

    return move


def recorded(name):
    """What `python -m autograde pictures` recorded for a picture: "estimators" or "step".

    Raises ValueError for another name, and FileNotFoundError or ValueError, with what to do, if the
    file is missing or damaged.
    """
    if name not in RECORDED:
        raise ValueError(f"{name!r} is not recorded; expected {' or '.join(RECORDED)}.")
    file = resources.files("tinylm") / "data" / "pictures.json"
    try:
        return json.loads(file.read_text(encoding="utf-8"))[name]
    except FileNotFoundError:
        raise FileNotFoundError(f"{file} is missing; it comes with tinylm: install tinylm again, "
                                "or bring the file back with git.") from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
        raise ValueError(f"{file} is damaged: it holds nothing for {name!r}; install tinylm again, "
                         "or bring the file back with git.") from None


def save(picture, stem):
    """Write `stem`.svg and `stem`.png, whole or not at all. Returns both paths.

    Both say inside what they show: Description has alt text and words, Identifier the digest of
    `drawn`. The same picture gives the same bytes.
    """
    paths = [stem.with_suffix(suffix) for suffix in (".svg", ".png")]
    about = {"Description": f"{picture.alt} {picture.words}", "Identifier": digest(picture)}
    for path in paths:
        with replacing(path) as temporary, style():
            undated = {"Date": None} if path.suffix == ".svg" else {}
            picture.savefig(temporary, format=path.suffix[1:], dpi=144, metadata=about | undated)
    return paths


def digest(picture):
    """Sixteen characters that name what a picture draws, whatever version of matplotlib draws."""
    return hashlib.sha256(json.dumps(drawn(picture)).encode()).hexdigest()[:16]


def drawn(picture):
    """What can be seen in a picture as plain data: its captions, then a dict for each panel.

    Numbers are texts of nine digits, so that they are the same on any machine.
    """
    return [[text.get_text() for text in picture.texts]] + [{
        "texts": [axes.get_title(), axes.get_xlabel(), axes.get_ylabel(),
                  *(text.get_text() for text in axes.texts if text.get_visible())],
        "limits": _digits([axes.get_xlim(), axes.get_ylim()]),
        "lines": [[line.get_label(), *map(_digits, line.get_data())]
                  for line in axes.lines if line.get_visible()],
        "patches": [_digits(patch.get_bbox().bounds)
                    for patch in axes.patches if patch.get_visible()],
        "areas": [_digits(path.vertices) for area in axes.collections if area.get_visible()
                  for path in area.get_paths()],
        "images": [_digits(image.get_array()) for image in axes.images],
    } for axes in picture.axes]


def _digits(values):
    return [f"{value:.9g}" for value in np.ma.filled(np.ma.asarray(values, float), np.nan).ravel()]
