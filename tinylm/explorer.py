"""The explorer: recorded runs under four sliders, and a run of the learner's own lab.py over them.

Three rooms, from top to bottom: the curves of one setting, with a live run drawn over them; the
whole grid; and, as soon as a live run has a batch, a look inside it. What is drawn is recorded or
trained, never made up: a slider only looks up a curve, and only the button trains.
"""

import html
import sys
import threading

import numpy as np
from ipywidgets import HTML, Button, HBox, IntProgress, Layout, VBox

from tinylm import curves, inside, labfile
from tinylm.live import LiveRun
from tinylm.panel import Panel, choice, slider
from tinylm.runs import AXES, GRID, RecordError, load_runs
from tinylm.training import GRPOConfig

PULSE = 0.7                  # seconds between two looks at a live run
LOSSES = (-0.1, 0.2)         # the axis of the loss where no record says how far it goes


class Explorer(VBox):
    """Sliders, curves, training, whole grid and inspector, as `tinylm.widgets.explore` shows them.

    Args:
        record: path of a record of runs; by default the one that tinylm ships.
        lab: path of the lab file to train; by default lab.py of the learner's folder.

    Attributes:
        panel: the sliders and the curves. grid: the whole grid, None without a record.
        training: the buttons, and the live run as `training.run`. inside: the inspector, which
            is shown as soon as there is a batch to look into.
    """

    def __init__(self, record=None, lab=None):
        self.record, trouble = _loaded(record)
        self.training = Training(self._config, lab, self._follow)
        self.grid = self._looked_into = None
        grid = self.record.grid if self.record else GRID
        start = {name: value if value in grid[name] else grid[name][0]
                 for name, value in curves.default_setting().items()}
        recorded = curves.runs(self.record, **start)
        sliders = {name: choice(curves.SETTING_NAMES[name], start[name],
                                [(f"{value:g}", value) for value in grid[name]]) for name in AXES}
        self.panel = Panel(recorded, lambda **setting: recorded.move(live=self._live(), **setting),
                           **sliders)
        controls, *shown = self.panel.children
        self.panel.children = [controls, self.training, *shown]
        # All pictures are made here, not in the thread that follows a run: making one changes
        # matplotlib's settings for a moment.
        shared = self._config()
        self.inside = Inside(inside.batch(shared.prompts_per_iter, shared.iters,
                                          _loss_range(self.record)), shared.prompts_per_iter)
        super().__init__([self.panel])
        if self.record is None:
            self.children += (_sentence(f"Nothing recorded can be shown: {trouble} You can train "
                                        "your own lab.py all the same."),)
            return
        everything = curves.grid(self.record, **start)
        self.grid = Panel(everything, lambda: everything.move(**self.setting))
        for control in self.panel.controls.values():
            control.observe(self.grid.redraw, "value")
        self.children += (self.grid,)

    @property
    def setting(self):
        """What the sliders say."""
        return {name: control.value for name, control in self.panel.controls.items()}

    def _live(self):
        """(setting, history) of the live run, if there is one."""
        run = self.training.run
        return run and ({name: getattr(run.cfg, name) for name in AXES}, run.history)

    def _config(self):
        """The GRPOConfig of a live run: the record's own, at the sliders' setting and seed 0."""
        shared = self.record.settings if self.record else {}
        return GRPOConfig(**{**shared, **self.setting, "seed": 0})

    def _follow(self, run):
        """Show how far a live run has come."""
        self.panel.redraw()
        if run.batches and self._looked_into is not run:
            self._looked_into = run
            self.children = (*self.children[:2], self._below(run))
        if self.inside.run is run:
            self.inside.follow()

    def _below(self, run):
        """The inspector, turned to a run, or a sentence where it cannot be."""
        try:
            self.inside.turn_to(run)
        except (ValueError, labfile.LabError) as error:
            return _sentence(f"The batches cannot be looked into: {error}")
        return self.inside

    def _repr_mimebundle_(self, **kwargs):
        still, shown = self.panel._repr_mimebundle_(**kwargs)
        return {**still, **super()._repr_mimebundle_(**kwargs), "text/plain": still["text/plain"]
                }, shown


def _loaded(path):
    """(record, None), or (None, a sentence)."""
    try:
        return load_runs(path), None
    except RecordError as error:
        return None, str(error)


def _loss_range(record):
    """Between which losses nearly all of the recorded ones lie; a guess without a record."""
    if record is None:
        return LOSSES
    return tuple(np.quantile(record.values["loss"], (0.001, 0.999)).tolist())


def _sentence(text):
    return HTML(f'<div role="status" style="line-height: 1.45">{html.escape(text)}</div>')


class Training(VBox):
    """Train, Stop, a progress bar and a sentence, round one live run at a time.

    Args:
        config: called without arguments when a run is to begin; returns its GRPOConfig.
        lab: as in `Explorer`.
        on_progress: called with the run, from a thread, whenever it has come further and at its
            end.
    """

    def __init__(self, config, lab, on_progress):
        self.run, self._config, self._lab, self._on_progress = None, config, lab, on_progress
        self._starting = threading.Lock()
        self.train, self.halt = (
            Button(description=name, icon=icon, disabled=idle, layout=Layout(width="160px"))
            for name, icon, idle in (("Train my lab.py", "play", False), ("Stop", "stop", True)))
        self.bar = IntProgress(0, min=0, max=1, layout=Layout(width="220px"))
        self.message = HTML(layout=Layout(min_height="48px", width="840px", max_width="100%"))
        self.train.on_click(lambda _: self.start())
        self.halt.on_click(lambda _: self.stop())
        super().__init__([HBox([self.train, self.halt, self.bar],
                               layout=Layout(flex_flow="row wrap")), self.message])
        self._say("Your lab.py trains at the setting of the sliders, with seed 0, and its curve is "
                  "drawn over the recorded one.")

    def start(self):
        """Begin a run at the sliders' setting; one that is under way goes on instead."""
        with self._starting:
            if self.run is not None and not self.run.wait(0):
                self._say("A run is under way; press Stop before the next.")
                return
            try:
                self.run = LiveRun(self._config(), lab=self._lab)
            except (ValueError, OSError) as error:
                self._say(f"The run could not be started: {error}")
                return
            self.train.disabled, self.halt.disabled = True, False
            self.bar.max, self.bar.value, self.bar.bar_style = self.run.cfg.iters, 0, "info"
            self._say("Starting.")
            self._follower = threading.Thread(target=self._follow, args=(self.run,), daemon=True)
            self._follower.start()

    def stop(self):
        """End the run; without one, or when it is over, nothing happens."""
        if self.run is not None:
            self.run.stop()

    def wait(self, timeout=None):
        """Wait until the run is over and shown, or for `timeout` seconds. Returns whether it is."""
        if self.run is None:
            return True
        self._follower.join(timeout)
        return not self._follower.is_alive()

    def _follow(self, run):
        seen, over = 0, False
        while not over:
            over = run.wait(PULSE)
            if over or run.iteration > seen:
                seen = run.iteration
                self.bar.value = seen
                self._say(_progress(run))
                self._on_progress(run)
        self.bar.bar_style = {"finished": "success", "stopped": "warning"}.get(run.state, "danger")
        self.train.disabled, self.halt.disabled = False, True

    def _say(self, text):
        self.message.value = _sentence(text).value


def _progress(run):
    """One sentence on where a run stands."""
    done, whole = run.iteration, run.cfg.iters
    if run.state == "failed":
        before = f" The {done} iterations before it stay drawn." if done else ""
        return f"Failed: {run.message.rstrip('.')}.{before}"
    if run.state == "stopped":
        return f"Stopped after {done} of {whole} iterations; what it reached stays drawn."
    ended = run.state == "finished"
    nothing = (" There is no batch to look into: your grpo_step does not call sample_group and "
               "grpo_loss." if ended and not run.batches else "")
    return f"{'Finished: ' if ended else ''}{done} of {whole} iterations.{nothing}"


class Inside(Panel):
    """The inspector of one live run: sliders for the iteration, the group and the answer.

    Ratio, branch, k3 and loss of a token are what the lab's own grpo_loss says of it.
    """

    def __init__(self, picture, P):
        self.run, self._P, self._losses = None, P, {}
        super().__init__(picture, self._shown, iteration=slider("iteration", 1, 1, 1),
                         group=slider("group", 1, 1, P), answer=slider("answer", 1, 1, 1))

    def turn_to(self, run):
        """Show the first batch of another run.

        Raises ValueError or LabError, with a sentence, for one that cannot be shown.
        """
        self.run = None                     # nothing is drawn until all sliders fit
        first = run.batches[0]
        G = inside.group_size(run.batch(first), self._P)
        self._view(run, first, 0)
        iteration = self.controls["iteration"]
        iteration.min, iteration.value, iteration.max = 1, 1, first
        iteration.min = first
        self.controls["answer"].max = G
        self.run = run
        self.redraw()

    def follow(self):
        """Let the slider reach what has come since."""
        iteration, kept = self.controls["iteration"], self.run.batches
        iteration.max, iteration.min = kept[-1], kept[0]
        if self.run.wait(0):
            self.redraw()                   # with the whole curve of the loss

    def _shown(self, iteration, group, answer):
        if self.run is None:
            return self.picture.words
        row = (group - 1) * self.controls["answer"].max + answer - 1
        return self.picture.move(view=self._view(self.run, iteration, row), group=group,
                                 answer=answer)

    def _view(self, run, iteration, row):
        batch = run.batch(iteration)
        try:
            grpo_loss, losses = self._token_losses(run, batch)
            tokens = [_token(*batch.token(row, t, grpo_loss))
                      for t in np.flatnonzero(batch.mask[row] > 0)]
        except labfile.LabError:
            raise
        except Exception as error:
            raise ValueError(labfile.what_went_wrong(error, run.lab)) from None
        return {"batch": batch, "history": run.history["loss"], "token_losses": losses,
                "tokens": tokens}

    def _token_losses(self, run, batch):
        """(grpo_loss, the loss of each token); kept, so that another answer comes at once."""
        key = run, batch.iteration
        if key not in self._losses:
            grpo_loss = _grpo_loss_of(run.lab)
            self._losses = {key: (grpo_loss, batch.token_losses(grpo_loss))}
        return self._losses[key]


def _token(_, stats):
    """What grpo_loss says of one token, asked about it alone."""
    return {"ratio": stats["ratio_max"], "clipped": stats["clip_frac"], "k3": stats["kl"]}


def _grpo_loss_of(lab):
    """The grpo_loss of a lab file as it stands now; the `lab` that is imported here stays."""
    before = sys.modules.get("lab")
    try:
        return labfile.load_lab(lab).grpo_loss
    finally:
        sys.modules.pop("lab", None)
        if before is not None:
            sys.modules["lab"] = before
