"""The zip that learners get: notebooks, tinylm, and what it takes to install them.

No sources, no solutions, no hidden tables, and nothing else of the instructor's: what goes in is
named here, and everything else stays out. The same tree gives the same bytes.
"""

import re
import zipfile
from pathlib import Path

from autograde.sources import ROOT, SourceError
from tinylm.files import replacing

NAME = "tinylm-grpo"
TARGET = ROOT / "dist" / f"{NAME}.zip"
CONTENTS = (
    "LICENSE", "Makefile", "README.md", "constraints.txt", "environment.yml", "pyproject.toml",
    "figures/*.svg", "figures/explorer*.png", "notebooks/*.ipynb",
    "tinylm/**/*.py", "tinylm/checks/**/*.json", "tinylm/data/**/*",
)
# Sentences and commands about tests, which the zip does not hold.
TESTS = re.compile(r" To see that all is well.*?```sh\nmake test\n```(?=\n)"
                   r"|For `make test`.*?```\n\n|python -m pytest -q tests\n", re.DOTALL)
MOMENT = (1980, 1, 1, 0, 0, 0)           # the earliest that a zip can say


def bundle(target=TARGET, root=ROOT):
    """Write the zip. Returns its path. Raises SourceError if something is missing from the tree."""
    paths = contents(root)
    with replacing(target) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for path in paths:
            entry = zipfile.ZipInfo(f"{NAME}/{path.relative_to(root).as_posix()}", MOMENT)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, _for_learners(path))
    return Path(target)


def _for_learners(path):
    """The bytes of a file in the zip. The README is cut to what can be done with the zip."""
    if path.name != "README.md":
        return path.read_bytes()
    text = path.read_text(encoding="utf-8").partition("\n## For instructors")[0]
    text = TESTS.sub("", text)
    text = re.sub(r" How the start of every run.*?seed by seed\.", "", text, flags=re.DOTALL)
    for here, there in (("--lab autograde/reference/lab.py", "--lab work/lab.py"),
                        ("# the finished lab without a screen:", "# your finished lab:")):
        text = text.replace(here, there)
    return (text.rstrip() + "\n").encode()


def contents(root=ROOT):
    """The paths that go in, in order."""
    found = set()
    for pattern in CONTENTS:
        files = {path for path in Path(root).glob(pattern) if path.is_file()}
        if not files:
            raise SourceError(f"the bundle is to hold {pattern}, and there is none in {root}; make "
                              "it first (notebooks come with: python -m autograde release).")
        found |= files
    return sorted(path for path in found if not _is_left_behind(path.relative_to(root)))


def _is_left_behind(path):
    return any(part == "__pycache__" or part.startswith(".") for part in path.parts)
