"""The marker `needs`: skips with a sentence on a person's machine, fails under CI=true."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = (Path(__file__).parent / "conftest.py").read_text()


@pytest.fixture
def marked(pytester, monkeypatch):
    """A run of one test that needs bwrap and passes, with only one folder on the PATH."""
    programs = pytester.mkdir("programs")
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("CI", raising=False)
    pytester.makeconftest(CONFTEST)
    pytester.makeini("[pytest]\nmarkers = needs(program)\n")
    pytester.makepyfile('import pytest\n\n@pytest.mark.needs("bwrap")\ndef test_it(): pass\n')

    def run(bwrap=None):
        if bwrap:
            (programs / "bwrap").write_text(f"#!/bin/sh\n{bwrap}\n")
            (programs / "bwrap").chmod(0o755)
        return pytester.runpytest_inprocess("-rs")

    return run


def test_a_missing_program_skips_with_a_sentence(marked):
    result = marked()
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*bwrap is not installed, or does not run here*"])


def test_a_program_that_does_not_run_skips(marked):
    marked("exit 1").assert_outcomes(skipped=1)


def test_a_program_that_runs_lets_the_test_run(marked):
    marked("exit 0").assert_outcomes(passed=1)


def test_nothing_skips_under_ci(marked, monkeypatch):
    monkeypatch.setenv("CI", "true")
    result = marked()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*bwrap is not installed*Under CI=true no test may skip*"])
    assert result.ret != 0


def test_an_unknown_program_is_an_error(marked, pytester):
    pytester.makepyfile('import pytest\n\n@pytest.mark.needs("chrmoium")\ndef test_it(): pass\n')
    marked("exit 0").assert_outcomes(errors=1)
