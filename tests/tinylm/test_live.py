"""A run in the background: the same curve, open to view, and gone when it should be."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from tinylm import GRPOConfig, live
from tinylm.addition import END, PAD, decode, reward
from tinylm.labfile import load_lab
from tinylm.live import LiveRun

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "autograde/reference/lab.py"
LONG = 120                   # seconds that anything here may take on a busy machine

# A step that trains nothing; {body} stands at its beginning.
STEP = """\
import os, time
calls = 0

def grpo_step(policy, ref, opt, prompts, answers, cfg):
    global calls
    calls += 1
    print("this goes nowhere")
    {body}
    return dict(reward=float(calls), loss=0.0, kl=0.1, clip_frac=0.0, frac_zero_signal=0.0,
                entropy=1.0)
"""


def short(**changes):
    return GRPOConfig(**{"iters": 4, "prompts_per_iter": 5, "G": 4, "eval_every": 2, "eval_n": 20,
                         **changes})


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Write a lab file with a step of its own into an empty folder; returns its path."""
    monkeypatch.chdir(tmp_path)

    def write(body="pass"):
        (tmp_path / "lab.py").write_text(STEP.replace("{body}", body))
        return "lab.py"

    return write


@contextmanager
def running(*args, **kwargs):
    """A LiveRun that is not left behind by a failed test."""
    run = LiveRun(*args, **kwargs)
    try:
        yield run
    finally:
        run.stop()
        assert run.wait(LONG)


def until(true):
    """Wait for something to become true."""
    deadline = time.monotonic() + LONG
    while not (value := true()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return value


@contextmanager
def threads(number):
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.fixture(scope="module")
def finished():
    """A run of the reference that is over, and its lab."""
    with running(short(inner_steps=3), lab=REFERENCE) as run:
        assert run.wait(LONG) and run.state == "finished", run.message
        yield run, load_lab(REFERENCE)


# ------------------------------------------------------------ the curve

def test_the_curve_is_that_of_train_grpo_bit_for_bit_whatever_the_notebook_does():
    cfg = short()
    with running(cfg, lab=REFERENCE) as run:
        while not run.wait(0):
            torch.manual_seed(0)
            torch.rand(50, 50) @ torch.rand(50, 50)
    assert run.history == load_lab(REFERENCE).train_grpo(cfg, verbose=False)[1]


def test_it_computes_with_as_many_threads_as_the_notebook():
    """Two threads add up in another order than one: the last digits tell."""
    cfg = short(iters=1, prompts_per_iter=16, G=8)
    with threads(2), running(cfg, lab=REFERENCE) as run:
        assert run.wait(LONG)
        assert run.history == load_lab(REFERENCE).train_grpo(cfg, verbose=False)[1]


def test_it_can_be_followed_while_it_runs(lab):
    body = "while not os.path.exists(f'go{calls}'): time.sleep(0.01)"
    with running(short(), lab=lab(body)) as run:
        for done in range(4):
            until(lambda done=done: run.iteration == done and run.state == "running")
            assert run.history["reward"] == [1.0, 2.0, 3.0, 4.0][:done]
            assert run.history["eval_iter"] == [0, 2][:1 + done // 2]
            assert not run.wait(0)
            Path(f"go{done + 1}").touch()
        assert run.wait(LONG)
    assert (run.state, run.message) == ("finished", None)
    assert run.history["eval_iter"] == [0, 2, 4] and run.iteration == 4


def test_a_snapshot_is_a_copy(finished):
    run, _ = finished
    run.history["reward"].clear()
    assert len(run.history["reward"]) == run.iteration == 4


# ------------------------------------------------------------ the batches

def test_a_batch_shows_what_was_sampled(finished):
    run, _ = finished
    assert run.batches == [1, 2, 3, 4]
    for it in run.batches:
        batch = run.batch(it)
        assert batch.iteration == it and len(batch.prompts) == 5 and len(batch.responses) == 20
        right = [batch.answers[i // 4] for i in range(20)]
        assert batch.answers == [str(eval(prompt.rstrip("="))) for prompt in batch.prompts]
        assert batch.rewards.tolist() == list(map(reward, batch.responses, right))
        assert batch.rewards.mean() == pytest.approx(run.history["reward"][it - 1])
        tokens = batch.ids[:, batch.prompt_len:]
        assert [decode(row.tolist()) for row in tokens] == batch.responses
        asked = batch.ids[:, :batch.prompt_len].tolist()
        assert [decode(row) for row in asked[::4]] == batch.prompts
        assert np.array_equal(batch.mask == 1, tokens != PAD)
        assert (tokens == END).any() and len({tuple(row) for row in batch.mask.tolist()}) > 1
        assert np.sign(batch.advantages).reshape(5, 4) == pytest.approx(
            np.sign(batch.rewards.reshape(5, 4) - batch.rewards.reshape(5, 4).mean(1)[:, None]))


def test_tokens_add_up_to_answers_and_answers_to_the_plotted_loss(finished):
    run, reference = finished
    for it in run.batches:
        batch = run.batch(it)
        ratio = np.exp(batch.logp - batch.old_logp)
        assert (np.abs(ratio - 1) * batch.mask).max() > 1e-3         # the last of three inner steps
        adv, d = batch.advantages[:, None], batch.ref_logp - batch.logp
        term = np.minimum(ratio * adv, ratio.clip(1 - batch.clip_eps, 1 + batch.clip_eps) * adv)
        tokens = -(term - batch.beta * (np.exp(d) - d - 1)) * batch.mask
        for losses in (tokens, batch.token_losses(reference.grpo_loss)):
            answers = (losses * batch.mask).sum(1) / batch.mask.sum(1)
            assert answers.mean() == pytest.approx(batch.loss, abs=1e-6)
        assert batch.token_losses(reference.grpo_loss) == pytest.approx(tokens, abs=1e-5)
        assert batch.loss == run.history["loss"][it - 1]


def test_batches_are_seen_through_another_name_and_the_oldest_make_room(tmp_path, monkeypatch):
    text = REFERENCE.read_text()
    text, found = re.subn(r"= grpo_loss\(.*\)", "= objective(mask=out['mask'], adv=adv, logp=logp, "
                          "ref_logp=ref_logp, old_logp=old_logp)", text)
    assert found == 2                                # in the docstring as well
    (tmp_path / "other.py").write_text(text + "\n\nobjective = grpo_loss\n")
    monkeypatch.setattr(live, "KEPT", 2)
    with running(short(), lab=tmp_path / "other.py") as run:
        assert run.wait(LONG) and run.state == "finished", run.message
    assert run.batches == [3, 4] and run.batch(4).clip_eps == 0.2
    with pytest.raises(LookupError, match="no batch of iteration 1; kept are those of 3 to 4"):
        run.batch(1)


def test_a_step_that_calls_neither_function_has_no_batches(lab):
    with running(short(), lab=lab()) as run:
        assert run.wait(LONG) and run.state == "finished"
    with pytest.raises(LookupError, match="does not call sample_group and grpo_loss"):
        run.batch(1)


# ------------------------------------------------------------ what goes wrong

@pytest.mark.parametrize(("body", "said"), [
    ("x = [1, 2][calls + 1]", r"^lab\.py, line 8, in grpo_step: `x = \[1, 2\]\[calls \+ 1\]` "
                              r"raised IndexError: list index out of range$"),
    ("raise NotImplementedError('Task 3: k3_kl')", r"^Task 3: k3_kl is still a stub in lab\.py"),
    ("exit(input())", r"line 8, in grpo_step: `exit\(input\(\)\)` raised EOFError"),
    ("os.kill(os.getpid(), 9)", r"^the process of the run ended with status -9; most often there"),
    ("x ==== 1", r"^lab\.py does not parse \(line 8\)"),
])
def test_an_error_in_the_learner_s_own_file_becomes_a_message_with_its_line(lab, body, said):
    lab(body)
    with running(short()) as run:
        assert run.wait(LONG)
        assert run.state == "failed" and re.search(said, run.message), run.message


def test_what_came_before_an_error_is_kept(lab):
    with running(short(), lab=lab("if calls == 3: return dict(reward=0)")) as run:
        assert run.wait(LONG)
    assert run.message.startswith("iteration 3: ")
    assert run.history["reward"] == [1.0, 2.0] and run.history["eval_iter"] == [0, 2]


def test_a_missing_file_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with running(short(), lab="mine.py") as run:
        assert run.wait(LONG)
    assert run.state == "failed" and run.message.startswith("there is no mine.py")


def test_settings_that_make_no_sense_are_refused_at_once(lab):
    with pytest.raises(ValueError, match="G is 0"):
        LiveRun(short(G=0), lab=lab())


# ------------------------------------------------------------ the end of it

def alive(pid):
    """Whether a process runs; one that has ended and waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


PID = "open('pid.new', 'w').write(str(os.getpid())); os.rename('pid.new', 'pid')"
FOREVER = f"if calls == 2: {PID}\n    while calls == 2: pass"


def pid_of_the_run():
    return int(until(lambda: Path("pid").exists() and Path("pid").read_text()))


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
def test_stop_ends_a_step_that_never_returns_and_may_be_pressed_twice(lab):
    with running(short(), lab=lab(FOREVER)) as run:
        pid = pid_of_the_run()
        run.stop()
        run.stop()
        assert run.wait(LONG) and not alive(pid)
        run.stop()
    assert (run.state, run.message) == ("stopped", None)
    assert run.history["reward"] == [1.0]


def test_stop_at_the_very_beginning(lab):
    with running(short(), lab=lab()) as run:
        run.stop()
        assert run.wait(LONG)
    assert run.state == "stopped" and run.history == {} and run.iteration == 0


def test_a_run_that_is_over_cannot_be_stopped_any_more(finished):
    run, _ = finished
    run.stop()
    assert run.state == "finished"


NOTEBOOK = """\
import os, signal, sys, time
from tinylm import GRPOConfig
from tinylm.live import LiveRun
run = LiveRun(GRPOConfig(iters=4, eval_n=1), lab="lab.py")
{then}
"""


def notebook(then):
    """A process that starts a run and then does something else, in a group of its own."""
    return subprocess.Popen([sys.executable, "-c", NOTEBOOK.replace("{then}", then)],
                            env=os.environ | {"PYTHONPATH": str(ROOT)}, start_new_session=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("killed", [True, False])
def test_the_run_ends_with_the_notebook(lab, killed):
    lab(FOREVER)
    then = "time.sleep(1000)" if killed else "while not os.path.exists('pid'): time.sleep(0.01)"
    process = notebook(then)
    try:
        pid = pid_of_the_run()
        if killed:
            process.kill()
        _, complaints = process.communicate(timeout=LONG)
        assert process.returncode == (-signal.SIGKILL if killed else 0), complaints
        until(lambda: not alive(pid))
    finally:
        process.kill()


@pytest.mark.skipif(os.name != "posix", reason="sends a signal to a group of processes")
def test_interrupting_the_notebook_leaves_the_run_alone(lab):
    lab("while not os.path.exists('go'): time.sleep(0.01)")
    process = notebook("""
signal.signal(signal.SIGINT, lambda *_: open('go', 'w'))
os.killpg(0, signal.SIGINT)              # while the run's process is starting
while run.state == "starting": time.sleep(0.01)
os.killpg(0, signal.SIGINT)
run.wait()
print(run.state, run.iteration)
""")
    try:
        said, complaints = process.communicate(timeout=LONG)
    finally:
        process.kill()
    assert said == "finished 4\n", complaints
