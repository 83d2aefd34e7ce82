"""A program behind walls: it sees Python, torch, tinylm and a scratch folder, and nothing else.

Bubblewrap gives it file systems, processes and a network of its own, and takes every right away;
rlimits bound what a process may take, `watchdog` what they take together, and `syscalls` lists what
the kernel is not asked for. Started as root, it runs as nobody. No file of the host can be written,
and what it writes is gone with it.

What this does not do: a hole in the kernel is a hole in the wall. The program can also read what
everybody can read in /usr and in the Python environment, and it knows the time and the processor.

    done = run([sys.executable, "-c", "print(1)"])
    done.status, done.out, done.reason          # 0, b"1\\n", None
"""

import functools
import json
import os
import platform
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from jupyter_core.paths import ENV_CONFIG_PATH, SYSTEM_CONFIG_PATH

import autograde
import tinylm
from autograde import syscalls
from autograde.watchdog import Watchdog

PROGRAMS = {"bwrap": "bubblewrap", "choom": "util-linux", "prlimit": "util-linux",
            "setpriv": "util-linux"}
SCRATCH = "/tmp"             # what a program may write, as it sees it
SHARED = "/dev/shm"          # and this
WORK = f"{SCRATCH}/work"     # where it starts, with its files
SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ALSO_SEEN = ("/etc/ld.so.cache", "/etc/alternatives", "/sys/devices/system/cpu")
OTHERS = (*SYSTEM_CONFIG_PATH, *ENV_CONFIG_PATH, "/usr/local/share/nbgrader")
NOBODY = "65534"
THREADS = 64                 # count as processes for the system, and a kernel alone has twenty
MOST_OUT = 1 << 20           # bytes of output that `run` hands on
MOST_ERR = 2000
PROBE = """
try:
    import autograde.sources
except ImportError:
    print("walled")
else:
    raise SystemExit("it sees the instructor's side")
"""


class NoWalls(Exception):
    """There are no walls on this machine; the message is a sentence that says why."""


@dataclass(frozen=True)
class Limits:
    """What a sandbox may take; bytes, unless said otherwise.

    CPU torch needs an address space of 3 GB.
    """

    seconds: int = 360           # wall clock, of the whole sandbox
    memory: int = 3 << 30        # address space of one process
    together: int = 3 << 30      # memory that all of them use
    processes: int = 64
    open_files: int = 256        # of one process
    file: int = 64 << 20         # size of one file
    scratch: int = 256 << 20     # all files together
    names: int = 10_000          # how many files


@dataclass(frozen=True)
class Outcome:
    """How a program ended: exit status, output in bytes, and why it was ended, if it was."""

    status: int
    out: bytes
    err: bytes
    reason: str | None


class Sandbox:
    """A program that runs behind walls; leave the `with` block, and it is gone.

    Attributes:
        process: the Popen of bwrap.
        child: the pid, as the host sees it, of the first process inside.
        watchdog: a running `Watchdog`.
    """

    def __init__(self, argv, files=None, environment=None, limits=None,
                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL):
        """Start a program.

        Args:
            argv: the program and its arguments, as seen from inside.
            files: {path: bytes}, to be found in the folder where it starts, or in the scratch.
            environment: more variables than it has by itself.
            limits: a `Limits`.
            stdin, stdout: as in Popen.

        Raises NoWalls if they could not be built.
        """
        limits = limits or Limits()
        self._errors = tempfile.TemporaryFile()
        reader, writer = os.pipe()
        with ExitStack() as stack, open(reader, "rb") as info:
            stack.callback(os.close, writer)
            refused = _memory(stack, syscalls.refusing())
            files = {name: _memory(stack, data) for name, data in (files or {}).items()}
            self.process = subprocess.Popen(
                _command(argv, files, environment or {}, limits, writer, refused),
                stdin=stdin, stdout=stdout, stderr=self._errors, env={}, cwd="/",
                pass_fds=[writer, refused, *files.values()], start_new_session=True)
            stack.close()
            told = info.read()
        try:
            self._watch(told, limits)
        except BaseException:                    # nothing may run unwatched
            self.process.kill()
            raise

    def _watch(self, told, limits):
        """Start the watchdog; `told` is what bwrap told when the walls stood."""
        if not told:
            self.process.wait()
            raise NoWalls(f"bwrap cannot build the walls: {_last_line(self.errors())}")
        self.child = json.loads(told)["child-pid"]
        places = [self.outside(SCRATCH), self.outside(SHARED)]
        self.watchdog = Watchdog(self.child, places, limits, self.end)
        self.watchdog.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def end(self):
        """Kill all that is in the sandbox.

        In its first moments it does not yet end with bwrap. While bwrap lives, the pid is its own.
        """
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.child, signal.SIGKILL)
            self.process.kill()

    def close(self):
        self.watchdog.stop()
        self.end()
        self.process.wait()
        self._errors.close()

    def outside(self, path):
        """Where the host finds a path of the sandbox, as long as it runs."""
        return f"/proc/{self.child}/root{path}"

    def errors(self):
        """The end of what was said on stderr, in bytes."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - MOST_ERR))
        return self._errors.read(MOST_ERR)


def run(argv, given=b"", **how):
    """Run a program behind walls, from start to end.

    Args:
        argv, **how: as for Sandbox.
        given: bytes that it reads from stdin.

    Returns an Outcome. Raises NoWalls.
    """
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout:
        stdin.write(given)
        stdin.seek(0)
        with Sandbox(argv, stdin=stdin, stdout=stdout, **how) as sandbox:
            status = sandbox.process.wait()
            stdout.seek(0)
            return Outcome(status, stdout.read(MOST_OUT), sandbox.errors(),
                           sandbox.watchdog.reason)


@functools.cache
def missing():
    """Why there are no walls on this machine, in a sentence; None if there are.

    Found out by building them: bwrap may be installed and yet be forbidden to do its work.
    """
    if sys.platform != "linux":
        return "walls are made by bubblewrap, which there is for Linux alone."
    if not syscalls.known():
        return f"the system calls of a {platform.machine()} are not known here."
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            return f"there is no {program}; on Debian and Ubuntu it comes with {package}."
    try:
        probe = run([sys.executable, "-c", PROBE], limits=Limits(seconds=60))
    except NoWalls as error:
        return str(error)
    if probe.out != b"walled\n":
        return f"a program behind walls does not run: {probe.reason or _last_line(probe.err)}"
    return None


def _last_line(said):
    """The last line of what was said, as the end of a sentence."""
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].rstrip(".") + "." if lines else "it says nothing."


# ------------------------------------------------------------ what is seen

def _seen():
    """The folders of the host that a program sees, read-only: the system, Python, and tinylm."""
    roots = ["/usr", sys.prefix, sys.base_prefix, Path(tinylm.__file__).parent]
    if site.ENABLE_USER_SITE:
        roots.append(site.getusersitepackages())
    paths = {form for root in roots for form in (Path(root), Path(root).resolve())}
    return {path for path in paths if path.is_dir()}


def _unseen():
    """Folders that may lie inside of those, and stay hidden: what is the instructor's.

    That is the course, home, where grading goes on, the settings of Jupyter, which may know the
    password of a gradebook, and nbgrader's exchange with what others handed in.
    """
    package = Path(autograde.__file__).resolve().parent
    paths = {package, Path(os.path.expanduser("~")).resolve(), Path.cwd(), *map(Path, OTHERS)}
    return paths if _is_for_packages(package.parent) else paths | {package.parent}


def _is_for_packages(folder):
    """Whether a folder is one into which packages are installed, and no tree of sources."""
    places = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"),
              site.getusersitepackages())
    return Path(folder).resolve() in (Path(place).resolve() for place in places)


def _file_systems(limits):
    """Arguments for bwrap. What lies deeper is put in later, and so wins."""
    seen = _seen()
    covered = {path for path in _unseen() - seen
               if path.is_dir() and any(path.is_relative_to(one) for one in seen)}
    made = {
        Path("/proc"): ["--proc", "/proc"],
        Path("/dev"): ["--dev", "/dev", *_tmpfs(SHARED, limits.scratch)],
        Path(SCRATCH): _tmpfs(SCRATCH, limits.scratch),
        **{path: ["--ro-bind-try", str(path), str(path)] for path in map(Path, ALSO_SEEN)},
        **{path: ["--ro-bind", str(path), str(path)] for path in seen},
        **{path: _link_or_bind(path) for path in map(Path, SYSTEM) if path.exists()},
        **{path: ["--tmpfs", str(path)] for path in covered},
    }
    arguments = []
    for path in sorted(made, key=lambda path: len(path.parts)):
        for parent in reversed(path.parents[:-1]):
            arguments += ["--perms", "0755", "--dir", str(parent)]
        arguments += made[path]
    for path in (*covered, "/dev", "/"):
        arguments += ["--remount-ro", str(path)]
    return arguments


def _link_or_bind(path):
    """Most systems have /bin, /lib and so on as links into /usr."""
    if path.is_symlink():
        return ["--symlink", os.readlink(path), str(path)]
    return ["--ro-bind", str(path), str(path)]


def _tmpfs(path, size):
    return ["--perms", "1777", "--size", str(size), "--tmpfs", path]


# ------------------------------------------------------------ the command

def _command(argv, files, environment, limits, info, refused):
    """The whole command line; `files`, `info` and `refused` are descriptors that are open for it.

    Where root starts it, a user namespace would make root of the program again, and no limit on
    processes would hold. So root builds the walls and becomes nobody, and nobody gives up the rest.
    """
    own = ["--unshare-user", "--disable-userns", "--seccomp", str(refused)]
    seen = [*_file_systems(limits), *_files(files), "--chdir", WORK, *_variables(environment)]
    apart = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts",
             "--unshare-cgroup-try", "--die-with-parent", "--new-session"]
    start = [*_found("choom"), "-n", "1000", "--", *_found("bwrap"), "--info-fd", str(info)]
    rlimits = [*_found("prlimit"), f"--as={limits.memory}", f"--nproc={limits.processes + THREADS}",
               f"--nofile={limits.open_files}", f"--fsize={limits.file}",
               f"--cpu={limits.seconds}", "--core=0", "--"]
    if os.geteuid() != 0:
        return [*start, *apart, *own, *seen, "--", *rlimits, *argv]
    become = ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    nobody = [*_found("setpriv"), "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups",
              "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
    inner = [*_found("bwrap"), *own, "--die-with-parent", "--dev-bind", "/", "/", "--chdir", WORK]
    return [*start, *apart, *become, *seen, "--", *nobody, *inner, "--", *rlimits, *argv]


def _found(program):
    """The full path: the program is looked for with no PATH."""
    return [shutil.which(program) or program]


def _files(descriptors):
    arguments = ["--perms", "0777", "--dir", WORK]
    for name, descriptor in descriptors.items():
        arguments += ["--perms", "0666", "--file", str(descriptor), os.path.join(WORK, name)]
    return arguments


def _variables(more):
    """The environment. HOME is the scratch folder, and there is no file that knows any user."""
    variables = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"]),
        "PYTHONUSERBASE": site.getuserbase(), "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": SCRATCH, "USER": "learner", "LOGNAME": "learner", "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2", **more,
    }
    course = Path(tinylm.__file__).parents[1]
    if not _is_for_packages(course):
        variables["PYTHONPATH"] = str(course)    # of which only tinylm is there
    return ["--clearenv", *(word for name, value in variables.items()
                            for word in ("--setenv", name, value))]


def _memory(stack, data):
    """A descriptor from which `data` can be read once, open until the stack is closed."""
    descriptor = os.memfd_create("walls")
    stack.callback(os.close, descriptor)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
