"""The tables: derived, reproducible, and sharp enough to tell every known mistake from right.

All is measured twice: on the tables that tinylm carries, and on hidden ones from another seed.
"""

import functools
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from right import LABS, solutions

from autograde import fixtures
from autograde import record as recording
from autograde.mistakes import all_mistakes
from autograde.record import SEED, SIGNAL, effect, record, text_of
from autograde.reference import lab as reference
from tinylm.checks import checks_of, judge
from tinylm.checks.compare import difference
from tinylm.checks.tables import FOLDER, FUNCTIONS, table_of

TASKS = range(1, 6)
HIDDEN = 20_261                          # the seed of another instructor
MISTAKES = all_mistakes()


@functools.cache
def table(task, seed=HIDDEN):
    return record(task, seed)


@pytest.fixture(params=["carried", "hidden"])
def tables(request):
    """The tables by task."""
    if request.param == "carried":
        return {task: table_of(FUNCTIONS[task - 1]) for task in TASKS}
    return {task: table(task) for task in TASKS}


# ------------------------------------------------------------ derived data
@pytest.mark.parametrize("task", TASKS)
def test_a_table_recorded_again_is_the_same(task):
    again, carried = table(task, SEED), table_of(FUNCTIONS[task - 1])
    assert difference(again, carried) is difference(carried, again) is None


def test_the_numbers_do_not_hang_on_the_processor():
    """Another instruction set and one thread: nothing moves by as much as a tolerance."""
    script = ("import json; from autograde.record import record\n"
              "print(json.dumps([record(task, 0) for task in range(1, 6)]))")
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300,
        cwd=Path(recording.__file__).parents[1],
        env={**os.environ, "ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    carried = [table_of(function) for function in FUNCTIONS]
    assert difference(json.loads(done.stdout), carried) is None


@pytest.mark.parametrize("task", TASKS)
def test_another_seed_asks_the_same_of_other_numbers(task):
    hidden, carried = table(task), table_of(FUNCTIONS[task - 1])
    assert hidden["mistakes"] == carried["mistakes"]
    assert list(hidden["checks"]) == list(checks_of(FUNCTIONS[task - 1]))
    for name, entry in hidden["checks"].items():
        others = carried["checks"][name]["cases"]
        assert [case["observe"] for case in entry["cases"]] == [c["observe"] for c in others]
        assert entry["cases"] != others


@pytest.mark.parametrize("task", TASKS)
def test_a_file_is_readable_exact_and_small(task):
    file = FOLDER / f"task{task}.json"
    text = file.read_text(encoding="utf-8")
    assert text == text_of(json.loads(text)) + "\n"
    assert len(text) < 200_000 and text.count("\n") > 100


def test_main_writes_the_five_files(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(recording, "FOLDER", tmp_path)
    monkeypatch.setattr(recording, "record", lambda task, seed: {"task": task, "seed": seed})
    recording.main()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"task{n}.json" for n in TASKS]
    assert json.loads((tmp_path / "task3.json").read_text()) == {"task": 3, "seed": SEED}
    assert capsys.readouterr().out.count("\n") == 5


def test_a_fixture_that_hides_a_mistake_is_refused(monkeypatch):
    monkeypatch.setattr(recording, "SIGNAL", 1e9)
    with pytest.raises(ValueError, match="draws of the check values of k3_kl do not show k1, k2"):
        record(3, 7)


def test_numbers_that_happen_to_hide_a_mistake_are_drawn_again(monkeypatch):
    unlucky = iter([True, False])

    def k3_values(rng):
        """Looks at values.

        Read again."""
        case = fixtures.k3_values(rng)[0]
        if next(unlucky):
            case["inputs"]["ref_logp"] = case["inputs"]["logp"]
        return [case]

    monkeypatch.setitem(fixtures.FIXTURES["k3_kl"], "values", k3_values)
    (case,) = record(3, 7)["checks"]["values"]["cases"]
    assert case["inputs"]["ref_logp"] != case["inputs"]["logp"]


# ------------------------------------------------------------ the fixture rule
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: f"task{m.task}-{m.name}")
def test_a_mistake_is_far_from_right_where_it_is_taught(mistake, tables):
    for name in mistake.caught_by:
        assert effect(mistake.function, tables[mistake.task]["checks"][name]) >= SIGNAL, name


@pytest.mark.parametrize("task", TASKS)
def test_the_reference_is_far_from_any_tolerance(task, tables):
    """What is right is accepted with room to spare, so that another processor changes nothing."""
    for name, check in tables[task]["checks"].items():
        tight = {**check, "cases": [case if "atol" in case else {**case, "atol": 1e-8, "rtol": 1e-7}
                                    for case in check["cases"]]}
        assert effect(getattr(reference, FUNCTIONS[task - 1]), tight) == 0, name


# ------------------------------------------------------------ mistakes and their names
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: f"task{m.task}-{m.name}")
def test_a_mistake_fails_and_is_called_by_its_own_name(mistake, tables):
    table = tables[mistake.task]
    verdicts = {name: judge(mistake.function, name, table) for name in table["checks"]}
    assert all(not verdicts[name].passed for name in mistake.caught_by)
    names = {verdict.mistake for verdict in verdicts.values()} - {None}
    assert names == ({mistake.name} if mistake.named else set())


def test_sixty_have_a_name():
    assert sum(mistake.named for mistake in MISTAKES) >= 60


# ------------------------------------------------------------ right solutions
def cell(task, source):
    """The function that a solution cell defines, where lab.py's imports have run."""
    scope = dict(vars(reference))
    exec(compile(source, f"task{task}", "exec"), scope)
    return scope[FUNCTIONS[task - 1]]


@pytest.fixture
def lab(monkeypatch):
    """A lab of stubs as the module `lab`: what a notebook meets while it is graded."""
    path = Path(recording.__file__).parents[1] / "tinylm" / "template" / "lab.py"
    module = loaded(path)
    monkeypatch.setitem(sys.modules, "lab", module)
    return module


def loaded(path):
    spec = importlib.util.spec_from_file_location("lab", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("task, name", [(t, name) for t in TASKS for name in solutions(t)])
def test_a_right_solution_passes_every_check(task, name, tables, lab):
    fn = cell(task, solutions(task)[name])
    for check in tables[task]["checks"]:
        verdict = judge(fn, check, tables[task])
        assert verdict.passed and verdict.mistake is None, verdict.message


@pytest.mark.parametrize("path", LABS, ids=lambda path: path.stem)
@pytest.mark.parametrize("task", TASKS)
def test_a_right_lab_passes_every_check(task, path, tables, monkeypatch):
    monkeypatch.setitem(sys.modules, "lab", reference)
    module = loaded(path)
    monkeypatch.setitem(sys.modules, "lab", module)
    for check in tables[task]["checks"]:
        verdict = judge(getattr(module, FUNCTIONS[task - 1]), check, tables[task])
        assert verdict.passed and verdict.mistake is None, verdict.message
