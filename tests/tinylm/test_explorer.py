"""The explorer from outside: sliders are set, buttons are clicked, and what stands there is read.

The record is made up, so that every number is known; live runs are real, and short.
"""

import itertools
import json
import random
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from tinylm import GRPOConfig, curves, explorer, runs, widgets
from tinylm.labfile import load_lab
from tinylm.picture import signed
from tinylm.runs import AXES, RecordError, load_runs, write_runs
from tinylm.training import STATS

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "autograde/reference/lab.py"
LONG = 120                   # seconds that a live run may take on a busy machine
ITERS = 64                   # more than the last fifty, and no whole number of windows
GRID = {"G": (2, 8), "beta": (0.0, 0.04), "clip_eps": (0.05, 0.2), "inner_steps": (1, 2)}
POINTS = [dict(zip(AXES, point, strict=True)) for point in itertools.product(*GRID.values())]
DEFAULT = {"G": 8, "beta": 0.04, "clip_eps": 0.2, "inner_steps": 2}
MISSING = {"G": 2, "beta": 0.0, "clip_eps": 0.05, "inner_steps": 2}
ONE_SEED = {"G": 2, "beta": 0.04, "clip_eps": 0.05, "inner_steps": 2}

# A step that trains nothing; {body} stands at its beginning.
STEP = """\
import time
calls = 0

def grpo_step(policy, ref, opt, prompts, answers, cfg):
    global calls
    calls += 1
    {body}
    return dict(reward=float(calls), loss=0.0, kl=0.1, clip_frac=0.0, frac_zero_signal=0.0,
                entropy=1.0)
"""


def made_up(cfg):
    """A run as the sweep saves it, with a history of its own."""
    rng = random.Random(str(cfg))
    history = {name: [rng.random() for _ in range(cfg.iters)] for name in STATS}
    history |= {"eval_iter": [0, cfg.iters], "acc_sampled": [0.3, rng.random()],
                "acc_greedy": [0.4, rng.random()]}
    return {"config": asdict(cfg), "origin": {}, "machine": {}, "seconds": 1.0, "history": history}


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """The path of a record: three seeds, but for one setting with one seed and one with none."""
    results = []
    for point, seed in itertools.product(POINTS, range(3)):
        if point["inner_steps"] == 1 and point["clip_eps"] != GRID["clip_eps"][0]:
            continue
        if point != MISSING and (point != ONE_SEED or seed == 0):
            results.append(made_up(GRPOConfig(iters=ITERS, prompts_per_iter=3, eval_every=ITERS,
                                              eval_n=10, seed=seed, **point)))
    path = tmp_path_factory.mktemp("record") / "runs.npz"
    write_runs(path, results, GRID, recipe={})
    return path


@pytest.fixture(scope="module")
def shown(record):
    """One explorer for all tests that only look at recorded runs: drawing is the dear part."""
    return widgets.explore(record)


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Write a lab file with a step of its own into an empty folder."""
    monkeypatch.chdir(tmp_path)

    def write(body="pass"):
        (tmp_path / "lab.py").write_text(STEP.replace("{body}", body))

    return write


@contextmanager
def exploring(*args, **kwargs):
    """An explorer whose live run is not left behind by a failed test."""
    shown = widgets.explore(*args, **kwargs)
    try:
        yield shown
    finally:
        shown.training.stop()
        assert shown.training.wait(LONG)


def text(words):
    """An HTML widget as a person reads it."""
    return re.sub("<[^>]+>", "", words.value).replace("&#x27;", "'").replace("&quot;", '"')


def choose(shown, setting):
    for name, value in setting.items():
        shown.panel.controls[name].value = value


def lines(picture, panel):
    return {line.get_label(): line for line in picture.axes[panel].lines}


def band(picture, panel):
    (found,) = [part for part in picture.axes[panel].collections if part.get_label() == "band"]
    return found


def legend(picture):
    return [text.get_text() for text in picture.axes[2].texts if text.get_text()]


def plain_windows(values):
    """Means over ten iterations, one after the other, and where they are drawn."""
    parts = [list(values[i:i + 10]) for i in range(0, len(values), 10)]
    at = [i + (len(part) + 1) / 2 for i, part in zip(range(0, len(values), 10), parts, strict=True)]
    return at, [sum(part) / len(part) for part in parts]


# ------------------------------------------------------------ recorded curves

@pytest.mark.parametrize("point", [point for point in POINTS if point != MISSING])
def test_words_and_curves_are_those_of_the_record(record, shown, point):
    curve = load_runs(record).curve(**point)
    choose(shown, point)
    said, seeds = text(shown.panel.words), len(curve["reward"])
    last = {name: np.asarray(values, float)[:, -50:].mean(axis=1) for name, values in curve.items()}
    assert f"means of the last 50 iterations over {seeds} seed" in said
    assert f"reward {last['reward'].mean():.3f}" in said
    assert f"KL {last['kl'].mean():.4f} nats" in said
    assert f"clip fraction {last['clip_frac'].mean():.4f}" in said
    assert f"zero-signal share {last['frac_zero_signal'].mean():.3f}." in said
    if seeds > 1:
        assert f"({last['reward'].min():.3f} to {last['reward'].max():.3f})" in said
    for panel, name in enumerate(("reward", "kl")):
        each = np.array([plain_windows(run)[1] for run in curve[name].astype(float)])
        x, y = lines(shown.panel.picture, panel)["mean"].get_data()
        assert list(x) == plain_windows(curve[name][0])[0]
        np.testing.assert_allclose(y, each.mean(axis=0))
        corners = band(shown.panel.picture, panel).get_paths()[0].vertices
        for at, low, high in zip(x, each.min(axis=0), each.max(axis=0), strict=True):
            heights = corners[corners[:, 0] == at, 1]
            assert (heights.min(), heights.max()) == (pytest.approx(low), pytest.approx(high))


def test_with_one_inner_step_the_clip_cannot_act_and_it_says_so(shown):
    choose(shown, {"inner_steps": 1, "clip_eps": 0.05})
    narrow = lines(shown.panel.picture, 0)["mean"].get_data()
    choose(shown, {"clip_eps": 0.2})
    np.testing.assert_array_equal(narrow, lines(shown.panel.picture, 0)["mean"].get_data())
    assert "the clip cannot act: one run serves all clip_eps" in text(shown.panel.words)
    choose(shown, {"inner_steps": 2})
    assert "cannot act" not in text(shown.panel.words)


def test_a_setting_without_a_run_shows_no_curve_and_says_so(shown):
    choose(shown, MISSING)
    assert text(shown.panel.words).startswith(
        "No recorded curve: this record has no run at G 2, beta 0, clip_eps 0.05, inner_steps 2; ")
    for panel in (0, 1):
        assert len(lines(shown.panel.picture, panel)["mean"].get_xdata()) == 0
        assert not band(shown.panel.picture, panel).get_paths()
    choose(shown, {"clip_eps": 0.2})
    assert "over 3 seeds" in text(shown.panel.words)


def test_axes_stay_and_hold_the_whole_record(record, shown):
    limits = [(axes.get_xlim(), axes.get_ylim()) for axes in shown.panel.picture.axes]
    for point in POINTS:
        choose(shown, point)
        assert [(axes.get_xlim(), axes.get_ylim()) for axes in shown.panel.picture.axes] == limits
    for panel, name in enumerate(("reward", "kl")):
        drawn = [plain_windows(run)[1] for run in load_runs(record).values[name]]
        assert limits[panel][1][0] <= np.min(drawn) and np.max(drawn) <= limits[panel][1][1]
        assert limits[panel][0] == (0, ITERS)


def test_start_and_default_setting_stay_in_view(record, shown):
    ghost = load_runs(record).curve(**DEFAULT)
    choose(shown, ONE_SEED)
    for panel, (name, start) in enumerate({"reward": 0.3, "kl": 0}.items()):
        drawn = lines(shown.panel.picture, panel)
        assert list(drawn["SFT start"].get_ydata()) == [pytest.approx(start)] * 2
        np.testing.assert_allclose(drawn["default"].get_ydata(), np.mean(
            [plain_windows(run)[1] for run in ghost[name].astype(float)], axis=0))
    assert "default: G 8, beta 0.04, clip_eps 0.2, inner steps 2" in legend(shown.panel.picture)
    assert "G 2, beta 0.04, clip_eps 0.05, inner steps 2 (1 seed)" in legend(shown.panel.picture)


def test_a_slider_move_draws_only_what_moves_and_trains_nothing(shown, monkeypatch):
    made = [set(map(id, panel.picture.findobj())) for panel in (shown.panel, shown.grid)]
    monkeypatch.setattr(explorer, "LiveRun", lambda *_, **__: pytest.fail("trained"))
    for panel in (shown.panel, shown.grid):
        monkeypatch.setattr(panel.picture.canvas, "draw", lambda: pytest.fail("drew everything"))
    for point in POINTS:
        before = shown.panel.image.value.tobytes(), shown.grid.image.value.tobytes()
        if point != shown.setting:
            choose(shown, point)
            assert shown.grid.image.value.tobytes() != before[1]
        assert "could not" not in text(shown.panel.words) + text(shown.grid.words)
    assert made == [set(map(id, panel.picture.findobj())) for panel in (shown.panel, shown.grid)]


# ------------------------------------------------------------ pins

def buttons(shown):
    return {child.description: child for child in shown.panel.children[0].children}


def test_a_pinned_curve_stays_with_its_name_until_it_is_unpinned(shown):
    choose(shown, DEFAULT)
    bare, name = shown.panel.image.value.tobytes(), "pinned: " + curves.setting_name(ONE_SEED)
    choose(shown, ONE_SEED)
    kept = [lines(shown.panel.picture, panel)["mean"].get_data() for panel in (0, 1)]
    buttons(shown)["Pin this"].click()
    choose(shown, DEFAULT)
    assert shown.panel.image.value.tobytes() != bare and name in legend(shown.panel.picture)
    for panel in (0, 1):
        np.testing.assert_array_equal(
            lines(shown.panel.picture, panel)[curves.setting_name(ONE_SEED)].get_data(),
            kept[panel])
    buttons(shown)["Unpin all"].click()
    assert shown.panel.image.value.tobytes() == bare and name not in legend(shown.panel.picture)


def test_four_pins_fit_each_once_and_the_next_is_refused_in_words(shown):
    choose(shown, DEFAULT)
    buttons(shown)["Pin this"].click()
    for point in [point for point in POINTS if point not in (MISSING, DEFAULT)][:5]:
        for _ in range(2):
            choose(shown, point)
            buttons(shown)["Pin this"].click()
    pinned = [name for name in legend(shown.panel.picture) if name.startswith("pinned")]
    assert len(pinned) == len(set(pinned)) == 4
    assert "No more pins fit" in text(shown.panel.words)
    colours = {lines(shown.panel.picture, 0)[name.removeprefix("pinned: ")].get_color()
               for name in pinned}
    assert len(colours) == 4
    buttons(shown)["Unpin all"].click()
    assert "No more pins" not in text(shown.panel.words)
    choose(shown, MISSING)
    buttons(shown)["Pin this"].click()
    assert not [name for name in legend(shown.panel.picture) if name.startswith("pinned")]


# ------------------------------------------------------------ the whole grid

@pytest.mark.parametrize("point", [DEFAULT, ONE_SEED, {**MISSING, "G": 8}])
def test_the_whole_grid_is_that_of_the_record(record, shown, point):
    loaded = load_runs(record)
    choose(shown, point)
    table, frontier, signal = shown.grid.picture.axes

    def end(name, **changes):
        try:
            values = loaded.curve(**{**point, **changes})[name]
        except ValueError:
            return None
        return np.asarray(values, float)[:, -50:].mean()

    texts = {text.get_position(): text.get_text() for text in table.texts}
    for (x, G), (y, beta) in itertools.product(enumerate(GRID["G"]), enumerate(GRID["beta"])):
        reward = end("reward", G=G, beta=beta)
        assert texts[x, y] == ("–" if reward is None else f"{reward:.2f}")
    dots = np.concatenate([np.column_stack(line.get_data()) for line in frontier.lines
                           if line.get_label().startswith("beta")])
    every = np.column_stack([np.asarray(loaded.values[name], float)[:, -50:].mean(axis=1)
                             for name in ("kl", "reward")])
    np.testing.assert_allclose(sorted(dots.tolist()), sorted(every.tolist()))
    rings = next(line for line in frontier.lines if line.get_label() == "here")
    assert np.mean(rings.get_ydata()) == pytest.approx(end("reward"))
    drawn = {line.get_label(): line.get_ydata() for line in signal.lines}["last 50 iterations"]
    for G, share in zip(GRID["G"], drawn, strict=True):
        expected = end("frac_zero_signal", G=G)
        assert np.isnan(share) if expected is None else share == pytest.approx(expected)
    assert f"This setting: reward {end('reward'):.3f} at KL {end('kl'):.4f}".lower() in text(
        shown.grid.words).replace("The rings, this", "this").lower()


def test_the_shipped_record_is_what_it_shows():
    shown, loaded = widgets.explore(), load_runs()
    assert shown.setting == DEFAULT
    for G, beta, inner_steps in itertools.product(*(loaded.grid[name] for name in (
            "G", "beta", "inner_steps"))):
        choose(shown, {"G": G, "beta": beta, "inner_steps": inner_steps})
        kl = np.asarray(loaded.curve(**shown.setting)["kl"], float)[:, -50:].mean()
        assert f"KL {kl:.4f} nats" in text(shown.panel.words)


# ------------------------------------------------------------ training

@pytest.fixture(scope="module")
def trained(record):
    """An explorer whose live run of the reference is over; its setting is another than the first.

    The sliders were moved while it ran.
    """
    with exploring(record, lab=REFERENCE) as shown:
        choose(shown, {**DEFAULT, "G": 2, "clip_eps": 0.05})
        shown.training.train.click()
        assert shown.training.train.disabled and not shown.training.halt.disabled
        shown.training.train.click()
        assert "A run is under way" in text(shown.training.message)
        choose(shown, DEFAULT)
        assert shown.training.wait(LONG)
        yield shown


def test_the_live_curve_is_that_of_train_grpo(trained):
    cfg = GRPOConfig(iters=ITERS, prompts_per_iter=3, eval_every=ITERS, eval_n=10, seed=0,
                     **{**DEFAULT, "G": 2, "clip_eps": 0.05})
    _, history = load_lab(REFERENCE).train_grpo(cfg, verbose=False)
    assert trained.training.run.history == history
    for panel, name in enumerate(("reward", "kl")):
        x, y = lines(trained.panel.picture, panel)["yours"].get_data()
        at, means = plain_windows(history[name])
        assert (list(x), list(y)) == (at, pytest.approx(means))
    assert "yours: G 2, beta 0.04, clip_eps 0.05, inner steps 2" in legend(trained.panel.picture)
    assert (f"Yours, iterations 15 to 64: reward {np.mean(history['reward'][-50:]):.3f}, "
            f"KL {np.mean(history['kl'][-50:]):.4f}.") in text(trained.panel.words)


def test_a_run_that_is_over_says_so_and_leaves_the_recorded_curve(trained):
    training = trained.training
    assert text(training.message) == "Finished: 64 of 64 iterations."
    assert (training.bar.value, training.bar.max, training.bar.bar_style) == (64, 64, "success")
    assert not training.train.disabled and training.halt.disabled
    assert text(trained.panel.words).startswith(curves.setting_name(DEFAULT))
    training.halt.click()
    assert text(training.message) == "Finished: 64 of 64 iterations."


def test_a_live_curve_can_be_pinned(trained):
    buttons(trained)["Pin this"].click()
    assert [name for name in legend(trained.panel.picture) if name.startswith("pinned")] == [
        "pinned: G 8, beta 0.04, clip_eps 0.2, inner steps 2",
        "pinned: yours: G 2, beta 0.04, clip_eps 0.05, inner steps 2"]
    buttons(trained)["Unpin all"].click()


def test_it_is_drawn_while_it_trains_and_stop_may_be_pressed_twice(record, lab):
    lab("while calls > 12: time.sleep(0.01)")
    with exploring(record) as shown:
        shown.training.halt.click()                     # there is nothing to stop
        shown.training.train.click()
        deadline = time.monotonic() + LONG
        while shown.training.bar.value < 12:
            assert time.monotonic() < deadline and shown.training.run.state in (
                "starting", "running")
            time.sleep(0.05)
        shown.training.halt.click()
        shown.training.halt.click()
        assert shown.training.wait(LONG)
        assert list(lines(shown.panel.picture, 0)["yours"].get_ydata()) == [5.5, 11.5]
        assert text(shown.training.message).startswith("Stopped after 12 of 64 iterations")
        assert shown.inside not in shown.children and not shown.training.train.disabled
        lab("calls = min(calls, 9)")
        shown.training.train.click()
        assert shown.training.wait(LONG) and shown.training.run.state == "finished"
        assert "no batch to look into" in text(shown.training.message)


@pytest.mark.parametrize(("body", "said"), [
    ("x = [1, 2][calls + 1]", "lab.py, line 7, in grpo_step: `x = [1, 2][calls + 1]` raised "
                              "IndexError: list index out of range."),
    ("raise NotImplementedError('Task 5: grpo_step')", "Task 5: grpo_step is still a stub"),
    ("if calls == 3: return 7", "iteration 3: grpo_step returned int; expected a dict of floats."),
])
def test_an_error_in_the_learner_s_code_is_a_message(record, lab, body, said):
    lab(body)
    with exploring(record) as shown:
        shown.training.train.click()
        assert shown.training.wait(LONG)
        message = text(shown.training.message)
        assert message.startswith(f"Failed: {said}"), message
        assert shown.training.bar.bar_style == "danger" and not shown.training.train.disabled
        assert "could not" not in text(shown.panel.words)


def test_a_missing_lab_is_a_message(record, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with exploring(record) as shown:
        shown.training.train.click()
        assert shown.training.wait(LONG)
        assert "Failed: there is no work" in text(shown.training.message)


# ------------------------------------------------------------ without a record

@pytest.mark.parametrize("version", [None, runs.VERSION + 1])
def test_without_a_record_it_says_how_to_get_one_and_still_trains(record, lab, tmp_path, version):
    path = tmp_path / "other.npz"
    if version:
        arrays = dict(np.load(record))
        about = json.loads(str(arrays["about"])) | {"version": version}
        np.savez(path, **arrays | {"about": np.array(json.dumps(about))})
    with pytest.raises(RecordError) as expected:
        load_runs(path)
    lab("if calls == 4: raise KeyError")
    with exploring(path) as shown:
        said = text(shown.children[1])
        assert str(expected.value) in said and "`make runs`" in said
        assert shown.grid is None and shown.setting == DEFAULT
        assert text(shown.panel.words) == "No recorded curve: there is no record of runs."
        shown.training.train.click()
        assert shown.training.run.cfg == GRPOConfig()
        assert shown.training.wait(LONG)
        assert list(lines(shown.panel.picture, 0)["yours"].get_ydata()) == [2.0]


# ------------------------------------------------------------ the inspector

def number(words):
    return float(words.replace("−", "-"))


def sheet(shown):
    """The texts of the inspector, by row, each row from left to right."""
    rows = {}
    for words in shown.inside.picture.axes[0].texts:
        if words.get_text():
            x, y = words.get_position()
            rows.setdefault(y, []).append((x, words.get_text()))
    return [[words for _, words in sorted(row)] for _, row in sorted(rows.items())]


@pytest.mark.parametrize(("iteration", "group", "answer"), [(1, 1, 1), (40, 3, 2), (64, 2, 1)])
def test_tokens_add_up_to_answers_to_groups_and_to_the_plotted_loss(trained, iteration, group,
                                                                    answer):
    inspector, run = trained.inside, trained.training.run
    for name, value in (("iteration", iteration), ("group", group), ("answer", answer)):
        inspector.controls[name].value = value
    batch, row = run.batch(iteration), 2 * (group - 1) + answer - 1
    rows = sheet(trained)
    heads = [i for i, row in enumerate(rows) if "token" in row]
    tokens = rows[heads[0] + 1:]
    assert len(tokens) == batch.mask[row].sum()
    d, ratio = (batch.ref_logp - batch.logp)[row], np.exp(batch.logp - batch.old_logp)[row]
    A = batch.advantages[row]
    for t, (_, shown_ratio, branch, k3, loss, _) in enumerate(tokens):
        clipped = min(max(ratio[t], 1 - batch.clip_eps), 1 + batch.clip_eps) * A
        kl = np.exp(d[t]) - d[t] - 1
        assert number(shown_ratio) == pytest.approx(ratio[t], abs=6e-4)
        assert branch == ("clipped" if clipped < ratio[t] * A else "unclipped")
        assert number(k3) == pytest.approx(kl, abs=6e-5)
        assert number(loss) == pytest.approx(batch.beta * kl - min(ratio[t] * A, clipped), abs=6e-5)
    batch_rows = rows[2:5]                  # three groups, below two rows of headings
    groups = [number(row[1]) for row in batch_rows]
    answers = [number(row[-1]) for row in batch_rows[:2]]
    assert sum(number(row[-1]) for row in tokens) == pytest.approx(answers[answer - 1], abs=3e-5)
    assert sum(answers) == pytest.approx(groups[group - 1], abs=2e-5)
    assert sum(groups) == pytest.approx(run.history["loss"][iteration - 1], abs=3e-5)
    assert [row[0] for row in batch_rows] == batch.prompts
    assert [row[2] for row in batch_rows[:2]] == [
        response or "–" for response in batch.responses[2 * group - 2:2 * group]]
    assert [number(row[4]) for row in batch_rows[:2]] == pytest.approx(
        batch.advantages[2 * group - 2:2 * group].tolist(), abs=6e-3)
    curve = {line.get_label(): line.get_data() for line in inspector.picture.axes[1].lines}
    assert list(curve["loss"][1]) == run.history["loss"]
    assert (list(curve["here"][0]), list(curve["here"][1])) == (
        [iteration], [run.history["loss"][iteration - 1]])
    said = text(inspector.words)
    assert f"the loss is {signed(batch.loss, 5)}, the sum of the shares of its 6 answers" in said
    assert f"{batch.prompts[group - 1]} with the right answer {batch.answers[group - 1]}" in said


def test_another_token_group_or_iteration_is_drawn_without_a_new_figure(trained, monkeypatch):
    inspector = trained.inside
    for control in inspector.controls.values():
        control.value = control.min
    first = inspector.image.value.tobytes()
    monkeypatch.setattr(inspector.picture.canvas, "draw", lambda: pytest.fail("drew everything"))
    for control in inspector.controls.values():
        before = inspector.image.value.tobytes()
        control.value = control.max
        assert inspector.image.value.tobytes() != before
    assert "could not" not in text(inspector.words)
    for control in inspector.controls.values():
        control.value = control.min
    assert inspector.image.value.tobytes() == first


def test_another_run_turns_the_inspector_to_its_own_batches(trained):
    inspector = trained.inside
    inspector.controls["iteration"].value, inspector.controls["answer"].value = 50, 2
    choose(trained, {**DEFAULT, "inner_steps": 1})
    trained.training.train.click()
    assert trained.training.wait(LONG)
    controls, batch = inspector.controls, trained.training.run.batch(1)
    assert trained.children[-1] is inspector and len(trained.children) == 3
    assert (controls["iteration"].min, controls["iteration"].value) == (1, 1)
    assert (controls["iteration"].max, controls["answer"].max) == (64, 8)
    assert f"the loss is {signed(batch.loss, 5)}, the sum of the shares of its 24" in text(
        inspector.words)
    assert "The clip acts on 0" in text(inspector.words)


def other_lab(folder, old, new):
    source = REFERENCE.read_text()
    assert old in source
    (folder / "lab.py").write_text(source.replace(old, new))


def test_shares_that_do_not_add_up_are_named(record, tmp_path, monkeypatch):
    """A mean over all tokens of the batch: longer answers weigh more than they should."""
    monkeypatch.chdir(tmp_path)
    other_lab(tmp_path, "    loss = -per_response.mean()\n",
              "    loss = -(obj * mask).sum() / mask.sum()\n")
    with exploring(record) as shown:
        shown.training.train.click()
        assert shown.training.wait(LONG)
        said = []
        for iteration in (5, 20, 40, 64):
            shown.inside.controls["iteration"].value = iteration
            said.append(text(shown.inside.words))
        assert any("add up to" in words and "averages otherwise" in words for words in said)


def test_a_loss_that_cannot_be_asked_leaves_a_sentence_and_the_lab_imported_here(
        record, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other_lab(tmp_path, "    rho = torch.exp(logp - old_logp)\n",
              "    assert len(logp) > 1, 'too few'\n    rho = torch.exp(logp - old_logp)\n")
    mine = object()
    monkeypatch.setitem(sys.modules, "lab", mine)
    with exploring(record) as shown:
        shown.training.train.click()
        assert shown.training.wait(LONG) and shown.training.run.state == "finished"
        assert shown.inside not in shown.children
        said = text(shown.children[-1])
        assert said.startswith("The batches cannot be looked into: lab.py, line ")
        assert said.endswith("raised AssertionError: too few")
    assert sys.modules["lab"] is mine


# ------------------------------------------------------------ around it

def test_import_is_light():
    code = """
import gc, sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event in (
    "open", "subprocess.Popen") else None)
import tinylm.explorer
from matplotlib.figure import Figure
print([path for path in opened if "/data/" in path and "tinylm" in path or "python" == path],
      "matplotlib.pyplot" in sys.modules,
      sum(isinstance(thing, Figure) for thing in gc.get_objects()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          timeout=LONG)
    assert done.stdout == "[] False 0\n", done.stderr


def test_where_no_widget_lives_the_curves_stand(shown):
    data, metadata = shown._repr_mimebundle_()
    view = data["application/vnd.jupyter.widget-view+json"]
    assert view["model_id"] == shown.model_id
    assert data["image/png"] == shown.panel.image.value.tobytes()
    assert data["text/plain"] == shown.panel.picture.words
    assert shown.panel.picture.alt in metadata["image/png"]["alt"]
