"""Right solutions equal the reference, wrong ones do not: measured, not believed.

Each function runs on fixtures of its task; what it returns, its gradients, what it does to its
arguments and, in task 5, to the policy make one flat dict, its outcome. The effect of a mistake is
the largest difference between two outcomes, relative where numbers are large, and infinite where a
shape, a type, a string or an exception differs.

The fixtures follow one rule: ratios on both sides of the clip range with both signs of advantage,
unequal lengths, garbage in the padding, three different policies, sizes that differ in one fixture
and are equal in another, settings other than the defaults, a group with equal rewards, rewards that
are not 0/1. Task 5 takes SGD, because Adam hides scale, and two or four groups, because thirds are
not exact in float32.
"""

import importlib.util
import inspect
import math
import sys
import warnings
from contextlib import contextmanager
from functools import cache, partial

import pytest
import torch
from right import LABS, solutions

import tinylm
import tinylm.addition
import tinylm.rollout
from autograde.mistakes import FUNCTIONS, all_mistakes
from autograde.reference import lab as reference
from tinylm.addition import END, PAD, encode
from tinylm.model import ModelConfig, TinyLM

TOLERANCE = 1e-9
SIGNAL = 100 * TOLERANCE

MISTAKES = all_mistakes()
RIGHT = [(task, name) for task in range(1, 6) for name in solutions(task)]


# ------------------------------------------------------- solutions as functions
def from_source(task, source):
    """The function that a solution cell defines, run where lab.py's imports have run."""
    scope = dict(vars(reference))
    exec(compile(source, f"task{task}", "exec"), scope)
    return scope[FUNCTIONS[task - 1]]


def from_file(task, path):
    """The function that a lab file defines."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, FUNCTIONS[task - 1])


def from_reference(task):
    return getattr(reference, FUNCTIONS[task - 1])


def with_late_entropy():
    """The reference's grpo_step, but for the entropy, which it asks for after the update."""
    before, after = "    entropy = token_entropy(policy, out)\n", "token_entropy(policy, out)"
    source = inspect.getsource(reference.grpo_step)
    assert before in source and '"entropy": entropy' in source
    source = source.replace(before, "").replace('"entropy": entropy', f'"entropy": {after}')
    return from_source(5, source)


@contextmanager
def replaced(**functions):
    """Put functions in the place of tinylm's, in every module where a solution may find them."""
    modules = (tinylm, tinylm.addition, tinylm.rollout, reference)
    with pytest.MonkeyPatch.context() as patch:
        for name, function in functions.items():
            for module in modules:
                if hasattr(module, name):
                    patch.setattr(module, name, function)
        yield


# ------------------------------------------------------- fixtures: a name, a run, what to replace
def tiny(seed):
    torch.manual_seed(seed)
    return TinyLM(ModelConfig(width=16, depth=1, heads=2)).double()


def gradient_of(result, leaf):
    try:
        return torch.autograd.grad(result.sum(), leaf)[0]
    except (AttributeError, RuntimeError):
        return "none"


def dtype_of(result):
    return str(getattr(result, "dtype", "none"))


def sampled_groups():
    """Task 1 with a real model; an answer is a response of its group, if one there is a number."""
    for P, G, temperature in [(3, 4, 0.7), (3, 3, 1.3), (2, 1, 1.0)]:
        prompts = ["37+48=", "5+5=", "9+60="][:P]
        model = tiny(0)
        torch.manual_seed(1)
        drawn = reference.sample_group(model, prompts, prompts, G, temperature)["responses"]
        groups = [drawn[i:i + G] for i in range(0, len(drawn), G)]
        answers = [next(filter(str.isdigit, group), "7") for group in groups]
        run = partial(run_sampled, model, prompts, answers, G, temperature)
        yield f"real P={P} G={G} temperature={temperature}", run, {}


def run_sampled(model, prompts, answers, G, temperature, function):
    torch.manual_seed(1)
    return function(model, prompts, answers, G, temperature=temperature)


def scripted_groups():
    """Task 1 with a scripted sampler, whose responses miss the answers by little."""
    for P, G, temperature in [(3, 8, 0.7), (4, 4, 2.0)]:
        prompts, answers = ["37+48=", "0+8=", "9+90=", "50+8="][:P], ["85", "8", "99", "58"][:P]
        run = partial(run_sampled, None, prompts, answers, G, temperature)
        yield f"scripted P={P} G={G} temperature={temperature}", run, {"sample": Scripted()}


class Scripted:
    """A sampler whose responses depend on the row, the prompt, the settings and the call."""

    texts = ("85", "185", "8", "850", "085", "", "58", "99")

    def __init__(self):
        self.calls = 0

    def __call__(self, model, prompts, temperature=1.0, greedy=False):
        self.calls += 1
        shift = round(10 * temperature) + 3 * greedy + 5 * self.calls
        texts = [self.texts[(3 * i + len(p) + shift) % 8] for i, p in enumerate(prompts)]
        response = torch.tensor(
            [[int(digit) for digit in text] + [END] + [PAD] * (3 - len(text)) for text in texts]
        )
        prompt_ids = encode(prompts)
        return {"ids": torch.cat([prompt_ids, response], 1), "prompt_len": prompt_ids.shape[1],
                "mask": (response != PAD).double()}


def advantages():
    """Task 2: groups that are unbalanced, all equal, of one; rewards that are not 0/1."""
    zero_one = [1.0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0]
    others = [0.3, -1.7, 2.2, 0.1, 0.1, 0.1, 0.50, 0.51, 0.53]
    for rewards, G, settings in [
        (zero_one, 4, {}),
        (zero_one, 3, {}),
        (others, 3, {}),
        (others, 3, {"eps": 0.1}),
        (others, 3, {"scale_std": False}),
        (others, 1, {}),
    ]:
        yield f"G={G} {rewards} {settings}", partial(run_advantages, rewards, G, settings), {}


def run_advantages(rewards, G, settings, function):
    given = torch.tensor(rewards)
    result = function(given, G, **settings)
    return {"result": result, "dtype": dtype_of(result), "rewards": given}


def kl_estimates():
    """Task 3: log-probs of two policies, near each other and far apart."""
    for B, T in [(3, 5), (4, 4)]:
        generator = torch.Generator().manual_seed(B)
        logp = -3 * torch.rand(B, T, generator=generator) - 0.01
        ref_logp = (logp + torch.randn(B, T, generator=generator)).clamp(max=-0.01)
        ref_logp[0, 0], ref_logp[0, 1] = logp[0, 0], -20.0
        yield f"B={B} T={T}", partial(run_estimate, logp, ref_logp), {}


def run_estimate(logp, ref_logp, function):
    leaf = logp.clone().requires_grad_()
    result = function(leaf, ref_logp)
    return {"result": result, "dtype": dtype_of(result), "gradient": gradient_of(result, leaf)}


def losses():
    """Task 4: padding full of garbage, three different policies, settings of all kinds."""
    for B, T, settings in [
        (6, 5, {}),
        (4, 4, {}),
        (6, 5, {"clip_eps": 0.1, "beta": 0.5}),
        (1, 3, {"beta": 0.0}),
    ]:
        generator = torch.Generator().manual_seed(B)
        rand, randn = (partial(draw, generator=generator) for draw in (torch.rand, torch.randn))
        mask = (torch.arange(T) <= torch.arange(B)[:, None] % T).to(torch.get_default_dtype())
        old_logp = -2 * rand(B, T) - 0.5
        logp, ref_logp = old_logp + 0.4 * randn(B, T), old_logp + 0.5 * randn(B, T)
        for x in (old_logp, logp, ref_logp):
            x[mask == 0] = -20 * rand(B, T)[mask == 0]
        given = (logp, old_logp, ref_logp, randn(B) + 0.2, mask)
        yield f"B={B} T={T} {settings}", partial(run_loss, given, settings), {}


def run_loss(given, settings, function):
    leaf, *others = (x.clone() for x in given)
    result = function(leaf.requires_grad_(), *others, **settings)
    loss = result[0] if isinstance(result, tuple) else result
    return {"result": result, "dtype": dtype_of(loss), "gradient": gradient_of(loss, leaf),
            "logp": leaf, "arguments": others}


def steps():
    """Task 5: a real model, SGD, every setting away from its default at least once."""
    for kinds, lr, cfg in [
        ("right odd other other", 0.5, dict(G=3, inner_steps=3, max_grad_norm=10.0)),
        ("wrong odd other odd", 0.5, dict(G=4, inner_steps=2, max_grad_norm=0.01)),
        ("other odd", 0.7, dict(G=5, inner_steps=2, max_grad_norm=3.0, temperature=0.6,
                                scale_std=False, clip_eps=0.05, beta=0.3)),
        ("odd other", 0.5, dict(G=8, inner_steps=1, max_grad_norm=10.0)),
    ]:
        run = partial(run_step, kinds.split(), lr, tinylm.GRPOConfig(**cfg))
        yield f"{kinds} {cfg}", run, {"reward": reward_by_kind}


def run_step(kinds, lr, cfg, function):
    policy, ref = tiny(0), tiny(1).requires_grad_(False)
    opt = torch.optim.SGD(policy.parameters(), lr=lr)
    prompts = ["37+48=", "5+5=", "9+60=", "1+20="][:len(kinds)]
    torch.manual_seed(2)
    result = function(policy, ref, opt, prompts, kinds, cfg)
    return {"result": result, "policy": list(policy.parameters()),
            "gradients": [p.grad for p in policy.parameters()], "ref": ref.state_dict()}


def reward_by_kind(response, answer):
    """A reward by the kind of problem, so that a small random model earns all kinds of rewards."""
    return {
        "right": 1.0,
        "wrong": 0.0,
        "odd": sum(map(ord, response)) % 2 * 1.0,
        "other": len(set(response)) / 8 + response.count("1"),
    }[answer]


FIXTURES = {
    1: (sampled_groups, scripted_groups), 2: (advantages,), 3: (kl_estimates,), 4: (losses,),
    5: (steps,),
}


# ------------------------------------------------------- outcomes and effects
def outcome(task, load):
    """What the function that load() returns does on each fixture of its task, as one flat dict."""
    leaves = {}
    for fixture in FIXTURES[task]:
        for name, run, stand_ins in fixture():
            with replaced(**stand_ins):
                try:
                    result = run(load())
                except (RuntimeError, ValueError, IndexError) as error:
                    result = f"raised {type(error).__name__}"
            leaves |= flat(result, name)
    return leaves


def flat(value, path):
    """{path: (kind, tensor or value)} for everything in nested dicts, lists and tensors."""
    if isinstance(value, torch.Tensor):
        kind = "floats" if value.is_floating_point() else str(value.dtype)
        return {path: (f"{kind} {tuple(value.shape)}", value.detach().double().clone())}
    if isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {key: leaf for name, x in items for key, leaf in flat(x, f"{path} {name}").items()}
    if isinstance(value, float):
        value = torch.tensor([value], dtype=torch.float64)
        return {path: ("float", value)}
    return {path: (type(value).__name__, value)}


def effect(expected, found):
    """The largest difference between two outcomes; infinite where they cannot be compared."""
    if expected.keys() != found.keys():
        return math.inf
    return max(difference(*expected[path], *found[path]) for path in expected)


def difference(kind, expected, found_kind, found):
    if kind != found_kind:
        return math.inf
    if not isinstance(expected, torch.Tensor):
        return 0.0 if expected == found else math.inf
    if not expected.numel() or expected.equal(found):
        return 0.0
    gap = (expected - found).abs() / expected.abs().clamp(min=1)
    gap[(expected == found) | (expected.isnan() & found.isnan())] = 0
    return gap.nan_to_num(nan=math.inf, posinf=math.inf).max().item()


def distance(task, found):
    """The effect against the nearest right outcome: for the entropy of task 5 there are two."""
    return min(effect(right, found) for right in accepted(task))


@cache
def accepted(task):
    right = [outcome(task, lambda: from_reference(task))]
    if task == 5:
        right.append(outcome(5, with_late_entropy))
    return right


@cache
def wrong_outcome(mistake):
    with warnings.catch_warnings(action="ignore"):
        return outcome(mistake.task, lambda: from_source(mistake.task, mistake.source()))


@pytest.fixture(autouse=True)
def in_float64(monkeypatch):
    """Everything in float64, on one thread, with the reference as the learner's module `lab`."""
    monkeypatch.setitem(sys.modules, "lab", reference)
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    yield
    torch.set_default_dtype(dtype)
    torch.set_num_threads(threads)


# ------------------------------------------------------- right solutions are right
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("task, name", RIGHT)
def test_a_right_solution_equals_the_reference(task, name):
    source = solutions(task)[name]
    assert distance(task, outcome(task, lambda: from_source(task, source))) <= TOLERANCE


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("path", LABS, ids=lambda path: path.stem)
@pytest.mark.parametrize("task", range(1, 6))
def test_a_right_lab_equals_the_reference(task, path):
    assert distance(task, outcome(task, lambda: from_file(task, path))) <= TOLERANCE


@pytest.mark.parametrize("task", [2, 3, 4])
def test_right_solutions_keep_to_float32(task):
    torch.set_default_dtype(torch.float32)
    expected = outcome(task, lambda: from_reference(task))
    loaders = [partial(from_source, task, cell) for cell in solutions(task).values()]
    loaders += [partial(from_file, task, path) for path in LABS]
    for load in loaders:
        assert effect(expected, outcome(task, load)) <= 1e-4


def test_there_are_ten_right_solutions_a_task():
    for task in range(1, 6):
        assert list(solutions(task)) == [f"right_{n}" for n in range(1, 11)]


# ------------------------------------------------------- wrong solutions are wrong
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: f"task{m.task}-{m.name}")
def test_a_mistake_shows_far_above_the_tolerance(mistake):
    assert distance(mistake.task, wrong_outcome(mistake)) >= SIGNAL


@pytest.mark.parametrize("mistake", [m for m in MISTAKES if m.named],
                         ids=lambda m: f"task{m.task}-{m.name}")
def test_a_named_mistake_is_like_no_other(mistake):
    found = wrong_outcome(mistake)
    for other in MISTAKES:
        if other.task == mistake.task and other is not mistake:
            assert effect(found, wrong_outcome(other)) >= SIGNAL, other.name


# ------------------------------------------------------- the catalogue
def test_every_row_of_the_list_is_there():
    assert {m.row for m in MISTAKES} - {None} == set(range(1, 71))
    assert sum(m.row is None for m in MISTAKES) >= 15
    assert sum(m.named for m in MISTAKES) >= 60


def test_names_are_unique_and_sentences_are_sentences():
    assert len({m.name for m in MISTAKES}) == len(MISTAKES)
    for m in MISTAKES:
        assert m.says.endswith(".") and m.read and m.caught_by, m.name


def test_a_source_is_a_plain_cell_with_the_signature_of_the_seed():
    for m in MISTAKES:
        expected = inspect.signature(from_reference(m.task))
        assert inspect.signature(from_source(m.task, m.source())) == expected, m.name
        assert m.source().startswith(f"def {FUNCTIONS[m.task - 1]}("), m.name
        assert m.source().count("# <-") == 1, m.name
