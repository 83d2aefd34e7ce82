"""The still pictures of the course, drawn from what was recorded: nothing is trained or sampled.

    python -m tinylm.figures

draws figures/ anew, an SVG and a PNG of each picture. The same record gives the same files, byte
for byte with the same matplotlib. What each picture looks like is said in `plots` and `curves`;
here stands which ones there are, and at which setting.
"""

import argparse
import sys
from pathlib import Path

from tinylm import curves, plots
from tinylm.runs import RecordError, load_runs
from tinylm.training import GRPOConfig

PINNED = {"beta": 0.64}      # what is changed in the curve that the explorer keeps for comparison


def training(record):
    """The default setting, all of its seeds in one picture."""
    setting = curves.default_setting()
    history = record.curve(**setting) | {"eval_iter": record.eval_iter}
    return plots.training(history, GRPOConfig(**record.settings, **setting))


def explorer(record):
    """The curves of the explorer as they stand there: the default setting, and another pinned."""
    setting = curves.default_setting()
    picture = curves.runs(record, **setting | PINNED)
    picture.pin()
    picture.move(**setting)
    return picture


PICTURES = {
    "training": training,
    "explorer": explorer,
    "rewards": lambda record: curves.rewards(record, **curves.default_setting()),
    "frontier": lambda record: curves.frontier(record, **curves.default_setting()),
    "signal": lambda record: curves.signal(record, **curves.default_setting()),
    "clip": lambda record: plots.clip(),
    "estimators": lambda record: plots.estimators(plots.recorded("estimators")),
}


def draw(folder, record):
    """Draw every picture of a `Runs` into a folder. Returns the paths, two for each picture."""
    return [path for name, picture in PICTURES.items()
            for path in plots.save(picture(record), Path(folder) / name)]


def main(argv=None):
    """Draw all pictures. Returns the exit status: 2, with a sentence, for one that cannot be."""
    parser = argparse.ArgumentParser(prog="python -m tinylm.figures",
                                     description="Draw the pictures of figures/ from the record.")
    parser.add_argument("--out", default="figures", metavar="DIR",
                        help="where the pictures go (default: %(default)s)")
    parser.add_argument("--record", metavar="FILE",
                        help="a record of runs (default: the one that tinylm ships)")
    args = parser.parse_args(argv)
    try:
        paths = draw(args.out, load_runs(args.record))
    except (RecordError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print("wrote " + ", ".join(map(str, paths)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
