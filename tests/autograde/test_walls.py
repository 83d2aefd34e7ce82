"""What code behind walls can see, do and take. Each attack is small, and bounded twice.

Most run as a bare program, in a fraction of a second; what a kernel adds comes at the end.
"""

import logging
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_notebook

import tinylm
from autograde import sandbox, walls
from autograde.sandbox import Limits, NoWalls
from autograde.walls import Walled
from autograde.wire import CUT, MOST_MESSAGES, MOST_PICTURES, Budget, TooManyMessages

ROOT = Path(__file__).parents[2]
HERE = Path(tinylm.__file__).parent
SMALL = {"seconds": 20, "memory": 1 << 30, "together": 400 << 20, "processes": 24,
         "open_files": 64, "file": 4 << 20, "scratch": 16 << 20, "names": 300}
walled = pytest.mark.needs("bwrap")


def run(code, *arguments, given=b"", **limits):
    """Run Python code behind walls, with small limits."""
    return sandbox.run([sys.executable, "-c", code, *map(str, arguments)], given,
                       limits=Limits(**{**SMALL, **limits}))


def said(code, *arguments, **limits):
    """What the code prints; it must end by itself, and well."""
    done = run(code, *arguments, **limits)
    assert done.status == 0 and done.reason is None, done
    return done.out.decode()


# ------------------------------------------------------------ what is seen

@walled
def test_python_torch_and_tinylm_are_there():
    assert said("""
import importlib.util, os, tinylm.labfile
print(os.getcwd(), os.listdir(), importlib.util.find_spec("torch") is not None)
print(tinylm.labfile.TASKS[2])""") == "/tmp/work [] True\nk3_kl\n"


@walled
def test_nothing_of_the_instructor_is_there(tmp_path):
    (tmp_path / "gradebook.db").write_text("points")
    unseen = [ROOT / "autograde", ROOT / "tests", ROOT / "notebooks", ROOT / ".git", tmp_path,
              tmp_path / "gradebook.db", Path.home() / ".bashrc", "/etc/passwd", "/var", "/home",
              "/proc/sys/kernel/../../../../../etc/shadow"]
    code = "import os, sys; print([path for path in sys.argv[1:] if os.path.exists(path)])"
    assert said(code, *unseen) == "[]\n"
    assert said("""
import importlib.util
for name in ("autograde.sources", "autograde"):
    try: __import__(name)
    except ImportError: print("none")""") == "none\nnone\n"


@walled
def test_what_lies_inside_of_what_is_seen_stays_hidden(tmp_path, monkeypatch):
    """A course in a folder of the environment, and tinylm in a folder of the course."""
    course = tmp_path / "env" / "course"
    (course / "tinylm").mkdir(parents=True)
    (course / "tinylm" / "__init__.py").touch()
    (course / "gradebook.db").touch()
    (course.parent / "python").touch()
    monkeypatch.setattr(sys, "prefix", str(course.parent))
    monkeypatch.setattr(tinylm, "__file__", str(course / "tinylm" / "__init__.py"))
    monkeypatch.chdir(course)
    done = sandbox.run(["/bin/ls", str(course.parent), str(course), str(course / "tinylm")])
    assert done.status == 0
    words = done.out.decode().split()
    assert "python" in words and "__init__.py" in words and "gradebook.db" not in words


@walled
@pytest.mark.skipif(not (Path(sys.prefix) / "etc" / "jupyter").exists(), reason="nothing to hide")
def test_the_settings_of_jupyter_are_hidden():
    """They may hold the address of the gradebook, with its password."""
    assert said("import os, sys; print(os.listdir(sys.prefix + '/etc/jupyter'))") == "[]\n"


@walled
def test_the_environment_is_its_own(monkeypatch):
    monkeypatch.setenv("COURSE_SECRET", "swordfish")
    seen = said("""
import glob, os
print(dict(os.environ))
for path in glob.glob("/proc/*/environ"):
    try: print(open(path, "rb").read())
    except OSError: pass""")
    assert "OMP_NUM_THREADS" in seen and "swordfish" not in seen and "SECRET" not in seen


@walled
def test_other_processes_are_not_there():
    seen = said("import os; print([name for name in os.listdir('/proc') if name.isdigit()])")
    assert len(eval(seen)) <= 5
    assert said("""
import os, signal, sys
for pid in (1, int(sys.argv[1])):
    try: os.kill(pid, signal.SIGKILL)
    except OSError: pass
print("here")""", os.getpid()) == "here\n"


@walled
def test_the_network_is_not_there():
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        name = f"\0walls-{os.getpid()}"
        unix.bind(name)
        unix.listen()
        socket.create_connection(tcp.getsockname(), 5).close()       # from here it works
        assert said("""
import socket, sys
def tries(connect):
    try: connect()
    except OSError as error: print(error.errno is not None)
tries(lambda: socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2))
tries(lambda: socket.create_connection(("192.0.2.1", 80), 2))
tries(lambda: socket.socket(socket.AF_UNIX).connect("\\0" + sys.argv[2]))
""", tcp.getsockname()[1], name[1:]) == "True\nTrue\nTrue\n"


# ------------------------------------------------------------ what can be changed

@walled
def test_only_the_scratch_can_be_written():
    assert said("""
import os, sys
for folder in [*sys.argv[1:], "/", "/usr", "/dev", "/etc", "/work", "/proc", "/tmp", "/dev/shm"]:
    try: open(folder + "/x", "w").close()
    except OSError: continue
    print(folder)""", HERE, Path(sys.prefix), Path(sys.base_prefix) / "lib") == "/tmp\n/dev/shm\n"


@walled
def test_what_is_written_is_gone_afterwards():
    said("open('/tmp/work/left', 'w').write('x'); open('/dev/shm/left', 'w').write('x')")
    assert said("import os; print(os.listdir('/tmp/work'), os.listdir('/dev/shm'))") == "[] []\n"
    assert not os.path.exists("/dev/shm/left")


@walled
def test_files_that_are_given_are_there_and_its_own():
    done = sandbox.run([sys.executable, "-c", """
with open("lab.py", "a") as file: file.write(" and more")
print(open("lab.py").read(), input(), open("/tmp/other").read())"""], b"asked\n",
                       files={"lab.py": b"given", "/tmp/other": b"apart"},
                       environment={"NAME": "value"})
    assert (done.status, done.out) == (0, b"given and more asked apart\n")


@walled
def test_it_has_no_rights():
    status = said("import os; print(os.getuid(), open('/proc/self/status').read())")
    assert not status.startswith("0 ")
    assert "CapEff:\t0000000000000000" in status and "CapBnd:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status


@walled
@pytest.mark.parametrize("call", ["memfd_create", "shmget", "ptrace", "unshare", "bpf",
                                  "io_uring_setup", "keyctl", "sched_setaffinity"])
def test_system_calls_without_use_are_refused(call):
    from autograde.syscalls import MACHINES, NUMBERS
    number = NUMBERS[call][MACHINES[os.uname().machine][0]]
    assert said("""
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(int(sys.argv[1]), 0, 0, 0, 0, 0), ctypes.get_errno())""", number) == "-1 38\n"


# ------------------------------------------------------------ what can be taken

FORKS = """
import os, time
for _ in range(200):
    try:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    except OSError:
        break
"""
BOUNDED = {
    "time": ("import signal, time\nfor number in range(1, 60):\n"
             "    try: signal.signal(number, signal.SIG_IGN)\n"
             "    except (OSError, ValueError): pass\n"
             "while True: time.sleep(1)", {"seconds": 2}, "more time than it has"),
    "processes": (FORKS + "time.sleep(60)", {}, "more than 24 processes"),
    "forks for ever": ("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", {},
                       "more than 24 processes"),
    "memory together": (FORKS.replace("200", "8").replace("time.sleep(60)",
                        "x = b'x' * (90 << 20); time.sleep(60)") + "time.sleep(60)", {},
                        "more than 400 MB of memory together"),
    "names": ("i = 0\nwhile True:\n    i += 1\n    open(f'/tmp/{i}', 'w').close()", {},
              "more than 300 files"),
    "names in shared memory": ("i = 0\nwhile True:\n    i += 1\n    open(f'/dev/shm/{i}', 'w')"
                               ".close()", {}, "more than 300 files"),
}


@walled
@pytest.mark.parametrize("attack", BOUNDED)
def test_what_takes_too_much_is_ended_and_told_why(attack):
    code, limits, reason = BOUNDED[attack]
    done = run(code, **limits)
    assert done.status != 0 and reason in done.reason


@walled
def test_memory_that_is_shared_counts_once():
    """A parent with 150 MB that forks six times uses 150 MB, whatever `top` adds up."""
    assert said("x = b'x' * (150 << 20)" + FORKS.replace("200", "6").replace(
        "time.sleep(60)", "time.sleep(1)") + "time.sleep(1.5)\nprint('done')") == "done\n"


@walled
def test_one_process_has_its_own_bounds():
    assert said("""
try: bytearray(2 << 30)
except MemoryError: print("memory")
try: [open("/dev/null") for _ in range(100)]
except OSError as error: print(error.strerror)
try:
    with open("/tmp/large", "wb") as file:
        while True: file.write(b"x" * 100_000)
except OSError as error: print(error.strerror)
try:
    for i in range(20):
        with open(f"/tmp/many{i}", "wb") as file: file.write(b"x" * (2 << 20))
except OSError as error: print(error.strerror)
""").splitlines() == ["memory", "Too many open files", "File too large",
                      "No space left on device"]


@walled
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_is_bounded(stream):
    done = run(f"import sys\nwhile True: sys.{stream}.write('x' * 100_000)")
    assert done.status != 0
    assert len(done.out) <= sandbox.MOST_OUT and len(done.err) <= sandbox.MOST_ERR


@walled
def test_nothing_stays_behind():
    """Neither when the program ends, nor when whoever started it is killed."""
    marker = f"walls-{os.getpid()}-{time.monotonic_ns()}"
    leave = FORKS.replace("200", "2").replace("time.sleep(60)", "os.setsid(); time.sleep(60)")
    assert said(leave + "print('done')", marker) == "done\n"
    wait_for(lambda: not running(marker))
    for _ in range(3):
        with sandbox.Sandbox([sys.executable, "-c", "import time; time.sleep(60)", marker]):
            pass                                 # and it is ended before it has begun
    time.sleep(0.5)
    assert not running(marker)
    code = (f"from autograde.sandbox import Sandbox\nimport sys, time\n"
            f"Sandbox([sys.executable, '-c', 'import time; time.sleep(60)', {marker!r}])\n"
            "print('started', flush=True)\ntime.sleep(60)")
    grader = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert grader.stdout.readline() == b"started\n"
        wait_for(lambda: running(marker))
    finally:
        grader.kill()
        grader.communicate()
    wait_for(lambda: not running(marker))


def running(marker):
    """The pids of processes of Python's that have the marker as an argument."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            program, *arguments = path.read_text().split("\0")
        except OSError:
            continue
        if program == sys.executable and marker in arguments:
            found.append(path.parent.name)
    return found


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@walled
@pytest.mark.skipif(os.geteuid() != 0, reason="these tests run as an ordinary user already")
def test_an_ordinary_user_has_the_same_walls():
    """The same probe, and an attack, started by a user who is not root."""
    code = """
import os, sys
from autograde import sandbox
print(os.getuid(), sandbox.missing())
look = "import os, sys; print(os.getuid(), os.path.exists(sys.argv[1]))"
print(sandbox.run([sys.executable, "-c", look, sys.argv[1]]).out.decode().strip())
limits = sandbox.Limits(seconds=20, processes=24)
print(sandbox.run([sys.executable, "-c", sys.argv[2]], limits=limits).reason)
"""
    covered = [Path.home(), Path("/tmp")]     # empty for this user, but for what is seen
    seen = [Path(path) for path in (sys.base_prefix, sys.prefix, ROOT)
            if any(Path(path).is_relative_to(folder) for folder in covered)]
    parents = [parent for path in seen for parent in reversed(path.parents)
               if any(folder in parent.parents for folder in covered)]
    binds = [word for path in parents for word in ("--perms", "0755", "--dir", str(path))]
    binds += [word for path in seen for word in ("--ro-bind", str(path), str(path))]
    done = subprocess.run(
        ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--bind", "/proc", "/proc",
         "--perms", "0755", "--tmpfs", str(Path.home()), "--perms", "1777", "--tmpfs", "/tmp",
         *binds, "--setenv", "PYTHONPATH", str(ROOT), "--chdir", str(ROOT),
         "setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "--inh-caps=-all",
         sys.executable, "-c", code, str(ROOT / "autograde"), FORKS + "time.sleep(60)"],
        capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == [
        "12345 None", "12345 False", "It started more than 24 processes."], done


# ------------------------------------------------------------ whether there are walls at all

@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Puts programs of our own making in the place of all others: programs(bwrap="exit 1")."""
    def put(**scripts):
        for name, script in scripts.items():
            (tmp_path / name).write_text(f"#!/bin/bash\n{script}\n")
            (tmp_path / name).chmod(0o755)
        sandbox.missing.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    yield put
    sandbox.missing.cache_clear()


THERE = {"choom": 'shift 3; exec "$@"', "prlimit": "exit 1", "setpriv": "exit 1"}


def test_a_missing_program_is_named(programs):
    programs()
    assert "there is no bwrap; on Debian and Ubuntu it comes with bubblewrap" in sandbox.missing()


def test_a_bwrap_that_is_forbidden_its_work_is_no_wall(programs):
    programs(bwrap="echo 'bwrap: No permissions to create new namespace.' >&2; exit 1", **THERE)
    assert sandbox.missing() == ("bwrap cannot build the walls: bwrap: No permissions to create "
                                 "new namespace.")


def test_a_bwrap_that_lets_everything_through_is_no_wall(programs):
    """It says that all is well, and starts the program as it is."""
    programs(bwrap=f"""
while [ "$1" != --info-fd ]; do shift; done
echo '{{"child-pid": 999999999}}' >&$2
eval "exec $2>&-"
while [ "$1" != {sys.executable} ]; do shift; done
PYTHONPATH={ROOT} exec "$@"
""", **THERE)
    assert "it sees the instructor's side" in sandbox.missing()


def test_another_system_has_none(monkeypatch):
    sandbox.missing.cache_clear()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "Linux alone" in sandbox.missing()
    sandbox.missing.cache_clear()


@pytest.fixture
def without_walls(monkeypatch):
    monkeypatch.setattr(walls, "missing", lambda: "bwrap has gone fishing.")


def ran(notebook_says="print(1 + 1)", **settings):
    """Run a cell; returns its outputs as text."""
    notebook = new_notebook(cells=[new_code_cell(notebook_says)])
    Walled(shutdown_kernel="immediate", **settings).preprocess(
        notebook, {"metadata": {"path": ""}})
    return outputs(notebook.cells[0])


def outputs(cell):
    return "".join(output.get("text", "") or f"{output.get('ename')}: {output.get('evalue')}"
                   for output in cell.outputs)


def test_nothing_is_run_where_walls_are_required_and_missing(without_walls, tmp_path):
    """And required is what they are if nobody says otherwise."""
    for settings in ({}, {"walls": "require"}):
        with pytest.raises(NoWalls, match="Nothing was run.*bwrap has gone fishing.*walls=auto"):
            ran(f"open({str(tmp_path / 'ran')!r}, 'w')", **settings)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("setting, reason", [("auto", "gone fishing"), ("off", "they are off")])
def test_a_run_without_walls_is_said_loudly(setting, reason, without_walls, caplog):
    with caplog.at_level(logging.WARNING):
        assert ran(f"import os; print(os.path.exists({str(ROOT)!r}))", walls=setting) == "True\n"
    assert "NO WALLS" in caplog.text and reason in caplog.text


@walled
def test_an_unknown_limit_is_refused():
    with pytest.raises(ValueError, match="no limit on memry; expected some of seconds, memory"):
        ran(limits={"memry": 1})


def test_the_configuration_asks_for_walls():
    from traitlets.config import PyFileConfigLoader
    config = PyFileConfigLoader("nbgrader_config.py", str(ROOT / "autograde")).load_config()
    assert config.Autograde.autograde_preprocessors[0] == "autograde.walls.Walled"
    assert "walls" not in config.Execute or config.Execute.walls == "require"


# ------------------------------------------------------------ a kernel behind walls

def run_cells(*sources, **settings):
    """Run cells in one notebook, behind walls; returns what each put out, as text."""
    notebook = new_notebook(cells=[new_code_cell(source) for source in sources])
    Walled(shutdown_kernel="immediate", **settings).preprocess(
        notebook, {"metadata": {"path": ""}})
    return [outputs(cell) for cell in notebook.cells]


@walled
def test_a_kernel_runs_behind_walls_and_a_crash_costs_its_own_cell(monkeypatch):
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    monkeypatch.setenv("COURSE_SECRET", "swordfish")
    before = len(list(Path("/proc").glob("[0-9]*")))
    seen, files, defines, crash, memory, loop, after = run_cells(
        f"import os; print([os.path.exists(path) for path in ({str(ROOT / 'autograde')!r}, "
        "'/etc/passwd')], 'COURSE_SECRET' in os.environ, os.environ['NBGRADER_EXECUTION'])",
        "import lab; print(os.listdir(), lab.k3_kl.__name__)",
        "x = 1",
        "os.kill(os.getpid(), 9)",
        "x = b'x' * (900 << 20); import time; time.sleep(60)",
        "while True: pass",
        "print(x)",
        timeout=10, limits={"together": 700 << 20})
    assert seen == "[False, False] False autograde\n"
    assert files == "['lab.py'] k3_kl\n"
    assert "DeadKernelError" in crash and "ended its kernel" in crash
    assert "more than 700 MB of memory together" in memory
    assert "CellTimeoutError" in loop and defines == "" and after == "1\n"
    wait_for(lambda: len(list(Path("/proc").glob("[0-9]*"))) <= before + 20)


@walled
def test_a_kernel_that_ignores_everything_is_ended():
    """Interrupts, and requests to shut down; and it floods the wire from a thread meanwhile."""
    stuck, after = run_cells("""
import signal, threading
kernel = get_ipython().kernel
def flood():
    while True:
        kernel.session.send(kernel.iopub_socket, "status", {"execution_state": "busy"},
                            parent=kernel.get_parent())
threading.Thread(target=flood, daemon=True).start()
while True:
    try: signal.pause()
    except KeyboardInterrupt: pass""", "print('after')", timeout=3)
    assert "Error" in stuck or "TooManyMessages" in stuck
    assert after == "after\n"


@walled
@pytest.mark.parametrize("message", [
    '"stream", {"name": 3}', '"error", {"ename": [], "evalue": {}, "traceback": 7}',
    '"execute_result", {"data": [], "execution_count": "x"}', '"status", {}',
    '"display_data", None'])
def test_made_up_messages_cost_the_cell_that_sends_them(message):
    sender, after = run_cells(f"""
kernel = get_ipython().kernel
kernel.session.send(kernel.iopub_socket, {message}, parent=kernel.get_parent())""",
                              "print('after')")
    assert "ended its kernel" in sender and after == "after\n"


# ------------------------------------------------------------ what comes from a kernel

def kept(kind, budget=None, **content):
    return (budget or Budget(100)).kept(kind, content)


def test_text_is_cut_once_and_then_nothing_more():
    budget = Budget(100)
    assert kept("stream", budget, name="stdout", text="x" * 60)["text"] == "x" * 60
    assert kept("stream", budget, name="stdout", text="y" * 60)["text"] == "y" * 40 + CUT
    assert kept("stream", budget, name="stdout", text="z") is None
    assert kept("execute_result", budget, data={"text/plain": "z"}) is None
    assert kept("error", budget, ename="E", evalue="e" * 200, traceback=["t" * 70] * 3) == {
        "ename": "E", "evalue": "e" * 100, "traceback": ["t" * 70, "t" * 29]}


def test_errors_come_to_an_end():
    budget = Budget(100)
    said = [kept("error", budget, ename="E", evalue="", traceback=[]) for _ in range(20)]
    assert said[0] is not None and said[-1] is None


def test_pictures_are_kept_whole_or_not_at_all():
    budget = Budget(100)
    picture = {"image/png": "A" * 1000, "text/plain": "<Figure>"}
    assert kept("display_data", budget, data=picture, metadata={"x": "y"})["data"] == picture
    large = {"image/png": "A" * MOST_PICTURES, "text/plain": "<Figure>"}
    assert kept("display_data", budget, data=large)["data"] == {"text/plain": "<Figure>"}


def test_forms_that_could_run_in_a_browser_are_left_out():
    data = {"text/html": "<script>", "application/javascript": "x", "image/svg+xml": "<svg>",
            "image/png": '"><script>', "text/plain": "<script>"}
    assert kept("display_data", data=data)["data"] == {"text/plain": "<script>"}


def test_messages_without_end_are_given_up():
    budget = Budget(100)
    for _ in range(MOST_MESSAGES):
        budget.count()
    with pytest.raises(TooManyMessages):
        budget.count()
