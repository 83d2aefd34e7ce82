"""What can be seen of one run: each observer looks at one thing and writes it down as plain data.

An observer takes a `behaviour.Trial` and returns a dict. Its keys are words that can stand in a
sentence to a learner; its values are plain data. A check combines a few of them, so that a mistake
in one place costs the check of that place and no other: which advantages change with a reward, say,
does not depend on how they are scaled.
"""

import math

import torch

from tinylm.checks.plain import entries, floats, kind, number, numbers, shape, values

SAME = 1e-4                  # a number that moves less than this has not changed
GRAIN = 1e-6                 # float32 may leave this much below zero
NUDGE = 0.05                 # by this much a token's logp is moved to see what hangs on it


# ------------------------------------------------------------ task 1

def sampled(trial):
    calls = trial.stage.named("sample")
    seen = {"the number of calls of sample": len(calls)}
    if calls:
        seen["the model given to sample"] = calls[0].arguments["model"]
        seen["the prompts given to sample"] = calls[0].arguments["prompts"]
    return seen


def drawn(trial):
    calls = trial.stage.named("sample")
    if not calls:
        return {"the number of calls of sample": 0}
    arguments = calls[0].arguments
    return {"the temperature given to sample": number(arguments["temperature"]),
            "greedy, as given to sample": arguments["greedy"]}


def rewards(trial):
    return {name: numbers(x) for name, x in entries(trial.returned, "result").items()
            if name == 'result["rewards"]'}


def responses(trial):
    """Of the rollout only the tokens that were sampled; the prompts are `sampled`'s."""
    result = entries(trial.returned, "result")
    seen = {name: values(x) for name, x in result.items() if name == 'result["responses"]'}
    out = entries(result.get('result["out"]'), "out")
    ids, start = out.get('out["ids"]'), out.get('out["prompt_len"]')
    if type(start) is int and len(shape(ids) or ()) == 2:
        seen['the sampled tokens in result["out"]'] = [row[start:] for row in values(ids)]
    return seen


def group_types(trial):
    seen = {"the type of the result": kind(trial.returned)}
    for name, x in entries(trial.returned, "result").items():
        seen[f"the type of {name}"] = kind(x)
        if type(x) is list:
            seen[f"the types in {name}"] = ", ".join(sorted({kind(item) for item in x}))
        elif type(x) is torch.Tensor:
            seen[f"the shape of {name}"] = str(shape(x))
    return seen


# ------------------------------------------------------------ task 2

def _groups(trial, x):
    """The rows of a float tensor of P*G numbers, or None."""
    flat, G = floats(x) or [], trial.case["inputs"]["G"]
    if len(flat) != trial.case["rows"]:
        return None
    return [flat[i:i + G] for i in range(0, len(flat), G)]


def _advantages(trial):
    """The result as groups, and what to say of it if it has none."""
    x = trial.returned
    seen = {"the type of the result": kind(x)}
    if type(x) is torch.Tensor:
        seen["the number of advantages"] = math.prod(shape(x))
    return _groups(trial, x), seen


def proportions(trial):
    groups, seen = _advantages(trial)
    if groups:
        largest = [max(map(abs, group)) or 1.0 for group in groups]
        seen["the advantages, scaled so that the largest of their group is 1"] = [
            a / most for group, most in zip(groups, largest, strict=True) for a in group]
    return seen


def spread(trial):
    groups, seen = _advantages(trial)
    if groups:
        seen["the largest minus the smallest advantage of a group"] = [
            max(group) - min(group) for group in groups]
    return seen


def advantages(trial):
    groups, seen = _advantages(trial)
    if groups:
        seen["the advantages"] = sum(groups, [])
    return seen


def reach(trial):
    """Which advantages change with one reward."""
    seen = {"the type of the result": kind(trial.returned)}
    before, after = floats(trial.returned), floats(trial.again(trial.case["changed"]))
    if before and after and len(before) == len(after):
        moved = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if abs(a - b) > SAME]
        changed = trial.case["changed_row"]
        seen[f"the advantages that change with reward {changed}"] = ", ".join(map(str, moved))
    return seen


def afterwards(trial):
    """The tensors that were handed in, after the call."""
    return {f"{name} after the call": values(x.detach())
            for name, x in trial.inputs.items() if isinstance(x, torch.Tensor)}


# ------------------------------------------------------------ task 3

def result_shape(trial):
    seen = {"the type of the result": kind(trial.returned)}
    if type(trial.returned) is torch.Tensor:
        seen["the shape of the result"] = str(shape(trial.returned))
    return seen


def result(trial):
    x = trial.returned
    return {"the type of the result": kind(x),
            "the result": values(x) if kind(x) == "float tensor" else kind(x)}


def agreement(trial):
    flat, seen = floats(trial.returned), {"the type of the result": kind(trial.returned)}
    if flat:
        seen["the largest entry where the two agree"] = max(map(abs, flat))
    return seen


def below_zero(trial):
    flat, seen = floats(trial.returned), {"the type of the result": kind(trial.returned)}
    if flat:
        below = [x for x in flat if not x >= -GRAIN]                        # NaN among them
        seen["the first entry that is below 0, or else 0"] = below[0] if below else 0.0
    return seen


def order(trial):
    """Whether the sum is larger one way round than with the two arguments exchanged."""
    there, back = floats(trial.returned), floats(trial.again(trial.case["changed"]))
    seen = {"the type of the result": kind(trial.returned)}
    if there and back:
        apart = sum(there) - sum(back)
        close = abs(apart) <= SAME * sum(map(abs, there))
        seen["the sum where the reference gives more, against where it gives less"] = (
            "equal" if close else "larger" if apart > 0 else "smaller")
    return seen


def gradient(trial):
    return _gradient_of(trial, trial.returned, "the result")


def _gradient_of(trial, output, name):
    """The gradient of the sum of `output` by logp."""
    found = trial.gradient(output, trial.logp)
    seen = {f"the type of {name}": kind(output), "a gradient reaches logp": found is not None}
    if found is not None:
        seen["the gradient by logp"] = values(found)
    return seen


# ------------------------------------------------------------ task 4

def _pair(returned):
    """What is returned, taken apart as (loss, stats)."""
    if type(returned) in (tuple, list) and len(returned) == 2:
        return returned
    return returned, None


def loss(trial):
    return {"the loss": number(_pair(trial.returned)[0])}


def loss_gradient(trial):
    return _gradient_of(trial, _pair(trial.returned)[0], "the loss")


def kl_part(trial):
    """What beta adds to the loss and to its gradient, whatever the rest of the loss is."""
    returned, logp = trial.attempt(options={"beta": 0.0})
    with_kl, without = _pair(trial.returned)[0], _pair(returned)[0]
    if type(number(with_kl)) is str or type(number(without)) is str:
        return {"the type of the loss": kind(with_kl)}
    gradients = [trial.gradient(with_kl, trial.logp), trial.gradient(without, logp)]
    with_kl_by_logp, without_by_logp = (
        torch.zeros_like(logp) if found is None else found for found in gradients)
    return {"what beta adds to the loss": number(with_kl) - number(without),
            "what beta adds to the gradient by logp": values(with_kl_by_logp - without_by_logp)}


def shares(trial):
    """How much of the loss hangs on each token: by how much it moves when the token's logp does.

    ref_logp moves along, so that the KL stays.
    """
    return _shares(trial, "the loss", ("logp", "ref_logp"))


def kl_shares(trial):
    """How much of the KL term hangs on each token: only that term moves with ref_logp."""
    return _shares(trial, "the KL term", ("ref_logp",))


def _shares(trial, what, moving):
    base, tokens = number(_pair(trial.returned)[0]), trial.case["inputs"]["logp"]["float64"]
    if type(base) is str:
        return {"the loss": base}
    moves = [[_move(trial, base, moving, b, t) for t in range(len(row))]
             for b, row in enumerate(tokens)]
    total = sum(map(sum, moves)) or 1.0
    return {f"the share of each token in {what}": [[m / total for m in row] for row in moves]}


def _move(trial, base, moving, b, t):
    """By how much the loss moves when some of the log-probs of one token do."""
    changed = {}
    for name in moving:
        nudged = [list(row) for row in trial.case["inputs"][name]["float64"]]
        nudged[b][t] += NUDGE
        changed[name] = {"float64": nudged}
    moved = number(_pair(trial.again(changed))[0])
    return math.nan if type(moved) is str else abs(moved - base)


def stats(trial):
    return {name: number(x) for name, x in entries(_pair(trial.returned)[1], "stats").items()}


def loss_types(trial):
    returned = trial.returned
    of = f" of {len(returned)}" if type(returned) is tuple else ""
    it, others = _pair(returned)
    seen = {"what is returned": kind(returned) + of, "the type of the loss": kind(it)}
    if type(it) is torch.Tensor:
        seen["the shape of the loss"] = str(shape(it))
    seen["the type of stats"] = kind(others)
    seen.update((f"the type of {name}", kind(x)) for name, x in entries(others, "stats").items())
    return seen


# ------------------------------------------------------------ task 5

def passed_on(trial):
    """From the samples to the loss: what each function was given."""
    groups, advantages, losses = map(
        trial.stage.named, ("sample_group", "group_advantages", "grpo_loss"))
    seen = {"the number of calls of sample_group": len(groups)}
    for calls, keys in ((groups, ("model", "prompts", "answers")), (losses, ("adv", "mask"))):
        for key in keys if calls else ():
            seen[f"the {key} given to {calls[0].name}"] = calls[0].arguments[key]
    if advantages:
        arguments = advantages[0].arguments
        seen["the rewards given to group_advantages"] = arguments["rewards"]
        seen["the G given to group_advantages"] = arguments["G"]
    return seen


def fixed(trial):
    """old_logp and ref_logp in the first and in the last call of grpo_loss, and ref itself."""
    seen = {"the parameters of ref after the step": trial.stage.ref.numbers()}
    calls = trial.stage.named("grpo_loss")
    for when, call in (("first", calls[0]), ("last", calls[-1])) if calls else ():
        for key in ("old_logp", "ref_logp"):
            seen[f"{key} in the {when} call of grpo_loss"] = call.arguments[key]
            seen[f"{key} carries gradients in the {when} call"] = key in call.with_gradient
    return seen


def inner_steps(trial):
    calls = trial.stage.named("grpo_loss")
    return {"the number of calls of grpo_loss": len(calls),
            "the number of calls of opt.step": len(trial.stage.updates),
            "logp comes from the policy as it stands at each call":
                all(call.arguments["fresh"] for call in calls)}


def updates(trial):
    return {"the policy's parameters after each opt.step": trial.stage.updates}


def gradient_left(trial):
    """Tells mistakes apart; whether gradients are set to zero before or after is all the same."""
    gradient = trial.stage.policy.weight.grad
    return {"the gradient left after the step": values(gradient)}


def step_stats(trial):
    seen = {"the type of the result": kind(trial.returned)}
    for name, x in entries(trial.returned, "result").items():
        seen[name] = x if type(x) is float else kind(x)
    return seen


def settings(trial):
    wanted = (("sample_group", "G"), ("sample_group", "temperature"),
              ("group_advantages", "scale_std"), ("grpo_loss", "clip_eps"), ("grpo_loss", "beta"))
    calls = {function: trial.stage.named(function) for function, _ in wanted}
    return {f"the {key} given to {function}": calls[function][0].arguments[key]
            for function, key in wanted if calls[function]}


OBSERVERS = {observer.__name__: observer for observer in (
    sampled, drawn, rewards, responses, group_types,
    proportions, spread, advantages, reach, afterwards,
    result_shape, result, agreement, below_zero, order, gradient,
    loss, loss_gradient, kl_part, shares, kl_shares, stats, loss_types,
    passed_on, fixed, inner_steps, updates, gradient_left, step_stats, settings,
)}
