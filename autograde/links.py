"""Links among the files of a submission.

nbgrader follows them: a link to somebody else's notebook is graded, and one to the gradebook is
copied. `intake` leaves them out; this refuses them where `nbgrader autograde` is typed by hand.
"""

from pathlib import Path

from nbgrader.preprocessors import NbGraderPreprocessor


class LinkError(Exception):
    """A submission with links in it; the message is one sentence."""


class RefuseLinks(NbGraderPreprocessor):
    """Raises LinkError if a submitted folder is a link, or has one in it."""

    def preprocess(self, notebook, resources):
        folder = Path(resources["metadata"]["path"])
        for path in (folder.parent, folder, *folder.iterdir()):
            if path.is_symlink():
                raise LinkError(f"{path} is a link, and nothing of this submission was graded; "
                                "put the file itself in its place, or remove it.")
        return notebook, resources
