"""A picture under its controls: the one kind of panel that all widgets of the course are.

Nothing is computed here, and nothing is drawn before a panel is made. A panel keeps its size, so
that nothing on the page moves when the picture does.
"""

import html
import threading

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
