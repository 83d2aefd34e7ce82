"""Many training runs side by side, one thread each: the recorded runs that the sliders show.

    python -m tinylm.sweep --lab work/lab.py                  the whole grid, into work/runs.npz
    python -m tinylm.sweep --grid G=2,8 beta=0,.04 --seeds 0  a part of the grid, or another one
    python -m tinylm.sweep --dask tcp://10.0.0.1:8786         on the machines of a Dask cluster

Each finished run is written at once into a folder beside the result, so a stop loses nothing and
the same command goes on from there. At the end, or with --pack, the finished runs go into one file;
what stands in it and how it is read is the business of `tinylm.runs`.

On a Dask cluster each worker needs tinylm, and the lab file under the same path, as on a shared
disk. A process makes one run at a time, so give each worker one thread (--nthreads 1) and start as
many workers as there are cores.
"""

import argparse
import hashlib
import io
import itertools
import json
import multiprocessing
import platform
import sys
import threading
import time
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from pathlib import Path

import joblib
import torch
from joblib.externals.loky.process_executor import BrokenProcessPool
from tqdm.auto import tqdm

from tinylm import labfile
from tinylm.files import replacing
from tinylm.runs import AXES, GRID, write_runs
from tinylm.sft import RECIPE, load_or_train_sft
from tinylm.training import GRPOConfig, TrainingError, check_config, train

SEEDS = (0, 1, 2)
EVAL_EVERY = 25              # every 10 iterations, measuring would be a sixth of the work
PATIENCE = 900               # seconds without any finished run, before the wait is given up

_one_at_a_time = threading.Lock()        # torch's random state belongs to the whole process


class SweepError(Exception):
    """A sweep that cannot go on; the message is a sentence that says what to do."""


# ------------------------------------------------------------ one run

def run(lab, cfg, expected):
    """Train one policy with a lab file, on one thread.

    Args:
        lab: path of the file.
        cfg: a GRPOConfig.
        expected: the `origin` that the run is to have.

    Returns plain data: config, origin, history, seconds and machine; or, of a run that fails, only
    {"failed": a sentence}. Raises KeyboardInterrupt if the training is interrupted.
    """
    if multiprocessing.current_process().name != "MainProcess":
        tqdm.set_lock(threading.RLock())     # the default one would outlive a worker that is ended
    with _one_at_a_time:
        torch.set_num_threads(1)
        begun = time.perf_counter()
        try:
            step = labfile.step_in(lab)
            if origin(lab) != expected:
                raise SweepError("the lab file, or the policy that tinylm starts from, is not the "
                                 "same in all processes; keep them as they are during a sweep.")
            with redirect_stdout(io.StringIO()):
                history = train(step, cfg, verbose=False)[1]
        except (labfile.LabError, TrainingError, SweepError) as error:
            return {"failed": str(error)}
        except (Exception, SystemExit) as error:
            return {"failed": labfile.what_went_wrong(error, lab)}
    if len(history["reward"]) < cfg.iters:
        raise KeyboardInterrupt              # `train` took it for a wish to see the history so far
    return {"config": asdict(cfg), "origin": expected, "history": history,
            "seconds": time.perf_counter() - begun, "machine": machine()}


def origin(lab):
    """What a run comes from besides its settings: hashes of the lab file and of the start."""
    start = hashlib.sha256()
    for name, tensor in load_or_train_sft().state_dict().items():
        start.update(name.encode() + tensor.cpu().numpy().tobytes())
    return {"lab": hashlib.sha256(Path(lab).read_bytes()).hexdigest(), "start": start.hexdigest()}


def machine():
    """The versions and the kind of processor that a run's last digits depend on."""
    return {"python": platform.python_version(), "torch": torch.__version__,
            "system": platform.system(), "processor": platform.machine(),
            "vector instructions": torch.backends.cpu.get_cpu_capability()}


# ------------------------------------------------------------ all runs

def configs_of(grid, seeds, iters):
    """The GRPOConfig of every run of a grid, with one inner step only once for all clip_eps."""
    configs = []
    for G, beta, clip_eps, inner_steps, seed in itertools.product(
            *(grid[name] for name in AXES), seeds):
        if inner_steps > 1 or clip_eps == grid["clip_eps"][0]:
            configs.append(GRPOConfig(iters=iters, G=G, beta=beta, clip_eps=clip_eps, seed=seed,
                                      inner_steps=inner_steps, eval_every=EVAL_EVERY))
    return configs


def sweep(lab, folder, configs, jobs=None, dask=None):
    """Make those runs that are not in the folder yet.

    Args:
        lab: path of the lab file.
        folder: where finished runs are kept, a file each.
        configs: a list of GRPOConfig.
        jobs: processes at a time; None means one for each core.
        dask: address of a Dask scheduler, to work on its cluster instead.

    Returns (results, failures): all finished runs, old and new, in the order of the configs; and
    (config, sentence) for each that failed.
    Raises SweepError if the workers are lost, or cannot be had.
    """
    source = origin(lab)
    files = {_file_of(folder, cfg, source): cfg for cfg in configs}
    # Sorted by name, which is a hash: cheap and dear runs mix, and the time left is a fair guess.
    missing = sorted(file for file in files if _saved(file) is None)
    tasks = [joblib.delayed(_named)(file.name, lab, files[file], source) for file in missing]
    jobs, failures = -1 if dask else jobs or joblib.cpu_count(), []
    with _workers(dask), tqdm(total=len(files), initial=len(files) - len(missing), desc="runs",
                              unit="run", smoothing=0) as bar:
        parallel = joblib.Parallel(jobs, return_as="generator_unordered", batch_size=1,
                                   pre_dispatch="all" if dask else "2*n_jobs",
                                   timeout=None if jobs == 1 else PATIENCE + configs[0].iters)
        for name, result in _until_lost(parallel(tasks) if tasks else ()):
            if "failed" in result:
                failures.append((files[folder / name], result["failed"]))
            else:
                _save(folder / name, result)
            bar.update()
    return finished(lab, folder, configs), failures


def finished(lab, folder, configs):
    """The saved results of those configs that have one."""
    source = origin(lab)
    saved = [_saved(_file_of(folder, cfg, source)) for cfg in configs]
    return [result for result in saved if result is not None]


def _named(name, *task):
    return name, run(*task)


def _until_lost(results):
    """Hand on results as they come; what can go wrong between processes becomes a sentence."""
    try:
        yield from results
    except BrokenProcessPool:
        raise SweepError("a worker process died, most often for lack of memory; what is finished "
                         "is saved: start the same command again, with fewer --jobs.") from None
    except multiprocessing.TimeoutError:
        raise SweepError("for a long time no run has finished: one hangs, or its worker died over "
                         "and over; what is finished is saved: start the same command again to go "
                         "on.") from None


@contextmanager
def _workers(dask):
    """Where joblib finds its workers: processes here, or those of a Dask cluster."""
    if dask is None:
        yield
        return
    try:
        from distributed import Client
    except ImportError:
        raise SweepError("--dask needs dask.distributed, which is not installed; get it with "
                         "python -m pip install dask distributed.") from None
    try:
        client = Client(dask, timeout=10, set_as_default=False)
    except (OSError, ValueError) as error:
        raise SweepError(f"no Dask scheduler answers at {dask} ({error}); start one with `dask "
                         "scheduler` and give the address that it prints.") from None
    with client, joblib.parallel_config(backend="dask", client=client):
        yield


# ------------------------------------------------------------ the folder of finished runs

def _file_of(folder, cfg, source):
    """Where a run is kept: its name is a hash of all that decides its result."""
    identity = json.dumps([asdict(cfg), source], sort_keys=True)
    return Path(folder) / f"{hashlib.sha256(identity.encode()).hexdigest()[:24]}.json"


def _save(file, result):
    with replacing(file) as temporary:
        temporary.write_text(json.dumps(result) + "\n")


def _saved(file):
    """The result in a file, or None if it is missing or broken."""
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return None


# ------------------------------------------------------------ the command

def main(argv=None):
    """Run the command. Returns the exit status: 0, or 1 if a run failed, 2 for bad input."""
    args = parser().parse_args(argv)
    try:
        return record(args)
    except (labfile.LabError, SweepError, ValueError, PermissionError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; what is finished is saved: the same command goes on from there.",
              file=sys.stderr)
        return 130


def parser():
    made = argparse.ArgumentParser(prog="python -m tinylm.sweep",
                                   description="Train a grid of settings and record the curves.")
    made.add_argument("--lab", type=Path, metavar="FILE",
                      default=labfile.learner_folder() / "lab.py",
                      help="the file with the five functions (default: %(default)s)")
    made.add_argument("--out", type=Path, metavar="FILE",
                      help="the record, an .npz; finished runs are kept in a folder of that name "
                           "beside it (default: runs.npz beside the lab file)")
    made.add_argument("--grid", nargs="+", type=axis, default=[], metavar="NAME=A,B",
                      help="other values for G, beta, clip_eps or inner_steps")
    made.add_argument("--seeds", type=whole_numbers, default=SEEDS, metavar="A,B",
                      help="seeds at each setting (default: 0,1,2)")
    made.add_argument("--iters", type=int, default=GRPOConfig.iters, metavar="N",
                      help="iterations of a run (default: %(default)s)")
    made.add_argument("--pack", action="store_true",
                      help="write the record from what is finished, without training")
    where = made.add_mutually_exclusive_group()
    where.add_argument("--jobs", type=at_least_one, metavar="N",
                       help="processes at a time, one thread each (default: one for each core)")
    where.add_argument("--dask", metavar="ADDRESS", help="run on the Dask cluster at this address")
    return made


def axis(text):
    """("G", (2, 4)) from "G=2,4"."""
    name, _, values = text.partition("=")
    try:
        number = int if name in ("G", "inner_steps") else float
        if name in AXES:
            return name, _ascending(values, number)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text} is no part of a grid; expected one of "
                                     f"{', '.join(AXES)} with its values, as in G=2,4")


def whole_numbers(text):
    try:
        return _ascending(text, int)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no list of seeds, as 0,1,2 is") from None


def at_least_one(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number, 1 or more")
    return int(text)


def _ascending(text, number):
    return tuple(sorted({number(part) for part in text.split(",")}))


def record(args):
    """Make the missing runs, unless --pack, and write the record."""
    out = args.out or args.lab.parent / "runs.npz"
    if out.suffix != ".npz":
        raise SweepError(f"--out is {out}; expected the name of a file that ends in .npz.")
    folder, grid = out.with_suffix(""), GRID | dict(args.grid)
    configs = configs_of(grid, args.seeds, args.iters)
    for cfg in configs:
        check_config(cfg)
    labfile.step_in(args.lab)
    if args.pack:
        results, failures = finished(args.lab, folder, configs), []
    else:
        _make_folder(folder)
        results, failures = sweep(args.lab.absolute(), folder, configs, args.jobs, args.dask)
    _print_failures(failures)
    if not results:
        raise SweepError(f"none of the {len(configs)} runs is finished, so there is nothing to "
                         f"pack into {out}.")
    write_runs(out, results, grid, asdict(RECIPE))
    minutes = sum(result["seconds"] for result in results) / 60
    print(f"wrote {out}: {len(results)} of {len(configs)} runs, {minutes:.0f} minutes of one core, "
          f"{out.stat().st_size / 2**20:.1f} MB")
    return 1 if failures else 0


def _make_folder(folder):
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SweepError(f"{folder} cannot be made ({error.strerror}); choose another --out."
                         ) from None


def _print_failures(failures):
    """One line for each different sentence, with the settings that it befell."""
    for sentence in dict.fromkeys(sentence for _, sentence in failures):
        settings = [cfg for cfg, other in failures if other == sentence]
        first = ", ".join(f"{name} {getattr(settings[0], name):g}" for name in (*AXES, "seed"))
        more = f" and {len(settings) - 1} more" if len(settings) > 1 else ""
        print(f"failed at {first}{more}: {sentence}", file=sys.stderr)


if __name__ == "__main__":
    # Workers find `run` by the name of its module, which must not be __main__.
    from tinylm.sweep import main as imported_main

    sys.exit(imported_main())
