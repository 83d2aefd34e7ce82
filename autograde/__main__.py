"""The instructor's commands: `python -m autograde VERB`.

    release     make notebooks/ from the sources
    bundle      zip what learners get
    execute     run the sources and write their outputs back
    nbval       run the sources and compare their outputs
    reference   make reference/lab.py from the sources
    points      put the table of points into docs/instructors.md
    record      record the check tables of tinylm
    pictures    record the numbers behind two pictures
    mistakes    run every known mistake: which check catches it, and under which name

What goes wrong is said in one sentence, with exit status 2.
"""

import argparse
import sys

from autograde.sources import SourceError


def main(argv=None):
    """Run one verb. Returns the exit status."""
    top = argparse.ArgumentParser(prog="python -m autograde", description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("verb", choices=VERBS, metavar="VERB")
    args = top.parse_args(argv)
    try:
        return VERBS[args.verb]() or 0
    except (SourceError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2


# Each verb imports what it needs: nbgrader and torch take their time.

def release():
    from autograde.release import release

    _say("released", release())


def bundle():
    from autograde.bundle import bundle

    _say("wrote", [bundle()])


def execute():
    from autograde.execute import execute

    _say("has new outputs:", execute())


def nbval():
    from autograde.execute import compare

    return compare()


def reference():
    from autograde.sources import write_reference

    _say("wrote", [write_reference()])


def points():
    from autograde.sources import write_points

    _say("wrote", [write_points()])


def record():
    from autograde.record import main

    main()


def pictures():
    from autograde.pictures import main

    _say("wrote", [main()])


def mistakes():
    from autograde.caught import main

    main()


def _say(what, paths):
    for path in paths:
        print(what, path)
    if not paths:
        print("nothing has changed.")


VERBS = {verb.__name__: verb for verb in
         (release, bundle, execute, nbval, reference, points, record, pictures, mistakes)}

if __name__ == "__main__":
    sys.exit(main())
