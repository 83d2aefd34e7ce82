"""The learner's folder and file, through real folders and real notebook kernels."""

import json
import os
import re
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import nbformat
import pytest
import torch
from jupyter_client.manager import start_new_kernel
from nbformat.v4 import new_code_cell, new_notebook
from nbgrader.validator import Validator

from tinylm import labfile
from tinylm.labfile import LabError

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = (ROOT / "tinylm/template/lab.py").read_text()
REFERENCE = (ROOT / "autograde/reference/lab.py").read_text()

K3 = """\
def k3_kl(logp, ref_logp):
    d = ref_logp - logp
    return torch.exp(d) - d - 1
"""


def section(text, number):
    """The body of Task `number` in a lab file."""
    return re.search(rf"^# =+ Task {number}\n(.*?)\n*^# ===", text, re.M | re.S)[1]


class Kernel:
    """A notebook's kernel: run a cell, see what it prints and how it fails."""

    def __init__(self, folder):
        environment = os.environ | {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder / "ipython")}
        self.manager, self.client = start_new_kernel(kernel_name="python3", cwd=str(folder),
                                                     env=environment)

    def run(self, cell):
        """Returns (printed, error): error is the message's content, or None."""
        printed, errors = [], []

        def hook(message):
            if message["msg_type"] == "stream":
                printed.append(message["content"]["text"])
            if message["msg_type"] == "error":
                errors.append(message["content"])

        self.client.execute_interactive(textwrap.dedent(cell), output_hook=hook, timeout=60)
        return "".join(printed), errors[0] if errors else None

    def printed(self, cell):
        printed, error = self.run(cell)
        assert error is None, "\n".join(error["traceback"])
        return printed

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


# What these tests keep need not be right; that wrong functions are refused has tests of its own.
KEEP_ANYWAY = """\
from functools import partial
from tinylm import labfile
keep = partial(labfile.keep, anyway=True)
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    kernel = Kernel(tmp_path_factory.mktemp("kernel"))
    kernel.printed("import os, sys\n" + KEEP_ANYWAY)
    yield kernel
    kernel.close()


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A folder with two pristine notebooks, as after a clone; the tests stand in it."""
    (tmp_path / "notebooks").mkdir()
    for name in ("01-sample-group", "02-group-advantages"):
        (tmp_path / f"notebooks/{name}.ipynb").write_text(f'{{"name": "{name}"}}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    monkeypatch.delitem(sys.modules, "lab", raising=False)
    monkeypatch.setattr(labfile, "_followed", {})
    yield tmp_path
    sys.modules.pop("lab", None)


@pytest.fixture
def work(course, capsys):
    labfile.start()
    capsys.readouterr()
    return course / "work"


@pytest.fixture
def notebook(work, kernel):
    """The kernel, as a notebook in `work` that was just opened."""
    kernel.printed(f"os.chdir({str(work)!r}); sys.modules.pop('lab', None); "
                   "os.environ.pop('NBGRADER_EXECUTION', None)")
    return kernel


def python(folder, code):
    """What a fresh Python in the folder prints; it writes .pyc files as usual."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=folder, text=True,
                          env=environment, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def files(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_file())


# ------------------------------------------------------------ start

def test_start_fills_the_folder_and_says_so(course, capsys):
    labfile.start()
    said = capsys.readouterr().out
    for name in ("01-sample-group.ipynb", "02-group-advantages.ipynb"):
        assert (course / "work" / name).read_text() == (course / "notebooks" / name).read_text()
        assert re.search(rf"copied +work/{name}", said)
    assert (course / "work/lab.py").read_text() == TEMPLATE
    assert (course / "work/test_lab.py").exists()


def test_start_never_writes_over_a_file(work, capsys):
    (work / "lab.py").write_text("mine")
    (work / "02-group-advantages.ipynb").unlink()
    (work / "02-group-advantages.ipynb").symlink_to(work / "nowhere")
    (work / "01-sample-group.ipynb").unlink()
    labfile.start()
    said = capsys.readouterr().out
    assert (work / "lab.py").read_text() == "mine"
    assert not (work / "nowhere").exists()
    assert re.search("kept yours +work/lab.py", said)
    assert re.search("copied +work/01-sample-group.ipynb", said)


def test_start_inside_of_the_folder_means_that_folder(work, monkeypatch):
    monkeypatch.chdir(work)
    (work / "01-sample-group.ipynb").unlink()
    labfile.start()
    assert (work / "01-sample-group.ipynb").exists()
    assert not (work / "work").exists()


def test_start_without_notebooks_still_brings_the_rest(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    labfile.start()
    assert "no notebooks" in capsys.readouterr().out
    assert {"lab.py", "test_lab.py"} <= set(files(tmp_path / "work"))


def test_start_where_nothing_can_be_written(course):
    (course / "file").write_text("")
    with pytest.raises(LabError, match="file/work/01-sample-group.ipynb cannot be written"):
        labfile.start("file/work")


def test_a_copy_that_fails_leaves_nothing(course, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(LabError, match="No space left"):
        labfile.start()
    assert files(course / "work") == []


# ------------------------------------------------------------ reset

@pytest.mark.parametrize("which", ["02", "2", "02-group-advantages", "02-group-advantages.ipynb",
                                   "work/02-group-advantages.ipynb"])
def test_reset_brings_a_notebook_back_and_keeps_the_old_one(work, which, capsys):
    notebook = work / "02-group-advantages.ipynb"
    pristine = notebook.read_text()
    for mine in ("first", "second"):         # twice within a second
        notebook.write_text(mine)
        labfile.reset(which)
        assert notebook.read_text() == pristine
    aside = [path for path in work.glob("02-*.ipynb") if path != notebook]
    assert sorted(path.read_text() for path in aside) == ["first", "second"]
    said = capsys.readouterr().out
    for path in aside:
        assert re.match(r"02-group-advantages\.\d{4}-\d\d-\d\d-\d{6}(-2)?\.ipynb", path.name)
        assert path.name in said


def test_reset_of_a_pristine_notebook_does_nothing(work, capsys):
    before = files(work)
    labfile.reset("01")
    assert files(work) == before
    assert "nothing to reset" in capsys.readouterr().out


def test_reset_brings_back_a_deleted_notebook(work):
    (work / "01-sample-group.ipynb").unlink()
    labfile.reset("01")
    assert (work / "01-sample-group.ipynb").exists()


def test_reset_lab(work, monkeypatch):
    monkeypatch.chdir(work)                  # as in a terminal of JupyterLab
    (work / "lab.py").write_text("mine")
    labfile.reset("lab")
    assert (work / "lab.py").read_text() == TEMPLATE
    assert [path.read_text() for path in work.glob("lab.*-*.py")] == ["mine"]


@pytest.mark.parametrize("which", ["09", "", "0", "group", "../lab.txt"])
def test_reset_of_something_unknown(work, which):
    with pytest.raises(LabError, match="takes lab or one of 01-sample-group, 02-group-advantages"):
        labfile.reset(which)


# ------------------------------------------------------------ progress

def test_progress_counts_what_is_no_stub(work, capsys):
    text = TEMPLATE.replace(section(TEMPLATE, 3), K3)
    # A stub whose body has begun is still one; a function that may return is not.
    text = text.replace('    raise NotImplementedError("Task 4', '    x = 1\n    raise '
                        'NotImplementedError("Task 4')
    text = text.replace(section(TEMPLATE, 1), "def sample_group(*a):\n    if a:\n        return 1\n"
                        "    raise NotImplementedError")
    (work / "lab.py").write_text(text + "\nraise SystemExit('lab.py was run')\n")
    labfile.progress()
    said = capsys.readouterr().out
    assert "2 of 5 kept in work/lab.py" in said
    assert re.search(r"Task 3 +k3_kl +kept", said)
    assert re.search(r"Task 1 +sample_group +kept", said)
    assert re.search(r"Task 4 +grpo_loss +left: notebook 04", said)


def test_progress_of_a_file_that_does_not_parse(work):
    (work / "lab.py").write_text("x = 1\ndef k3_kl(:\n")
    with pytest.raises(LabError, match=r"work/lab.py does not parse \(line 2\)"):
        labfile.progress()


def test_progress_without_a_lab(course):
    with pytest.raises(LabError, match="python -m tinylm start"):
        labfile.progress()


# ------------------------------------------------------------ keep

def test_keep_writes_what_the_function_needs_of_its_cell(notebook, work):
    said = notebook.printed("""\
        import math
        import torch
        import random  # for the trial below

        # How close is close.
        TINY = 1e-4  # as in the text
        UNUSED = 3
        CLOSE = [TINY]
        CLOSE[0] = 2 * TINY; print("trial")

        # A helper, with its comment.
        @torch.no_grad()
        def spread(group):
            # inside
            return group.std(dim=1, keepdim=True, unbiased=False) * math.sqrt(1)

        def trial():
            return group_advantages(nowhere, 2)

        # ============================================================== Task 2
        def group_advantages(rewards: torch.Tensor, G, scale_std=True, eps=1e-4):
            r = rewards.reshape(-1, G)
            adv = r - r.mean(dim=1, keepdim=True)
            return (adv / (spread(r) + CLOSE[0] / 2)).reshape(-1) if scale_std else adv.reshape(-1)

        print(group_advantages(torch.tensor([1.0, 0.0]), 2))
        adv = group_advantages(torch.tensor([1.0, 0.0]), 2)
        keep(group_advantages)
        """)
    assert said.endswith("Kept group_advantages with CLOSE, TINY, spread in lab.py, Task 2.\n")
    text = (work / "lab.py").read_text()
    assert section(text, 2) == textwrap.dedent("""\
        import math
        import torch
        # How close is close.
        TINY = 1e-4  # as in the text
        CLOSE = [TINY]
        CLOSE[0] = 2 * TINY


        # A helper, with its comment.
        @torch.no_grad()
        def spread(group):
            # inside
            return group.std(dim=1, keepdim=True, unbiased=False) * math.sqrt(1)


        def group_advantages(rewards: torch.Tensor, G, scale_std=True, eps=1e-4):
            r = rewards.reshape(-1, G)
            adv = r - r.mean(dim=1, keepdim=True)
            return (adv / (spread(r) + CLOSE[0] / 2)).reshape(-1) if scale_std else adv.reshape(-1)
        """).rstrip()
    assert text.replace(section(text, 2), section(TEMPLATE, 2)) == TEMPLATE
    assert python(work, "import lab, torch; print(lab.group_advantages(torch.tensor([1., 0.]), 2))"
                  ) == "tensor([ 0.9998, -0.9998])\n"


def test_five_kept_functions_make_the_reference_lab(notebook, work):
    notebook.printed("import torch\nfrom tinylm import *")
    for number, name in enumerate(labfile.TASKS, 1):
        notebook.printed(section(REFERENCE, number) + f"\n\nkeep({name})")
        assert len(labfile.kept(work / "lab.py")) == number
    assert (work / "lab.py").read_text() == REFERENCE


def test_keep_from_a_cell_that_holds_two_tasks(notebook, work):
    cell = "import torch\n" + K3 + section(REFERENCE, 4) + "\n"
    notebook.printed(cell + "keep(k3_kl); keep(grpo_loss)")
    text = (work / "lab.py").read_text()
    assert text.count("def k3_kl(") == text.count("def grpo_loss(") == 1
    assert labfile.kept(work / "lab.py") == ["k3_kl", "grpo_loss"]


def test_keep_of_a_function_that_is_wrapped_in_its_cell(notebook, work):
    notebook.printed("import torch\n" + K3 + "k3_kl = torch.no_grad()(k3_kl)\nkeep(k3_kl)")
    assert section((work / "lab.py").read_text(), 3).endswith("k3_kl = torch.no_grad()(k3_kl)")


@pytest.mark.parametrize("brought, call", [
    ("from lab import k3_kl", "k3_kl"),
    ("import lab", "lab.k3_kl"),
    ("import lab as mine", "mine.k3_kl"),
    ("from lab import k3_kl as other", "other"),
    ("from lab import *", "k3_kl"),
])
def test_keep_of_a_function_that_uses_lab(notebook, work, brought, call):
    notebook.printed(f"import torch\n{K3}\nkeep(k3_kl)")
    notebook.printed(f"""\
        {brought}
        def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
            return {call}(logp, ref_logp), {{}}
        keep(grpo_loss)
        """)
    assert "from lab import k3_kl\n" not in (work / "lab.py").read_text()
    inputs = (0.0, 0.0, 1.0, 0.0, 0.0)
    loss, _ = labfile.load_lab(work / "lab.py").grpo_loss(*map(torch.tensor, inputs))
    assert f"{loss:.4f}" == "0.7183"
    assert python(work, f"import lab, torch\n"
                        f"print(lab.grpo_loss(*map(torch.tensor, {inputs}))[0])"
                  ) == "tensor(0.7183)\n"


def test_keep_with_names_from_a_star(notebook, work):
    notebook.printed("from math import *\nimport torch\n" + K3.replace("torch.exp(d)", "exp(d)")
                     + "keep(k3_kl)")
    assert section((work / "lab.py").read_text(), 3).startswith("from math import *\n")


REFUSED = {
    "a string": ("keep('k3_kl')", "given a str; it takes the function itself"),
    "a class": ("class k3_kl: pass\nkeep(k3_kl)", "given a type"),
    "another name": ("def my_kl(logp, ref_logp): return 0\nkeep(my_kl)",
                     "my_kl is none of the five functions"),
    "a lambda": ("k3_kl = lambda logp, ref_logp: 0\nkeep(k3_kl)", "<lambda> is none"),
    "fewer arguments": ("def k3_kl(logp): return 0\nkeep(k3_kl)",
                        r"arguments \(logp\); expected \(logp, ref_logp\)"),
    "another default": (
        "def group_advantages(rewards, G, scale_std=True, eps=1e-8): return 0\n"
        "keep(group_advantages)",
        r"eps=1e-08\); expected \(rewards, G, scale_std=True, eps=0.0001\)"),
    "a stub": ('def k3_kl(logp, ref_logp):\n    """Doc."""\n    # YOUR CODE HERE\n'
               "    raise NotImplementedError()\nkeep(k3_kl)", "still the stub"),
    "a begun stub": ("def k3_kl(logp, ref_logp):\n    d = ref_logp - logp\n"
                     "    raise NotImplementedError('Task 3: k3_kl')\nkeep(k3_kl)",
                     "still the stub"),
    "an inner function": (
        "def make():\n    def k3_kl(logp, ref_logp): return 0\n    return k3_kl\nkeep(make())",
        "left margin"),
    "a name of another cell": (
        "def k3_kl(logp, ref_logp): return from_above(logp)\nkeep(k3_kl)",
        "k3_kl uses from_above, which neither its cell nor lab.py defines; put from_above in"),
    "a helper's name of another cell": (
        "def helper(x): return [from_above for _ in x]\n"
        "def k3_kl(logp, ref_logp): return helper(logp)\nkeep(k3_kl)", "uses from_above"),
    "display": ("def k3_kl(logp, ref_logp): display(logp)\nkeep(k3_kl)", "uses display"),
    "a magic inside": ("def k3_kl(logp, ref_logp):\n    %time x = 1\n    return x\nkeep(k3_kl)",
                       "notebook command"),
    "a shell line it needs": (
        "there = !ls\ndef k3_kl(logp, ref_logp): return there\nkeep(k3_kl)", "notebook command"),
    "a cell magic": ("%%time\ndef k3_kl(logp, ref_logp): return 0\nkeep(k3_kl)",
                     "source of k3_kl cannot be found; run its cell again, without a line such as"),
    "no source": ("exec('def k3_kl(logp, ref_logp): return 0')\nkeep(k3_kl)", "cannot be found"),
    "a helper that hides an import": (
        "def reward(x): return x\ndef k3_kl(logp, ref_logp): return reward(logp)\nkeep(k3_kl)",
        "reward already means something else in lab.py"),
    "an import that hides an import": (
        "from random import sample\ndef k3_kl(logp, ref_logp): return sample\nkeep(k3_kl)",
        "sample already means something else"),
}


@pytest.mark.parametrize("cell, words", REFUSED.values(), ids=REFUSED)
def test_keep_refuses(notebook, work, cell, words):
    printed, error = notebook.run(cell)
    assert error["ename"] == "LabError"
    assert re.search(words, error["evalue"])
    assert error["traceback"] == [error["evalue"]]           # the sentence, and nothing of ours
    assert error["evalue"].count("\n") == 0
    assert "Kept" not in printed
    assert (work / "lab.py").read_text() == TEMPLATE


def test_keep_refuses_a_cell_that_cannot_run_in_a_file(notebook, work):
    _, error = notebook.run("""\
        import os
        os.mkdir("gone")
        CONTENT = os.listdir("gone")
        def k3_kl(logp, ref_logp): return CONTENT
        os.rmdir("gone")
        keep(k3_kl)
        """)
    assert error["evalue"].startswith("nothing was kept, because with this cell lab.py stops while "
                                      "it is read: FileNotFoundError: ")
    assert (work / "lab.py").read_text() == TEMPLATE


def test_keep_does_not_import_lab_into_the_notebook(notebook, work):
    (work / "lab.py").write_text(TEMPLATE + "\n\nimport lab as itself\n")
    notebook.printed("import torch\n" + K3 + "keep(k3_kl, overwrite=True)")
    assert notebook.printed("print('lab' in sys.modules)") == "False\n"


def test_import_of_the_same_thing_by_another_way_is_no_clash(notebook, work):
    notebook.printed("""\
        import torch.nn.functional
        from torch.nn import functional as F
        from tinylm.rollout import sample
        def k3_kl(logp, ref_logp): return F, sample, torch
        keep(k3_kl)
        """)
    assert labfile.kept(work / "lab.py") == ["k3_kl"]


def test_two_sections_may_hold_the_same_helper_but_not_two_of_one_name(notebook, work):
    helper = "def one(): return 1\n"
    k3 = "def k3_kl(logp, ref_logp): return one()\nkeep(k3_kl)"
    advantages = ("def group_advantages(rewards, G, scale_std=True, eps=1e-4): return one()\n"
                  "keep(group_advantages)")
    notebook.printed(helper + k3)
    notebook.printed(helper + advantages)
    before = (work / "lab.py").read_text()
    _, error = notebook.run(helper.replace("1", "2") + advantages)
    assert "one already means something else in lab.py" in error["evalue"]
    assert (work / "lab.py").read_text() == before


def test_keep_does_not_take_a_helper_away_from_another_section(notebook, work):
    advantages = "def group_advantages(rewards, G, scale_std=True, eps=1e-4): return one()\n"
    notebook.printed("def one(): return 1\n" + advantages + "keep(group_advantages)")
    notebook.printed("def k3_kl(logp, ref_logp): return one()\nkeep(k3_kl)")
    _, error = notebook.run(advantages.replace("one()", "2") + "keep(group_advantages)")
    assert "another section of lab.py uses one, which" in error["evalue"]


def test_keep_of_what_comes_from_lab_itself(notebook, work):
    _, error = notebook.run("from lab import k3_kl\nkeep(k3_kl)")
    assert "this k3_kl comes from lab.py itself" in error["evalue"]


def test_keep_without_a_lab(notebook, work):
    (work / "lab.py").unlink()
    _, error = notebook.run(K3 + "keep(k3_kl)")
    assert "there is no lab.py; `python -m tinylm start`" in error["evalue"]
    assert not (work / "lab.py").exists()


@pytest.mark.parametrize("text", ["x = 1\n", TEMPLATE + "\n# ==================== Task 3\n"])
def test_keep_into_a_file_without_clear_sections(notebook, work, text):
    (work / "lab.py").write_text(text)
    _, error = notebook.run("import torch\n" + K3 + "keep(k3_kl, overwrite=True)")
    assert "lab.py has no line `# ====== Task 3`, or several" in error["evalue"]
    assert (work / "lab.py").read_text() == text


def test_keep_where_nothing_can_be_written(notebook, work):
    before = files(work)
    _, error = notebook.run("""\
        def full(*_):
            raise OSError(28, "No space left on device")

        def k3_kl(logp, ref_logp): return logp

        replace, os.replace = os.replace, full
        try:
            keep(k3_kl)
        finally:
            os.replace = replace
        """)
    assert "lab.py cannot be written: [Errno 28] No space left on device" in error["evalue"]
    assert (work / "lab.py").read_text() == TEMPLATE
    assert files(work) == before


def test_keep_says_so_when_lab_was_changed_by_hand(notebook, work):
    notebook.printed("import torch\n" + K3 + "keep(k3_kl)")
    mine = (work / "lab.py").read_text().replace("import torch\n", "import torch\nMINE = 1\n", 1)
    (work / "lab.py").write_text(mine)
    cell = "import torch\n" + K3.replace("- 1", "- 1.0")
    _, error = notebook.run(cell + "keep(k3_kl)")
    assert "lab.py was changed by hand since it was last written here" in error["evalue"]
    assert (work / "lab.py").read_text() == mine

    said = notebook.printed(cell + "keep(k3_kl, overwrite=True)")
    (aside,) = work.glob("lab.*-*.py")
    assert aside.name in said and aside.read_text() == mine
    assert (work / "lab.py").read_text() == mine.replace("- d - 1\n", "- d - 1.0\n")
    notebook.printed("import torch\n" + K3 + "keep(k3_kl)")   # nothing is by hand any more
    assert len(list(work.glob("lab.*-*.py"))) == 1


def test_keep_has_nothing_to_say_against_what_is_there_already(notebook, work):
    (work / "lab.py").write_text(REFERENCE)      # by hand
    notebook.printed("import torch")
    said = notebook.printed(section(REFERENCE, 3) + "\nkeep(k3_kl)")
    assert said == "Kept k3_kl in lab.py, Task 3.\n"
    assert (work / "lab.py").read_text() == REFERENCE


@pytest.mark.parametrize("memory", [None, "", "[]", '{"lab.py": 3}'])
def test_keep_without_its_memory_trusts_only_the_pristine_file(notebook, work, memory):
    (work / labfile.MEMORY).unlink()
    if memory is not None:
        (work / labfile.MEMORY).write_text(memory)
    (work / "lab.py").write_text(TEMPLATE + "# mine\n")
    _, error = notebook.run("import torch\n" + K3 + "keep(k3_kl)")
    assert "changed by hand" in error["evalue"]
    if memory != '{"lab.py": 3}':
        (work / "lab.py").write_text(TEMPLATE)
        notebook.printed("import torch\n" + K3 + "keep(k3_kl)")


def test_keep_repairs_a_broken_section(notebook, work):
    (work / "lab.py").write_text(TEMPLATE.replace(section(TEMPLATE, 3), "def k3_kl(:"))
    notebook.printed("import torch\n" + K3 + "keep(k3_kl, overwrite=True)")
    assert labfile.kept(work / "lab.py") == ["k3_kl"]


def test_keep_writes_nothing_while_nbgrader_runs(notebook, work):
    said = notebook.printed("os.environ['NBGRADER_EXECUTION'] = 'validate'\nimport torch\n" + K3
                            + "keep(k3_kl)\nkeep(None)")
    assert said == "nbgrader is running this notebook: nothing is kept.\n" * 2
    assert (work / "lab.py").read_text() == TEMPLATE


def test_nbgrader_sets_the_variable_that_keep_reads(work, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(work / "ipython"))
    notebook = new_notebook(cells=[new_code_cell("from tinylm.labfile import keep"),
                                   new_code_cell("keep(None)")])
    nbformat.write(notebook, work / "own.ipynb")
    assert Validator().validate(str(work / "own.ipynb")) == {}
    assert (work / "lab.py").read_text() == TEMPLATE


def test_a_wrong_function_is_kept_only_when_asked(notebook, work):
    notebook.printed("import torch\n" + k3_returning(1))
    _, error = notebook.run("labfile.keep(k3_kl)")
    assert re.search(r"k3_kl was not kept.*values.*keep\(k3_kl, anyway=True\)", error["evalue"])
    assert (work / "lab.py").read_text() == TEMPLATE
    notebook.printed("labfile.keep(k3_kl, anyway=True)")
    assert labfile.kept(work / "lab.py") == ["k3_kl"]


def test_a_right_function_is_kept_without_asking(notebook, work):
    said = notebook.printed("import torch\n" + section(REFERENCE, 3) + "\nlabfile.keep(k3_kl)")
    assert said.startswith("Kept k3_kl")


def test_keep_goes_through_a_link(notebook, work):
    (work / "lab.py").rename(work / "elsewhere.py")
    (work / "lab.py").symlink_to("elsewhere.py")
    notebook.printed("import torch\n" + K3 + "keep(k3_kl)")
    assert (work / "lab.py").is_symlink()
    assert labfile.kept(work / "elsewhere.py") == ["k3_kl"]


def test_keep_refuses_the_lab_of_another_folder(notebook, work, tmp_path):
    (tmp_path / "other").mkdir()
    labfile.start(tmp_path / "other")
    notebook.printed(f"from tinylm.labfile import load_lab; load_lab({str(tmp_path)!r} "
                     "+ '/other/lab.py')\nimport torch")
    _, error = notebook.run(K3 + "keep(k3_kl)")
    assert re.search("lab is imported from .*other/lab.py here.*restart the kernel",
                     error["evalue"])
    _, error = notebook.run("from tinylm.labfile import follow; follow()")
    assert "restart the kernel" in error["evalue"]


def test_a_notebook_in_a_folder_without_a_lab_says_so(notebook, work):
    (work / "lab.py").unlink()
    notebook.printed("import sys; sys.modules.pop('lab', None)")
    _, error = notebook.run("labfile.follow()")
    assert "python -m tinylm start" in error["evalue"] and len(error["traceback"]) == 1


def test_keep_outside_of_a_notebook_takes_the_function_alone(work, capsys):
    source = "import torch\n\nHELP = 1\n\n\n# Above.\n" + K3 + "\n\nprint(HELP)\n"
    (work / "mine.py").write_text(source)
    module = types.ModuleType("mine")
    exec(compile(source, str(work / "mine.py"), "exec"), vars(module))
    labfile.keep(module.k3_kl, anyway=True)
    assert section((work / "lab.py").read_text(), 3) == "# Above.\n" + K3.rstrip()
    assert "Kept k3_kl in work/lab.py, Task 3." in capsys.readouterr().out


KEEP_OFTEN = """\
import sys
from tinylm.labfile import keep
name, arguments = sys.argv[1:]
for i in range(15):
    file = f"{name}.py"
    source = f"def {name}({arguments}):\\n    return {i}\\n"
    open(file, "w").write(source)
    space = {}
    exec(compile(source, file, "exec"), space)
    keep(space[name], anyway=True)
"""


def test_two_notebooks_that_keep_at_one_moment_take_turns(work):
    arguments = {"k3_kl": "logp, ref_logp",
                 "group_advantages": "rewards, G, scale_std=True, eps=1e-4"}
    keepers = [subprocess.Popen([sys.executable, "-c", KEEP_OFTEN, *pair], cwd=work, text=True,
                                env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE,
                                stdout=subprocess.DEVNULL) for pair in arguments.items()]
    for keeper in keepers:
        _, complaint = keeper.communicate(timeout=120)
        assert keeper.returncode == 0, complaint
    text = (work / "lab.py").read_text()
    assert "return 14" in section(text, 2) and "return 14" in section(text, 3)


def test_a_turn_that_was_left_behind_does_not_block(notebook, work):
    (work / ".lab.turn").write_text("")
    notebook.printed("import torch\n" + K3 + "keep(k3_kl)")
    assert not (work / ".lab.turn").exists()


# ------------------------------------------------------------ lab in an open kernel

def k3_returning(number):
    return f"def k3_kl(logp, ref_logp): return {number}\n"


def test_keep_loads_lab_anew_in_its_own_kernel(notebook, work):
    notebook.printed("import lab\nold = lab")
    notebook.printed(k3_returning(1) + "keep(k3_kl)")
    assert notebook.printed("print(lab.k3_kl(0, 0), lab is old)") == "1 True\n"


def test_a_stale_pyc_is_not_believed(notebook, work):
    """Two keeps of one size within one second: what Python's own check cannot tell apart."""
    seen = []
    for number in (1, 2):
        notebook.printed(k3_returning(number) + "keep(k3_kl)")
        os.utime(work / "lab.py", (1e9, 1e9))
        seen.append(python(work, "import lab; print(lab.k3_kl(0, 0))"))
        assert list(work.glob("__pycache__/lab.*.pyc"))
    assert seen == ["1\n", "2\n"]


def test_another_open_notebook_follows(work):
    writer, reader = Kernel(work), Kernel(work)
    try:
        writer.printed(KEEP_ANYWAY)
        reader.printed("from tinylm.labfile import follow\nfollow()\nfollow()")
        show = "from lab import k3_kl\nprint(k3_kl(0, 0))"
        for number in (1, 2, 3):
            writer.printed(k3_returning(number) + "keep(k3_kl)")
            assert reader.printed(show) == f"{number}\n"
        writer.printed(k3_returning(4) + "keep(k3_kl)")
        assert reader.printed("import lab; first = lab; print(lab.k3_kl(0, 0))") == "4\n"
        assert reader.printed("follow(); print(lab is first)") == "True\n"

        (work / "lab.py").write_text("def k3_kl(:\n")                # by hand, and wrong
        printed, error = reader.run(show)
        assert printed == "lab.py does not parse (line 1): invalid syntax.\n"
        assert error["ename"] == "SyntaxError"
        (work / "lab.py").write_text(k3_returning(5))
        assert reader.printed(show) == "5\n"
        (work / "lab.py").unlink()
        assert reader.printed("print(k3_kl(0, 0))") == "5\n"
    finally:
        writer.close()
        reader.close()


def test_follow_after_lab_was_imported_and_changed(notebook, work):
    notebook.printed("from lab import k3_kl")
    text = TEMPLATE.replace(section(TEMPLATE, 3), k3_returning(7))
    (work / "lab.py").write_text(text)
    notebook.printed("from tinylm.labfile import follow; follow()")
    assert notebook.printed("from lab import k3_kl; print(k3_kl(0, 0))") == "7\n"
    count = "print(len(get_ipython().events.callbacks['pre_run_cell']))"
    before = notebook.printed(count)
    notebook.printed("follow()")
    assert notebook.printed(count) == before


def test_follow_outside_of_a_notebook_does_nothing(work):
    assert python(work, "from tinylm.labfile import follow; follow(); print('on')") == "on\n"


def test_labfile_does_not_bring_ipython(work):
    assert python(work, "import sys, tinylm.labfile; print('IPython' in sys.modules)") == "False\n"


# ------------------------------------------------------------ load_lab

def test_load_lab_reads_the_file_anew_each_time(work):
    for number in (1, 2):
        (work / "lab.py").write_text(k3_returning(number))
        os.utime(work / "lab.py", (1e9, 1e9))
        module = labfile.load_lab(work / "lab.py")
        assert module.k3_kl(0, 0) == number
        assert (module.__name__, sys.modules["lab"]) == ("lab", module)


@pytest.mark.parametrize("text, words", [
    (None, "there is no work/lab.py"),
    ("def k3_kl(:\n", r"work/lab.py does not parse \(line 1\): invalid syntax"),
    ("x = 1\nreturn x\n", r"work/lab.py does not parse \(line 2\)"),
    ("import nowhere_at_all\n", "stops while it is read: ModuleNotFoundError: No module named"),
    ("int('x')\n", "stops while it is read: ValueError"),
    (b"# \xff\n", "work/lab.py cannot be read"),
])
def test_load_lab_says_what_is_wrong(work, text, words):
    before = sys.modules.get("lab")
    (work / "lab.py").unlink()
    if text is not None:
        (work / "lab.py").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(LabError, match=words):
        labfile.load_lab("work/lab.py")
    assert sys.modules.get("lab") is before


def test_the_memory_is_a_hidden_json_file(work):
    assert list(json.loads((work / ".lab.json").read_text())) == ["lab.py"]
