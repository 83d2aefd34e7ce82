"""Task 1, sample_group: how groups of responses go wrong."""

# ruff: noqa: B905, F811  every entry bears the task's name; zips are as plain as a learner's

import torch

from autograde.mistakes import mistake
from tinylm import decode_responses, reward, sample


# ------------------------------------------------------- which prompt stands in which row
@mistake(
    1, "tiled-prompts",
    "the prompts are tiled (p0 p1 p0 p1); the rows of one prompt must stand together (p0 p0 p1 "
    "p1).",
    'the docstring on "out": rows 0..G-1 answer prompt 0', ("rows",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    out = sample(model, prompts * G, temperature=temperature)  # <-
    responses = decode_responses(out)
    rewards = torch.tensor([reward(r, a) for r, a in zip(responses, answers * G)])
    return {"out": out, "responses": responses, "rewards": rewards}


@mistake(
    None, "tiled-prompts-only",
    "the answers stand in groups but the prompts are tiled (p0 p1 p0 p1), so most rows are scored "
    "with another prompt's answer.",
    'the docstring on "out": rows 0..G-1 answer prompt 0', ("rows",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    out = sample(model, prompts * G, temperature=temperature)  # <-
    responses = decode_responses(out)
    answers = [a for a in answers for _ in range(G)]
    rewards = torch.tensor([reward(r, a) for r, a in zip(responses, answers)])
    return {"out": out, "responses": responses, "rewards": rewards}


@mistake(
    2, "tiled-answers",
    "the prompts stand in groups but the answers are tiled (a0 a1 a0 a1), so most rows are scored "
    "with another prompt's answer.",
    "the hint: repeat each prompt (and answer) G times, consecutively", ("rewards",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [p for p in prompts for _ in range(G)]
    out = sample(model, prompts, temperature=temperature)
    responses = decode_responses(out)
    rewards = torch.tensor([reward(r, a) for r, a in zip(responses, answers * G)])  # <-
    return {"out": out, "responses": responses, "rewards": rewards}


@mistake(
    5, "copied-responses",
    "each prompt is sampled once and its response copied G times; every row must be a draw of its "
    "own.",
    'the docstring on "out": sample is called on the P*G repeated prompts', ("rows",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    out = sample(model, prompts, temperature=temperature)  # <-
    out = {
        "ids": out["ids"].repeat_interleave(G, dim=0),
        "prompt_len": out["prompt_len"],
        "mask": out["mask"].repeat_interleave(G, dim=0),
    }
    responses = decode_responses(out)
    answers = [a for a in answers for _ in range(G)]
    rewards = torch.tensor([reward(r, a) for r, a in zip(responses, answers)])
    return {"out": out, "responses": responses, "rewards": rewards}


@mistake(
    None, "no-groups",
    "G is not used: each prompt has one response, and there must be G of each.",
    "the docstring on G: responses per prompt", ("rows",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    out = sample(model, prompts, temperature=temperature)  # <-
    responses = decode_responses(out)
    rewards = torch.tensor([reward(r, a) for r, a in zip(responses, answers)])
    return {"out": out, "responses": responses, "rewards": rewards}


@mistake(
    None, "last-prompt-only",
    'sample is called once a prompt, and "out" holds the rows of the last prompt only; it must '
    "hold all P*G rows of one call.",
    'the docstring on "out": the dict returned for the P*G repeated prompts', ("rows",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    responses, rewards = [], []
    for prompt, answer in zip(prompts, answers):
        out = sample(model, [prompt] * G, temperature=temperature)  # <-
        group = decode_responses(out)
        responses += group
        rewards += [reward(r, answer) for r in group]
    return {"out": out, "responses": responses, "rewards": torch.tensor(rewards)}


# ------------------------------------------------------- how they are drawn
@mistake(
    3, "no-temperature",
    "temperature is not passed on: the responses are drawn at temperature 1.",
    "the docstring on temperature", ("temperature",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [p for p in prompts for _ in range(G)]
    answers = [a for a in answers for _ in range(G)]
    out = sample(model, prompts)  # <-
    responses = decode_responses(out)
    rewards = torch.tensor([reward(r, a) for r, a in zip(responses, answers)])
    return {"out": out, "responses": responses, "rewards": rewards}


@mistake(
    4, "inverse-temperature",
    "sample is given 1/temperature; it divides the logits by the temperature itself.",
    "the docstring of tinylm.sample on temperature", ("temperature",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [p for p in prompts for _ in range(G)]
    answers = [a for a in answers for _ in range(G)]
    out = sample(model, prompts, temperature=1 / temperature)  # <-
    responses = decode_responses(out)
    rewards = torch.tensor([reward(r, a) for r, a in zip(responses, answers)])
    return {"out": out, "responses": responses, "rewards": rewards}


@mistake(
    6, "greedy",
    "the responses are decoded greedily, so all G of a group are the same; they must be sampled.",
    "the docstring of tinylm.sample on greedy", ("temperature",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [p for p in prompts for _ in range(G)]
    answers = [a for a in answers for _ in range(G)]
    out = sample(model, prompts, temperature=temperature, greedy=True)  # <-
    responses = decode_responses(out)
    rewards = torch.tensor([reward(r, a) for r, a in zip(responses, answers)])
    return {"out": out, "responses": responses, "rewards": rewards}


# ------------------------------------------------------- what earns a reward
@mistake(
    7, "contains-answer",
    'a response that merely contains the answer is rewarded ("185" for "85"); it must equal it.',
    "the docstring of tinylm.reward", ("rewards",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [p for p in prompts for _ in range(G)]
    answers = [a for a in answers for _ in range(G)]
    out = sample(model, prompts, temperature=temperature)
    responses = decode_responses(out)
    rewards = torch.tensor([1.0 if a in r else 0.0 for r, a in zip(responses, answers)])  # <-
    return {"out": out, "responses": responses, "rewards": rewards}


@mistake(
    8, "prefix-of-answer",
    'a response that is only the beginning of the answer is rewarded ("8" for "85"); it must equal'
    " it.",
    "the docstring of tinylm.reward", ("rewards",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [p for p in prompts for _ in range(G)]
    answers = [a for a in answers for _ in range(G)]
    out = sample(model, prompts, temperature=temperature)
    responses = decode_responses(out)
    rewards = torch.tensor([float(a.startswith(r)) for r, a in zip(responses, answers)])  # <-
    return {"out": out, "responses": responses, "rewards": rewards}


@mistake(
    None, "begins-with-answer",
    'a response that merely begins with the answer is rewarded ("850" for "85"); it must equal it.',
    "the docstring of tinylm.reward", ("rewards",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [p for p in prompts for _ in range(G)]
    answers = [a for a in answers for _ in range(G)]
    out = sample(model, prompts, temperature=temperature)
    responses = decode_responses(out)
    rewards = torch.tensor([float(r[:len(a)] == a) for r, a in zip(responses, answers)])  # <-
    return {"out": out, "responses": responses, "rewards": rewards}


@mistake(
    None, "equal-as-numbers",
    'response and answer are compared as numbers, so that "085" passes for "85"; the strings must '
    "be equal.",
    "the docstring of tinylm.reward", ("rewards",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [p for p in prompts for _ in range(G)]
    answers = [a for a in answers for _ in range(G)]
    out = sample(model, prompts, temperature=temperature)
    responses = decode_responses(out)
    rewards = [float(r.isdigit() and int(r) == int(a)) for r, a in zip(responses, answers)]  # <-
    return {"out": out, "responses": responses, "rewards": torch.tensor(rewards)}


@mistake(
    None, "scores-the-prompt",
    "the responses are compared with the prompts; they must be compared with the answers.",
    'the docstring on "rewards": tinylm.reward(response, answer)', ("rewards",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [p for p in prompts for _ in range(G)]
    answers = [a for a in answers for _ in range(G)]
    out = sample(model, prompts, temperature=temperature)
    responses = decode_responses(out)
    rewards = torch.tensor([reward(r, p) for r, p in zip(responses, prompts)])  # <-
    return {"out": out, "responses": responses, "rewards": rewards}


@mistake(
    None, "minus-one-for-wrong",
    "a wrong response gets -1; tinylm.reward gives 0.0, and that is to be returned as it is.",
    'the docstring on "rewards": 1.0 or 0.0', ("rewards",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [p for p in prompts for _ in range(G)]
    answers = [a for a in answers for _ in range(G)]
    out = sample(model, prompts, temperature=temperature)
    responses = decode_responses(out)
    rewards = torch.tensor([2 * reward(r, a) - 1 for r, a in zip(responses, answers)])  # <-
    return {"out": out, "responses": responses, "rewards": rewards}


# ------------------------------------------------------- what is returned, and as what
@mistake(
    9, "rewards-as-list",
    'the rewards are a list; "rewards" must be a float tensor of shape (P*G,).',
    'the docstring on "rewards"', ("types",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [p for p in prompts for _ in range(G)]
    answers = [a for a in answers for _ in range(G)]
    out = sample(model, prompts, temperature=temperature)
    responses = decode_responses(out)
    rewards = [reward(r, a) for r, a in zip(responses, answers)]  # <-
    return {"out": out, "responses": responses, "rewards": rewards}


@mistake(
    9, "integer-rewards",
    "the rewards are a tensor of integers; the advantages need floats, 1.0 and 0.0.",
    'the docstring on "rewards"', ("types",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [p for p in prompts for _ in range(G)]
    answers = [a for a in answers for _ in range(G)]
    out = sample(model, prompts, temperature=temperature)
    responses = decode_responses(out)
    rewards = torch.tensor([int(reward(r, a)) for r, a in zip(responses, answers)])  # <-
    return {"out": out, "responses": responses, "rewards": rewards}


@mistake(
    9, "rewards-in-rows",
    "the rewards have the shape (P, G); they must have the shape (P*G,), one number a row.",
    'the docstring on "rewards"', ("types",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [p for p in prompts for _ in range(G)]
    answers = [a for a in answers for _ in range(G)]
    out = sample(model, prompts, temperature=temperature)
    responses = decode_responses(out)
    rewards = torch.tensor([reward(r, a) for r, a in zip(responses, answers)]).view(-1, G)  # <-
    return {"out": out, "responses": responses, "rewards": rewards}


@mistake(
    None, "true-and-false",
    "the rewards are True and False; the advantages need floats, 1.0 and 0.0.",
    'the docstring on "rewards"', ("types",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [p for p in prompts for _ in range(G)]
    answers = [a for a in answers for _ in range(G)]
    out = sample(model, prompts, temperature=temperature)
    responses = decode_responses(out)
    rewards = torch.tensor([r == a for r, a in zip(responses, answers)])  # <-
    return {"out": out, "responses": responses, "rewards": rewards}


@mistake(
    None, "reward-of-each-group",
    "the rewards are averaged over each group, one number a prompt; they must be one number a row.",
    'the docstring on "rewards": of each row', ("types",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [p for p in prompts for _ in range(G)]
    answers = [a for a in answers for _ in range(G)]
    out = sample(model, prompts, temperature=temperature)
    responses = decode_responses(out)
    rewards = torch.tensor([reward(r, a) for r, a in zip(responses, answers)])
    return {"out": out, "responses": responses, "rewards": rewards.view(-1, G).mean(dim=1)}  # <-


@mistake(
    None, "tuple-for-dict",
    'a tuple is returned; the result must be a dict with "out", "responses" and "rewards".',
    'the docstring: "Returns a dict"', ("types",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [p for p in prompts for _ in range(G)]
    answers = [a for a in answers for _ in range(G)]
    out = sample(model, prompts, temperature=temperature)
    responses = decode_responses(out)
    rewards = torch.tensor([reward(r, a) for r, a in zip(responses, answers)])
    return out, responses, rewards  # <-


# ------------------------------------------------------- the decoded strings
@mistake(
    10, "padding-in-responses",
    "the responses still hold the end token and the padding; they must stop before the end token.",
    "the docstring of tinylm.decode_responses", ("responses",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [p for p in prompts for _ in range(G)]
    answers = [a for a in answers for _ in range(G)]
    out = sample(model, prompts, temperature=temperature)
    ids = out["ids"][:, out["prompt_len"]:].tolist()
    responses = ["".join("0123456789+=$_"[i] for i in row) for row in ids]  # <-
    rewards = torch.tensor([reward(r.split("$")[0], a) for r, a in zip(responses, answers)])
    return {"out": out, "responses": responses, "rewards": rewards}


@mistake(
    10, "end-token-in-responses",
    "the responses still hold the end token; they must stop before it.",
    "the docstring of tinylm.decode_responses", ("responses",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [p for p in prompts for _ in range(G)]
    answers = [a for a in answers for _ in range(G)]
    out = sample(model, prompts, temperature=temperature)
    ids = out["ids"][:, out["prompt_len"]:].tolist()
    responses = ["".join("0123456789+=$_"[i] for i in row).rstrip("_") for row in ids]  # <-
    rewards = torch.tensor([reward(r.rstrip("$"), a) for r, a in zip(responses, answers)])
    return {"out": out, "responses": responses, "rewards": rewards}


@mistake(
    None, "prompt-in-responses",
    'the responses begin with their prompts ("37+48=85"); a response is what was sampled ("85").',
    "the docstring of tinylm.decode_responses", ("responses",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [p for p in prompts for _ in range(G)]
    answers = [a for a in answers for _ in range(G)]
    out = sample(model, prompts, temperature=temperature)
    responses = [p + r for p, r in zip(prompts, decode_responses(out))]  # <-
    rewards = torch.tensor([reward(r, p + a) for r, p, a in zip(responses, prompts, answers)])
    return {"out": out, "responses": responses, "rewards": rewards}


@mistake(
    None, "sampled-twice",
    'sample is called twice, so the responses are not those of "out"; decode what is returned.',
    'the docstring: "responses" are the decoded rows of "out"', ("responses",),
)
def sample_group(model, prompts, answers, G, temperature=1.0):
    prompts = [p for p in prompts for _ in range(G)]
    answers = [a for a in answers for _ in range(G)]
    responses = decode_responses(sample(model, prompts, temperature=temperature))  # <-
    rewards = torch.tensor([reward(r, a) for r, a in zip(responses, answers)])
    out = sample(model, prompts, temperature=temperature)
    return {"out": out, "responses": responses, "rewards": rewards}
