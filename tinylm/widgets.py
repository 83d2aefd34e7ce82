"""Sliders round pictures. Nothing is computed here, and nothing is drawn before a panel is made.

`Panel` is the one helper: controls above, a picture of fixed size, and under it a read-out that
says in words what the picture shows. Below it stands a function for each picture of the course; run
`widgets.clip()` in a notebook, then move a slider with the mouse, or with Tab and the arrow keys.
"""

import html
import threading

import torch
from ipywidgets import (
    HTML,
    Button,
    FloatSlider,
    HBox,
    Image,
    IntSlider,
    Layout,
    SelectionSlider,
    VBox,
)
from traitlets import Unicode

from tinylm import batches, plots
from tinylm.addition import as_text
from tinylm.model import TinyLM
from tinylm.rollout import decode_responses, sample
from tinylm.sft import load_or_train_sft

SUMS = [(72, 16), (37, 48), (86, 57), (5, 5)]    # from often right to almost never


class NamedImage(Image):
    """An Image with a name for those who do not see it: its tooltip.

    The front end knows no alt for images. It makes the tooltip of a widget the title of its
    element, which names an image as well, but only where the widget has a description.
    """

    description = Unicode("").tag(sync=True)


class Panel(VBox):
    """A picture under its controls, redrawn whenever one of them moves.

    Args:
        picture: a `Picture`. One that can be pinned gets the buttons Pin and Unpin.
        show: called as show(name=value, ...) with the values of all controls; sets the picture and
            returns the words. Usually picture.move.
        controls: name=widget, each a widget with a value, in the order in which they stand.

    An error in `show` is answered with a sentence in the read-out. A control may be moved while a
    cell runs: JupyterLab then calls from a thread, and panels draw one setting after the other.
    Where no widget can live, as on GitHub, the picture stands as it was when it was made.
    """

    def __init__(self, picture, show, **controls):
        self.picture, self.show, self.controls = picture, show, controls
        self._drawing = threading.RLock()
        self.image = NamedImage(format="png", width=picture.width, height=picture.height,
                                tooltip=picture.alt)
        self.words = HTML(layout=Layout(width=f"{picture.width}px", max_width="100%",
                                        min_height="64px"))
        row = [*controls.values(), *(self._pin_buttons() if picture.pinnable else ())]
        super().__init__([HBox(row, layout=Layout(flex_flow="row wrap")), self.image, self.words])
        for control in controls.values():
            control.observe(self.redraw, "value")
        self.redraw()

    def redraw(self, _=None):
        """Draw what the controls say now."""
        self._redraw_after(lambda: None)

    def _redraw_after(self, change):
        with self._drawing:
            try:
                change()
                words = self.show(**{name: one.value for name, one in self.controls.items()})
                self.image.value = self.picture.png()
            except Exception as error:
                words = f"This setting could not be drawn: {str(error) or type(error).__name__}"
            self.words.value = (f'<div role="status" style="line-height: 1.45">'
                                f"{html.escape(words)}</div>")

    def _pin_buttons(self):
        pin, unpin = (Button(description=name, layout=Layout(width="110px"))
                      for name in ("Pin this", "Unpin all"))
        pin.on_click(lambda _: self._redraw_after(self.picture.pin))
        unpin.on_click(lambda _: self._redraw_after(self.picture.unpin))
        return pin, unpin

    def _repr_mimebundle_(self, **kwargs):
        shown = {"image/png": {"alt": f"{self.picture.alt} {self.picture.words}",
                               "width": self.picture.width, "height": self.picture.height}}
        still = {"text/plain": self.picture.words, "image/png": self.image.value.tobytes()}
        return {**super()._repr_mimebundle_(**kwargs), **still}, shown


def slider(name, value, low, high, step=1):
    """A slider over numbers, whole ones if the step is whole."""
    kind = IntSlider if isinstance(step, int) else FloatSlider
    return kind(value, min=low, max=high, step=step, **_look(name))


def choice(name, value, values):
    """A slider over listed values, or over (label, value) pairs."""
    return SelectionSlider(options=values, value=value, **_look(name))


def _look(name):
    return {"description": name, "style": {"description_width": "initial"},
            "layout": Layout(width="300px")}


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
    from tinylm.explorer import Explorer  # it is made of the panels and sliders above

    return Explorer(record, lab)
