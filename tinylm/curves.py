"""Pictures of recorded runs: `runs`, one setting against the iteration, and `grid`, all at once.

As in `plots`: one function a figure, data in, a `Picture` out. Drawn curves are means over windows
of ten iterations, recorded and live ones alike; numbers in words are means over the last fifty
iterations. The axes are those of the whole record and never move. KL stands on a scale that is
logarithmic but for small ones: those that differ a hundredfold show, and so does the start, where
it is 0.
"""

from dataclasses import replace

import numpy as np
from matplotlib import colormaps
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from tinylm.picture import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, Picture, style
from tinylm.runs import AXES
from tinylm.training import GRPOConfig

WINDOW, LAST = 10, 50        # iterations in a drawn point, and in a final number
PINS = ((GREEN, "-"), (PURPLE, "-"), ("#9A6A00", (0, (5, 2))), ("#3A9BD0", (0, (5, 2))))
SETTING_NAMES = {"G": "G", "beta": "beta", "clip_eps": "clip_eps", "inner_steps": "inner steps"}
GHOST = {"color": GREY, "linewidth": 1.6, "linestyle": (0, (4, 2))}
START = {"color": INK, "linewidth": 0.8, "linestyle": (0, (1, 2))}
BETAS = ((ORANGE, "o"), (GREEN, "s"), (BLUE, "D"), (PURPLE, "^"), (GREY, "v"))
KL_TICKS = (0, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
KL_LINEAR = 0.05             # below it the scale of KL is linear, far above it logarithmic


def windows(values):
    """Means over windows of ten iterations along the last axis; the last may hold fewer."""
    values = np.asarray(values, float)
    starts = np.arange(0, values.shape[-1], WINDOW)
    sizes = np.diff([*starts, values.shape[-1]])
    return np.add.reduceat(values, starts, axis=-1) / sizes if len(starts) else values


def middles(iterations):
    """Where those means stand on the axis: in the middle of each window."""
    starts = np.arange(0, iterations, WINDOW)
    return (starts + 1 + np.minimum(starts + WINDOW, iterations)) / 2


def final(values):
    """The mean over the last fifty iterations, or over all if there are fewer."""
    return np.asarray(values, float)[..., -LAST:].mean(axis=-1)


def setting_name(setting):
    """A setting in one line, as in "G 8, beta 0.04, clip_eps 0.2, inner steps 2"."""
    return ", ".join(f"{SETTING_NAMES[name]} {setting[name]:g}" for name in AXES)


def default_setting():
    """The setting with which the lab is given."""
    return {name: getattr(GRPOConfig, name) for name in AXES}


def recorded_at(record, setting):
    """(curve, None), or (None, a sentence) for a setting of which there is no run."""
    if record is None:
        return None, "No recorded curve: there is no record of runs."
    try:
        return record.curve(**setting), None
    except ValueError as error:
        return None, f"No recorded curve: {error}"


# ------------------------------------------------------------ one setting

@style()
def runs(record, **setting):
    """Reward and KL against the iteration at one setting, and a run of one's own over them.

    Args:
        record: a `Runs`; None, if there is none, leaves the panels to the run of one's own.
        setting: G, beta, clip_eps and inner_steps.

    It moves by those four and `live`: None, or (its setting, its history). A setting that was not
    recorded shows no curve, and the words say so. What is shown can be pinned, four curves at most.
    """
    figure = Picture(840, 416, "Two panels against the iteration: the mean reward of the samples, "
                     "and the KL to the SFT policy. Each line is a mean over seeds, its band goes "
                     "from the lowest to the highest seed.")
    panels = dict(zip(("reward", "kl"), figure.subplots(1, 2, gridspec_kw={
        "left": 0.055, "right": 0.98, "bottom": 0.325, "top": 0.93, "wspace": 0.12}), strict=True))
    _fix_axes(panels, record)
    legend = _Legend(figure)
    _still_lines(panels, legend, record)
    lines = {name: _moving_lines(axes) for name, axes in panels.items()}
    show_name, show_yours = legend.moving(0, BLUE), legend.moving(3, ORANGE)
    names = {}

    def move(live=None, **setting):
        curve, missing = recorded_at(record, setting)
        for name, (mean, band, own) in lines.items():
            _set_mean_and_band(mean, band, curve and curve[name])
            _set_line(own, live[1].get(name, []) if live else [])
        names["mean"] = setting_name(setting)
        names["yours"] = f"yours: {setting_name(live[0])}" if live else ""
        show_name(f"{names['mean']} ({_seeds(curve)})" if curve else "")
        show_yours(names["yours"])
        said = (_curve_words(names["mean"], curve) if curve else missing, _clip_note(setting),
                _live_words(live), _pins_words(legend))
        return " ".join(filter(None, said))

    def pin():
        return [artist for what, which in (("mean", 0), ("yours", 2))
                for artist in _pinned(panels, legend, names[what],
                                      {name: group[which] for name, group in lines.items()})]

    return figure.start(move, pin, **setting)


def _fix_axes(panels, record):
    """Limits that hold whatever is shown: from the whole record, or a guess without one."""
    iterations = record.settings["iters"] if record else GRPOConfig.iters
    low, high = _span(record, "reward") if record else (0, 1)
    for axes in panels.values():
        axes.set(xlim=(0, iterations), xlabel="iteration")
    panels["reward"].set(title="reward of the samples", ylim=(low, high))
    kl = panels["kl"]
    kl.set_title("KL to the SFT policy (log scale above 0.05)")
    _scale_kl(kl.yaxis, kl.set_yscale, kl.set_ylim, _span(record, "kl")[1] if record else 1)


def _span(record, name):
    """From the lowest to the highest of all drawn points, the start among them."""
    drawn = windows(record.values[name])
    low, high = float(drawn.min()), float(drawn.max())
    if name == "reward":
        low, high = min(low, _sft_reward(record)), min(high, 1)
    room = 0.04 * (high - low)
    return max(low - room, 0), high + room


def _sft_reward(record):
    """The share of right answers of the policy with which every run begins."""
    return float(record.values["acc_sampled"][:, 0].mean())


def _scale_kl(axis, set_scale, set_limits, highest):
    """KL along one axis, from 0."""
    set_scale("asinh", linear_width=KL_LINEAR)
    set_limits(0, highest)
    axis.set_major_locator(FixedLocator(KL_TICKS))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))


class _Legend:
    """Names under the panels, in two columns of four rows: what is always there, and the pins."""

    def __init__(self, figure):
        self.sheet = figure.add_axes((0, 0, 1, 0.2))
        self.sheet.set(xlim=(0, figure.width), ylim=(4.3, -0.5))
        self.sheet.axis("off")
        self.pinned = {}                # the lines of a pin: its row

    def entry(self, row, text, left=46, **look):
        line, = self.sheet.plot([left, left + 28], [row, row], **look)
        return line, self.sheet.text(left + 36, row, text, va="center", fontsize=9)

    def moving(self, row, colour):
        """A row that is empty at first. Returns a function that sets its text."""
        line, words = self.entry(row, "", color=colour, linewidth=2.4, animated=True)
        words.set_animated(True)

        def show(text):
            line.set_visible(bool(text))
            words.set_text(text)

        return show

    def free_rows(self):
        """The rows that have room for another pin; what was unpinned has left its axes."""
        self.pinned = {line: row for line, row in self.pinned.items() if line.axes is not None}
        return [row for row in range(len(PINS)) if row not in self.pinned.values()]


def _still_lines(panels, legend, record):
    """The start, and the default setting as a ghost."""
    if record is None:
        return
    for name, level in (("reward", _sft_reward(record)), ("kl", 0)):
        panels[name].axhline(level, label="SFT start", zorder=1.8, clip_on=False, **START)
    legend.entry(2, "SFT policy, the start of every run", **START)
    ghost, _ = recorded_at(record, default_setting())
    if ghost:
        legend.entry(1, f"default: {setting_name(default_setting())}", **GHOST)
        for name, axes in panels.items():
            axes.plot(middles(ghost[name].shape[1]), windows(ghost[name]).mean(0), label="default",
                      zorder=1.9, **GHOST)


def _moving_lines(axes):
    """(mean, band, own): the parts of one panel that change."""
    mean, = axes.plot([], [], color=BLUE, linewidth=2.2, animated=True, zorder=3, label="mean")
    band = axes.fill_between([], [], color=BLUE, alpha=0.2, linewidth=0, animated=True, zorder=1.7,
                             label="band")
    own, = axes.plot([], [], color=ORANGE, linewidth=2.4, animated=True, zorder=4, label="yours")
    return mean, band, own


def _set_mean_and_band(mean, band, seeds):
    """seeds: (seeds, iterations), or None for nothing."""
    if seeds is None:
        mean.set_data([], [])
        band.set_verts([])
        return
    drawn, x = windows(seeds), middles(seeds.shape[1])
    mean.set_data(x, drawn.mean(axis=0))
    band.set_verts([np.column_stack([np.append(x, x[::-1]),
                                     np.append(drawn.min(axis=0), drawn.max(axis=0)[::-1])])])


def _set_line(line, values):
    line.set_data(middles(len(values)), windows(values))


def _pinned(panels, legend, name, lines):
    """Still copies of one line of each panel, under a name; none of a line that is empty or known.

    None either where no row is free.
    """
    free, old = legend.free_rows(), {line.get_label() for line in legend.pinned}
    if not (free and len(lines["reward"].get_xdata())) or name in old:
        return []
    colour, dashes = PINS[free[0]]
    look = {"color": colour, "linewidth": 1.8, "linestyle": dashes}
    copies = [panels[key].plot(*line.get_data(), label=name, zorder=2, **look)[0]
              for key, line in lines.items()]
    legend.pinned[copies[0]] = free[0]
    return [*copies, *legend.entry(free[0], f"pinned: {name}", left=456, **look)]


def _seeds(curve):
    number = len(curve["reward"])
    return f"{number} seed" + "s" * (number > 1)


def _curve_words(name, curve):
    reward, kl, clip_frac, zero = (final(curve[key]) for key in (
        "reward", "kl", "clip_frac", "frac_zero_signal"))
    spread = f" ({reward.min():.3f} to {reward.max():.3f})" if len(reward) > 1 else ""
    return (f"{name}, means of the last {min(LAST, curve['reward'].shape[1])} iterations over "
            f"{_seeds(curve)}: reward {reward.mean():.3f}{spread}, KL {kl.mean():.4f} nats a "
            f"token, clip fraction {clip_frac.mean():.4f}, zero-signal share {zero.mean():.3f}.")


def _clip_note(setting):
    return ("With one inner step the ratio is 1 and the clip cannot act: one run serves all "
            "clip_eps." if setting["inner_steps"] == 1 else "")


def _live_words(live):
    number = len(live[1].get("reward", ())) if live else 0
    if not number:
        return ""
    return (f"Yours, iterations {max(1, number - LAST + 1)} to {number}: reward "
            f"{final(live[1]['reward']):.3f}, KL {final(live[1]['kl']):.4f}.")


def _pins_words(legend):
    return "" if legend.free_rows() else "No more pins fit here: unpin them before the next."


# ------------------------------------------------------------ the whole grid

@style()
def grid(record, **setting):
    """All runs of a record: final reward over G and beta, reward against KL, groups without signal.

    Args:
        record: a `Runs`.
        setting: G, beta, clip_eps and inner_steps; marked in every panel. The left panel shows
            all G and beta at this clip_eps and inner_steps, the right one all G at the other three.
    """
    figure = Picture(840, 330, "Three panels: final reward for each G and beta as a table, final "
                     "reward against final KL with a mark for every run, and the share of groups "
                     "without signal against G.")
    left, middle, right = figure.subplots(1, 3, gridspec_kw={
        "left": 0.08, "right": 0.985, "bottom": 0.15, "top": 0.91, "wspace": 0.24,
        "width_ratios": (1, 1.25, 1)})
    parts = _heat_map(left, record), _frontier(middle, record), _signal(right, record)

    def move(**setting):
        return " ".join(filter(None, (part(setting) for part in parts)))

    return figure.start(move, **setting)


@style()
def rewards(record, **setting):
    """The left panel of `grid` alone: final reward for each G and beta."""
    figure = Picture(460, 380, "A table: the final reward for each G and beta.")
    return _alone(figure, _heat_map, record, setting, "beta",
                  f"clip_eps {setting['clip_eps']:g}, inner steps {setting['inner_steps']}")


@style()
def frontier(record, **setting):
    """The middle panel of `grid` alone: final reward against final KL, a mark for every run."""
    figure = Picture(640, 440, "Final reward against final KL, with a mark for every run.")
    return _alone(figure, _frontier, record, setting, "final reward",
                  f"rings: {setting_name(setting)}")


@style()
def signal(record, **setting):
    """The right panel of `grid` alone: the share of groups without signal against G."""
    figure = Picture(460, 380, "The share of groups without signal against G.")
    shared = ", ".join(f"{SETTING_NAMES[name]} {setting[name]:g}" for name in AXES[1:])
    return _alone(figure, _signal, record, setting, "share of groups", shared)


def _alone(figure, part, record, setting, ylabel, caption):
    """One panel of the grid as a picture of its own, with a caption for what has no axis."""
    axes = figure.subplots(gridspec_kw={"left": 0.14, "right": 0.97, "bottom": 0.19, "top": 0.92})
    figure.text(0.97, 0.025, f"{caption}; final: the last {LAST} iterations", color=GREY,
                fontsize=8, ha="right")
    show = part(axes, record)
    axes.set_ylabel(ylabel)
    return figure.start(lambda **setting: show(setting), **setting)


def _ends(record):
    """A record with the final number of each run in the place of its curves."""
    return replace(record, values={name: final(record.values[name])
                                   for name in ("reward", "kl", "frac_zero_signal")})


def _mean_at(values, name, setting):
    """A number of one setting, the mean over its seeds; NaN if it was not recorded."""
    curve, _ = recorded_at(values, setting)
    return float(curve[name].mean()) if curve else np.nan


def _heat_map(axes, record):
    ends = _ends(record)
    sizes, betas = ends.grid["G"], ends.grid["beta"]
    axes.set(title="final reward", xlabel="G", ylabel="beta")
    axes.grid(visible=False)
    image = axes.imshow(np.zeros((len(betas), len(sizes))), aspect="auto", origin="lower",
                        cmap=colormaps["Blues"].with_extremes(bad=PALE), animated=True)
    low, high = ends.values["reward"].min(), ends.values["reward"].max()
    image.set_clim(low - 0.1 * (high - low), high + 0.25 * (high - low))  # pale enough for figures
    axes.set_xticks(range(len(sizes)), [f"{G}" for G in sizes])
    axes.set_yticks(range(len(betas)), [f"{beta:g}" for beta in betas])
    numbers = [[axes.text(x, y, "", ha="center", va="center", fontsize=9, animated=True)
                for x in range(len(sizes))] for y in range(len(betas))]
    here = axes.add_patch(Rectangle((0, 0), 1, 1, fill=False, edgecolor=INK, linewidth=2.2,
                                    animated=True, zorder=3, clip_on=False))

    def move(setting):
        table = np.array([[_mean_at(ends, "reward", {**setting, "G": G, "beta": beta})
                           for G in sizes] for beta in betas])
        image.set_data(np.ma.masked_invalid(table))
        for texts, row in zip(numbers, table, strict=True):
            for text, value in zip(texts, row, strict=True):
                text.set(text="–" if np.isnan(value) else f"{value:.2f}",
                         color="white" if image.norm(value) > 0.6 else INK)
        here.set_xy((sizes.index(setting["G"]) - 0.5, betas.index(setting["beta"]) - 0.5))
        return _heat_words(table, ends.grid, setting)

    return move


def _heat_words(table, grid, setting):
    if np.isnan(table).all():
        return ""

    def place(index):
        row, column = np.unravel_index(index, table.shape)
        return f"{table[row, column]:.3f} at G {grid['G'][column]}, beta {grid['beta'][row]:g}"

    clip = f"clip_eps {setting['clip_eps']:g}, " if setting["inner_steps"] > 1 else ""
    return (f"With {clip}inner steps {setting['inner_steps']}, the final reward goes from "
            f"{place(np.nanargmin(table))} to {place(np.nanargmax(table))}.")


def _frontier(axes, record):
    ends = _ends(record)
    reward, kl = ends.values["reward"], ends.values["kl"]
    axes.set(title="final reward against KL, all runs", xlabel="KL, in nats a token (log scale)")
    height = reward.max() - reward.min()
    axes.set_ylim(reward.min() - 0.05 * height, reward.max() + 0.25 * height)    # for the legend
    _scale_kl(axes.xaxis, axes.set_xscale, axes.set_xlim, 1.05 * kl.max())
    clouds = {}
    for i, beta in enumerate(ends.grid["beta"]):
        rows, (colour, marker) = ends.table["beta"] == beta, BETAS[i % len(BETAS)]
        clouds[f"{beta:g}"], = axes.plot(kl[rows], reward[rows], marker, color=colour, alpha=0.55,
                                         markersize=4, markeredgewidth=0, label=f"beta {beta:g}")
    axes.legend(clouds.values(), clouds, title="beta", ncols=len(clouds), loc="upper center",
                fontsize=8, title_fontsize=8, handletextpad=0, columnspacing=0.8, frameon=False)
    here, = axes.plot([], [], "o", markerfacecolor="none", markeredgecolor=INK, markersize=9,
                      markeredgewidth=1.6, animated=True, label="here")

    def move(setting):
        curve, _ = recorded_at(ends, setting)
        here.set_data(*((curve["kl"], curve["reward"]) if curve else ([], [])))
        return ("" if curve is None else
                f"The rings, this setting: reward {curve['reward'].mean():.3f} at KL "
                f"{curve['kl'].mean():.4f}.")

    return move


def _signal(axes, record):
    ends, sizes = _ends(record), record.grid["G"]
    starts = replace(record, values={"frac_zero_signal": windows(
        record.values["frac_zero_signal"])[:, 0]})
    x = range(len(sizes))
    axes.set(title="groups without signal", xlabel="G", ylim=(0, 1), xlim=(-0.3, len(sizes) - 0.7))
    axes.set_xticks(x, [f"{G}" for G in sizes])
    first, = axes.plot(x, [np.nan] * len(sizes), marker="o", color=GREY, linestyle=(0, (4, 2)),
                       markersize=4, animated=True, label=f"first {WINDOW} iterations")
    last, = axes.plot(x, [np.nan] * len(sizes), "o-", color=BLUE, linewidth=2, markersize=5,
                      animated=True, label=f"last {LAST} iterations")
    here, = axes.plot([], [], "o", markerfacecolor="none", markeredgecolor=INK, markersize=10,
                      markeredgewidth=1.6, animated=True, zorder=3)
    axes.legend(loc="upper right", fontsize=8, borderpad=0.3, framealpha=0.9)

    def move(setting):
        levels = [[_mean_at(values, "frac_zero_signal", {**setting, "G": G}) for G in sizes]
                  for values in (starts, ends)]
        first.set_ydata(levels[0])
        last.set_ydata(levels[1])
        at = sizes.index(setting["G"])
        here.set_data([at], [levels[1][at]])
        if np.isnan(levels[1]).all():
            return ""
        return "Groups without signal at the end: " + ", ".join(
            f"{share:.2f} at G {G}" for G, share in zip(sizes, levels[1], strict=True)
            if not np.isnan(share)) + "."

    return move
