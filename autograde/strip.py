"""What must not travel with a release, and what must: only nbgrader's own marks, and a number.

Outputs go by nbgrader's ClearOutput. Links lead from one folder of sources to another, and in a
release all notebooks lie side by side. Here go widget state, tags and every other metadata of cells
and notebook; the release id comes, so that a submission tells from which release it was made.
"""

import re

from nbgrader.preprocessors import NbGraderPreprocessor

from autograde.hidden import hidden_seed
from autograde.sources import release_id

OURS = "tinylm"              # the key of the release id in a notebook's metadata
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


class StripMetadata(NbGraderPreprocessor):
    """Leave each cell its nbgrader metadata, and the notebook its kernel."""

    def preprocess(self, notebook, resources):
        notebook.metadata = type(notebook.metadata)(
            kernelspec=dict(KERNEL), language_info={"name": "python"})
        return super().preprocess(notebook, resources)

    def preprocess_cell(self, cell, resources, index):
        kept = {key: value for key, value in cell.metadata.items() if key == "nbgrader"}
        cell.metadata = type(cell.metadata)(kept)
        cell.pop("attachments", None)
        if cell.cell_type == "markdown":
            cell.source = side_by_side(cell.source)
        return cell, resources


def side_by_side(text):
    """A text of a source notebook with its links as they lead from a release."""
    text = re.sub(r"\]\(\.\./(?:grpo|reading)/", "](", text)
    return text.replace("](../../../figures/", "](../figures/")


class StampRelease(NbGraderPreprocessor):
    """Write the release id into the notebook."""

    def preprocess(self, notebook, resources):
        release = release_id(resources["metadata"]["path"], hidden_seed())
        notebook.metadata[OURS] = {"release": release}
        return notebook, resources
