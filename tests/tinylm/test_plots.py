"""Pictures, as data: what is drawn is compared with numbers worked out another way."""

import html
import io
import re
from statistics import fmean, pstdev, stdev

import matplotlib
import numpy as np
import pytest
from PIL import Image

from tinylm import GRPOConfig, batches, plots
from tinylm.addition import decode
from tinylm.picture import SHARPNESS, Picture, signed

ESTIMATORS, STEP = plots.recorded("estimators"), plots.recorded("step")
PROMPTS, RIGHT = ["37+48=", "5+5="], ["85", "10"]
RESPONSES = [["85", "75", "185", "85"], ["8", "", "9", "88+1"]]
HISTORY = {"reward": [0.25, 0.5], "kl": [0.0, 0.125], "entropy": [1.0, 0.75],
           "eval_iter": [0, 2], "acc_sampled": [0.25, 0.5], "acc_greedy": [0.5, 0.625]}


PICTURES = {
    "training": lambda: plots.training(HISTORY, GRPOConfig()),
    "clip": plots.clip,
    "advantages": plots.advantages,
    "estimators": lambda: plots.estimators(ESTIMATORS),
    "answers": lambda: batches.answers(PROMPTS, RIGHT, RESPONSES, G=4, setting="temperature 1.0"),
    "step": lambda: batches.step(STEP),
}


def lines(axes):
    return {line.get_label(): line for line in axes.lines}


def shown(picture):
    """The texts that can be seen."""
    return [text.get_text() for axes in picture.axes for text in axes.texts
            if text.get_visible() and text.get_text()]


def numbers(words):
    return [float(number.replace("−", "-")) for number in re.findall(r"[+−]?\d+\.\d+", words)]


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


@pytest.mark.parametrize("clip_eps", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("rho", [0.1, 0.55, 0.9, 1.0, 1.1, 1.45, 1.9])
def test_clip_draws_the_smaller_of_the_two_products(clip_eps, rho):
    picture = plots.clip(clip_eps, rho)
    for axes, A in zip(picture.axes, (1, -1), strict=True):
        def objective(ratio, A=A):
            return min(ratio * A, min(max(ratio, 1 - clip_eps), 1 + clip_eps) * A)

        drawn = lines(axes)
        grid = np.linspace(0, 2, 41)
        np.testing.assert_allclose(np.interp(grid, *drawn["objective"].get_data()),
                                   [objective(ratio) for ratio in grid], atol=1e-12)
        assert drawn["here"].get_data() == ([rho], [pytest.approx(objective(rho))])
        slope = round((objective(rho + 1e-4) - objective(rho - 1e-4)) / 2e-4)
        assert f"gradient {signed(slope, 0)}" in shown_in(axes)
        left, right = drawn["active branch"].get_xdata()
        assert left <= rho <= right
        assert f"objective {signed(objective(rho))}, gradient {signed(slope, 0)}" in picture.words
        assert picture.words.count("the clipped branch is active") == sum(
            f"gradient {signed(0, 0)}" in shown_in(side) for side in picture.axes)


def shown_in(axes):
    return [text.get_text() for text in axes.texts]


@pytest.mark.parametrize("G", [2, 4, 8, 16])
def test_advantages_are_those_of_the_rewards(G):
    picture = plots.advantages(right=1, G=G)
    for right in range(G + 1):
        words = picture.move(right=right, G=G)
        rewards = [1.0] * right + [0.0] * (G - right)
        for axes, std in zip(picture.axes, (lambda r: 1.0, pstdev, stdev), strict=True):
            scale = std(rewards) or 1.0
            expected = [(reward - fmean(rewards)) / scale for reward in rewards]
            bars = [bar for bar in axes.patches if bar.get_visible()]
            assert [bar.get_height() for bar in bars] == pytest.approx(expected)
            assert len({bar.get_facecolor() for bar in bars}) == len(set(rewards))
            if right not in (0, G):
                assert signed(expected[0]) in words and signed(expected[-1]) in words
                assert f"✓ right\n{signed(expected[0])}" in shown_in(axes)
                assert f"✗ wrong\n{signed(expected[-1])}" in shown_in(axes)
        assert ("teaches nothing" in words) == (right in (0, G))
    assert "3.87" in plots.advantages(1, 16).words and "0.968" in plots.advantages(1, 16).words


@pytest.mark.parametrize("drift", ESTIMATORS["drift"][::8])
def test_estimators_against_sums_over_all_tokens(drift):
    picture = plots.estimators(ESTIMATORS, drift)
    left, right = picture.axes
    i = ESTIMATORS["drift"].index(drift)
    heights = [bar.get_height() for bar in left.patches]
    reference, policy = np.split(np.array(heights), 2)
    assert policy.sum() == pytest.approx(1, abs=1e-4)
    ratio = reference / policy
    kl = -(policy * np.log(ratio)).sum()
    assert f"true KL {kl:.3f}" in shown(picture) or kl == pytest.approx(0, abs=1e-4)
    values = {"k1": -np.log(ratio), "k2": np.log(ratio) ** 2 / 2, "k3": ratio - 1 - np.log(ratio)}
    drawn = lines(right)
    for name, value in values.items():
        mean = (policy * value).sum()
        spread = np.sqrt((policy * (value - mean) ** 2).sum() / ESTIMATORS["tokens"])
        low, high = drawn[f"{name} spread"].get_xdata()
        assert drawn[f"{name} mean"].get_xdata()[0] == pytest.approx(mean, abs=2e-4)
        assert (high - low) / 2 == pytest.approx(spread, abs=2e-4)
        dots = drawn[f"{name} estimates"].get_xdata()
        assert abs(fmean(dots) - mean) <= 4 * spread / len(dots) ** 0.5 + 1e-4
        assert abs(pstdev(dots) - spread) <= 0.25 * spread + 1e-4
        bias, std = ESTIMATORS["mean"][name][i] - ESTIMATORS["kl"][i], (high - low) / 2
        assert f"{name}: bias {signed(bias, 3)}, spread {std:.3f}" in picture.words
        below = sum(dot < 0 for dot in dots)
        assert f"{below} of {len(dots)} batches below zero" in picture.words or not below


def test_near_together_k3_spreads_least_and_far_apart_it_does_not():
    spread = ESTIMATORS["spread"]
    near, far = ESTIMATORS["drift"].index(0.5), ESTIMATORS["drift"].index(2.0)
    assert spread["k3"][near] < spread["k2"][near] < spread["k1"][near] / 4
    assert spread["k2"][far] < spread["k3"][far]


def test_answers_mark_each_answer_and_count_the_groups_without_signal():
    picture = batches.answers(PROMPTS, RIGHT, RESPONSES, G=4, setting="temperature 1.0")
    assert {"85\n✓", "75\n✗", "185\n✗", "8\n✗", "–\n✗", "88+1\n✗", "2 of 4",
            "0 of 4\nno signal"} <= set(shown(picture))
    assert picture.words == ("temperature 1.0, 4 answers a prompt. 37+48= 2 right, 5+5= 0 right. "
                             "1 of 2 groups have equal rewards and give no signal.")
    words = picture.move(responses=RESPONSES, G=1, setting="greedy")
    assert words.endswith("2 of 2 groups have equal rewards and give no signal.")
    assert [text for text in shown(picture) if "✗" in text or "✓" in text] == ["85\n✓", "8\n✗"]


def test_the_recorded_step_adds_up():
    G, T = STEP["G"], len(STEP["mask"][0])
    for i, ids in enumerate(STEP["ids"]):
        prompt = i // G
        assert decode(ids[: STEP["prompt_len"]]) == STEP["prompts"][prompt]
        assert decode(ids[STEP["prompt_len"]:]) == STEP["responses"][i]
        assert STEP["rewards"][i] == (STEP["responses"][i] == STEP["answers"][prompt])
        group = STEP["rewards"][prompt * G : (prompt + 1) * G]
        expected = (STEP["rewards"][i] - fmean(group)) / (pstdev(group) + 1e-4)
        assert STEP["advantages"][i] == pytest.approx(expected, abs=1e-4)
        terms = []
        for t in range(T):
            rho, A, real = STEP["ratio"][i][t], STEP["advantages"][i], STEP["mask"][i][t]
            if not real:
                assert STEP["terms"][i][t] == rho == 0
                continue
            held = min(max(rho, 1 - STEP["clip_eps"]), 1 + STEP["clip_eps"])
            k3 = 1 / rho + np.log(rho) - 1          # the reference is the policy before its update
            terms.append(min(rho * A, held * A) - STEP["beta"] * k3)
            assert STEP["terms"][i][t] == pytest.approx(terms[-1], abs=1e-3)
            assert STEP["clipped"][i][t] == (held * A < rho * A)
        assert STEP["means"][i] == pytest.approx(fmean(terms), abs=1e-3)
    assert STEP["loss"] == pytest.approx(-fmean(STEP["means"]), abs=1e-4)


def test_the_recorded_step_is_one_worth_looking_at():
    groups = [STEP["rewards"][:4], STEP["rewards"][4:]]
    assert all(0 < sum(group) < 4 for group in groups) and sum(groups[0]) != sum(groups[1])
    assert len({sum(row) for row in STEP["mask"]}) > 1 and any(map(sum, STEP["clipped"]))


def test_step_uncovers_its_columns_one_after_the_other():
    picture = batches.step(STEP, stage=1)
    seen, said = [], []
    for stage in range(1, 8):
        said.append(picture.move(stage=stage))
        seen.append(shown(picture))
    counts = [[cells.count(text) for cells in seen] for text in (
        "37+48=", "end", "1 ✓", signed(STEP["advantages"][1]), "1.86", signed(STEP["means"][0], 3))]
    first = [next(stage for stage, count in enumerate(row, 1) if count) for row in counts]
    assert first == [1, 3, 4, 5, 6, 7] and counts[0][:3] == [1, 4, 4] and counts[1][6] == 8
    assert "(2,)" in seen[0] and "(2,)" not in seen[1] and seen[6].count("(8, 4)") == 3
    assert f"loss = minus the mean of these 8 = {signed(STEP['loss'], 3)}" in seen[6]
    assert [words[:6] for words in said] == [f"{stage} of 7" for stage in range(1, 8)]
    assert "25 tokens" in said[2] and "leaves out 7" in said[2] and "2 of 4 and 1 of 4" in said[3]
    ratios = [r for row, mask in zip(STEP["ratio"], STEP["mask"], strict=True)
              for r, real in zip(row, mask, strict=True) if real]
    assert numbers(said[5])[:2] == [round(min(ratios), 2), round(max(ratios), 2)]
    assert f"acts on {sum(map(sum, STEP['clipped']))} of 25" in said[6]
    assert signed(STEP["loss"], 3) in said[6]


def test_training_says_where_the_run_began_and_ended():
    picture = plots.training(HISTORY, GRPOConfig())
    assert numbers(picture.words) == [0.25, 0.5, 0.5, 0.625, 0.125, 0.75]
    drawn = lines(picture.axes[0])
    assert list(drawn["accuracy, sampled"].get_ydata()) == HISTORY["acc_sampled"]
    assert "clip_eps 0.2" in picture.get_supxlabel()
    nothing = {key: [] for key in HISTORY} | {"eval_iter": [0], "acc_sampled": [0.3],
                                              "acc_greedy": [0.4]}
    assert "0 iterations" in plots.training(nothing, GRPOConfig()).words


@pytest.mark.parametrize("name", list(PICTURES))
def test_a_picture_has_its_size_its_words_and_its_alt_text(name):
    picture = PICTURES[name]()
    assert isinstance(picture, matplotlib.figure.Figure)
    assert pixels(picture.png()).shape == (
        SHARPNESS * picture.height, SHARPNESS * picture.width, 3)
    assert picture.words.endswith(".") and picture.alt.endswith(".")
    page = picture._repr_html_()
    assert f'alt="{picture.alt}"' in page and f"<p>{html.escape(picture.words)}</p>" in page
    assert f'width="{picture.width}" height="{picture.height}"' in page
    assert picture.words in repr(picture)


@pytest.mark.parametrize("name", list(PICTURES))
def test_laying_the_moving_parts_over_the_rest_gives_the_whole_figure(name):
    picture = PICTURES[name]()
    whole = io.BytesIO()
    picture.savefig(whole, format="png")
    difference = np.abs(pixels(picture.png()) - pixels(whole.getvalue())).max(2)
    assert (difference > 40).mean() < 0.002


@pytest.mark.parametrize(("name", "settings"), [
    ("clip", [{"clip_eps": 0.05, "rho": 0.1}, {"clip_eps": 0.9, "rho": 1.9}]),
    ("advantages", [{"right": 1, "G": 16}, {"right": 0, "G": 2}]),
    ("estimators", [{"drift": 0.0}, {"drift": 2.0}]),
    ("step", [{"stage": 1}, {"stage": 7}]),
])
def test_moving_keeps_the_axes_and_comes_back_to_the_same_picture(name, settings):
    picture = PICTURES[name]()
    seen = []
    for setting in [*settings, settings[0]]:
        picture.move(**setting)
        seen.append((picture.png(), picture.words,
                     [(*axes.get_xlim(), *axes.get_ylim(), *axes.get_position().bounds)
                      for axes in picture.axes]))
    assert seen[0] == seen[2] and seen[0][:2] != seen[1][:2] and seen[0][2] == seen[1][2]


def test_a_pinned_curve_stays_until_it_is_unpinned():
    picture = plots.clip(clip_eps=0.1, rho=1.0)
    picture.move(clip_eps=0.4, rho=1.0)
    bare = picture.png()
    picture.move(clip_eps=0.1, rho=1.0)
    picture.pin()
    picture.move(clip_eps=0.4, rho=1.0)
    assert picture.png() != bare and shown(picture).count("clip_eps 0.10") == 2
    assert lines(picture.axes[0])["objective"].get_xdata()[1] == pytest.approx(1.4)
    picture.unpin()
    assert picture.png() == bare and picture.pinnable and not plots.advantages().pinnable


def test_a_notebook_s_own_style_neither_shows_nor_is_changed():
    plain = plots.clip().png()
    with matplotlib.style.context("dark_background"):
        before = dict(matplotlib.rcParams)
        assert plots.clip().png() == plain
        assert dict(matplotlib.rcParams) == before


def test_alt_text_and_words_are_escaped():
    picture = Picture(100, 100, 'a "b" <c>').start(lambda: "1 < 2 & 3")
    page = picture._repr_html_()
    assert 'alt="a &quot;b&quot; &lt;c&gt;"' in page and "<p>1 &lt; 2 &amp; 3</p>" in page


@pytest.mark.parametrize(("number", "digits", "text"), [
    (1.234, 2, "+1.23"), (-0.5, 2, "−0.50"), (0.0, 2, "0.00"), (-0.001, 2, "0.00"),
    (1, 0, "+1"), (-1, 0, "−1"), (0, 0, "0"), (10, 0, "+10"),
])
def test_signed(number, digits, text):
    assert signed(number, digits) == text


@pytest.mark.parametrize(("draw", "said"), [
    (lambda: plots.clip(clip_eps=1.5), "clip_eps is 1.5; expected a number from 0.01 to 0.9"),
    (lambda: plots.clip(rho=3), "rho is 3; expected"),
    (lambda: plots.clip(rho="high"), "rho is 'high'; expected"),
    (lambda: plots.advantages(right=9, G=8), "right is 9; expected a whole number from 0 to G = 8"),
    (lambda: plots.advantages(right=1, G=17), "G is 17; expected a whole number from 2 to 16"),
    (lambda: plots.estimators(ESTIMATORS, 0.123), "drift is 0.123; expected one of the recorded"),
    (lambda: batches.step(STEP, stage=8), "stage is 8; expected a whole number from 1 to 7"),
    (lambda: batches.step(STEP, stage=2.0), "stage is 2.0; expected"),
    (lambda: batches.answers(PROMPTS, RIGHT, RESPONSES, G=0), "G is 0; expected"),
    (lambda: batches.answers(PROMPTS, RIGHT, RESPONSES, G=8), "has 4 answers; expected G = 8"),
    (lambda: plots.recorded("steps"), "'steps' is not recorded; expected estimators or step"),
])
def test_settings_that_cannot_be_drawn_are_named(draw, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        draw()


@pytest.mark.parametrize(("content", "error"), [
    (None, FileNotFoundError), ("", ValueError), ("{", ValueError), ("[]", ValueError),
    ('{"step": 1}', ValueError), (b"\xff\xfe", ValueError),
])
def test_a_missing_or_damaged_record_is_said_with_what_to_do(content, error, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    file = tmp_path / "data" / "pictures.json"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    monkeypatch.setattr(plots.resources, "files", lambda package: tmp_path)
    with pytest.raises(error, match="pictures.json is (missing|damaged).*install tinylm again"):
        plots.recorded("estimators")


def test_save_writes_the_moving_parts_too_and_the_same_bytes_again(tmp_path):
    first = [path.read_bytes() for path in plots.save(plots.clip(), tmp_path / "clip")]
    again = [path.read_bytes() for path in plots.save(plots.clip(), tmp_path / "again")]
    assert first == again and [path.name for path in sorted(tmp_path.iterdir())] == [
        "again.png", "again.svg", "clip.png", "clip.svg"]
    assert b"#d55e00" in first[0].lower()            # the active branch, which moves
