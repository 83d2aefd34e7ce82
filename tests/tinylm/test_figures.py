"""The still pictures, as data: what is drawn is worked out again from the record, another way."""

import json
import re
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import nbformat
import numpy as np
import pytest
from PIL import Image

from autograde import bundle, sources
from tinylm import figures, findings, plots
from tinylm.runs import load_runs

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "figures"
SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NOTEBOOKS = [*sources.notebooks(), *sources.reading(),
             *sorted((ROOT / "notebooks").glob("*.ipynb"))]
DEFAULT = {"G": 8, "beta": 0.04, "clip_eps": 0.2, "inner_steps": 2}


@pytest.fixture(scope="module")
def record():
    """The arrays of the shipped file, read without tinylm."""
    with np.load(ROOT / "tinylm/data/runs.npz") as saved:
        return {name: saved[name] for name in saved if name != "about"}


@pytest.fixture(scope="module")
def pictures():
    loaded = load_runs()
    return {name: picture(loaded) for name, picture in figures.PICTURES.items()}


def at(record, **changes):
    """Which runs are those of the default setting, or of one that differs from it."""
    setting = DEFAULT | changes
    return np.flatnonzero(np.all([record[name] == value for name, value in setting.items()], 0))


def last(record, name, rows):
    """The mean of the last fifty iterations, for each of some runs."""
    return record[name].astype(float)[rows, 250:].sum(1) / 50


def lines(axes):
    return {line.get_label(): line for line in axes.lines if line.get_visible()}


def tens(values):
    return values.astype(float).reshape(*values.shape[:-1], 30, 10).mean(-1)


# ------------------------------------------------------------ what is drawn

def test_training_is_the_default_setting_of_the_record_over_its_seeds(record, pictures):
    answers, kl, entropy = pictures["training"].axes
    rows = at(record)
    for axes, label, name in [(answers, "reward of the samples", "reward"), (kl, "KL", "kl"),
                              (answers, "accuracy, sampled", "acc_sampled"),
                              (answers, "accuracy, greedy", "acc_greedy"),
                              (entropy, "entropy", "entropy")]:
        line, seeds = lines(axes)[label], record[name][rows].astype(float)
        x = record["eval_iter"] if name.startswith("acc") else range(1, 301)
        np.testing.assert_array_equal(line.get_xdata(), x)
        np.testing.assert_allclose(line.get_ydata(), seeds.mean(0), rtol=1e-6)
        corners = {tuple(np.round(point, 6)) for area in axes.collections
                   for point in area.get_paths()[0].vertices}
        for edge in (seeds.min(0), seeds.max(0)):
            assert set(zip(np.round(x, 6), np.round(edge, 6), strict=True)) <= corners
    assert "3 seeds" in pictures["training"].get_supxlabel()


def test_the_explorer_s_still_shows_the_default_and_one_pin(record, pictures):
    for axes, name in zip(pictures["explorer"].axes, ("reward", "kl"), strict=False):
        drawn = lines(axes)
        np.testing.assert_allclose(drawn["mean"].get_ydata(),
                                   tens(record[name][at(record)]).mean(0), rtol=1e-6)
        (pin,) = [label for label in drawn if label.startswith("G 8")]
        assert pin == "G 8, beta 0.64, clip_eps 0.2, inner steps 2"
        np.testing.assert_allclose(drawn[pin].get_ydata(),
                                   tens(record[name][at(record, beta=0.64)]).mean(0), rtol=1e-6)
    assert "reward 0.695" in pictures["explorer"].words


def test_the_frontier_has_a_mark_for_each_run(record, pictures):
    (axes,) = pictures["frontier"].axes
    for beta in (0, 0.04, 0.16, 0.64):
        rows = np.flatnonzero(record["beta"] == beta)
        dots = np.column_stack(lines(axes)[f"beta {beta:g}"].get_data())
        expected = np.column_stack([last(record, name, rows) for name in ("kl", "reward")])
        np.testing.assert_allclose(np.sort(dots, 0), np.sort(expected, 0), rtol=1e-6)
        (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
        assert ((dots >= (left, low)) & (dots <= (right, high))).all()
    assert sum(len(line.get_xdata()) for label, line in lines(axes).items()
               if label.startswith("beta")) == 432
    np.testing.assert_allclose(sorted(lines(axes)["here"].get_ydata()),
                               sorted(last(record, "reward", at(record))), rtol=1e-6)


def test_rewards_and_signal_are_means_over_seeds(record, pictures):
    (table,), (signal,) = pictures["rewards"].axes, pictures["signal"].axes
    levels = {(x, y): last(record, "reward", at(record, G=G, beta=beta)).mean()
              for x, G in enumerate((2, 4, 8, 16)) for y, beta in enumerate((0, 0.04, 0.16, 0.64))}
    assert {text.get_position(): text.get_text() for text in table.texts} == {
        place: f"{level:.2f}" for place, level in levels.items()}
    shown = table.images[0].get_array()
    assert all(shown[y, x] == pytest.approx(level) for (x, y), level in levels.items())
    drawn = lines(signal)
    for label, part in [("last 50 iterations", slice(250, 300)), ("first 10 iterations",
                                                                  slice(0, 10))]:
        expected = [record["frac_zero_signal"][at(record, G=G)][:, part].mean()
                    for G in (2, 4, 8, 16)]
        np.testing.assert_allclose(drawn[label].get_ydata(), expected, rtol=1e-5)


def test_clip_and_estimators_are_drawn_from_closed_form_and_record(pictures):
    right, wrong = (lines(axes)["objective"].get_data() for axes in pictures["clip"].axes)
    np.testing.assert_allclose(right, [[0, 1.2, 2], [0, 1.2, 1.2]])
    np.testing.assert_allclose(wrong, [[0, 0.8, 2], [-0.8, -0.8, -2]])
    table = json.loads((ROOT / "tinylm/data/pictures.json").read_text())["estimators"]
    i = table["drift"].index(1.0)
    drawn = lines(pictures["estimators"].axes[1])
    for name in ("k1", "k2", "k3"):
        assert list(drawn[f"{name} estimates"].get_xdata()) == table["estimates"][name][i]


@pytest.mark.parametrize("quantity", ["kl", "reward", "frac_zero_signal"])
def test_the_digest_follows_the_data(quantity, pictures):
    loaded = load_runs()
    loaded.values[quantity][at(loaded.table)[0], 299] += 0.01
    changed = {name for name, picture in figures.PICTURES.items()
               if plots.digest(picture(loaded)) != plots.digest(pictures[name])}
    assert changed == {"kl": {"training", "explorer", "frontier"},
                       "reward": {"training", "explorer", "frontier", "rewards"},
                       "frac_zero_signal": {"signal"}}[quantity]


# ------------------------------------------------------------ the files

def inside(path):
    """(Description, Identifier, what made it) as a picture file says them."""
    if path.suffix == ".png":
        said = Image.open(path).text
        return said["Description"], said["Identifier"], said["Software"]
    names = {"dc": "http://purl.org/dc/elements/1.1/"}
    tree = ElementTree.parse(path)
    return (*(tree.find(f".//dc:{name}", names).text for name in ("description", "identifier")),
            tree.find(".//dc:creator//dc:title", names).text)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory, pictures):
    """All pictures, drawn by the command."""
    folder = tmp_path_factory.mktemp("figures")
    assert figures.main(["--out", str(folder)]) == 0
    return folder


@pytest.mark.parametrize("name", [f"{name}.{kind}" for name in figures.PICTURES
                                  for kind in ("svg", "png")])
def test_the_committed_picture_is_what_the_command_draws(name, fresh, pictures):
    """With the matplotlib that drew it byte for byte; with another one, the same data."""
    committed, new = FIGURES / name, fresh / name
    description, identifier, maker = inside(committed)
    assert identifier == plots.digest(pictures[committed.stem]), "run `make figures`"
    assert description == f"{pictures[committed.stem].alt} {pictures[committed.stem].words}"
    if maker == inside(new)[2]:
        assert committed.read_bytes() == new.read_bytes(), "run `make figures`"
    assert matplotlib.__version__ in inside(new)[2]
    assert committed.stat().st_size < 300_000
    assert f"{committed.stem}{committed.suffix}" in {path.name for path in fresh.iterdir()}


def test_pictures_bring_their_own_light_background():
    for name in figures.PICTURES:
        image = Image.open(FIGURES / f"{name}.png").convert("RGBA")
        assert {image.getpixel((x, y)) for x in (0, image.width - 1)
                for y in (0, image.height - 1)} == {(255, 255, 255, 255)}
        ground = (FIGURES / f"{name}.svg").read_text().partition('<g id="patch_1">')[2]
        assert "fill: #ffffff" in ground.partition("</g>")[0]


def shown_pictures():
    """(page, alt text, path) of every picture that a page or a notebook shows from a file."""
    for page in PAGES:
        yield from ((page, *found) for found in SHOWN.findall(page.read_text(encoding="utf-8")))
    for page in NOTEBOOKS:
        for cell in nbformat.read(page, as_version=4).cells:
            if cell.cell_type == "markdown":
                yield from ((page, *found) for found in SHOWN.findall(cell.source))


def test_every_picture_that_is_shown_is_there_and_has_words():
    found = list(shown_pictures())
    assert {"README.md", "06-train-and-explore.ipynb"} <= {page.name for page, _, _ in found}
    for page, words, target in found:
        assert (page.parent / target).resolve().is_file(), (page, target)
        assert len(words) > 20, (page, target)


def test_every_file_in_figures_is_drawn_by_the_command():
    drawn = {f"{name}.{kind}" for name in figures.PICTURES for kind in ("svg", "png")}
    assert {path.name for path in FIGURES.iterdir()} == drawn


def test_a_learner_s_bundle_holds_what_its_pages_show(tmp_path):
    with zipfile.ZipFile(bundle.bundle(tmp_path / "course.zip")) as archive:
        inside = set(archive.namelist())
    for page, _, target in shown_pictures():
        if page.parent.name == "notebooks":
            assert f"{bundle.NAME}/figures/{Path(target).name}" in inside, target


def test_a_record_that_is_missing_is_said_in_a_sentence(tmp_path, capsys):
    assert figures.main(["--record", str(tmp_path / "none.npz"), "--out", str(tmp_path)]) == 2
    assert "there is no record of runs at" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------ what the runs say

def test_the_notebook_says_what_the_command_prints(capsys):
    assert findings.main() == 0
    printed = capsys.readouterr().out.strip()
    assert printed.count("\n") == 2
    for folder in (sources.SOURCE.parent / "reading", ROOT / "notebooks"):
        notebook = sources.read(folder / "06-train-and-explore.ipynb")
        assert printed in sources.cell(notebook, "runs-say").source


def triple(record, name, **changes):
    return last(record, name, at(record, **changes))


def apart(one, other):
    return one.max() < other.min() or other.max() < one.min()


def test_what_is_said_of_the_group_is_so(record):
    said = findings.about_group_size(load_runs())
    reward = {G: triple(record, "reward", G=G) for G in (2, 4, 8, 16)}
    zero = {G: triple(record, "frac_zero_signal", G=G) for G in (2, 4, 8, 16)}
    assert [len(seeds) for seeds in reward.values()] == [3] * 4
    assert written(reward) in said and written(zero) in said
    assert all(reward[a].max() < reward[b].min() for a, b in ((2, 4), (4, 8), (8, 16)))
    assert f"{written(reward)} (no two overlap)" in said
    assert 75 * 8 == 300 * 2 and "in 75 iterations G = 8 draws as many as G = 2 in 300" in said
    then = record["reward"][at(record), 50:100].mean(1)
    assert f"in iterations 51 to 100, its reward is {then.mean():.3f} (both overlap)" in said
    assert not apart(then, reward[2])


def test_what_is_said_of_beta_is_so(record):
    said = findings.about_beta(load_runs())
    kl, reward = ({beta: triple(record, name, beta=beta) for beta in (0, 0.04, 0.16, 0.64)}
                  for name in ("kl", "reward"))
    assert f"{written(kl)} (no two overlap)" in said
    assert all(kl[a].min() > kl[b].max() for a, b in ((0, 0.04), (0.04, 0.16), (0.16, 0.64)))
    assert (f"{written(reward)} (those of 0 and 0.04, of 0 and 0.16, of 0.04 and 0.16 overlap)"
            in said)
    assert all(reward[0.64].max() < reward[beta].min() for beta in (0, 0.04, 0.16))
    assert not any(apart(reward[a], reward[b]) for a, b in ((0, 0.04), (0.04, 0.16), (0, 0.16)))


def test_what_is_said_of_the_clip_is_so(record):
    said = findings.about_clip(load_runs())
    values = (0.05, 0.1, 0.2, 0.4)

    def seeds(name, inner_steps):
        return {clip: triple(record, name, clip_eps=clip, inner_steps=inner_steps)
                for clip in values}

    reward, kl, longer = seeds("reward", 2), seeds("kl", 4), seeds("reward", 4)
    assert f"{written(seeds('clip_frac', 2))} of the tokens" in said
    assert f"{written(reward)} (all overlap). At four" in said
    assert not any(apart(reward[a], reward[b]) for a in values for b in values)
    assert f"{written(kl)} (those of 0.05 and 0.1 overlap)" in said
    pairs = [(a, b) for a in values for b in values if a < b]
    assert [pair for pair in pairs if not kl[pair[0]].max() < kl[pair[1]].min()] == [(0.05, 0.1)]
    assert f"{written(longer)} (all overlap but those of 0.1 and 0.4)" in said
    assert [pair for pair in pairs if apart(longer[pair[0]], longer[pair[1]])] == [(0.1, 0.4)]
    assert longer[0.4].mean() == min(seeds.mean() for seeds in longer.values())


def written(groups):
    *most, end = (f"{seeds.mean():.3f}" for seeds in groups.values())
    return f"{', '.join(most)} and {end}"
