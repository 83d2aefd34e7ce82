"""The recorded runs: one file with every curve of a grid, and its reader.

Nothing is thinned and nothing rounded: every number of every iteration stands in the file as the
float32 that the step computed. It is a plain .npz, read without pickle, with a page of JSON inside
that says how the runs were made. `tinylm.sweep` makes the file; nothing is drawn or trained here.

    runs = load_runs()
    curve = runs.curve(G=8, beta=0.04, clip_eps=0.2, inner_steps=2)
    curve["reward"]             # (seeds, iterations)
"""

import io
import json
import zipfile
from dataclasses import dataclass
from datetime import date
from importlib import resources
from pathlib import Path

import numpy as np

from tinylm.files import replacing
from tinylm.training import STATS

FILE_NAME = "runs.npz"
VERSION = 1
GRID = {
    "G": (2, 4, 8, 16),
    "beta": (0.0, 0.04, 0.16, 0.64),
    "clip_eps": (0.05, 0.1, 0.2, 0.4),
    "inner_steps": (1, 2, 4),
}
AXES = tuple(GRID)
ACCURACIES = ("acc_sampled", "acc_greedy")
HOW = "it comes with the repository, and `make runs` there records it anew"


class RecordError(Exception):
    """A file that is no record of runs; the message is a sentence that says how to get one."""


@dataclass(frozen=True)
class Runs:
    """A record in memory.

    Attributes:
        about: what the file says of itself: recipe of the start, versions, threads, date and so on.
        grid: for each of G, beta, clip_eps and inner_steps the values that were run, in order.
        settings: the rest of the GRPOConfig, which all runs share, as a dict.
        table: G, beta, clip_eps, inner_steps and seed of each run, arrays of N.
        values: for each quantity an array of N runs: (N, iters) for the six of `training.STATS`,
            (N, evaluations) for acc_sampled and acc_greedy.
        eval_iter: (evaluations,) the iterations at which the accuracies were measured.
    """

    about: dict
    grid: dict
    settings: dict
    table: dict
    values: dict
    eval_iter: np.ndarray

    def curve(self, G, beta, clip_eps, inner_steps):
        """All quantities at one setting: a dict as `values`, with a row for each of its `seeds`.

        With one inner step the ratio is 1 and the clip cannot act: one run serves every clip_eps.
        Raises ValueError for a setting outside the grid, or one that has no run.
        """
        rows = self._rows(G, beta, clip_eps, inner_steps)
        return {name: values[rows] for name, values in self.values.items()}

    def seeds(self, G, beta, clip_eps, inner_steps):
        """The seeds that were run at one setting, in order."""
        return self.table["seed"][self._rows(G, beta, clip_eps, inner_steps)].tolist()

    def _rows(self, *point):
        point = dict(zip(AXES, point, strict=True))
        for name, value in point.items():
            if value not in self.grid[name]:
                recorded = ", ".join(f"{x:g}" for x in self.grid[name])
                raise ValueError(f"{name} is {value!r}; runs are recorded at {recorded}.")
        if point["inner_steps"] == 1:
            del point["clip_eps"]
        here = np.all([self.table[name] == value for name, value in point.items()], axis=0)
        rows = np.flatnonzero(here)
        if not len(rows):
            said = ", ".join(f"{name} {value:g}" for name, value in point.items())
            raise ValueError(f"this record has no run at {said}; choose another setting.")
        return rows[np.argsort(self.table["seed"][rows])]


def load_runs(path=None):
    """Read a record; without a path the one that tinylm ships.

    Raises RecordError if it is missing, broken, or of another version.
    """
    file = resources.files("tinylm") / "data" / FILE_NAME if path is None else Path(path)
    try:
        # NumPy reads an .npz only from something that can seek, and a resource need not.
        with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as saved:
            arrays = dict(saved)
        about = json.loads(str(arrays["about"]))
        if about["version"] != VERSION:
            raise RecordError(f"{file} is a record of version {about['version']}, and this tinylm "
                              f"reads version {VERSION}; {HOW}.")
        return Runs(about=about,
                    grid={name: tuple(values) for name, values in about["grid"].items()},
                    settings=about["settings"],
                    table={name: arrays[name] for name in (*AXES, "seed")},
                    values={name: arrays[name] for name in (*STATS, *ACCURACIES)},
                    eval_iter=arrays["eval_iter"])
    except FileNotFoundError:
        raise RecordError(f"there is no record of runs at {file}; {HOW}.") from None
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        raise RecordError(f"{file} is not a record of runs; {HOW}.") from None


def write_runs(path, results, grid, recipe):
    """Pack finished runs into one file.

    Args:
        path: the file, replaced in one step.
        results: what `tinylm.sweep.run` returned for each, all with the same settings but for the
            four axes and the seed.
        grid: as in `Runs`.
        recipe: how the start was taught, as plain data.
    """
    configs = [result["config"] for result in results]
    shared = {name: value for name, value in configs[0].items() if name not in (*AXES, "seed")}
    about = {
        "version": VERSION,
        "what": "GRPO on TinyLM: one run for each setting and seed, by python -m tinylm.sweep",
        "date": date.today().isoformat(),
        "settings": shared,
        "grid": grid,
        "recipe": recipe,
        "origin": results[0]["origin"],
        "threads": 1,
        "machines": _distinct(result["machine"] for result in results),
        "seconds": round(sum(result["seconds"] for result in results)),
    }
    arrays = {name: np.array([config[name] for config in configs]) for name in (*AXES, "seed")}
    for name in (*STATS, *ACCURACIES):
        arrays[name] = np.array([result["history"][name] for result in results], dtype=np.float32)
    arrays["eval_iter"] = np.array(results[0]["history"]["eval_iter"])
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)


def _distinct(items):
    """Each different item once, in the order of their first appearance."""
    return list({json.dumps(item, sort_keys=True): item for item in items}.values())
