"""Nothing that a learner's function says while it is checked reaches the notebook.

nbgrader gives no points to a cell with a word on stderr, be it a warning or a progress bar.
"""

import contextlib
import logging
import os
import sys
import warnings


class _Lines:
    """A file that keeps nothing of what is written to it but the number of lines."""

    def __init__(self):
        self.lines = 0

    def write(self, text):
        self.lines += str(text).count("\n")
        return len(text)

    def flush(self):
        pass


@contextlib.contextmanager
def quiet():
    """Keep output, warnings and log records away; yields a file that counts the lines printed."""
    lines, before = _Lines(), logging.root.manager.disable
    logging.disable()
    try:
        with (contextlib.redirect_stdout(lines), contextlib.redirect_stderr(_Lines()),
              _deaf_to_libraries(), warnings.catch_warnings()):
            warnings.simplefilter("ignore")
            yield lines
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _deaf_to_libraries():
    """What goes to the stderr of the process itself, past Python's, goes nowhere."""
    try:
        before = os.dup(2)
    except OSError:                              # there is none
        yield
        return
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        if sys.__stderr__ is not None:
            sys.__stderr__.flush()
        os.dup2(before, 2)
        os.close(before)
