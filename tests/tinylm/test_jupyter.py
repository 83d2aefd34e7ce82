"""open_lab, watched from outside: a real server, its URL, its port, its browser."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import closing, contextmanager

import pytest

from tinylm.jupyter import open_lab

START_SECONDS = 90

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere a screen is taken for granted"
)


@pytest.fixture
def work(tmp_path):
    """A learner's folder with two empty notebooks."""
    folder = tmp_path / "my work"
    folder.mkdir()
    empty = '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
    for name in ("01 second.ipynb", "00 first.ipynb"):
        (folder / name).write_text(empty)
    return folder


@contextmanager
def running_lab(folder, tmp_path, **environment):
    """JupyterLab in a process of its own with an empty home and no screen; yields its log."""
    log = tmp_path / "log"
    ours = ("JUPYTER", "DISPLAY", "WAYLAND")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    env |= {"HOME": str(tmp_path), **environment}
    program = f"from tinylm.jupyter import open_lab; open_lab({str(folder)!r})"
    with open(log, "w") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
        )
    try:
        yield log, process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def found(log, process, pattern):
    """The first match of pattern in the log, waiting for it while the process lives."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        match = log.exists() and re.search(pattern, log.read_text())
        if match:
            return match
        time.sleep(0.2)
    said = (log.parent / "log").read_text()
    raise AssertionError(f"nothing like {pattern} in {log.name}; the lab said:\n{said}")


@pytest.fixture
def taken_port():
    """8888, held by this test or by whoever has it already."""
    with closing(socket.socket()) as holder:
        try:
            holder.bind(("127.0.0.1", 8888))
            holder.listen()
        except OSError:
            pass
        yield 8888


@pytest.fixture
def browser(tmp_path):
    """A program that stands for a browser: it writes the address it is given into `opened`."""
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\necho "$1" > "{tmp_path}/opened"\n')
    program.chmod(0o755)
    return f"{program} %s"


def test_without_a_screen_the_url_is_printed_and_answers_on_the_next_free_port(
    work, tmp_path, browser, taken_port
):
    with running_lab(work, tmp_path, BROWSER=browser) as (log, process):
        url = found(log, process, r"http://localhost:(\d+)/lab/tree/(\S+)\?token=(\w+)")
        port, page, token = url.groups()
        assert int(port) != taken_port
        assert page == "00%20first.ipynb"
        listing = f"http://127.0.0.1:{port}/api/contents?token={token}"
        with urllib.request.urlopen(listing, timeout=30) as answer:
            names = answer.read().decode()
        assert "00 first.ipynb" in names and "01 second.ipynb" in names
        assert "no screen" in log.read_text()
        assert ("You are root" in log.read_text()) == (os.geteuid() == 0)
        assert process.poll() is None
    assert not (tmp_path / "opened").exists()


def test_with_a_screen_the_browser_opens(work, tmp_path, browser):
    with running_lab(work, tmp_path, DISPLAY=":0", BROWSER=browser) as (log, process):
        found(log, process, r"http://localhost:\d+/lab/tree/")
        found(tmp_path / "opened", process, "jpserver|localhost")
        assert "no screen" not in log.read_text()


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(NotADirectoryError, match="nowhere is not a folder.*python -m tinylm start"):
        open_lab(tmp_path / "nowhere")


def test_without_jupyterlab_a_sentence_says_how_to_install_it(work, monkeypatch):
    monkeypatch.setitem(sys.modules, "jupyterlab.labapp", None)
    with pytest.raises(SystemExit, match="JupyterLab is not installed.*make setup"):
        open_lab(work)
