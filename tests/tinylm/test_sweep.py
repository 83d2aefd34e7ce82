"""Many runs side by side: each as if it were alone, none lost, all read back."""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from tinylm import GRPOConfig, labfile, sweep
from tinylm.runs import RecordError, load_runs
from tinylm.sft import RECIPE
from tinylm.training import STATS, train

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "autograde/reference/lab.py"
LONG = 180                   # seconds that anything here may take on a busy machine

# A step that trains nothing and writes down that it was called; {body} stands at its beginning.
STEP = """\
import os, time

def grpo_step(policy, ref, opt, prompts, answers, cfg):
    print("this goes nowhere")
    {body}
    with open("steps", "a") as steps:
        steps.write(f"G{cfg.G} seed{cfg.seed}\\n")
    return dict(reward=cfg.G + cfg.beta, loss=float(cfg.seed), kl=0.1, clip_frac=cfg.clip_eps,
                frac_zero_signal=0.0, entropy=1.0)
"""
FOUR = ["--grid", "G=2,4", "beta=0", "clip_eps=.1", "inner_steps=2", "--seeds", "0,1",
        "--iters", "1"]


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Write lab.py with a step of its own into an empty folder, where the tests stand."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tinylm.training.accuracy", lambda policy, n, greedy: 0.5)

    def write(body="pass"):
        (tmp_path / "lab.py").write_text(STEP.replace("{body}", body))

    yield write
    sys.modules.pop("lab", None)


def steps():
    """The steps that were made so far, a line each."""
    return Path("steps").read_text().splitlines() if Path("steps").exists() else []


def refusal(capsys, *arguments):
    """The sentence with which a command is refused."""
    assert sweep.main(list(arguments)) == 2
    (sentence,) = capsys.readouterr().err.rpartition("\r")[2].strip().splitlines()[-1:]
    return sentence


def until(true):
    """Wait for something to become true."""
    deadline = time.monotonic() + LONG
    while not (value := true()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return value


# ------------------------------------------------------------ the runs

def test_the_grid_of_the_course_and_the_seed_s_defaults_otherwise():
    configs = sweep.configs_of(sweep.GRID, sweep.SEEDS, 300)
    assert len(configs) == 4 * 4 * (1 + 4 + 4) * 3
    assert len({json.dumps(asdict(cfg)) for cfg in configs}) == len(configs)
    ours = {"G", "beta", "clip_eps", "inner_steps", "seed", "eval_every"}
    for cfg in configs:
        assert all(value == getattr(GRPOConfig(), name)
                   for name, value in asdict(cfg).items() if name not in ours)


def test_side_by_side_each_run_is_what_it_is_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert sweep.main(["--lab", str(REFERENCE), "--out", "made/runs.npz", "--jobs", "2",
                       "--seeds", "1,0", "--grid", "G=2,4", "beta=.04", "clip_eps=.1,.2",
                       "inner_steps=1,2", "--iters", "3"]) == 0
    said = capsys.readouterr()
    assert "wrote made/runs.npz: 12 of 12 runs" in said.out and "12/12" in said.err
    runs = load_runs("made/runs.npz")
    assert len(runs.table["G"]) == len(os.listdir("made/runs")) == 12

    step = labfile.load_lab(REFERENCE).grpo_step
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    for point in [(4, 0.04, 0.2, 2), (2, 0.04, 0.2, 1)]:
        assert runs.seeds(*point) == [0, 1]
        settings = dict(zip(("G", "beta", "clip_eps", "inner_steps"), point, strict=True))
        for row, seed in enumerate(runs.seeds(*point)):
            history = train(step, GRPOConfig(iters=3, seed=seed, **settings), verbose=False)[1]
            for name, values in runs.curve(*point).items():
                assert np.array_equal(values[row], np.float32(history[name])), name
    torch.set_num_threads(before)
    assert runs.eval_iter.tolist() == [0, 3]


def test_two_threads_of_one_process_do_not_mix_their_runs():
    """As in a Dask worker that was started with more than one."""
    configs = [GRPOConfig(iters=3, prompts_per_iter=4, eval_n=20, seed=seed) for seed in (0, 1)]
    expected = sweep.origin(REFERENCE)
    alone = [sweep.run(REFERENCE, cfg, expected)["history"] for cfg in configs]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda cfg: sweep.run(REFERENCE, cfg, expected), configs))
    assert [result["history"] for result in together] == alone


def test_a_run_that_comes_from_another_lab_than_the_command_meant_fails(lab):
    lab()
    result = sweep.run("lab.py", GRPOConfig(iters=1, eval_n=1), sweep.origin(REFERENCE))
    assert "not the same in all processes" in result["failed"] and steps() == []


def test_with_one_inner_step_one_run_serves_all_clip_eps(lab):
    lab()
    assert sweep.main([*FOUR, "--grid", "G=2", "beta=0", "clip_eps=.1,.2", "inner_steps=1,2",
                       "--jobs", "1"]) == 0
    assert len(steps()) == 2 * (1 + 2)
    runs = load_runs("runs.npz")
    one, other = (runs.curve(2, 0, clip_eps, 1) for clip_eps in (0.1, 0.2))
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert runs.curve(2, 0, 0.2, 2)["clip_frac"][0, 0] == np.float32(0.2)


# ------------------------------------------------------------ stops, errors, going on

def test_a_stopped_sweep_goes_on_where_it_was(lab, capsys):
    lab("if os.path.exists('stop') and cfg.G == 4: raise KeyboardInterrupt")
    Path("stop").touch()
    assert sweep.main([*FOUR, "--jobs", "1"]) == 130
    assert capsys.readouterr().err.endswith(
        "stopped; what is finished is saved: the same command goes on from there.\n")
    done = steps()
    assert len(done) == len(os.listdir("runs")) < 4 and not Path("runs.npz").exists()

    Path("stop").unlink()
    assert sweep.main([*FOUR, "--jobs", "1"]) == 0
    assert sorted(steps()) == ["G2 seed0", "G2 seed1", "G4 seed0", "G4 seed1"]
    assert len(load_runs("runs.npz").table["G"]) == 4
    assert sweep.main([*FOUR, "--jobs", "1"]) == 0 and len(steps()) == 4


def test_only_what_is_the_same_run_counts_as_done(lab):
    lab()
    sweep.main([*FOUR, "--jobs", "1"])
    broken, *_ = Path("runs").iterdir()
    broken.write_text("{")
    sweep.main([*FOUR, "--jobs", "1"])
    assert len(steps()) == 5
    sweep.main([*FOUR[:-1], "2", "--jobs", "1"])
    assert len(steps()) == 5 + 8
    lab("time.sleep(0)")
    sweep.main([*FOUR, "--jobs", "1"])
    assert len(steps()) == 13 + 4


@pytest.mark.skipif(os.name != "posix", reason="sends ^C to a group of processes")
def test_interrupted_from_the_keyboard_it_says_one_sentence(lab):
    lab("if os.listdir('runs'): time.sleep(1000)")
    process = subprocess.Popen(
        [sys.executable, "-m", "tinylm.sweep", *FOUR, "--jobs", "2"], stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, text=True, start_new_session=True)
    try:
        until(lambda: Path("runs").exists() and any(Path("runs").glob("*.json")))
        os.killpg(process.pid, signal.SIGINT)
        _, complaints = process.communicate(timeout=LONG)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130
    assert "Traceback" not in complaints and "Warning" not in complaints
    assert complaints.endswith("the same command goes on from there.\n")


def test_a_run_that_fails_is_reported_and_the_rest_go_on(lab, capsys):
    lab("if cfg.G == 4: raise ValueError('many')")
    assert sweep.main([*FOUR, "--jobs", "1"]) == 1
    said = capsys.readouterr()
    assert "wrote runs.npz: 2 of 4 runs" in said.out
    (line,) = [line for line in said.err.splitlines() if line.startswith("failed")]
    assert line.startswith("failed at G 4, beta 0, clip_eps 0.1, inner_steps 2, seed ")
    assert line.endswith(" and 1 more: lab.py, line 5, in grpo_step: "
                         "`if cfg.G == 4: raise ValueError('many')` raised ValueError: many")
    runs = load_runs("runs.npz")
    assert runs.curve(2, 0, 0.1, 2)["reward"].shape == (2, 1)
    with pytest.raises(ValueError, match="no run at G 4, beta 0, clip_eps 0.1, inner_steps 2"):
        runs.curve(4, 0, 0.1, 2)


@pytest.mark.parametrize(("body", "said"), [
    ("raise NotImplementedError('Task 3: k3_kl')", "Task 3: k3_kl is still a stub in lab.py"),
    ("return {'reward': 1.0}", "iteration 1: grpo_step returned no 'loss'"),
    ("exit()", "`exit()` raised SystemExit"),
])
def test_where_no_run_succeeds_nothing_is_written(lab, capsys, body, said):
    lab(body)
    assert sweep.main([*FOUR, "--jobs", "1"]) == 2
    complaints = capsys.readouterr().err
    assert said in complaints and "none of the 4 runs is finished" in complaints
    assert not Path("runs.npz").exists()


@pytest.mark.parametrize(("body", "said"), [
    ("os.kill(os.getpid(), 9)", "a worker process died"),
    ("time.sleep(1000)", "for a long time no run has finished"),
])
def test_lost_workers_end_the_sweep_with_a_sentence(lab, capsys, monkeypatch, body, said):
    lab(f"if cfg.G == 4: {body}")
    monkeypatch.setattr(sweep, "PATIENCE", 3)
    sentence = refusal(capsys, *FOUR, "--jobs", "2")
    assert sentence.startswith(said) and "what is finished is saved" in sentence


def test_pack_writes_what_is_finished_and_trains_nothing(lab, capsys):
    lab()
    assert refusal(capsys, *FOUR, "--pack").startswith("none of the 4 runs is finished")
    sweep.main([*FOUR, "--seeds", "1", "--jobs", "1"])
    assert sweep.main([*FOUR, "--pack"]) == 0
    assert "wrote runs.npz: 2 of 4 runs" in capsys.readouterr().out
    assert load_runs("runs.npz").seeds(2, 0, 0.1, 2) == [1] and len(steps()) == 2


# ------------------------------------------------------------ bad input

@pytest.mark.parametrize(("arguments", "said"), [
    (["--lab", "mine.py"], "there is no mine.py"),
    (["--out", "runs"], "--out is runs; expected the name of a file that ends in .npz."),
    (["--out", "lab.py/x/runs.npz"], "lab.py/x/runs cannot be made"),
    (["--iters", "0"], "iters is 0; expected a whole number, 1 or more."),
    (["--grid", "G=0"], "G is 0; expected a whole number, 1 or more."),
    (["--dask", "tcp://127.0.0.1:1"], "--dask needs dask.distributed, which is not installed"),
])
def test_what_cannot_be_done_is_said_in_a_sentence(lab, capsys, monkeypatch, arguments, said):
    lab()
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert said in refusal(capsys, *FOUR, *arguments)
    assert steps() == []


@pytest.mark.parametrize(("arguments", "said"), [
    (["--grid", "lr=1"], "lr=1 is no part of a grid; expected one of G, beta, clip_eps, inner_"),
    (["--grid", "G=two"], "G=two is no part of a grid"),
    (["--grid", "G=2.5"], "G=2.5 is no part of a grid"),
    (["--seeds", "one"], "one is no list of seeds"),
    (["--jobs", "0"], "0 is not a whole number, 1 or more"),
    (["--jobs", "2", "--dask", "tcp://127.0.0.1:1"], "not allowed with"),
])
def test_arguments_that_make_no_sense_are_named(lab, capsys, arguments, said):
    with pytest.raises(SystemExit) as end:
        sweep.main(arguments)
    assert end.value.code == 2 and said in capsys.readouterr().err


# ------------------------------------------------------------ the record

@pytest.fixture
def small_record(lab):
    lab()
    assert sweep.main([*FOUR, "--jobs", "1"]) == 0
    return Path("runs.npz")


def test_the_record_says_what_it_is_and_how_it_was_made(small_record):
    runs = load_runs(small_record)
    assert runs.grid == {"G": (2, 4), "beta": (0.0,), "clip_eps": (0.1,), "inner_steps": (2,)}
    assert set(runs.settings) | {"seed", *runs.grid} == set(asdict(GRPOConfig()))
    assert (runs.settings["iters"], runs.settings["lr"]) == (1, GRPOConfig().lr)
    about = runs.about
    assert about["recipe"] == asdict(RECIPE) and about["threads"] == 1
    assert about["machines"][0]["torch"] == torch.__version__
    assert about["origin"] == sweep.origin("lab.py")
    assert about["date"] == time.strftime("%Y-%m-%d")
    assert all(runs.values[name].shape == (4, 1) for name in STATS)
    assert runs.values["acc_sampled"].shape == (4, len(runs.eval_iter)) == (4, 2)
    with pytest.raises(ValueError, match="G is 3; runs are recorded at 2, 4"):
        runs.curve(3, 0, 0.1, 2)


def test_a_file_that_is_no_record_of_this_version_says_how_to_get_one(small_record, tmp_path):
    path = tmp_path / "other.npz"
    with pytest.raises(RecordError, match="there is no record of runs at .*`make runs`"):
        load_runs(path)
    with np.load(small_record) as saved:
        arrays = dict(saved)
    about = json.loads(str(arrays["about"]))
    newer = arrays | {"about": np.array(json.dumps(about | {"version": 7}))}
    pickled = arrays | {"G": np.array([{}, []], dtype=object)}
    less = {name: values for name, values in arrays.items() if name != "kl"}
    for content, said in [(newer, "a record of version 7, and this tinylm reads version 1"),
                          (pickled, "not a record of runs"), (less, "not a record of runs"),
                          ({"x": np.zeros(1)}, "not a record of runs")]:
        np.savez(path, **content)
        with pytest.raises(RecordError, match=f"{said}.*`make runs`"):
            load_runs(path)
    for content in (b"", b"text", small_record.read_bytes()[:-100]):
        path.write_bytes(content)
        with pytest.raises(RecordError, match="not a record of runs"):
            load_runs(path)


@pytest.mark.parametrize("point", [(2, 0.0, 0.2, 1), (8, 0.04, 0.2, 2), (16, 0.64, 0.05, 4)])
def test_the_shipped_record_starts_as_a_new_run_does(point, tmp_path, monkeypatch):
    """Three iterations: later ones may part, where another processor rounds another way."""
    monkeypatch.chdir(tmp_path)
    runs = load_runs()
    G, beta, clip_eps, inner_steps = point
    cfg = GRPOConfig(**runs.settings | {"iters": 3}, G=G, beta=beta, clip_eps=clip_eps,
                     inner_steps=inner_steps, seed=runs.seeds(*point)[0])
    _, history = train(labfile.load_lab(REFERENCE).grpo_step, cfg, verbose=False)
    curve = runs.curve(*point)
    for name in STATS:
        assert history[name] == pytest.approx(curve[name][0, :3], rel=1e-2, abs=1e-3), name
    assert history["acc_sampled"][0] == pytest.approx(curve["acc_sampled"][0, 0], abs=0.01)


def test_the_shipped_record_is_whole_and_of_today_s_start():
    runs = load_runs()
    assert runs.grid == {name: tuple(values) for name, values in sweep.GRID.items()}
    assert runs.about["origin"]["start"] == sweep.origin(REFERENCE)["start"]
    assert runs.about["recipe"] == asdict(RECIPE)
    assert all(np.isfinite(values).all() for values in runs.values.values())
    for G in runs.grid["G"]:
        for beta in runs.grid["beta"]:
            for clip_eps in runs.grid["clip_eps"]:
                for inner_steps in runs.grid["inner_steps"]:
                    assert runs.seeds(G, beta, clip_eps, inner_steps)


# ------------------------------------------------------------ a cluster

def need_dask():
    """Skip without dask.distributed, an optional extra; under CI=true that is an error."""
    if os.environ.get("CI") == "true":
        importlib.import_module("distributed")
    else:
        pytest.importorskip("distributed", reason="the extra `dask` is not installed")


@pytest.fixture
def cluster(tmp_path):
    """Start a Dask scheduler and workers here, a process each: (address, workers)."""
    need_dask()
    started = []

    def start(module, *arguments):
        started.append(subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{module}", *arguments, "--no-dashboard"],
            cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        return started[-1]

    card = tmp_path / "scheduler.json"
    try:
        start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(card))
        address = json.loads(until(lambda: card.exists() and card.read_text()))["address"]
        yield address, [start("dask_worker", address, "--nthreads", "1", "--no-nanny")
                        for _ in range(2)]
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_on_a_cluster_a_worker_that_dies_in_mid_run_costs_nothing(lab, cluster):
    """The first run to begin waits to be killed with its worker; it is made again on the other."""
    lab("""try:
        with open("victim", "x") as victim:
            victim.write(str(os.getpid()))
            victim.flush()
            time.sleep(1000)
    except FileExistsError:
        pass""")
    address, workers = cluster
    command = subprocess.Popen([sys.executable, "-m", "tinylm.sweep", *FOUR, "--dask", address],
                               env=os.environ | {"PYTHONPATH": str(ROOT)},
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        pid = int(until(lambda: Path("victim").exists() and Path("victim").read_text()))
        until(lambda: len(steps()) >= 1)                  # the other worker is at work as well
        (victim,) = [worker for worker in workers if worker.pid == pid]
        victim.kill()
        said, complaints = command.communicate(timeout=LONG)
    finally:
        command.kill()
    assert command.returncode == 0, complaints
    assert "4 of 4 runs" in said
    assert sorted(steps()) == ["G2 seed0", "G2 seed1", "G4 seed0", "G4 seed1"]
    runs = load_runs("runs.npz")
    assert len(os.listdir("runs")) == len(runs.table["G"]) == 4
    assert runs.curve(4, 0, 0.1, 2)["loss"].tolist() == [[0.0], [1.0]]


def test_a_cluster_that_does_not_answer_is_named(lab, capsys):
    need_dask()
    lab()
    sentence = refusal(capsys, *FOUR, "--dask", "tcp://127.0.0.1:1")
    assert sentence.startswith("no Dask scheduler answers at tcp://127.0.0.1:1")
