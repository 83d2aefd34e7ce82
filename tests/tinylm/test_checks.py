"""The checks as a learner meets them: what they accept, what they say, what does not fool them."""

import copy
import functools
import inspect
import logging
import subprocess
import sys
import types
import warnings

import pytest
import torch

import tinylm
from autograde.reference import lab as reference
from tinylm import checks
from tinylm.checks import CheckFailed, check, checks_of, judge, pack, run, unpack
from tinylm.checks.compare import ABSENT, difference
from tinylm.checks.stage import Stage
from tinylm.checks.tables import FUNCTIONS, table_of

ALL = [(function, name) for function in FUNCTIONS for name in checks_of(function)]


def defined(source, **names):
    """The task's function that a cell defines, in globals of its own."""
    scope = {"torch": torch, **names}
    exec(source, scope)
    return next(scope[name] for name in FUNCTIONS if f"def {name}(" in source)


def renamed(fn, name):
    """A copy of a function under the name of a task."""
    return types.FunctionType(fn.__code__, fn.__globals__, name, fn.__defaults__, fn.__closure__)


def run_python(script):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          timeout=120)


K3 = "def k3_kl(logp, ref_logp):\n    d = ref_logp - logp\n    return torch.exp(d) - d - 1\n"


# ------------------------------------------------------------ what is right
@pytest.mark.parametrize("function, name", ALL)
def test_the_reference_passes_and_one_line_says_so(function, name, capsys):
    check(getattr(reference, function), name)
    assert capsys.readouterr() == (f"{name}: right\n", "")


def test_every_check_says_what_it_looks_at():
    for function in FUNCTIONS:
        entries = table_of(function)["checks"]
        assert 4 <= len(entries) <= 6
        assert checks_of(function) == {name: entry["looks_at"] for name, entry in entries.items()}
        for entry in entries.values():
            assert entry["looks_at"].endswith(".") and entry["read"] and entry["cases"]


def test_a_right_function_may_call_k3_kl_or_write_it_out():
    inlined = """
def grpo_loss(logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
    d = ref_logp - logp
    k3 = torch.exp(d) - d - 1
    rho = torch.exp(logp - old_logp)
    a, b = rho * adv[:, None], rho.clamp(1 - clip_eps, 1 + clip_eps) * adv[:, None]
    obj = torch.min(a, b) - beta * k3
    n = mask.sum()
    return -((obj * mask).sum(1) / mask.sum(1)).mean(), {
        "kl": float((k3 * mask).sum() / n), "clip_frac": float(((b < a) * mask).sum() / n),
        "ratio_max": float((rho * mask).max())}
"""
    for fn in (reference.grpo_loss, defined(inlined)):
        for name in checks_of("grpo_loss"):
            assert judge(fn, name).passed, name


# ------------------------------------------------------------ what is said
SAMPLE_STD = """
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = r - r.mean(1, keepdim=True)
    if scale_std:
        adv = adv / (r.std(1, keepdim=True) + eps)
    return adv.reshape(-1)
"""


def test_a_known_mistake_is_called_by_its_name():
    with pytest.raises(CheckFailed) as failed:
        check(defined(SAMPLE_STD), "population_std")
    message = str(failed.value)
    for part in ("population_std: not right yet", "Found:", "Expected:", "at [0]", "sample std",
                 "divides by G - 1", "Read again:"):
        assert part in message
    assert judge(defined(SAMPLE_STD), "population_std").mistake == "sample-std"


def test_a_mistake_costs_the_check_that_it_concerns_and_no_other():
    verdicts = {name: judge(defined(SAMPLE_STD), name) for name in checks_of("group_advantages")}
    assert [name for name, verdict in verdicts.items() if not verdict.passed] == ["population_std"]


def test_two_mistakes_at_once_have_no_name_where_they_meet():
    fn = defined(SAMPLE_STD.replace("r.std(1", "2 * r.std(1"))
    verdict = judge(fn, "population_std")
    assert not verdict.passed and verdict.mistake is None


SWAPPED = K3.replace("ref_logp - logp", "logp - ref_logp")


def test_where_several_mistakes_do_the_same_the_other_checks_tell_or_none_is_named():
    table = table_of("k3_kl")
    alone = {**table, "checks": {"direction": table["checks"]["direction"]}}
    assert judge(defined(SWAPPED), "direction").mistake == "sign-swapped"
    verdict = judge(defined(SWAPPED), "direction", alone)
    assert not verdict.passed and verdict.mistake is None


def test_an_error_alone_is_no_known_mistake():
    fn = defined("def grpo_loss(*args, **kwargs):\n    raise RuntimeError('something else')")
    for name in checks_of("grpo_loss"):
        assert judge(fn, name).mistake is None


def test_a_shape_is_shown_with_the_names_of_its_axes():
    fn = defined(SAMPLE_STD.replace("adv.reshape(-1)", "adv"))
    message = judge(fn, "values").message
    assert "the shape of the result" in message
    assert "Found:      (5, 5)" in message and "Expected:   (P*G,) = (25,)" in message


def test_a_place_is_shown_with_the_response_it_belongs_to():
    message = judge(defined(K3.replace("- 1", "- 1 + (d > 1)")), "values").message
    place = message.split("at [")[1].split("]")[0].split(", ")
    assert f"(response {place[0]}, token {place[1]})" in message


def test_digits_are_few_but_enough_to_differ():
    message = judge(defined(K3.replace("- 1", "- 1 + 5e-5")), "values").message
    found, expected = (line.split()[1] for line in message.splitlines()
                       if line.strip().startswith(("Found", "Expected")))
    assert found != expected and len(found) <= 8


def test_an_error_is_shown_with_the_line_it_came_from(tmp_path):
    file = tmp_path / "cell.py"
    file.write_text("def k3_kl(logp, ref_logp):\n    d = ref_logp - nothing\n    return d\n")
    scope = {}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    message = judge(scope["k3_kl"], "values").message
    assert "k3_kl stopped with NameError: name 'nothing' is not defined" in message
    assert "line 2: d = ref_logp - nothing" in message


@pytest.mark.parametrize("fn, words", [
    (defined("def k3_kl(logp, ref_logp):\n    raise NotImplementedError('Task 3: k3_kl')"),
     "k3_kl is still the stub"),
    (defined("def k3_kl(logp, ref_logp):\n    d = ref_logp - logp"), "end it with a line `return"),
    (defined("def k3_kl(logp, ref_logp):\n    raise SystemExit"), "stopped with SystemExit"),
    (defined("def k3_kl(logp):\n    return logp"), "takes 1 positional argument"),
    (defined("def k3_kl(logp, ref_logp):\n    return [0.0]"), "Found:      list"),
    (renamed(reference.k3_kl, "my_kl"), "the function is called my_kl"),
    (torch.zeros(3), "was given a Tensor; give it the function itself, without parentheses"),
    (None, "was given a NoneType"),
    (functools.partial(reference.k3_kl), "was given a partial"),
], ids=["stub", "none", "exit", "arguments", "list", "name", "result", "nothing", "partial"])
def test_bad_input_gets_a_sentence(fn, words):
    with pytest.raises(CheckFailed) as failed:
        check(fn, "values")
    assert words in str(failed.value)


def test_an_unknown_check_or_function_is_told_the_names_there_are():
    with pytest.raises(ValueError, match="no check 'speed'; it has values, direction"):
        check(reference.k3_kl, "speed")
    with pytest.raises(ValueError, match="'kl' is none of the five functions: sample_group"):
        checks_of("kl")


def test_a_table_of_another_task_is_told_so():
    with pytest.raises(CheckFailed, match="this checks grpo_loss, and was given k3_kl"):
        check(reference.k3_kl, "values", table=table_of("grpo_loss"))


def test_a_notebook_shows_the_message_and_no_traceback():
    script = """
import io, sys, contextlib
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="NoColor")
shell.run_cell("from tinylm.checks import check\\ndef k3_kl(logp, ref_logp):\\n    pass")
out, err = io.StringIO(), io.StringIO()
with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    shell.run_cell('check(k3_kl, "values")')
print(out.getvalue())
print("stderr:", repr(err.getvalue()))
"""
    done = run_python(script)
    assert "values: not right yet" in done.stdout and "returned nothing" in done.stdout
    assert "Traceback" not in done.stdout and "stderr: ''" in done.stdout, done.stdout + done.stderr


# ------------------------------------------------------------ what nobody hears
LOUD = """
import logging, os, sys, warnings
def k3_kl(logp, ref_logp):
    print("one\\ntwo")
    warnings.warn("careful")
    logging.warning("careful")
    print("careful", file=sys.stderr)
    print("careful", file=sys.__stderr__)
    os.write(2, b"careful")
    d = ref_logp - logp
    return torch.exp(d) - d - 1
"""


def test_a_loud_function_is_not_heard(capfd):
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        check(defined(LOUD), "gradient")
    out, err = capfd.readouterr()
    assert out == "gradient: right (2 lines that k3_kl printed are not shown here)\n"
    assert err == "" and heard == []
    assert logging.root.manager.disable == logging.NOTSET
    print("heard again", file=sys.stderr)
    assert capfd.readouterr().err == "heard again\n"


def test_a_megabyte_of_print_is_counted_and_thrown_away(capsys):
    check(defined(K3.replace("    d =", "    print('x' * 1_000_000)\n    d =", 1)), "gradient")
    assert len(capsys.readouterr().out) < 100


# ------------------------------------------------------------ what is easily overlooked
def test_a_stale_logp_is_seen_even_if_nothing_stops():
    source = inspect.getsource(reference.grpo_step)
    line = "        logp = sequence_logprobs(policy, out)\n"
    assert line in source and "loss.backward()" in source
    source = source.replace(line, "").replace("    for _ in", f"{line[4:]}    for _ in")
    fn = defined(source.replace("backward()", "backward(retain_graph=True)"), **vars(reference))
    message = judge(fn, "inner_steps").message
    assert "logp comes from the policy as it stands at each call" in message


@pytest.mark.parametrize("function, before, after, check_name", [
    ("sample_group", "prompts, temperature", "prompts[::-1], temperature", "rows"),
    ("grpo_loss", "obj * mask", "obj.detach() * mask", "gradient"),
    ("grpo_loss", "(obj * mask)", "(obj * mask * torch.arange(mask.shape[1]))", "aggregation"),
    ("grpo_step", 'out["mask"]', 'out["mask"].roll(1, 1)', "rollout"),
    ("grpo_step", "policy.parameters(), cfg", "ref.parameters(), cfg", "optimizer"),
])
def test_a_mistake_that_no_catalogue_knows_is_seen(function, before, after, check_name):
    source = inspect.getsource(getattr(reference, function))
    assert source.count(before) == 1
    fn = defined(source.replace(before, after), **vars(reference))
    verdict = judge(fn, check_name)
    assert not verdict.passed and verdict.mistake in (None, "norm-not-clipped"), verdict.message


# ------------------------------------------------------------ what nobody can change
RUINS = """
def group_advantages(rewards, G, scale_std=True, eps=1e-4):
    r = rewards.reshape(-1, G)
    adv = r - r.mean(1, keepdim=True)
    if scale_std:
        adv = adv / (r.std(1, keepdim=True, unbiased=False) + eps)
    rewards.fill_(7.0)
    return adv.reshape(-1)
"""


def test_a_function_that_ruins_its_argument_fails_there_only():
    before = copy.deepcopy(table_of("group_advantages"))
    for name in checks_of("group_advantages"):
        assert judge(defined(RUINS), name).passed == (name != "input")
    assert table_of("group_advantages") == before


def test_logp_is_no_leaf_as_in_training():
    fn = defined(K3.replace("- logp", "- logp.mul_(1.0)"))
    assert judge(fn, "gradient").passed, judge(fn, "gradient").message


def test_randomness_and_gradient_mode_stay_as_they_are():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    with torch.no_grad():
        for function, name in ALL:
            check(getattr(reference, function), name)
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.rand(2), expected)


class Agreeable:
    """Equal to everything, and ready to be anything."""

    shape, dtype, requires_grad = (2, 4), torch.float64, True

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    __hash__ = None

    def __getattr__(self, name):
        return self

    def __call__(self, *args, **kwargs):
        return self

    def __getitem__(self, key):
        return self


class Disguised(torch.Tensor):
    pass


Impostor = type("float", (), {"__module__": "builtins"})


@pytest.mark.parametrize("given", [
    Agreeable(), torch.zeros(2, 4).as_subclass(Disguised), torch.nn.Parameter(torch.zeros(2, 4)),
    Impostor(), {}, (), [], "", 0, True, torch.zeros(0), torch.tensor([1j]), torch.tensor([True]),
    torch.zeros(2, 4).to_sparse(), torch.zeros(2, 4, device="meta"), torch.zeros(200, 200),
    (torch.zeros(()), {}), {"out": 1, "responses": [1], "rewards": None, 3: 4}, [[]],
], ids=lambda given: type(given).__name__)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_object_passes_for_a_result(function, given):
    def fn(*args, **kwargs):
        return given

    passed = [name for name in checks_of(function) if judge(renamed(fn, function), name).passed]
    silent = {"group_advantages": ["input"]}         # it does leave its argument alone
    assert passed == silent.get(function, [])


def test_right_numbers_in_a_subclass_of_tensor_are_not_a_tensor():
    source = "def k3_kl(*args):\n    return right(*args).as_subclass(Disguised)"
    fn = defined(source, right=reference.k3_kl, Disguised=Disguised)
    assert fn(torch.zeros(1), torch.zeros(1)).eq(0).all()
    for name in checks_of("k3_kl"):
        assert not judge(fn, name).passed


def test_stats_must_be_floats_by_type():
    source = """
def grpo_loss(*args, **kwargs):
    loss, stats = right(*args, **kwargs)
    return loss, {key: wrap(value) for key, value in stats.items()}
"""
    for wrap in (torch.tensor, int, type("float", (float,), {}), lambda _: Impostor()):
        fn = defined(source, right=reference.grpo_loss, wrap=wrap)
        assert not judge(fn, "types").passed


def test_patched_tensors_earn_nothing(monkeypatch):
    right = judge(reference.k3_kl, "values")
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: Agreeable(), raising=False)
    monkeypatch.setattr(torch.Tensor, "__eq__", lambda self, other: True)
    monkeypatch.setattr(torch.Tensor, "shape", Agreeable(), raising=False)
    monkeypatch.setattr(torch, "allclose", lambda *args, **kwargs: True)
    monkeypatch.setattr(torch, "equal", lambda *args, **kwargs: True)
    assert not judge(defined(K3.replace("- 1", "")), "values").passed
    assert judge(reference.k3_kl, "values") == right


# ------------------------------------------------------------ stand-ins
BODY = """
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [p for p in prompts for _ in range(G)]
    answers = [a for a in answers for _ in range(G)]
    out = SAMPLE(model, prompts, temperature=temperature)
    responses = decode_responses(out)
    rewards = torch.tensor([float(r == a) for r, a in zip(responses, answers)])
    return {"out": out, "responses": responses, "rewards": rewards}
"""
STYLES = {
    "name": ("from tinylm import sample", "sample"),
    "alias": ("from tinylm.rollout import sample as draw", "draw"),
    "package": ("import tinylm", "tinylm.sample"),
    "module": ("import tinylm.rollout as r", "r.sample"),
    "lab": ("import lab", "lab.sample"),
    "lab under another name": ("import lab as mine", "mine.sample"),
    "partial": ("import functools, tinylm\ndraw = functools.partial(tinylm.sample, greedy=False)",
                "draw"),
    "helper": ("import tinylm\ndef draw(*args, **kwargs):\n"
               "    return tinylm.sample(*args, **kwargs)", "draw"),
    "helper with a closure": ("from tinylm import sample\ndef made(f):\n"
                              "    return lambda *args, **kwargs: f(*args, **kwargs)\n"
                              "draw = made(sample)\ndel sample", "draw"),
    "inside": ("def draw(*args, **kwargs):\n    from tinylm import sample\n"
               "    return sample(*args, **kwargs)", "draw"),
    "another module": ("from helpers import draw", "draw"),
}


@pytest.fixture
def lab(monkeypatch):
    """The reference as the module `lab`, and a module with a helper."""
    helpers = types.ModuleType("helpers")
    exec("from tinylm import sample\ndef draw(*args, **kwargs):\n"
         "    return sample(*args, **kwargs)", vars(helpers))
    helpers.draw.__module__ = "helpers"
    monkeypatch.setitem(sys.modules, "lab", reference)
    monkeypatch.setitem(sys.modules, "helpers", helpers)
    return reference


@pytest.mark.parametrize("style", STYLES)
def test_a_stand_in_is_found_wherever_a_function_is(style, lab):
    imports, name = STYLES[style]
    fn = defined(imports + "\n" + BODY.replace("SAMPLE", name),
                 decode_responses=tinylm.decode_responses)
    before = dict(fn.__globals__)
    for check_name in checks_of("sample_group"):
        assert judge(fn, check_name).passed, judge(fn, check_name).message
    assert all(fn.__globals__[key] is value for key, value in before.items())


def test_a_closure_is_put_back(lab):
    def made(sample):
        def sample_group(model, prompts, answers, G, temperature=1.0):
            return reference_with(sample)(model, prompts, answers, G, temperature)
        return sample_group

    def reference_with(sample):
        return defined(BODY.replace("SAMPLE", "sample"), sample=sample,
                       decode_responses=tinylm.decode_responses)

    fn = made(tinylm.sample)
    assert judge(fn, "rows").passed
    assert fn.__closure__[1].cell_contents is tinylm.sample


@pytest.mark.parametrize("error", ["raise ValueError", "raise KeyboardInterrupt"])
def test_everything_is_put_back_after_an_error(error, lab):
    fn = defined(f"from tinylm import sample\ndef sample_group(*args, **kwargs):\n    {error}")
    original = tinylm.sample
    if "Keyboard" in error:
        with pytest.raises(KeyboardInterrupt):
            judge(fn, "rows")
    else:
        assert not judge(fn, "rows").passed
    assert tinylm.sample is tinylm.rollout.sample is lab.sample is original
    assert fn.__globals__["sample"] is original


@pytest.mark.parametrize("function, earlier", [
    ("grpo_loss", ["k3_kl"]),
    ("grpo_step", ["sample_group", "group_advantages", "k3_kl", "grpo_loss"]),
])
def test_a_wrong_earlier_task_costs_nothing(function, earlier):
    def stub(*args, **kwargs):
        raise NotImplementedError("Task: a stub")

    stubs = {name: renamed(stub, name) for name in earlier}
    right = getattr(reference, function)
    fn = types.FunctionType(right.__code__, {**vars(reference), **stubs}, function,
                            right.__defaults__)
    for name in checks_of(function):
        assert judge(fn, name).passed, judge(fn, name).message


@pytest.mark.parametrize("function", [name for name in FUNCTIONS if hasattr(Stage, name)])
def test_no_stand_in_solves_a_task(function):
    """What can be imported computes something else than what is asked for."""
    case = table_of("grpo_step")["checks"]["stats"]["cases"][0]

    def fn(*args, **kwargs):
        return getattr(Stage(case), function)(*args, **kwargs)

    first, *_ = checks_of(function)                  # the one that looks at the formula itself
    assert not judge(renamed(fn, function), first).passed


# ------------------------------------------------------------ tables
def test_a_packed_table_is_the_table(capsys):
    table = table_of("k3_kl")
    text = pack(table)
    assert text.isascii() and text.isprintable() and unpack(text) == table
    check(reference.k3_kl, "values", table=text)
    with pytest.raises(ValueError, match="not a packed table"):
        unpack("bla")


def test_recorded_answers_do_not_pass_on_other_numbers():
    """Whoever reads the answers out of tinylm's table has learnt nothing about another one."""
    cases = table_of("k3_kl")["checks"]["values"]["cases"]
    answers = [case["right"][0]["the result"] for case in cases]

    def fn(logp, ref_logp):
        return next(torch.tensor(a, dtype=logp.dtype) for a in answers
                    if torch.tensor(a).shape == logp.shape)

    other = copy.deepcopy(table_of("k3_kl"))
    for case in other["checks"]["values"]["cases"]:
        case["inputs"]["logp"]["float64"][0][0] -= 0.5
        case["right"] = [run(reference.k3_kl, case)]
    assert judge(renamed(fn, "k3_kl"), "values").passed
    assert not judge(renamed(fn, "k3_kl"), "values", other).passed
    assert judge(reference.k3_kl, "values", other).passed


def test_checks_know_nothing_of_the_instructor():
    script = "import sys, tinylm.checks; print(any('autograde' in name for name in sys.modules))"
    done = run_python(script)
    assert done.stdout == "False\n", done.stderr
    assert not hasattr(checks, "record")


# ------------------------------------------------------------ the comparer
@pytest.mark.parametrize("found, expected, path", [
    ({"a": 1.0, "b": 2}, {"a": 1.0}, None),
    ({"a": 1.0 + 1e-7}, {"a": 1.0}, None),
    ({"a": 1.0 + 1e-4}, {"a": 1.0}, ("a",)),
    ({"a": [[1.0, 2.0]]}, {"a": [[1.0, 2.5]]}, ("a", 0, 1)),
    ({"a": [1.0]}, {"a": [1.0, 2.0]}, ("a",)),
    ({"a": 1}, {"a": 1.0}, ("a",)),
    ({"a": True}, {"a": 1}, ("a",)),
    ({}, {"a": 1.0}, ("a",)),
    ({"a": 1.0}, {"a": ABSENT}, ("a",)),
    ({}, {"a": ABSENT}, None),
    ({"a": float("nan")}, {"a": 0.0}, ("a",)),
    ({"a": float("nan")}, {"a": float("nan")}, None),
    ({"a": float("inf")}, {"a": float("inf")}, None),
    ({"a": float("inf")}, {"a": 1e300}, ("a",)),
    ({"a": "85"}, {"a": "8"}, ("a",)),
])
def test_difference(found, expected, path):
    gap = difference(found, expected)
    assert (gap and gap.path) == path


def test_a_tolerance_is_the_sum_of_both_parts():
    assert difference([10.0 + 0.9], [10.0], atol=0.4, rtol=0.06) is None
    assert difference([10.0 + 1.1], [10.0], atol=0.4, rtol=0.06).size == pytest.approx(1.1)
