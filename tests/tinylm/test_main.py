"""`python -m tinylm VERB`: what it prints, what it leaves, and its exit status."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tinylm import labfile
from tinylm.__main__ import main

ROOT = Path(__file__).resolve().parents[2]

# A step that is quick and writes down that it ran; {extra} goes wrong on the way.
STEP = """\
import os, signal
import torch

calls = 0

def grpo_step(policy, ref, opt, prompts, answers, cfg):
    global calls
    calls += 1
    open("ran", "w").close()
    numbers = dict(loss=0.0, kl=0.1, clip_frac=0.0, frac_zero_signal=0.0, entropy=1.0)
    {extra}
    return dict(numbers, reward=float(calls))
"""


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A folder as after a clone; the tests stand in it. Measuring the policy takes no time."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks/01-sample-group.ipynb").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "lab", raising=False)
    monkeypatch.setattr("tinylm.training.accuracy", lambda policy, n, greedy: 0.5)
    yield tmp_path
    sys.modules.pop("lab", None)


def step_file(folder, extra="pass"):
    path = folder / "mine.py"
    path.write_text(STEP.replace("{extra}", extra))
    return str(path)


def command(folder, *arguments):
    """Run `python ARGUMENTS` in the folder."""
    return subprocess.run([sys.executable, *arguments], cwd=folder, text=True, capture_output=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=120)


def refusal(capsys, *arguments):
    """The one sentence that a refused command leaves on stderr, below any progress bar."""
    assert main(list(arguments)) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert all("iter/s" in line for line in lines[:-1])
    return lines[-1]


def test_a_first_day(course):
    done = command(course, "-m", "tinylm", "start")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search("copied +work/01-sample-group.ipynb", done.stdout)
    done = command(course / "work", "-m", "pytest", "-q", "-k", "task1", "-p", "no:cacheprovider")
    assert done.returncode == 1
    assert "sample_group is still the stub" in done.stdout
    assert "5 failed, 23 deselected" in done.stdout
    lab = course / "work/lab.py"
    lab.write_text((ROOT / "autograde/reference/lab.py").read_text())
    done = command(course / "work", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "28 passed" in done.stdout
    assert main(["reset", "lab"]) == 0
    assert "NotImplementedError" in lab.read_text()
    done = command(course, "-m", "tinylm", "reset", "77")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "77 is no notebook of the course" in done.stderr


def test_progress(course, capsys):
    assert main(["start", "--folder", "mine"]) == 0
    assert main(["progress", "--folder", "mine"]) == 0
    assert "0 of 5 kept in mine/lab.py" in capsys.readouterr().out
    assert "there is no work/lab.py" in refusal(capsys, "progress")


def test_lab_starts_and_opens_the_folder(course, monkeypatch):
    opened = []
    monkeypatch.setattr("tinylm.jupyter.open_lab", opened.append)
    assert main(["lab"]) == 0
    assert opened == [Path("work")]
    assert (course / "work/lab.py").exists()


@pytest.mark.parametrize("arguments, words", [
    ([], "arguments are required: VERB"),
    (["fly"], "invalid choice: 'fly'"),
    (["reset"], "arguments are required: which"),
    (["train", "--iters", "0"], "--iters: 0 is not a whole number, 1 or more"),
    (["train", "--iters", "1.5"], "--iters: 1.5 is not a whole number"),
    (["train", "--seed", "x"], "--seed"),
])
def test_arguments_that_mean_nothing(course, capsys, arguments, words):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert words in capsys.readouterr().err


# ------------------------------------------------------------ train

def test_train_writes_history_and_figure(course, capsys):
    assert main(["train", "--lab", step_file(course), "--out", "out/here", "--iters", "3",
                 "--seed", "5"]) == 0
    saved = json.loads((course / "out/here/history.json").read_text())
    assert saved["history"]["reward"] == [1.0, 2.0, 3.0]
    assert saved["history"]["eval_iter"] == [0, 3]
    assert (saved["config"]["iters"], saved["config"]["seed"]) == (3, 5)
    assert (course / "out/here/training.svg").read_text().lstrip().startswith("<?xml")
    assert (course / "out/here/training.png").read_bytes().startswith(b"\x89PNG")
    said = capsys.readouterr()
    assert "iter    3 reward 3.00" in said.out and "wrote out/here/history.json" in said.out
    assert "3/3" in said.err                                      # the progress bar


def test_train_takes_the_learners_file(course, monkeypatch):
    labfile.start()
    os.replace(step_file(course), course / "work/lab.py")
    monkeypatch.chdir(course / "work")                            # a terminal in JupyterLab
    assert main(["train", "--iters", "2"]) == 0
    saved = json.loads((course / "work/training/history.json").read_text())
    assert saved["history"]["reward"] == [1.0, 2.0]


def test_train_with_a_stub_leaves_the_last_run_alone(course, capsys):
    labfile.start()
    (course / "work/training").mkdir()
    (course / "work/training/history.json").write_text("old")
    sentence = refusal(capsys, "train")
    assert sentence == "Task 5: grpo_step is still a stub in work/lab.py; write it, then train."
    assert [path.name for path in (course / "work/training").iterdir()] == ["history.json"]
    assert (course / "work/training/history.json").read_text() == "old"


@pytest.mark.parametrize("make, words", [
    (lambda path: None, "there is no mine.py"),
    (lambda path: path.write_text("def grpo_step(:"), r"mine.py does not parse \(line 1\)"),
    (lambda path: path.write_text("x = y"), "mine.py stops while it is read: NameError"),
    (lambda path: path.write_text("x = 1"), "mine.py defines no grpo_step"),
])
def test_train_with_a_file_that_is_no_lab(course, capsys, make, words):
    make(course / "mine.py")
    assert re.search(words, refusal(capsys, "train", "--lab", "mine.py"))


def test_train_says_that_it_cannot_write_before_it_runs(course, capsys):
    (course / "file").write_text("")
    sentence = refusal(capsys, "train", "--lab", step_file(course), "--out", "file/out")
    assert "file/out/history.json cannot be written" in sentence
    assert not (course / "ran").exists()


def test_train_that_goes_wrong_keeps_the_history_so_far(course, capsys):
    lab = step_file(course, "if calls == 3: return dict(numbers, reward=float('nan'))")
    sentence = refusal(capsys, "train", "--lab", lab, "--out", "out")
    assert sentence.startswith("iteration 3: grpo_step returned reward = nan")
    saved = json.loads((course / "out/history.json").read_text())
    assert saved["history"]["reward"] == [1.0, 2.0]
    assert (course / "out/training.svg").exists()


def test_train_that_goes_wrong_at_once_writes_nothing(course, capsys):
    sentence = refusal(capsys, "train", "--lab", step_file(course, "return {}"), "--out", "out")
    assert sentence.startswith("iteration 1: grpo_step returned no 'reward'")
    assert list((course / "out").iterdir()) == []


def test_train_that_is_interrupted_keeps_the_history_so_far(course):
    lab = step_file(course, "if calls == 3: os.kill(os.getpid(), signal.SIGINT)")
    done = command(course, "-m", "tinylm", "train", "--lab", lab, "--out", "out")
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    saved = json.loads((course / "out/history.json").read_text())
    assert saved["history"]["reward"] == [1.0, 2.0]


def test_interrupted_before_the_training(course, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(labfile, "load_lab", interrupted)
    assert main(["train"]) == 130
    assert capsys.readouterr().err == "stopped.\n"


def test_an_error_of_the_learners_own_keeps_its_traceback(course):
    with pytest.raises(ZeroDivisionError):
        main(["train", "--lab", step_file(course, "1 / 0"), "--out", "out"])
    with pytest.raises(NotImplementedError, match="on this device"):
        main(["train", "--lab", step_file(course, "raise NotImplementedError('on this device')"),
              "--out", "out"])
