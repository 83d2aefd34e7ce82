"""The learners' notebooks, made from the sources by nbgrader, in a folder aside.

nbgrader removes a release before it makes it anew, and leaves it removed when something fails. Here
it works on a copy in a temporary folder and without a gradebook; only when all notebooks came out
well do they take the place of the old ones, one by one.
"""

import re
import shutil
import tempfile
from pathlib import Path

import nbformat
from nbconvert.preprocessors import ClearOutputPreprocessor
from nbgrader.converters import GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import capture_log
from traitlets.config import PyFileConfigLoader

from autograde.sources import ROOT, SOURCE, SourceError, notebooks, read, reading
from autograde.strip import StripMetadata
from tinylm.files import replacing

NOTEBOOKS = ROOT / "notebooks"
CONFIG = Path(__file__).with_name("nbgrader_config.py")
ASSIGNMENT = SOURCE.name


def release(source=SOURCE, target=NOTEBOOKS):
    """Make the notebooks in `target` from those in `source`. Returns the paths that changed.

    Raises SourceError, with all in `target` as it was, if one of them does not come out well.
    """
    with tempfile.TemporaryDirectory(prefix="release-") as course:
        fresh = {path.name: path.read_bytes() for path in released(source, Path(course))}
    fresh |= {path.name: stripped(path) for path in reading(source)}
    changed = []
    for name, content in fresh.items():
        path = Path(target) / name
        if not path.exists() or path.read_bytes() != content:
            with replacing(path) as temporary:
                temporary.write_bytes(content)
            changed.append(path)
    return changed


def released(source, course):
    """Let nbgrader release the notebooks of `source`, in the folder `course`. Returns the paths."""
    copies = course / "source" / ASSIGNMENT
    copies.mkdir(parents=True)
    for path in notebooks(source):
        shutil.copyfile(path, copies / path.name)
    config = PyFileConfigLoader(CONFIG.name, CONFIG.parent).load_config()
    config.CourseDirectory.root = str(course)
    config.GenerateAssignment.no_database = True         # grading has a gradebook, a release none
    config.SaveCells.enabled = False
    course_directory = CourseDirectory(config=config, assignment_id=ASSIGNMENT)
    outcome = capture_log(GenerateAssignment(coursedir=course_directory, config=config))
    if not outcome["success"]:
        raise SourceError(f"{_reason(outcome)} The released notebooks are as they were.")
    return notebooks(course / config.CourseDirectory.release_directory / ASSIGNMENT)


def stripped(path):
    """A notebook that is not graded as learners get it: no outputs, nothing of ours, as bytes."""
    notebook, _ = ClearOutputPreprocessor().preprocess(read(path), {})
    notebook, _ = StripMetadata().preprocess(notebook, {})
    return (nbformat.writes(notebook) + "\n").encode()


def _reason(outcome):
    """What nbgrader's log says last about an error."""
    said = re.findall(r"^ *[\w.]+(?:Error|Exception): (.+)", outcome["log"], re.MULTILINE)
    return said[-1] if said else outcome["error"].strip().splitlines()[-1]
