"""Who handed in what, told from the names in a folder of submissions.

A learner is a folder, a zip file, or loose files that carry a name, as learning platforms write it:

    ada/  ada.zip  ada/grpo/                              by hand, or by nbgrader
    lovelaceada_LATE_1815_42_01-sample-group.ipynb        Canvas
    Ada Lovelace_1815_assignsubmission_file_/             Moodle

Only names are looked at; nothing is opened, and no link is followed.
"""

import re
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path

from autograde.sources import SourceError

CANVAS = re.compile(r"(?P<name>[^_]+)_(?P<late>LATE_)?(?P<id>\d+)_\d+_(?P<file>.+)")
MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)_?(?P<file>.*)")
NOT_HANDED_IN = re.compile(r"\.|__MACOSX$|Thumbs\.db$|desktop\.ini$", re.IGNORECASE)
LONGEST = 60                 # characters of a student's id
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)     # on Windows


@dataclass
class Arrival:
    """What came from one learner.

    Attributes:
        student: the id under which it is graded; a folder may be called so on any system.
        name: as the platform or the file has it.
        platform, number: "Canvas" or "Moodle" and the learner's number there, or None.
        late: whether the platform says so.
        parts: [(what it is called as handed in, path)].
    """

    student: str
    name: str
    platform: str | None = None
    number: str | None = None
    late: bool = False
    parts: list = field(default_factory=list)


def arrivals(folder):
    """The Arrivals in a folder, in the order of their ids.

    Raises SourceError if there is no such folder, or nothing in it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "is not there"
        raise SourceError(f"{folder} {what}; expected a folder with a folder or a zip file for "
                          "each learner, or with what a learning platform's download unpacks to.")
    found = {}
    for path in sorted(folder.iterdir()):
        if not NOT_HANDED_IN.match(path.name):
            named, called = _named(path)
            arrival = found.setdefault((named.platform, named.number, named.name), named)
            arrival.late |= named.late
            arrival.parts.append((called, path))
    if not found:
        raise SourceError(f"there is nothing in {folder}; expected a folder or a zip file for each "
                          "learner.")
    return _with_ids(found.values())


def _named(path):
    """An Arrival for the learner that a path names, and what the learner calls the file."""
    for platform, pattern in (("Canvas", CANVAS), ("Moodle", MOODLE)):
        if match := pattern.fullmatch(path.name):
            name, number = match["name"], match["id"]
            late = bool(match.groupdict().get("late"))
            return (Arrival(f"{name}_{number}", name, platform, number, late),
                    match["file"] or path.name)
    name = path.stem if path.suffix.lower() in (".zip", ".ipynb") else path.name
    return Arrival(name, name), path.name


def _with_ids(arrivals):
    """Give each an id of its own, also where case does not count."""
    taken = set()
    for arrival in arrivals:
        arrival.student = plain = as_id(arrival.student)
        count = 1
        while arrival.student.casefold() in taken:
            count += 1
            arrival.student = f"{plain}-{count}"
        taken.add(arrival.student.casefold())
    return sorted(arrivals, key=lambda arrival: arrival.student)


def as_id(name):
    """A name as letters, digits, "_", "-" and "." that any system takes for a folder.

    nbgrader puts ids into patterns for paths, so brackets and stars are no good in them.
    """
    text = unicodedata.normalize("NFC", name)
    text = re.sub(r"[^\w.-]+", "-", text).strip("-.")[:LONGEST].rstrip("-.")
    return f"_{text}" if not text or RESERVED.fullmatch(text) else text
