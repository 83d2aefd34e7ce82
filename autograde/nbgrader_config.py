"""nbgrader as this course needs it. Type nbgrader's commands in this folder, or name the file:

    nbgrader autograde grpo                                  (in the folder autograde)
    nbgrader autograde grpo --config autograde/nbgrader_config.py --course-dir autograde

Classes are named, not imported: if the course's package is missing, a command then fails, where an
error in this file would only be logged and everything graded by nbgrader's own means.
"""

import os
import sys

# nbgrader calls alembic by its name, which a Python environment that is not activated hides.
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])

c = get_config()  # noqa: F821  traitlets brings it

c.CourseDirectory.source_directory = "source"
c.CourseDirectory.release_directory = "released"
c.CourseDirectory.submitted_directory = "submitted"
c.CourseDirectory.autograded_directory = "autograded"
c.CourseDirectory.feedback_directory = "feedback"

# ------------------------------------------------------------ from sources to released notebooks
c.ClearSolutions.text_stub = "*Write your answer here.*"
c.GenerateAssignment.preprocessors = [
    "autograde.strip.StripMetadata",
    "autograde.strip.StampRelease",
    "autograde.inline.InlineTables",
    "nbgrader.preprocessors.LockCells",
    "autograde.stubs.ClearSolutions",
    "nbgrader.preprocessors.ClearOutput",
    "nbgrader.preprocessors.CheckCellMetadata",
    "nbgrader.preprocessors.ComputeChecksums",
    "nbgrader.preprocessors.SaveCells",
    "nbgrader.preprocessors.ClearHiddenTests",
    "nbgrader.preprocessors.ClearMarkScheme",
    "nbgrader.preprocessors.ComputeChecksums",
    "nbgrader.preprocessors.CheckCellMetadata",
    "autograde.leaks.RefuseLeaks",
]

# ------------------------------------------------------------ from submissions to points
c.Autograde.sanitize_preprocessors = [
    "autograde.links.RefuseLinks",
    "nbgrader.preprocessors.ClearOutput",
    "autograde.restore.RestoreCells",
    "nbgrader.preprocessors.OverwriteKernelspec",
    "nbgrader.preprocessors.OverwriteCells",
    "autograde.stubs.FillStubs",
    "nbgrader.preprocessors.CheckCellMetadata",
]
c.Autograde.autograde_preprocessors = [
    "autograde.walls.Walled",
    "nbconvert.preprocessors.ClearMetadataPreprocessor",
    "nbgrader.preprocessors.LimitOutput",
    "nbgrader.preprocessors.SaveAutoGrades",
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
]
c.OverwriteCells.add_missing_cells = True
c.Execute.walls = "require"                  # or "auto" or "off": see autograde.walls
c.Execute.timeout = 30                       # seconds a cell
c.Execute.shutdown_kernel = "immediate"

# ------------------------------------------------------------ from points to what people read
c.GenerateFeedback.preprocessors = [
    "autograde.feedback.HideTests",
    "nbgrader.preprocessors.GetGrades",
    "autograde.feedback.MarkPending",
    "nbconvert.preprocessors.CSSHTMLHeaderPreprocessor",
]
c.ExportApp.plugin_class = "autograde.export.ExportGrades"
