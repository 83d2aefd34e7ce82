"""The course from the command line: `python -m tinylm VERB`.

start, reset and progress look after the learner's folder, lab opens JupyterLab in it, submit packs
it to be handed in, train runs the whole of GRPO with a lab file. What goes wrong is said in one
sentence, with exit status 2; an error inside the learner's own code keeps its traceback, for there
it helps.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from tinylm import handin, labfile
from tinylm.files import replacing
from tinylm.training import GRPOConfig, TrainingError
from tinylm.training import train as train_grpo


def main(argv=None):
    """Run one verb. Returns the exit status."""
    args = parser().parse_args(argv)
    try:
        args.run(args)
    except (labfile.LabError, TrainingError, PermissionError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped.", file=sys.stderr)
        return 130
    return 0


def parser():
    """The verbs and their options."""
    top = argparse.ArgumentParser(prog="python -m tinylm", description="Learn GRPO in five "
                                  "functions, on a language model that adds two numbers.")
    verbs = top.add_subparsers(metavar="VERB", required=True)

    def verb(run, text, folder=True):
        made = verbs.add_parser(run.__name__, help=text, description=text)
        made.set_defaults(run=run)
        if folder:
            made.add_argument("--folder", help="your folder (default: work, or the current folder "
                                               "if it is yours)")
        return made

    verb(start, "fill your folder with the notebooks, lab.py and test_lab.py; "
                "nothing that is there is replaced")
    verb(lab, "the same, then open JupyterLab there")
    verb(progress, "say which of the five functions are kept in lab.py and what is left")
    made = verb(reset, "bring one pristine file back; yours stays beside it, with date and time")
    made.add_argument("which", help="a notebook such as 02, or lab for lab.py")
    verb(submit, "check your work, and pack the five notebooks and lab.py into a zip to hand in")
    made = verb(train, "train TinyLM by GRPO with a lab file", folder=False)
    yours = labfile.learner_folder()
    made.add_argument("--lab", default=yours / "lab.py", metavar="FILE",
                      help="the file with the five functions (default: %(default)s)")
    made.add_argument("--out", default=yours / "training", metavar="DIR",
                      help="where history.json and training.svg/.png go (default: %(default)s)")
    made.add_argument("--iters", type=_at_least_one, default=GRPOConfig.iters, metavar="N",
                      help="iterations (default: %(default)s)")
    made.add_argument("--seed", type=int, default=GRPOConfig.seed, metavar="N",
                      help="seed of the run (default: %(default)s)")
    return top


def _at_least_one(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number, 1 or more")
    return int(text)


def start(args):
    labfile.start(args.folder)


def lab(args):
    from tinylm.jupyter import open_lab

    open_lab(labfile.start(args.folder))


def progress(args):
    labfile.progress(args.folder)


def reset(args):
    labfile.reset(args.which, args.folder)


def submit(args):
    handin.submit(args.folder)


def train(args):
    step = labfile.step_in(args.lab)
    cfg = GRPOConfig(iters=args.iters, seed=args.seed)
    out = Path(args.out)
    with replacing(out / "history.json") as temporary:       # says now whether it can be written
        history, problem = _trained(step, cfg, args.lab)
        if not history["reward"]:
            raise problem or labfile.LabError("stopped before the first iteration; there is "
                                              "nothing to write.")
        temporary.write_text(json.dumps({"config": asdict(cfg), "history": history}) + "\n")
    from tinylm import plots

    paths = [out / "history.json", *plots.save(plots.training(history, cfg), out / "training")]
    print("wrote " + ", ".join(map(str, paths)))
    if problem:
        raise problem


def _trained(step, cfg, path):
    """(history, None), or the history so far and the TrainingError that ended it."""
    try:
        return train_grpo(step, cfg, progress=True, verbose=True)[1], None
    except TrainingError as error:
        return error.history, error
    except NotImplementedError as error:
        if not str(error).startswith("Task "):               # torch raises it as well
            raise
        raise labfile.LabError(labfile.what_went_wrong(error, path)) from None


if __name__ == "__main__":
    sys.exit(main())
