"""Panels from outside: what a moved control changes, and what it leaves alone."""

import io
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
from PIL import Image

from tinylm import decode_responses, load_or_train_sft, plots, sample, widgets
from tinylm.addition import reward
from tinylm.picture import SHARPNESS

# A setting other than the first for each control of each widget.
MOVES = {
    "answers": {"temperature": 0.3, "G": 16},
    "advantages": {"right": 5, "G": 4},
    "estimators": {"drift": 0.5},
    "clip": {"clip_eps": 0.35, "rho": 0.6},
    "step": {"stage": 4},
}


def read_out(panel):
    """The words as a person reads them."""
    return re.sub("<[^>]+>", "", panel.words.value).replace("&#x27;", "'")


def state(panel):
    return panel.image.value.tobytes(), read_out(panel)


@pytest.mark.parametrize(("name", "control"), [
    (name, control) for name, moves in MOVES.items() for control in moves])
def test_a_moved_control_changes_picture_and_words_and_moved_back_restores_them(name, control):
    panel = getattr(widgets, name)()
    first, at_first = state(panel), panel.controls[control].value
    panel.controls[control].value = MOVES[name][control]
    moved = state(panel)
    assert moved[0] != first[0] and moved[1] != first[1]
    assert moved[1] == panel.picture.words
    panel.controls[control].value = at_first
    assert state(panel) == first


@pytest.mark.parametrize("name", list(MOVES))
def test_the_size_is_fixed_and_the_image_has_a_name(name):
    panel = getattr(widgets, name)()
    for control, value in MOVES[name].items():
        width, height = Image.open(io.BytesIO(panel.image.value)).size
        assert (width, height) == (
            SHARPNESS * int(panel.image.width), SHARPNESS * int(panel.image.height))
        panel.controls[control].value = value
    # The front end shows the tooltip of a widget that has a description, and fails without one.
    assert panel.image.tooltip == panel.picture.alt and len(panel.image.tooltip) > 40
    assert panel.image.get_state()["description"] == ""


@pytest.mark.parametrize("name", list(MOVES))
def test_only_what_moves_is_drawn_again(name, monkeypatch):
    panel = getattr(widgets, name)()
    made = set(map(id, panel.picture.findobj()))
    monkeypatch.setattr(panel.picture.canvas, "draw", lambda: pytest.fail("drew the whole figure"))
    for control, value in MOVES[name].items():
        panel.controls[control].value = value
    assert "could not" not in read_out(panel)
    assert set(map(id, panel.picture.findobj())) == made


def test_import_is_light():
    """No pyplot, no checkpoint, no record, no figure: those wait until a panel is made."""
    code = """
import gc
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import tinylm.widgets
from matplotlib.figure import Figure
print([path for path in opened if "/data/" in path and "tinylm" in path],
      "matplotlib.pyplot" in sys.modules,
      sum(isinstance(thing, Figure) for thing in gc.get_objects()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "[] False 0\n", done.stderr


def test_an_error_becomes_a_sentence_and_the_next_setting_is_drawn_again():
    picture = plots.clip()

    def show(rho):
        if rho == 1.0:
            raise ValueError("rho is <one>.")
        if rho == 1.1:
            raise ZeroDivisionError
        return picture.move(clip_eps=0.2, rho=rho)

    panel = widgets.Panel(picture, show, rho=widgets.slider("rho", 1.4, 0.1, 1.9, 0.1))
    before = state(panel)
    for value, said in ((1.0, "rho is &lt;one&gt;."), (1.1, "ZeroDivisionError")):
        panel.controls["rho"].value = value
        assert panel.words.value.count(f"This setting could not be drawn: {said}") == 1
        assert panel.image.value.tobytes() == before[0]
    panel.controls["rho"].value = 1.5
    assert "ratio 1.50" in read_out(panel)


def test_a_panel_whose_first_setting_fails_still_stands():
    def show(rho):
        raise RuntimeError("no record.")

    panel = widgets.Panel(plots.clip(), show, rho=widgets.slider("rho", 1.4, 0.1, 1.9, 0.1))
    assert "could not be drawn: no record." in read_out(panel)


def test_fewer_answers_than_were_right_never_meet():
    panel = widgets.advantages()
    panel.controls["right"].value = 7
    seen = []
    panel.words.observe(lambda change: seen.append(change.new), "value")
    panel.controls["G"].value = 4
    assert panel.controls["right"].value == 4 and "4 of 4 right" in read_out(panel)
    panel.controls["G"].value = 16
    panel.controls["right"].value = 12
    assert "12 of 16 right" in read_out(panel)
    assert not [words for words in seen if "could not" in words]


def test_answers_are_real_samples_and_a_larger_group_goes_on_where_the_smaller_one_ends():
    panel = widgets.answers()
    policy, prompts, right = load_or_train_sft(), ["72+16=", "37+48=", "86+57=", "5+5="], [
        "88", "85", "143", "10"]
    panel.controls["temperature"].value = 0.7
    responses = decode_responses(sample(policy, [p for p in prompts for _ in range(16)], 0.7,
                                        generator=torch.Generator().manual_seed(0)))
    for G in (2, 4, 8, 16):
        panel.controls["G"].value = G
        counts = [sum(int(reward(response, answer)) for response in responses[16 * i : 16 * i + G])
                  for i, answer in enumerate(right)]
        assert ", ".join(f"{prompt} {count} right" for prompt, count in zip(prompts, counts,
                                                                          strict=True)
                         ) in read_out(panel)
        same = sum(count in (0, G) for count in counts)
        assert f"{same} of 4 groups" in read_out(panel)
        texts = [text for text in panel.picture.axes[0].texts if text.get_visible()]
        assert sum("✓" in text.get_text() for text in texts) == sum(counts)
        assert sum("✗" in text.get_text() for text in texts) == 4 * G - sum(counts)


def test_answers_follow_the_policy_they_were_given_and_leave_the_random_state_alone():
    policy = load_or_train_sft()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    panel = widgets.answers(policy)
    first = read_out(panel)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.zero_()
    panel.redraw()
    assert read_out(panel) != first and torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("policy", ["37+48=", torch.nn.Linear(1, 1)])
def test_answers_want_a_policy(policy):
    with pytest.raises(TypeError, match=f"given {type(policy).__name__}; expected a TinyLM"):
        widgets.answers(policy)


def test_pin_keeps_the_curve_and_unpin_takes_it_away():
    panel = widgets.clip()
    pin, unpin = panel.children[0].children[-2:]
    assert (pin.description, unpin.description) == ("Pin this", "Unpin all")
    panel.controls["clip_eps"].value = 0.4
    bare = panel.image.value.tobytes()
    panel.controls["clip_eps"].value = 0.1
    pin.click()
    panel.controls["clip_eps"].value = 0.4
    assert panel.image.value.tobytes() != bare
    unpin.click()
    assert panel.image.value.tobytes() == bare
    assert len(widgets.step().children[0].children) == 1


def test_a_pin_that_fails_is_a_sentence_too(monkeypatch):
    panel = widgets.clip()
    monkeypatch.setattr(panel.picture, "_pin", lambda: 1 / 0)
    panel.children[0].children[-2].click()
    assert "could not be drawn: division by zero" in read_out(panel)


def test_controls_moved_from_threads_while_a_cell_draws():
    """JupyterLab answers widgets from a thread; the last setting must be the one that stays."""
    panel = widgets.clip()
    panel.controls["rho"].value = 0.5
    expected = state(panel)
    stop = threading.Event()

    def cell():
        while not stop.is_set():
            plots.clip(0.3, 1.0).png()

    def moves(control, values):
        for value in values:
            panel.controls[control].value = value

    threads = [threading.Thread(target=moves, args=("rho", np.linspace(1.9, 0.5, 15).round(2))),
               threading.Thread(target=moves, args=("clip_eps", [0.1, 0.3, 0.5, 0.2] * 3))]
    busy = threading.Thread(target=cell)
    for thread in (busy, *threads):
        thread.start()
    for thread in threads:
        thread.join(60)
    stop.set()
    busy.join(60)
    assert not any(thread.is_alive() for thread in (busy, *threads))
    assert state(panel) == expected


def test_two_threads_never_draw_at_once():
    picture, inside, most = plots.clip(), [], []

    def show(rho):
        inside.append(rho)
        time.sleep(0.005)
        most.append(len(inside))
        inside.pop()
        return picture.move(clip_eps=0.2, rho=1.0)

    panel = widgets.Panel(picture, show, rho=widgets.slider("rho", 1.0, 0.1, 1.9, 0.1))
    threads = [threading.Thread(target=lambda: [panel.redraw() for _ in range(8)])
               for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [1] * 25


def test_where_no_widget_lives_the_picture_stands():
    panel = widgets.clip()
    data, metadata = panel._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["image/png"] == panel.image.value.tobytes()
    assert data["text/plain"] == panel.picture.words
    shown = metadata["image/png"]
    assert panel.picture.alt in shown["alt"] and panel.picture.words in shown["alt"]
    assert (shown["width"], shown["height"]) == (panel.picture.width, panel.picture.height)
