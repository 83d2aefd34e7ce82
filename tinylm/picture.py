"""A figure with parts that move, and the words for what it shows.

A `Picture` is a matplotlib Figure that knows its size in pixels, its alt text and its read-out.
Most of it stays; what is made with `animated=True` moves. `png` draws what stays once, and from
then on lays only the moving parts over it: several times faster than savefig. Nothing global is
touched after a picture is made, so a thread may move it, as JupyterLab's do while a cell runs.

Pictures carry their own light background, so that they read the same on a dark page, and use the
colours of Okabe and Ito, which survive colour-blindness. No pyplot: nothing is shown or kept by it.
"""

import base64
import html
import io

import matplotlib.style
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#707070"
INK, RUST = "#222222", "#A84A00"                                # for text; RUST is a dark ORANGE
PALE, PALE_BLUE, PALE_ORANGE = "#f1f1f1", "#d6e9f5", "#fbe4d5"  # for surfaces

DPI = 100                    # CSS pixels an inch: 10 points are 14 pixels, a notebook's own size
SHARPNESS = 2                # drawn pixels for each CSS pixel, for screens that have them
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e5e5",
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "text.color": INK,
    "svg.hashsalt": "tinylm",           # the same data give the same file
}


def style():
    """The look of all figures, whatever a notebook has set; for `with style():` and `@style()`."""
    return matplotlib.style.context(["default", STYLE])


class Picture(Figure):
    """A figure of fixed size.

    Args:
        width, height: in CSS pixels.
        alt: one sentence that says what is drawn, whatever the setting.

    Attributes: `width`, `height`, `alt`; `words`, the read-out of what is shown now; `pinnable`.
    """

    def __init__(self, width, height, alt):
        super().__init__(figsize=(width / DPI, height / DPI), dpi=DPI * SHARPNESS)
        FigureCanvasAgg(self)
        self.width, self.height, self.alt, self.words = width, height, alt, ""
        self._move = self._pin = self._still = None
        self._moving, self._pins = [], []

    def start(self, move, pin=None, **setting):
        """Set the first setting, once all parts are made. Returns the picture itself.

        Args:
            move: move(**setting) sets the moving parts and returns the words. It makes no new ones.
            pin: pin() adds a still copy of what moves, and returns the artists that it added.
        """
        self._move, self._pin = move, pin
        self._moving = sorted(self.findobj(lambda artist: artist.get_animated()),
                              key=lambda artist: artist.zorder)
        self.move(**setting)
        self.canvas.draw()              # ticks are made here, while the style holds
        return self

    def move(self, **setting):
        """Show another setting. Returns the words."""
        self.words = self._move(**setting)
        return self.words

    @property
    def pinnable(self):
        """Whether what is shown can be kept for comparison."""
        return self._pin is not None

    def pin(self):
        """Keep what is shown now as a pale copy, for comparison."""
        self._pins += self._pin()
        self._still = None

    def unpin(self):
        """Take all pinned copies away."""
        while self._pins:
            self._pins.pop().remove()
        self._still = None

    def png(self):
        """What is shown now as the bytes of a PNG, SHARPNESS drawn pixels for each CSS pixel."""
        if self._still is None:
            self.canvas.draw()          # leaves out what is animated
            self._still = self.canvas.copy_from_bbox(self.bbox)
        self.canvas.restore_region(self._still)
        for artist in self._moving:
            self.draw_artist(artist)
        file = io.BytesIO()
        pixels = Image.fromarray(np.asarray(self.canvas.buffer_rgba())).convert("RGB")
        pixels.save(file, "png", compress_level=1)
        return file.getvalue()

    def _repr_html_(self):
        """For a notebook: the picture with its alt text, and its words below."""
        data = base64.b64encode(self.png()).decode()
        return (f'<img alt="{html.escape(self.alt)}" width="{self.width}" height="{self.height}" '
                f'src="data:image/png;base64,{data}"><p>{html.escape(self.words)}</p>')

    def __repr__(self):
        return f"<Picture: {self.words}>"


def signed(number, digits=2):
    """A number with its sign, for people: a real minus, and no sign before a zero."""
    text = f"{number:+.{digits}f}".replace("-", "−")
    return text if text.strip("+−0.") else text[1:]


def check_between(name, value, low, high):
    """Raise ValueError, naming the value, unless it lies from low to high."""
    if not (isinstance(value, int | float) and low <= value <= high):
        raise ValueError(f"{name} is {value!r}; expected a number from {low} to {high}.")
