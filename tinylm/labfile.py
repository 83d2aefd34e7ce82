"""The learner's folder and the learner's file.

`start` fills a folder with the pristine notebooks, lab.py and test_lab.py; `keep` writes a function
from a notebook into its section of lab.py, and `follow` lets other open notebooks see that;
`progress` says what is left; `reset` brings a pristine file back. What the learner wrote is never
lost: a file that is replaced stays beside the new one, under a name with the date.

Nothing here knows whether a function is right. The module stands on the standard library; IPython
is used where it already runs, never imported.
"""

import ast
import hashlib
import importlib.util
import json
import linecache
import os
import sys
import time
import traceback
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from inspect import isfunction, unwrap
from pathlib import Path

from tinylm import cells
from tinylm.files import replacing

TASKS = ("sample_group", "group_advantages", "k3_kl", "grpo_loss", "grpo_step")
TEMPLATE = Path(__file__).parent / "template"
MEMORY = ".lab.json"        # in the learner's folder: the hash of lab.py as last written here


class LabError(Exception):
    """Something that the learner can put right; the message is a sentence that says how."""

    def _render_traceback_(self):
        return [str(self)]                  # IPython shows this in place of a traceback


# ------------------------------------------------------------ the folder

def start(folder=None, notebooks=None):
    """Fill the learner's folder; whatever is there already stays. Returns the folder.

    Args:
        folder: by default `work`, or the current folder if that is a learner's.
        notebooks: the pristine notebooks; by default `notebooks`, here or beside the folder.

    Says for each file what was done. Raises LabError where the folder cannot be written.
    """
    folder = learner_folder(folder)
    pristine = _pristine_notebooks(folder, notebooks)
    for source in [*pristine, TEMPLATE / "lab.py", TEMPLATE / "test_lab.py"]:
        target = folder / source.name
        if os.path.lexists(target):
            print(f"kept yours  {_shown(target)}")
        else:
            write(target, source.read_bytes())
            print(f"copied      {_shown(target)}")
    if not pristine:
        print(f"no notebooks: there are none in {notebooks or 'notebooks'}; start again in the "
              "folder that holds README.md, and they come too.")
    return folder


def reset(which, folder=None, notebooks=None):
    """Bring one pristine file back, and keep the old one beside it.

    Args:
        which: "02", "02-group-advantages" or its file name; or "lab" for lab.py.
        folder, notebooks: as in `start`.

    Raises LabError for a name that is none of these.
    """
    folder = learner_folder(folder)
    source = _pristine(which, folder, notebooks)
    target, aside = folder / source.name, None
    if target.exists():
        if target.read_bytes() == source.read_bytes():
            print(f"{_shown(target)} is as it was given: there is nothing to reset.")
            return
        aside = _set_aside(target)
    write(target, source.read_bytes())
    if target.name == "lab.py":
        _reload(target)
    yours = f"; yours is now {aside.name}" if aside else ""
    print(f"{_shown(target)} is pristine again{yours}.")


def progress(folder=None):
    """Print which of the five functions are kept in lab.py and what is left. Nothing is run."""
    lab = learner_folder(folder) / "lab.py"
    done = kept(lab)
    print(f"{len(done)} of {len(TASKS)} kept in {_shown(lab)}")
    for number, name in enumerate(TASKS, 1):
        state = "kept" if name in done else f"left: notebook 0{number}"
        print(f"  Task {number}  {name:<16}  {state}")


def kept(lab):
    """The names of those tasks, in order, that are no stubs any more in the lab file at a path."""
    body = _parsed(_read(lab), _shown(lab))
    definitions = {name: cells.definition_of(name, body) for name in TASKS}
    stubs = {name for name, node in definitions.items() if node and cells.is_stub(node)}
    return [name for name in TASKS if name in cells.bound(body) - stubs]


def learner_folder(folder=None):
    """The given folder; without one, the current folder if it is a learner's, else `work`."""
    if folder is not None:
        return Path(folder)
    inside = Path("lab.py").exists() or Path(MEMORY).exists()
    return Path() if inside else Path("work")


def _pristine_notebooks(folder, notebooks):
    """The given notebooks, in order."""
    places = [notebooks] if notebooks else ["notebooks", folder.resolve().parent / "notebooks"]
    return next(filter(None, (sorted(Path(place).glob("*.ipynb")) for place in places)), [])


def _pristine(which, folder, notebooks):
    """The pristine file that `which` names."""
    stem = Path(str(which)).name.removesuffix(".ipynb").removesuffix(".py")
    if stem == "lab":
        return TEMPLATE / "lab.py"
    choice = _pristine_notebooks(folder, notebooks)
    if not choice:
        raise LabError(f"there are no pristine notebooks to reset {which} from; type this in the "
                       "folder that holds README.md.")
    for notebook in choice:
        if notebook.stem == stem or stem.isdigit() and notebook.stem[:3] == stem.zfill(2) + "-":
            return notebook
    names = ", ".join(notebook.stem for notebook in choice)
    raise LabError(f"{which} is no notebook of the course; reset takes lab or one of {names}.")


# ------------------------------------------------------------ reading and writing

def load_lab(path):
    """The lab file at `path`, read anew, as the module `lab`.

    Raises LabError if it is missing, does not parse, or stops while it is read.
    """
    module = sys.modules["lab"] = executed(_read(path), path)
    return module


def executed(text, path):
    """The module `lab` that a lab file of this text would be; an imported `lab` stays as it is.

    Args:
        text: the source.
        path: the file that the text is from; messages name it, and it is not read.

    Raises LabError if the text does not parse, or stops while it is read.
    """
    module = _module(path)
    with as_lab(module):
        _execute(text, module)
    return module


def step_in(path):
    """The grpo_step of the lab file at `path`. Raises LabError as `load_lab`, or if it has none."""
    step = getattr(load_lab(path), "grpo_step", None)
    if step is None:
        raise LabError(f"{_shown(path)} defines no grpo_step; write Task 5 first.")
    return step


def what_went_wrong(error, path):
    """One sentence for an error that was raised in, or below, the lab file at `path`."""
    said = " ".join(str(error).split())
    if isinstance(error, NotImplementedError) and said.startswith("Task "):    # torch raises it too
        return f"{said} is still a stub in {_shown(path)}; write it, then train."
    said = f"{type(error).__name__}: {said}" if said else type(error).__name__
    file = str(Path(path).resolve())
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if frame.filename == file]
    if not inside:
        return f"{_shown(path)} cannot be run: {said}"
    at = inside[-1]
    return f"{_shown(path)}, line {at.lineno}, in {at.name}: `{at.line}` raised {said}"


def _module(path):
    file = str(Path(path).resolve())
    spec = importlib.util.spec_from_file_location("lab", file, loader=SourceFileLoader("lab", file))
    return importlib.util.module_from_spec(spec)


@contextmanager
def as_lab(module):
    """Let `import lab` mean this module for a while: a lab file may import itself."""
    before = sys.modules.get("lab")
    sys.modules["lab"] = module
    try:
        yield
    finally:
        if before is None:
            sys.modules.pop("lab", None)         # the file's own code may have taken it away
        else:
            sys.modules["lab"] = before


def _execute(text, module):
    """Run the text of a lab file in the module's namespace, past any .pyc."""
    shown = _shown(module.__file__)
    try:
        code = compile(text, module.__file__, "exec")
    except (SyntaxError, ValueError) as error:
        raise LabError(_no_parse(shown, error)) from None
    try:
        exec(code, vars(module))
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}"
        raise LabError(f"{shown} stops while it is read: {what}") from None


def _parsed(text, what):
    """The top-level statements of a source text."""
    try:
        return ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        raise LabError(_no_parse(what, error)) from None


def _no_parse(what, error):
    where = f" (line {error.lineno})" if getattr(error, "lineno", None) else ""
    return f"{what} does not parse{where}: {getattr(error, 'msg', error)}."


def _read(lab):
    try:
        return Path(lab).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise LabError(f"there is no {_shown(lab)}; `python -m tinylm start`, typed in the folder "
                       "that holds README.md, brings one into work.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"{_shown(lab)} cannot be read: {error}.") from None


def write(target, data):
    """Replace a file in one step, a link's own file if it is a link, and remember lab.py."""
    try:
        with replacing(target.resolve()) as temporary:
            temporary.write_bytes(data)
        if target.name == "lab.py":
            with replacing(target.with_name(MEMORY)) as temporary:
                temporary.write_text(json.dumps({"lab.py": _digest(data)}) + "\n")
    except OSError as error:
        raise LabError(f"{_shown(target)} cannot be written: {error}") from None


def _changed_by_hand(lab):
    """Whether lab.py differs from what was last written here."""
    try:
        remembered = json.loads(lab.with_name(MEMORY).read_text())["lab.py"]
    except (OSError, ValueError, KeyError, TypeError):
        remembered = _digest((TEMPLATE / "lab.py").read_bytes())
    return _digest(lab.read_bytes()) != remembered


def _digest(data):
    return hashlib.sha256(data).hexdigest()


def _set_aside(target):
    """Copy a file beside itself, under a new name with date and time. Returns the new path."""
    stem = f"{target.stem}.{time.strftime('%Y-%m-%d-%H%M%S')}"
    aside, count = target.with_name(stem + target.suffix), 1
    while os.path.lexists(aside):
        count += 1
        aside = target.with_name(f"{stem}-{count}{target.suffix}")
    write(aside, target.read_bytes())
    return aside


@contextmanager
def _turn(folder):
    """Wait for the folder's turn: of two notebooks that keep at one moment neither may lose.

    A turn takes milliseconds, so one that lasts seconds was left behind by a process that died.
    """
    taken, deadline = folder / ".lab.turn", time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.close(os.open(taken, os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            time.sleep(0.02)
        except OSError as error:
            raise LabError(f"{_shown(folder)} cannot be written: {error}") from None
    try:
        yield
    finally:
        taken.unlink(missing_ok=True)


def _shown(path):
    """A path as a learner would type it here."""
    path, here = Path(path).absolute(), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


# ------------------------------------------------------------ keep

def keep(fn, overwrite=False, folder=None, anyway=False):
    """Write a function, and what it needs of its notebook cell, into its section of lab.py.

    Args:
        fn: one of the five functions, defined in a cell that was run. From the cell come the
            imports, assignments, helpers and classes that it uses; lines that only try something
            out stay in the notebook. Outside of a notebook the function goes alone.
        overwrite: replace the section even though lab.py was changed by hand. The rest of the file
            stays as it is, and the file as it was is saved beside it.
        folder: the learner's folder; by default the current one, or `work` in it.
        anyway: keep it even though it does not pass the checks of its task.

    Prints a line that says so; a `lab` that is imported here is loaded anew. While nbgrader runs
    the notebook, nothing is written. Raises LabError, before anything is written, for a function
    that its checks find wrong, for what would leave a lab.py that does not work, and for a lab.py
    that was changed by hand.
    """
    if os.environ.get("NBGRADER_EXECUTION"):
        print("nbgrader is running this notebook: nothing is kept.")
        return
    lab = learner_folder(folder) / "lab.py"
    name = _task_name(fn)
    _read(lab)
    _refuse_other_lab(lab)
    text, helpers = _section_of(unwrap(fn), lab)
    if not anyway:
        _refuse_what_is_wrong(fn, name)
    with _turn(lab.parent):
        old, aside = _read(lab), None
        new = _with_section(old, name, text, lab)
        if new != old:
            by_hand = _changed_by_hand(lab)
            if by_hand and not overwrite:
                raise LabError(f"{_shown(lab)} was changed by hand since it was last written here; "
                               f"keep({name}, overwrite=True) replaces the section of {name} "
                               "alone, and saves the file as it is beside it.")
            _refuse_strange_names(name, text, old, new, lab)
            _try_out(new, lab)
            aside = _set_aside(lab) if by_hand else None
            write(lab, new.encode())
    _reload(lab)
    along = f" with {', '.join(helpers)}" if helpers else ""
    before = f" The file as it was is {aside.name}." if aside else ""
    print(f"Kept {name}{along} in {_shown(lab)}, Task {TASKS.index(name) + 1}.{before}")


def _refuse_what_is_wrong(fn, name):
    from tinylm.checks import checks_of, judge  # they load torch, which start can do without

    wrong = [check for check in checks_of(name) if not judge(fn, check).passed]
    if wrong:
        raise LabError(f"{name} was not kept, for it does not pass its checks yet: "
                       f"{', '.join(wrong)}. Run their cells to see why; keep({name}, anyway=True) "
                       "keeps it as it is.")


def _task_name(fn):
    plain = unwrap(fn) if callable(fn) else fn
    if not isfunction(plain):
        raise LabError(f"keep was given a {type(fn).__name__}; it takes the function itself, as in "
                       "keep(k3_kl).")
    if plain.__name__ not in TASKS:
        raise LabError(f"{plain.__name__} is none of the five functions; keep takes "
                       f"{', '.join(TASKS[:-1])} or {TASKS[-1]}, defined under that name.")
    return plain.__name__


def _section_of(fn, lab):
    """What goes into lab.py: (text, names of what comes along with the function)."""
    name, file = fn.__name__, fn.__code__.co_filename
    if Path(file).resolve() == lab.resolve():
        raise LabError(f"this {name} comes from {_shown(lab)} itself; run the cell that defines "
                       "yours, then keep it.")
    linecache.checkcache(file)
    source = "".join(linecache.getlines(file))
    if not source:
        raise LabError(f"the source of {name} cannot be found; run its cell again, without a line "
                       "such as %%time at the top.")
    body = _parsed(source, f"what defines {name}")
    definition = cells.definition_of(name, body)
    if definition is None:
        raise LabError(f"{name} is defined inside of something else; write its def at the left "
                       "margin.")
    if cells.is_stub(definition):
        raise LabError(f"{name} is still the stub that raises NotImplementedError; write it, run "
                       "its cell, then keep it.")
    _refuse_other_arguments(definition)
    statements = cells.needed(definition, body, TASKS) if _is_cell(file) else [definition]
    if "get_ipython" in cells.used(statements):
        raise LabError(f"{name}, or something it needs, uses a notebook command (a line with % or "
                       "!); lab.py is plain Python, so write it without.")
    helpers = cells.bound(node for node in statements if not isinstance(node, cells.IMPORTS))
    return cells.text_of(statements, body, source), sorted(helpers - {name})


def _is_cell(file):
    shell = _shell()
    return shell is not None and shell.compile.format_code_name(file) is not None


def _shell():
    """The IPython that runs, or None."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None


def _with_section(old, name, text, lab):
    new = cells.with_section(old, TASKS.index(name) + 1, text)
    if new is None:
        raise LabError(f"{_shown(lab)} has no line `# ====== Task {TASKS.index(name) + 1}`, or "
                       "several, so the section to fill cannot be told; put that line back, or "
                       "get a pristine file with `python -m tinylm reset lab`.")
    return new


def _refuse_other_arguments(definition):
    seed = _parsed((TEMPLATE / "lab.py").read_text(encoding="utf-8"), "the pristine lab.py")
    expected = cells.signature(cells.definition_of(definition.name, seed))
    found = cells.signature(definition)
    if found != expected:
        raise LabError(f"{definition.name} has the arguments ({found}); expected ({expected}).")


def _refuse_strange_names(name, text, old, new, lab):
    """Every name that is read must be bound in lab.py, and mean one thing there."""
    file, section = _parsed(new, _shown(lab)), _parsed(text, f"what defines {name}")
    rest = _parsed(_with_section(old, name, "", lab), _shown(lab))
    for other in cells.clashes(section, rest):
        raise LabError(f"{other} already means something else in {_shown(lab)}; give the one in "
                       f"the cell of {name} another name.")
    known = cells.known(file)
    for other in sorted(cells.used(section) - known):
        raise LabError(f"{name} uses {other}, which neither its cell nor {_shown(lab)} defines; "
                       f"put {other} in the same cell, run it, then keep {name}.")
    for other in sorted((cells.used(rest) - known) & _bound_before(old)):
        raise LabError(f"another section of {_shown(lab)} uses {other}, which the cell of {name} "
                       f"no longer defines; put it back, or keep it with the function that uses "
                       "it.")


def _bound_before(old):
    try:
        return cells.bound(ast.parse(old).body)
    except (SyntaxError, ValueError):
        return set()


def _try_out(text, lab):
    """Run the new file once, aside: no kept cell may leave a lab.py that cannot be imported."""
    try:
        executed(text, lab)
    except LabError as error:
        raise LabError(f"nothing was kept, because with this cell {error}") from None


def _refuse_other_lab(lab):
    """A kernel has one `lab`, and it must be the one in the learner's folder."""
    module = sys.modules.get("lab")
    if module is not None and not _is_from(module, lab):
        raise LabError(f"lab is imported from {getattr(module, '__file__', None)} here, and the "
                       f"file in your folder is {lab.resolve()}; restart the kernel, and run the "
                       "notebook in the folder of the lab.py that you mean.")


def _is_from(module, lab):
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve() == lab.resolve()


# ------------------------------------------------------------ lab in an open kernel

_followed = {}              # path of a lab.py: its text when it was last looked at


def follow(folder=None):
    """From now on load `lab` anew before a cell of this notebook runs, whenever lab.py has changed.

    A cell `from lab import k3_kl`, run again, then brings what another notebook kept meanwhile.
    Calling it twice is the same as once; outside of IPython there are no cells to wait for.
    Raises LabError if there is no lab.py, or if `lab` is already imported from another folder.
    """
    lab = (learner_folder(folder) / "lab.py").resolve()
    _refuse_other_lab(lab)
    if "lab" not in sys.modules and importlib.util.find_spec("lab") is None:
        _read(lab)                           # which says that it is missing, and how to get one
    _followed.setdefault(lab, None)
    shell = _shell()
    if shell is not None:
        shell.events.register("pre_run_cell", _reload_changed)


def _reload_changed(_cell):
    for lab, seen in list(_followed.items()):
        if _text_or_none(lab) in (None, seen):
            continue
        try:
            _reload(lab)
        except LabError as error:
            sys.modules.pop("lab", None)     # the next import shows where lab.py goes wrong
            print(error)


def _text_or_none(lab):
    try:
        return _read(lab)
    except LabError:
        return None


def _reload(lab):
    """Load an imported `lab` anew in this process, and leave no stale .pyc for the others.

    Python trusts a .pyc whose source has the same size and whole second, and two keeps within a
    second may well have both in common.
    """
    lab = lab.resolve()
    Path(importlib.util.cache_from_source(str(lab))).unlink(missing_ok=True)
    text, module = _read(lab), sys.modules.get("lab")
    if lab in _followed:
        _followed[lab] = text
    if module is not None and _is_from(module, lab):
        _execute(text, module)
