"""The files of a submission, from folders and zip files, without unpacking anything to disk.

Only files that grading has a use for are read, into memory, each and all within bounds; of the
others the name is enough. Links are not followed, and names that lead out of a zip lead nowhere.
What was passed over, and why, is said in sentences.
"""

import io
import os
import re
import stat
import time
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import PurePosixPath

LARGEST = 20 << 20           # bytes of a file or a zip
LARGEST_ALL = 100 << 20      # bytes of all files of a submission
MOST_NAMES = 5_000           # files and folders
DEEPEST = 10                 # folders and zips within each other
WANTED = re.compile(r".*\.ipynb(\.txt|\.json)?|lab.*\.py|timestamp\.txt", re.IGNORECASE)
NOT_LOOKED_AT = re.compile(r"\..*|__MACOSX|__pycache__|node_modules|venv", re.IGNORECASE)
OTHER_ARCHIVES = (".7z", ".rar", ".tar", ".tgz", ".gz", ".bz2", ".xz")
PACKED_AS_USUAL = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)     # others cannot be read bit by bit
FAILS = (OSError, EOFError, RuntimeError, NotImplementedError, ValueError, zipfile.BadZipFile,
         zlib.error)


class TooMuch(Exception):
    """A submission over the bounds; the message is a sentence without its subject."""


class _TooLarge(ValueError):
    """The same, of one file."""


@dataclass(frozen=True)
class File:
    """A file as it was handed in.

    Attributes:
        path: a PurePosixPath, below the submission.
        data: its bytes; None if it was not wanted, or could not be read.
        problem: why it could not be read, a sentence without its subject, or None.
        modified: seconds since 1970; 0 if not known.
    """

    path: PurePosixPath
    data: bytes | None = None
    problem: str | None = None
    modified: float = 0.0


class Unpacked:
    """What was found in a submission.

    Attributes:
        files: a list of File.
        notes: a sentence for each thing that was passed over.
    """

    def __init__(self):
        self.files, self.notes = [], []
        self._names = self._bytes = 0

    def add(self, path, called):
        """Add a file, a folder or a zip file; `called` is its name as handed in. Raises TooMuch."""
        self._add(path, PurePosixPath(_printable(called)), 0)

    # -------------------------------------------------------- files and folders

    def _add(self, path, name, depth):
        self._count(depth)
        try:
            kind = os.lstat(path).st_mode
            if stat.S_ISLNK(kind):
                self.notes.append(f"{name} is a link and was not followed.")
            elif stat.S_ISDIR(kind):
                for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
                    if not NOT_LOOKED_AT.fullmatch(entry.name):
                        self._add(entry.path, name / _printable(entry.name), depth + 1)
            elif stat.S_ISREG(kind):
                with open(path, "rb", opener=_without_following) as stream:
                    found = os.fstat(stream.fileno())
                    self._file(name, stream, found.st_size, found.st_mtime, depth)
            else:
                self.notes.append(f"{name} is neither a file nor a folder.")
        except FAILS as error:
            self.notes.append(f"{name} cannot be read ({_said(error)}).")

    def _file(self, name, stream, size, modified, depth):
        """One file, open for reading, of the size that it claims."""
        if WANTED.fullmatch(name.name):
            try:
                self.files.append(File(name, self._read(stream, size), modified=modified))
            except _TooLarge as error:
                self.files.append(File(name, problem=str(error)))
        elif name.suffix.lower() == ".zip":
            self._zip(name, self._read(stream, size), depth + 1)
        else:
            self.files.append(File(name))
            if name.suffix.lower() in OTHER_ARCHIVES:
                self.notes.append(f"{name} was not opened; expected a zip file.")

    def _read(self, stream, size):
        """All that is in a stream. Raises _TooLarge, or TooMuch for one too many."""
        data = stream.read(LARGEST + 1) if size <= LARGEST else b""
        if max(size, len(data)) > LARGEST:
            raise _TooLarge(f"has {max(size, len(data)) >> 20} MB; expected at most "
                            f"{LARGEST >> 20} MB")
        self._bytes += len(data)
        if self._bytes > LARGEST_ALL:
            raise TooMuch(f"has more than {LARGEST_ALL >> 20} MB of notebooks and zip files")
        return data

    def _count(self, depth):
        self._names += 1
        if self._names > MOST_NAMES:
            raise TooMuch(f"has more than {MOST_NAMES:,} files; expected a few notebooks")
        if depth > DEEPEST:
            raise TooMuch(f"has more than {DEEPEST} folders or zip files in each other")

    # -------------------------------------------------------- zip files

    def _zip(self, name, data, depth):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            for entry in entries.values():
                self._count(depth)
                self._entry(name, archive, entry, depth)

    def _entry(self, name, archive, entry, depth):
        inside = _inside(entry.filename)
        if inside is None:
            self.notes.append(f"{_printable(entry.filename)} leads out of {name}, and was left "
                              "out.")
        elif entry.is_dir() or any(map(NOT_LOOKED_AT.fullmatch, inside.parts)):
            return
        elif stat.S_ISLNK(entry.external_attr >> 16):
            self.notes.append(f"{name / inside} is a link and was not followed.")
        elif entry.flag_bits & 1:
            self.notes.append(f"{name / inside} is locked with a password.")
        elif entry.compress_type not in PACKED_AS_USUAL:
            self.notes.append(f"{name / inside} is packed in an unusual way, and was not opened.")
        else:
            try:
                with archive.open(entry) as stream:
                    self._file(name / inside, stream, entry.file_size, _moment(entry), depth)
            except FAILS as error:
                self.notes.append(f"{name / inside} cannot be read ({_said(error)}).")


def _inside(name):
    """The path of an entry below its zip, or None if it leads out of it."""
    name = name.replace("\\", "/")               # as some programs on Windows write it
    parts = [_printable(part) for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or re.match(r"[A-Za-z]:", name) or ".." in parts:
        return None
    return PurePosixPath(*parts)


def _moment(entry):
    try:
        return time.mktime((*entry.date_time, 0, 0, -1))
    except (ValueError, OverflowError):
        return 0.0


def _without_following(path, flags):
    """An opener that opens no link, and does not wait for what is no file."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _printable(name):
    return "".join(letter if letter.isprintable() else "?" for letter in name)[:200]


def _said(error):
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
