"""What the project says of itself, held against what it does: packages, commands, links, files."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from rattler import MatchSpec

from tinylm.labfile import TASKS

ROOT = Path(__file__).parents[1]
CONDA_NAMES = {"torch": "pytorch"}      # where conda-forge calls a package differently
MAX_BYTES = 4 * 2**20
UNIX = pytest.mark.skipif(os.name != "posix", reason="make and .ci/run are for Unix")


@cache
def project_files():
    """Every file that is in git or about to be, relative to the root."""
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )
    paths = [Path(name) for name in listed.stdout.split("\0") if name]
    return [path for path in paths if (ROOT / path).is_file()]


@cache
def pyproject():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def requirements(lines):
    """{canonical name: SpecifierSet}"""
    parsed = [Requirement(line) for line in lines]
    return {canonicalize_name(r.name): r.specifier for r in parsed}


def direct_dependencies():
    extras = pyproject()["optional-dependencies"].values()
    return requirements(pyproject()["dependencies"] + [line for extra in extras for line in extra])


def constraints():
    """The (name, version) pairs of constraints.txt, names canonical."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return [(canonicalize_name(name), version) for name, version in pins]


# ------------------------------------------------------------------------------ packages

def test_conda_installs_what_pyproject_asks_for():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    lines = [line for line in environment["dependencies"] if isinstance(line, str)]
    specs = [MatchSpec(line, strict=True) for line in lines]
    conda = {spec.name.normalized: SpecifierSet(spec.version or "") for spec in specs}
    assert len(conda) == len(lines), "a package stands twice in environment.yml"

    wanted = requirements(pyproject()["dependencies"])
    wanted = {CONDA_NAMES.get(name, name): ranges for name, ranges in wanted.items()}
    wanted |= {"python": SpecifierSet(pyproject()["requires-python"]), "pip": SpecifierSet()}
    assert conda == wanted


def test_pip_in_conda_installs_the_course_and_nothing_that_conda_installs():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    sections = [part["pip"] for part in environment["dependencies"] if isinstance(part, dict)]
    assert sections == [["-e ."]]


def test_constraints_cover_every_direct_dependency_within_its_range():
    pins = dict(constraints())
    assert len(pins) == len(constraints()), "a package stands twice in constraints.txt"
    for name, ranges in direct_dependencies().items():
        assert name in pins, f"{name} is not in constraints.txt"
        assert ranges.contains(pins[name]), f"{name} {pins[name]} is outside {ranges}"


def test_ranges_are_open_and_start_somewhere():
    for name, ranges in direct_dependencies().items():
        assert [part.operator for part in ranges] == [">="], f"{name} {ranges}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """{name: bytes} of the wheel, built from a copy so that no stale build folder gets in."""
    source = copy_of_the_project(tmp_path_factory.mktemp("source"))
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q",
         "-w", str(out), str(source)],
        check=True, timeout=120,
    )
    (path,) = out.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def copy_of_the_project(folder):
    for path in project_files():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, folder / path)
    return folder


def test_the_wheel_holds_both_packages_and_all_of_tinylm(wheel):
    tops = {name.split("/")[0] for name in wheel}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tinylm", "autograde"}
    ours = {path.as_posix() for path in project_files() if path.parts[0] == "tinylm"}
    assert {name for name in wheel if name.startswith("tinylm/")} == ours
    assert "tinylm/template/lab.py" in ours
    assert any(name.startswith("tinylm/data/") for name in ours)


def test_the_learners_package_holds_no_solution(wheel):
    for name, content in wheel.items():
        if not name.startswith("tinylm/"):
            continue
        for mark in (b"### BEGIN SOLUTION", b"### BEGIN HIDDEN TESTS"):
            assert mark not in content, f"{name} holds {mark.decode()}"
        if name.endswith(".py"):
            for statement in ast.parse(content).body:
                if isinstance(statement, ast.FunctionDef) and statement.name in TASKS:
                    assert is_stub(statement), f"{name} solves {statement.name}"


def is_stub(function):
    """Whether the body is a raise, below a docstring or alone."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return len(body) == 1 and isinstance(body[0], ast.Raise)


# ------------------------------------------------------------------------------ commands

def documents():
    names = ["README.md", "CONTRIBUTING.md"]
    return [ROOT / name for name in names] + sorted((ROOT / "docs").glob("**/*.md"))


def code_of(text):
    """The code of a document: fenced blocks and spans, comments cut off."""
    fenced = re.findall(r"^```.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line.split("#")[0].strip() for block in fenced for line in block.splitlines()]
    return lines + re.findall(r"`([^`]+)`", prose)


def test_the_readme_names_the_three_commands():
    block = code_of((ROOT / "README.md").read_text())
    assert {"make lab", "make train", "make test"} <= set(block)


@UNIX
def test_every_make_command_in_the_documents_exists():
    commands = {
        line.split()[1]
        for document in documents() for line in code_of(document.read_text())
        if re.match(r"make [a-z]", line)
    }
    assert {"lab", "train", "test"} <= commands
    for target in commands:
        plan = subprocess.run(
            ["make", "-n", "-W", "pyproject.toml", target], cwd=ROOT, capture_output=True, text=True
        )
        assert plan.returncode == 0, plan.stderr
        assert ".venv/bin/python" in plan.stdout, f"make {target} does nothing"


def test_every_verb_of_tinylm_in_the_documents_exists():
    commands = {
        line.split()[3]
        for document in documents() for line in code_of(document.read_text())
        if re.match(r"python -m tinylm [a-z]", line)
    }
    assert {"lab", "train"} <= commands
    for verb in commands:
        shown = subprocess.run(
            [sys.executable, "-m", "tinylm", verb, "--help"],
            cwd=ROOT, capture_output=True, text=True, timeout=60,
        )
        assert shown.returncode == 0, shown.stderr


@UNIX
def test_make_alone_lists_every_name():
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (names,) = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert re.findall(r"^ +make ([a-z]+) +\S", listed, re.MULTILINE) == names.split()


def script(path, *lines):
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path):
    """A folder with the Makefile and what `make setup` reads, and no .venv."""
    folder = tmp_path / "bare"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def refusal(folder, python):
    """What `make setup` says when it gives up."""
    made = subprocess.run(
        ["make", "setup", f"PYTHON={python}"],
        cwd=folder, capture_output=True, text=True, timeout=60,
    )
    assert made.returncode != 0
    assert "Traceback" not in made.stderr
    assert not (folder / ".venv/installed").exists()
    return made.stderr


@UNIX
def test_setup_without_python_says_what_to_install(bare):
    assert "There is no nopython here; install Python 3.11" in refusal(bare, "nopython")


@UNIX
@pytest.mark.parametrize("version", [(2, 7, 18), (3, 9, 6), (3, 14, 0)])
def test_setup_refuses_other_versions(bare, tmp_path, version):
    pretend = f'import sys; sys.version_info = {version}; exec(sys.argv[1])'
    python = script(tmp_path / "python", f"exec '{sys.executable}' -c '{pretend}' \"$2\"")
    said = refusal(bare, python)
    assert f"This is Python {version[0]}.{version[1]}; the course needs 3.11, 3.12 or 3.13" in said


@UNIX
def test_setup_without_the_venv_module_says_where_it_comes_from(bare, tmp_path):
    pretend = 'import sys; sys.modules["ensurepip"] = None; exec(sys.argv[1])'
    python = script(tmp_path / "python", f"exec '{sys.executable}' -c '{pretend}' \"$2\"")
    said = refusal(bare, python)
    assert "This Python has no venv module" in said
    assert f"apt-get install python3.{sys.version_info[1]}-venv" in said


@UNIX
def test_setup_that_fails_to_install_says_so_and_is_not_taken_for_done(bare, tmp_path):
    python = script(
        tmp_path / "python",
        '[ "$1" = -c ] && exit 0',
        "mkdir -p .venv/bin && cp /bin/false .venv/bin/python",
    )
    assert "pip could not install the packages" in refusal(bare, python)


@pytest.fixture
def ci(tmp_path):
    """.ci/run in a copy, where make, apt-get and id are stand-ins that note what they are asked."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    programs = tmp_path / "programs"
    programs.mkdir()
    notes = tmp_path / "notes"
    for name in ("bash", "dirname"):
        (programs / name).symlink_to(shutil.which(name))
    script(programs / "make", f'echo "make $* CI=$CI" >> {notes}', "exit 3")
    script(programs / "apt-get", f'echo "apt-get $*" >> {notes}')

    def run(installed, uid):
        script(programs / "id", f"echo {uid}")
        for name in installed:
            script(programs / name)
        done = subprocess.run(
            [programs / "bash", ".ci/run"], cwd=tmp_path,
            env={"PATH": str(programs)}, capture_output=True, text=True, timeout=60,
        )
        return done, notes.read_text().splitlines() if notes.exists() else []

    return run


@UNIX
def test_ci_runs_the_test_command_of_the_readme_and_hands_on_its_result(ci):
    done, notes = ci(installed=["chromium", "bwrap"], uid=1000)
    assert notes == ["make test CI=true"]
    assert done.returncode == 3


@UNIX
def test_ci_installs_what_is_missing_as_root(ci):
    _, notes = ci(installed=["chromium"], uid=0)
    assert notes[-1] == "make test CI=true"
    assert notes[-2].startswith("apt-get install") and notes[-2].endswith(" bubblewrap")


@UNIX
def test_ci_without_root_names_what_is_missing(ci):
    done, notes = ci(installed=[], uid=1000)
    assert done.returncode == 1 and notes == []
    assert "Missing: chromium bubblewrap" in done.stderr


@UNIX
def test_ci_run_can_be_executed():
    assert os.access(ROOT / ".ci/run", os.X_OK)


# ------------------------------------------------------------------------------ links and files

def links_of(text):
    return re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)


def anchors(text):
    """The names that a page's headings give to links."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_local_links_lead_somewhere():
    for document in documents():
        for link in links_of(document.read_text()):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = document.parent / path if path else document
            assert target.exists(), f"{document.name}: {link} leads nowhere"
            assert not anchor or anchor in anchors(target.read_text()), f"no heading for {link}"


def test_ruff_finds_nothing():
    found = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--output-format=concise", "."],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )
    assert found.returncode == 0, found.stdout


def test_no_file_is_larger_than_four_megabytes():
    sizes = {path: (ROOT / path).stat().st_size for path in project_files()}
    assert sizes
    assert [path for path, size in sizes.items() if size > MAX_BYTES] == []


def test_no_file_names_a_folder_of_this_machine():
    for path in project_files():
        content = (ROOT / path).read_bytes()
        assert f"{ROOT}/".encode() not in content, f"{path} names {ROOT}"
        looks_for_it = path.parts[0] == "tests"        # a test may look for such names itself
        assert looks_for_it or f"{Path.home()}/".encode() not in content, f"{path} names a home"
