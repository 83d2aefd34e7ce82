"""How many threads torch uses in training: one, because the tensors are so small.

Two threads save a little on two idle cores (`python -m bench.step --threads 2`), and cost several
times as much where a browser or another notebook wants a core, for they wait for each other after
every small product. With one, a run also repeats bit for bit however many cores there are.
"""

from contextlib import contextmanager

import torch


@contextmanager
def one_thread():
    """Let torch compute with one thread; afterwards it has as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
