"""Writing files so that nobody ever reads half of one."""

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path):
    """Yield a temporary path beside `path`; when the block ends well, it takes the file's place.

    The folder is made if it is missing. An error in the block leaves the old file as it was. A file
    keeps the permissions that it had.
    Raises PermissionError, before the block runs, where the folder cannot be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    except OSError as error:
        raise PermissionError(
            f"{path} cannot be written ({error.strerror}); "
            "choose a folder that is yours, or change its permissions."
        ) from error
    os.close(handle)
    os.chmod(temporary, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
    try:
        yield Path(temporary)
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
