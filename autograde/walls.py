"""A submission is run behind walls, or not at all, unless the instructor says otherwise.

`Walled` is what nbgrader_config.py names: the Execute of `kernel`, with its kernels in a `sandbox`.
Whether there are walls is found out here, where the code is run, and each time: an error in a
configuration file is only logged by nbgrader.

    c.Execute.walls = "require"    # no walls, no grading
    c.Execute.walls = "auto"       # walls where they can be built; a warning where not
    c.Execute.walls = "off"        # no walls, and a warning

Without walls a crash still costs only the cells it hits, and time and output are still bounded, on
every system. What the code reads, writes and sends is then bounded by nothing.

The kernel talks through sockets in its own scratch folder, which the host reaches through /proc, so
that no folder of the host has to be writable.
"""

import json
import os
import sys
import time
import uuid
from dataclasses import fields
from pathlib import Path

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.provisioning import LocalProvisioner
from traitlets import Dict, Enum, Integer

from autograde.kernel import Execute
from autograde.sandbox import SCRATCH, Limits, NoWalls, Sandbox, missing
from autograde.wire import Manager

SOCKET = f"{SCRATCH}/.kernel"            # then -1 to -5, one for each channel
CONNECTION = f"{SCRATCH}/.connection.json"
GRACE = 15                               # seconds between asking a cell to stop and ending it


class Walled(Execute):
    """Runs a notebook in kernels behind walls."""

    walls = Enum(("require", "auto", "off"), "require",
                 help="whether code is run where there are no walls").tag(config=True)
    limits = Dict(value_trait=Integer(), help="""what a kernel may take, where that is to be
        another amount than in autograde.sandbox.Limits: {"memory": 6_000_000_000}""",
                  ).tag(config=True)

    def preprocess(self, notebook, resources, km=None):
        self.kernel_manager_class = WalledManager if self._walls_stand() else Manager
        return super().preprocess(notebook, resources, km)

    def _walls_stand(self):
        """Whether the code is to be run behind walls. Raises NoWalls if it must not run at all."""
        reason = "they are off." if self.walls == "off" else missing()
        if reason is None:
            return True
        if self.walls == "require":
            raise NoWalls(f"Nothing was run, because there are no walls: {reason} To run learners' "
                          "code with your own rights, say --Execute.walls=auto.")
        self.log.warning("NO WALLS: %s Learners' code runs with your rights: it can read and "
                         "change whatever you can.", reason)
        return False

    def create_kernel_manager(self):
        manager = super().create_kernel_manager()
        if isinstance(manager, WalledManager):
            lifetime = self.total + (self.timeout or 0) + self.startup_timeout
            manager.wall({"seconds": lifetime, **self.limits})
        return manager

    def preprocess_cell(self, cell, resources, index):
        if isinstance(self.km, WalledManager) and self.timeout:
            self.km.provisioner.sandbox.watchdog.deadline = (
                time.monotonic() + self.timeout + GRACE)
        return super().preprocess_cell(cell, resources, index)

    def why_lost(self):
        reason = (isinstance(self.km, WalledManager)
                  and self.km.provisioner.sandbox.watchdog.reason)
        return f"This cell was stopped. {reason}" if reason else super().why_lost()


class WalledManager(Manager):
    """Starts this Python's kernel in a sandbox; kernels of other names are not asked for."""

    kernel_spec = KernelSpec(
        argv=[sys.executable, "-m", "ipykernel_launcher", "-f", CONNECTION,
              "--HistoryManager.hist_file=:memory:"],
        display_name="Python 3", language="python",
        interrupt_mode="message")                # a signal would end the sandbox

    def wall(self, limits):
        """Set the limits, a dict, before the kernel is started. Raises ValueError for others."""
        if unknown := limits.keys() - {one.name for one in fields(Limits)}:
            raise ValueError(f"there is no limit on {', '.join(sorted(unknown))}; expected some of "
                             f"{', '.join(one.name for one in fields(Limits))}.")
        self.kernel_id = str(uuid.uuid4())
        self.transport = "ipc"
        self.provisioner = WalledProvisioner(
            parent=self, kernel_id=self.kernel_id, kernel_spec=self.kernel_spec)
        self.provisioner.limits = Limits(**limits)


class WalledProvisioner(LocalProvisioner):
    """Starts and ends a kernel in a sandbox."""

    limits = sandbox = None

    async def pre_launch(self, **kwargs):
        return {"cmd": self.kernel_spec.argv, "cwd": kwargs["cwd"]}

    async def launch_kernel(self, cmd, **kwargs):
        manager = self.parent
        manager.shell_port, manager.iopub_port, manager.stdin_port = 1, 2, 3
        manager.hb_port, manager.control_port, manager.ip = 4, 5, SOCKET
        inside = manager.get_connection_info()
        files = {path.name: path.read_bytes() for path in Path(kwargs["cwd"]).iterdir()}
        files[CONNECTION] = json.dumps({**inside, "key": inside["key"].decode()}).encode()
        self.sandbox = Sandbox(cmd, files, _passed_on(), self.limits)
        self.process, self.pid = self.sandbox.process, self.sandbox.process.pid
        self.connection_info = {**inside, "ip": self.sandbox.outside(SOCKET)}
        return self.connection_info

    async def kill(self, restart=False):
        self.sandbox.end()

    async def cleanup(self, restart=False):
        if self.sandbox is not None:
            self.sandbox.close()


def _passed_on():
    """What tinylm and nbgrader have to know of the environment."""
    name = "NBGRADER_EXECUTION"
    return {name: os.environ[name]} if name in os.environ else {}
