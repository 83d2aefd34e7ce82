"""JupyterLab in the learner's folder: opened in the browser where there is a screen, else its URL.

Jupyter itself takes the next free port where 8888 is taken. What the folder holds is the business
of `tinylm.labfile`; nothing is made or changed here.
"""

import os
import sys
from pathlib import Path
from urllib.parse import quote


def open_lab(folder):
    """Run JupyterLab in `folder` until it is stopped (Ctrl-C), opening the first notebook there.

    Without a screen no browser is started: the URL is printed, and the server keeps running. To
    root, as in a container, Jupyter says no unless told that this is meant; it is told, in print.
    Raises NotADirectoryError where there is no such folder, and SystemExit without JupyterLab.
    """
    folder = Path(folder).resolve()
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder; make it with: python -m tinylm start")
    try:
        from jupyterlab.labapp import LabApp
    except ImportError:
        raise SystemExit(
            "JupyterLab is not installed in this Python; run: make setup "
            "(or: python -m pip install -c constraints.txt -e .)"
        ) from None
    arguments = [
        f"--ServerApp.root_dir={folder}",
        f"--LabApp.default_url={_first_page(folder)}",
        "--log-level=WARN",
    ]
    if not _has_screen():
        print("There is no screen here: open the URL below in a browser. Ctrl-C stops JupyterLab.")
        arguments.append("--no-browser")
    if _is_root():
        print("You are root, as in a container: JupyterLab runs all the same (--allow-root).")
        arguments.append("--allow-root")
    sys.stdout.flush()
    LabApp.launch_instance(arguments)


def _first_page(folder):
    notebooks = sorted(path.name for path in folder.glob("*.ipynb"))
    return f"/lab/tree/{quote(notebooks[0])}" if notebooks else "/lab"


def _has_screen():
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _is_root():
    return hasattr(os, "geteuid") and os.geteuid() == 0
