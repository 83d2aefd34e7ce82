"""A notebook from whatever was handed in under that name.

Programs write notebooks in their own ways, and learners change them in theirs. Here the parts that
grading needs are taken out of a file, and a new notebook is made of them: for each cell its kind,
its text, the pictures in it, and the name by which nbgrader knows it. Outputs, tags, widgets and
the settings of editors stay behind.
"""

import json
import re

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_raw_cell

from autograde.strip import OURS
from autograde.wire import BASE64

MOST_CELLS = 1_000
KINDS = {"code": new_code_cell, "markdown": new_markdown_cell, "raw": new_raw_cell}
PICTURES = ("image/png", "image/jpeg", "image/gif")
ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MARK = {"grade_id": str, "grade": bool, "solution": bool, "locked": bool, "points": (int, float)}


class NoNotebook(Exception):
    """A file that is no notebook; the message is a sentence without its subject."""


class Salvaged:
    """What was taken out of a file.

    Attributes:
        notebook: a valid notebook. A cell's metadata hold {"nbgrader": {"grade_id": name}} and what
            else nbgrader marks, as handed in, or nothing.
        release: the id of the release from which it was made, or None.
        notes: sentences without their subject.
    """

    def __init__(self, data):
        """Read the bytes of a file. Raises NoNotebook."""
        self.notes = []
        raw = self._as_version_4(_parsed(_text(data)))
        cells = raw.get("cells")
        if not isinstance(cells, list):
            raise NoNotebook("is no notebook: it has no list of cells")
        if len(cells) > MOST_CELLS:
            raise NoNotebook(f"has {len(cells):,} cells; expected at most {MOST_CELLS:,}")
        self.release = _release(raw.get("metadata"))
        ids = set()
        made = [made for cell in cells if (made := _cell(cell, ids)) is not None]
        if len(made) < len(cells):
            self.notes.append(f"has {len(cells) - len(made)} cells that are none, left out")
        self.notebook = new_notebook(cells=made)
        nbformat.validate(self.notebook)

    def _as_version_4(self, raw):
        version = raw.get("nbformat")
        if version == 4 or version is None and "cells" in raw:
            return raw
        if version not in (1, 2, 3):
            raise NoNotebook(f"says that its format is {str(version)[:20]!r}; expected 4")
        try:
            converted = nbformat.convert(nbformat.from_dict(raw), 4)
        except Exception as error:               # in a format as old as that, anything may be
            raise NoNotebook(f"has the old format {version}, and cannot be converted to 4 "
                             f"({type(error).__name__})") from None
        self.notes.append(f"has the old format {version}, converted to 4")
        return converted


def _text(data):
    if not data.strip(b"\0 \t\r\n"):
        raise NoNotebook("is empty")
    wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        return data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        raise NoNotebook("is no text in UTF-8") from None


def _parsed(text):
    if text.lstrip()[:1] == "<":
        raise NoNotebook("is a web page; expected the notebook itself")
    try:
        raw = json.loads(text)
    except RecursionError:
        raise NoNotebook("is no notebook: its brackets are nested too deep") from None
    except ValueError as error:
        where = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise NoNotebook(f"is cut off or damaged: it is no JSON{where}") from None
    if not isinstance(raw, dict):
        raise NoNotebook("is no notebook: its JSON is no object")
    return raw


def _release(metadata):
    ours = metadata.get(OURS) if isinstance(metadata, dict) else None
    release = ours.get("release") if isinstance(ours, dict) else None
    return release if isinstance(release, str) and ID.fullmatch(release) else None


def _cell(cell, ids):
    """The cell made anew, or None if there is none. `ids` are those of the cells before it."""
    kind = cell.get("cell_type") if isinstance(cell, dict) else None
    known = isinstance(kind, str) and kind in KINDS
    source = _joined(cell.get("source", "")) if known else None
    if source is None:
        return None
    own = cell.get("id")
    own = own if isinstance(own, str) and ID.fullmatch(own) and own not in ids else None
    made = KINDS[kind](source, id=own or _new_id(ids))
    ids.add(made.id)
    if mark := _mark(cell):
        made.metadata["nbgrader"] = mark
    if kind == "markdown" and (pictures := _pictures(cell.get("attachments"))):
        made["attachments"] = pictures
    return made


def _joined(source):
    """The text of a cell, which may be a list of lines; None for anything else."""
    lines = source if isinstance(source, list) else [source]
    if not all(isinstance(line, str) for line in lines):
        return None
    return _proper("".join(lines))


def _proper(text):
    """JSON can hold halves of letters, which no file in UTF-8 can."""
    return text.encode(errors="replace").decode()


def _new_id(ids):
    number = len(ids)
    while f"cell-{number}" in ids:
        number += 1
    return f"cell-{number}"


def _mark(cell):
    """What nbgrader has to know of a cell, as it was handed in.

    Some programs drop metadata that are not their own. A released cell has the same name as its
    id, and they keep that, or put it among the metadata.
    """
    metadata = cell.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    mark = metadata.get("nbgrader")
    if isinstance(mark, dict) and isinstance(mark.get("grade_id"), str):
        return {key: mark[key] for key, kind in MARK.items() if isinstance(mark.get(key), kind)}
    for name in (cell.get("id"), metadata.get("id")):
        if isinstance(name, str) and not metadata.get("nbgrader"):
            return {"grade_id": name}
    return None


def _pictures(attachments):
    """The pictures pasted into a cell: {file name: {form: data}}."""
    if not isinstance(attachments, dict):
        return {}
    found = {}
    for name, forms in attachments.items():
        forms = forms.items() if isinstance(forms, dict) else ()
        if kept := {form: data for form, data in forms
                    if form in PICTURES and isinstance(data, str) and BASE64.fullmatch(data)}:
            found[_proper(name)] = kept
    return found
