"""The inputs of the checks: for each check a function that draws its cases.

A check looks at one thing, so its cases are built to hide everything else: one group where groups
do not matter, rewards so large that eps does not, ratios of exactly 1 where the clip does not.
The first paragraph of a function's docstring is what the check looks at, the second what to read
again; both go into the table. All numbers come from Python's own random and have few decimals.
"""

import math

from tinylm.addition import MAX_ANSWER_TOKENS


def case(says, inputs, observe, **more):
    """One case of a check; see `tinylm.checks.tables` for what it may hold."""
    return {"says": says, "inputs": inputs, **more, "observe": observe}


def float64(numbers):
    return {"float64": numbers}


def uniform(rng, low, high, *shape):
    """Numbers with three decimals, as nested lists."""
    if not shape:
        return round(rng.uniform(low, high), 3)
    return [uniform(rng, low, high, *shape[1:]) for _ in range(shape[0])]


def shuffled(rng, items):
    return rng.sample(items, len(items))


# ------------------------------------------------------------ task 1: sample_group

def problems(rng, P):
    """P prompts of different lengths with two-digit answers that differ in both digits."""
    tens, ones = rng.sample(range(2, 9), P), rng.sample(range(1, 10), P)
    sums = [10 * t + o for t, o in zip(tens, ones, strict=True)]
    first = [rng.randint(1, 9) if i % 2 else rng.randint(11, total - 1)
             for i, total in enumerate(sums)]
    return ([f"{a}+{total - a}=" for a, total in zip(first, sums, strict=True)],
            [str(total) for total in sums])


def misses(answer, other):
    """Responses that miss an answer by little, the answer of another prompt among them."""
    return [f"1{answer}", f"{answer}0", answer[0], other, f"0{answer}", "", answer * 2]


def marks(text):
    """A scripted row: $ is the end token, _ is padding."""
    return (text + "$")[:MAX_ANSWER_TOKENS].ljust(MAX_ANSWER_TOKENS, "_")


def sampling(rng, P, G, observe, **temperature):
    """A case of task 1: in each group one right response, and G - 1 that miss by little.

    A second call of sample finds the rows in reverse.
    """
    prompts, answers = problems(rng, P)
    near = [misses(answer, answers[i - 1]) for i, answer in enumerate(answers)]
    texts = []
    for i, answer in enumerate(answers):
        wrong = [near[i][k % len(near[i])] for k in range(i * (G - 1), (i + 1) * (G - 1))]
        texts += shuffled(rng, [answer, *wrong])
    rows = [marks(text) for text in texts]
    inputs = {"model": {"stage": "policy"}, "prompts": prompts, "answers": answers, "G": G}
    labels = [f"group {i // G}, {prompts[i // G]} and then {text or 'nothing'}"
              for i, text in enumerate(texts)]
    more = {"labels": labels} if observe == "rewards" else {}
    return case(f"{P} prompts, G = {G}", {**inputs, **temperature}, [observe], **more,
                rows=P * G, axes="(P*G,)", replace=["sample"],
                script={"responses": rows + rows[::-1]})


def rows_of_prompts(rng):
    """sample is called once, with the policy and with each prompt G times in a row.

    The docstring on "out": rows 0..G-1 answer prompt 0.
    """
    return [sampling(rng, 3, 4, "sampled"), sampling(rng, 3, 3, "sampled")]


def temperature(rng):
    """The temperature reaches sample as it is, and the responses are drawn, not decoded greedily.

    The docstrings of sample_group and of tinylm.sample on temperature.
    """
    return [sampling(rng, 2, 3, "drawn", temperature=rng.choice([0.5, 0.7, 1.4, 1.8])),
            sampling(rng, 2, 3, "drawn")]


def responses(rng):
    """The responses are the decoded rows of "out", without padding and end token.

    The docstring of tinylm.decode_responses.
    """
    return [sampling(rng, 3, 5, "responses")]


def rewards(rng):
    """A reward is 1.0 where the response is exactly the answer of its own prompt, else 0.0.

    The docstring on "rewards", and that of tinylm.reward.
    """
    return [sampling(rng, 3, 6, "rewards"), sampling(rng, 4, 4, "rewards")]


def group_types(rng):
    """The result is a dict of a rollout, a list of strings and a float tensor of shape (P*G,).

    The docstring on what is returned.
    """
    return [sampling(rng, 3, 2, "group_types")]


# ------------------------------------------------------------ task 2: group_advantages

def advantages(says, rewards, G, *observe, **more):
    """A case of task 2; rewards are a list of P*G numbers in float64, or an encoded tensor."""
    rewards = rewards if isinstance(rewards, dict) else float64(rewards)
    (numbers,) = rewards.values()
    return case(says, {"rewards": rewards, "G": G}, list(observe), rows=len(numbers),
                axes="(P*G,)", **more)


def latin(rewards):
    """G groups of the same G rewards, each in another order, so that columns are alike too.

    Whichever way such a batch is cut into groups, and over the whole of it, mean and std are the
    same: nothing that goes wrong with the groups shows.
    """
    return [r for i in range(len(rewards)) for r in rewards[i:] + rewards[:i]]


def proportions(rng):
    """One number a response, (P*G,): in proportion to its reward minus the mean of its group.

    The docstring's formula for A_i, and what it says of the shape.
    """
    graded, right = uniform(rng, 0.1, 1.0, 5), shuffled(rng, [1.0, 0.0, 0.0, 0.0])
    return [advantages(f"{len(rewards)} groups of the same rewards, each in another order",
                       latin(rewards), len(rewards), "result_shape", "proportions", atol=5e-4)
            for rewards in (graded, right)]


def population_std(rng):
    """The std is that of the G rewards themselves: the mean square is taken with 1/G.

    The docstring's line on the population std.
    """
    rewards = [*uniform(rng, -90, -50, 3), uniform(rng, 50, 90)]
    return [*(advantages(f"{G} groups of the same rewards, each in another order",
                         latin(rewards[-G:]), G, "spread", rtol=5e-4) for G in (4, 2)),
            advantages("a group of one, G = 1", rewards[-1:], 1, "spread")]


def reach_of_a_reward(rng):
    """A reward acts upon the advantages of its own group and of no other.

    The docstring: mean and std are taken over the G responses of the same prompt.
    """
    cases = []
    for P, G in ((3, 4), (4, 4)):
        rewards = uniform(rng, 0, 1, P * G)
        for group in (0, P - 1):
            row = group * G + rng.randrange(1, G - 1)
            changed = [r + (i == row) * 1.5 for i, r in enumerate(rewards)]
            cases += [advantages(f"{P} groups, G = {G}, scale_std={flag}, and reward {row} changes",
                                 rewards, G, "reach", options={"scale_std": flag},
                                 changed={"rewards": float64(changed)}, changed_row=row)
                      for flag in (True, False)]
    return cases


def eps(rng):
    """eps is added to the std itself, and a group of equal rewards gets advantage 0.

    The docstring on eps.
    """
    G = 100          # so many that the sample std is hardly another
    zero_two = shuffled(rng, [0.0, 2.0] * (G // 2))
    return [
        advantages("a group of equal rewards", [uniform(rng, 0.1, 1.0)] * 4, 4, "advantages"),
        advantages("seven rewards of 0.1 in float32, whose mean is not exactly 0.1",
                   {"float32": [0.1] * 7}, 7, "advantages", atol=1e-3),
        advantages("a group of std 1, eps = 2", zero_two, G, "spread", "advantages",
                   hints=["the advantages"], options={"eps": 2.0}, rtol=2.5e-3),
    ]


def scale_std(rng):
    """With scale_std=False the mean is subtracted and nothing is divided.

    The docstring on scale_std.
    """
    return [advantages("4 groups of the same rewards, each in another order, scale_std=False",
                       latin(uniform(rng, 2, 9, 4)), 4, "advantages",
                       options={"scale_std": False})]


def rewards_afterwards(rng):
    """The rewards that were handed in are what they were.

    The documentation of Tensor.view, which shares memory, and of in-place operations such as -=.
    """
    rewards = uniform(rng, 0, 1, 9)
    return [advantages(f"3 groups, G = 3, scale_std={flag}", rewards, 3, "afterwards",
                       options={"scale_std": flag}) for flag in (True, False)]


# ------------------------------------------------------------ task 3: k3_kl

def logprobs(rng, *shape):
    return uniform(rng, -4.0, -0.5, *shape)


def moved(numbers, by):
    """Nested lists, each number moved by what `by()` returns."""
    if isinstance(numbers, list):
        return [moved(number, by) for number in numbers]
    return round(numbers + by(), 3)


def apart(rng, low, high):
    """A draw of either sign, whose size is between low and high."""
    return lambda: rng.choice([-1, 1]) * rng.uniform(low, high)


def estimates(says, logp, ref_logp, *observe, form="float64", **more):
    """A case of task 3."""
    return case(says, {"logp": {form: logp}, "ref_logp": {form: ref_logp}}, list(observe),
                axes="(B, T)", **more)


def k3_values(rng):
    """Each entry is exp(d) - d - 1 with d = ref_logp - logp.

    The docstring's formula for k3.
    """
    cases = []
    for B, T in ((2, 4), (3, 3)):
        logp = logprobs(rng, B, T)
        ref_logp = moved(logp, apart(rng, 0.3, 1.5))
        cases.append(estimates(f"B = {B}, T = {T}", logp, ref_logp, "result"))
    return cases


def k3_direction(rng):
    """A token that the reference gives more than the policy counts more than the other way round.

    The docstring: with d = ref_logp - logp.
    """
    logp = logprobs(rng, 2, 3)
    ref_logp = moved(logp, lambda: rng.uniform(1.0, 2.0))
    return [estimates("ref_logp is above logp, then the two are exchanged", logp, ref_logp, "order",
                      changed={"logp": float64(ref_logp), "ref_logp": float64(logp)})]


def k3_nonnegative(rng):
    """No entry is below 0, and where the two agree it is 0.

    The docstring: every entry is >= 0.
    """
    logp = logprobs(rng, 2, 4)
    tiny = moved(logp, apart(rng, 0.001, 0.003))
    return [estimates("ref_logp equals logp", logp, logp, "agreement"),
            estimates("ref_logp is above or below logp", logp, moved(logp, apart(rng, 0.3, 1.5)),
                      "below_zero"),
            estimates("tiny differences in float32", logp, tiny, "below_zero", form="float32")]


def k3_gradient(rng):
    """Gradients flow through logp: the one of exp(d) - d - 1 is 1 - exp(d).

    The docstring's last sentence.
    """
    logp = logprobs(rng, 2, 3)
    ref_logp = moved(logp, apart(rng, 0.3, 1.5))
    return [estimates("the gradient of the sum of the result", logp, ref_logp, "gradient")]


def k3_shape(rng):
    """One estimate for each token, a float tensor of shape (B, T).

    The docstring on what is returned.
    """
    cases = []
    for B, T, form in ((2, 4, "float64"), (3, 3, "float32"), (1, 5, "float64")):
        logp = logprobs(rng, B, T)
        cases.append(estimates(f"B = {B}, T = {T}", logp, moved(logp, apart(rng, 0.3, 1.5)),
                               "result_shape", form=form))
    return cases


# ------------------------------------------------------------ task 4: grpo_loss

def losses(says, logp, old_logp, ref_logp, adv, mask, *observe, form="float64", **more):
    """A case of task 4; k3_kl is replaced by another function of the same kind."""
    named = {"logp": logp, "old_logp": old_logp, "ref_logp": ref_logp, "adv": adv, "mask": mask}
    return case(says, {name: {form: numbers} for name, numbers in named.items()}, list(observe),
                replace=["k3_kl"], **more)


OWN_KL = " (a k3_kl of the check's own stands in the place of yours)"


def numbers(values):
    return ", ".join(f"{value:.4g}" for value in values)


def with_ratios(logp, ratios):
    """The old log-probs of one response that make the ratios what is given."""
    return [[round(x - math.log(ratio), 3) for x, ratio in zip(logp[0], ratios, strict=True)]]


def both_sides(rng, clip_eps):
    """Ratios far below the clip range, a little below, inside, a little above, far above."""
    inside = rng.uniform(1 - clip_eps / 2, 1 + clip_eps / 2)
    return shuffled(rng, [rng.uniform(0.3, 0.5), 1 - clip_eps - rng.uniform(0.05, 0.1), inside,
                          1 + clip_eps + rng.uniform(0.05, 0.1), rng.uniform(1.9, 2.6)])


def surrogate(rng):
    """The smaller of rho * A and clip(rho) * A, for ratios on both sides and both signs of A.

    The docstring's formulas for rho and obj.
    """
    cases = []
    for sign, clip_eps in ((1, None), (-1, None), (1, 0.3), (-1, 0.1)):
        adv = sign * uniform(rng, 0.8, 1.6)
        logp = logprobs(rng, 1, 5)
        ratios = both_sides(rng, clip_eps or 0.2)
        options = {"beta": 0.0} | ({"clip_eps": clip_eps} if clip_eps else {})
        settings = ", ".join(f"{key}={value}" for key, value in options.items())
        cases.append(losses(f"one response with A = {adv} and ratios {numbers(ratios)}, {settings}",
                            logp, with_ratios(logp, ratios), logp, [adv], [[1.0] * 5], "loss",
                            options=options))
    return cases


def kl_part(rng):
    """What beta adds to the loss and to its gradient: beta times the mean of k3(logp, ref_logp).

    The docstring's formula for obj, and the argument beta.
    """
    cases = []
    for sign, beta in ((1, None), (-1, 0.5)):
        logp = logprobs(rng, 1, 5)
        old_logp = with_ratios(logp, both_sides(rng, 0.2))
        ref_logp = moved(logp, apart(rng, 0.5, 1.5))
        adv = sign * uniform(rng, 1.5, 2.5)
        cases.append(losses(f"one response with A = {adv}, beta = {beta or 0.04}{OWN_KL}", logp,
                            old_logp, ref_logp, [adv], [[1.0] * 5], "kl_part", "loss",
                            hints=["the loss"],
                            options={"beta": beta} if beta else {}))
    return cases


def padded(lengths, T):
    """A mask of responses of these lengths."""
    return [[1.0] * n + [0.0] * (T - n) for n in lengths]


def garbage(rng, numbers, mask):
    """The numbers where the mask is 1, anything moderate where it is 0."""
    return [[x if m else uniform(rng, -6.0, -0.1) for x, m in zip(row, ms, strict=True)]
            for row, ms in zip(numbers, mask, strict=True)]


def aggregation(rng):
    """The mean over each response's own tokens, then the mean over the responses.

    The docstring's paragraph that begins with "Aggregate".
    """
    cases = []
    for lengths, T, (observe, beta) in (
        ((4, 1, 2), 5, ("loss", 0.5)), ((4, 1, 3, 2), 4, ("loss", 0.5)),
        ((4, 1, 2), 5, ("shares", 0.0)), ((2, 4, 1, 3), 4, ("shares", 0.0)),
    ):
        mask = padded(lengths, T)
        logp = logprobs(rng, len(lengths), T)
        old_logp, ref_logp = garbage(rng, logp, mask), garbage(rng, logp, mask)
        signs = shuffled(rng, [1, -1, 1, 1][:len(lengths)])
        adv = [uniform(rng, 0.8, 2.0) if sign > 0 else -uniform(rng, 0.2, 0.6) for sign in signs]
        says = (f"responses of {numbers(lengths)} tokens with A = {numbers(adv)}, "
                "where old_logp and ref_logp equal logp")
        cases.append(losses(says, logp, old_logp, ref_logp, adv, mask, observe,
                            options={"beta": beta}))
    return [*cases, kl_of_responses(rng)]


def kl_of_responses(rng):
    """A case of `aggregation`: the penalty is averaged like the rest."""
    mask, logp = padded((4, 1, 2), 5), logprobs(rng, 3, 5)
    ref_logp = [[round(x - 0.4, 3) for x in row] for row in logp]
    adv = [uniform(rng, 0.8, 2.0), -uniform(rng, 0.8, 2.0), uniform(rng, 0.8, 2.0)]
    return losses(f"responses of 4, 1, 2 tokens, where ref_logp is logp - 0.4 everywhere{OWN_KL}",
                  logp, logp, ref_logp, adv, mask, "kl_shares", options={"beta": 0.5})


def loss_gradient(rng):
    """Inside the clip range the gradient reaches logp through the ratio.

    The docstring: logp comes with gradients, and rho = exp(logp - old_logp).
    """
    cases = []
    for sign, form in ((1, "float64"), (-1, "float64"), (1, "float32")):
        adv = sign * uniform(rng, 0.8, 1.6)
        logp = logprobs(rng, 1, 4)
        ratios = shuffled(rng, [1.0, 1.0, rng.uniform(0.88, 0.95), rng.uniform(1.05, 1.12)])
        cases.append(losses(f"one response with A = {adv} and ratios {numbers(ratios)}, beta=0.0, "
                            f"{form}", logp, with_ratios(logp, ratios), logp, [adv], [[1.0] * 4],
                            "loss_gradient", options={"beta": 0.0}, form=form))
    return cases


def loss_stats(rng):
    """kl, clip_frac and ratio_max are taken over the real tokens of the batch, and only those.

    The docstring on stats.
    """
    # Of each response: how many ratios the clip acts on, how many it leaves alone, and the rest.
    kinds = [(3, 1, 1), (1, 0, 1), (0, 1, 2), (1, 0, 0)]
    signs, T = [1, *shuffled(rng, [1, -1, -1])], 6
    lengths = [sum(counts) for counts in kinds]
    logp, mask = logprobs(rng, 4, T), padded(lengths, T)
    old_logp = [[round(x - math.log(ratio), 3) for x, ratio in zip(row, ratios, strict=True)]
                for row, ratios in zip(logp, (ratios_of(rng, counts, sign, T) for counts, sign
                                              in zip(kinds, signs, strict=True)), strict=True)]
    ref_logp = garbage(rng, moved(logp, apart(rng, 0.3, 1.5)), mask)
    adv = [sign * uniform(rng, 0.5, 2.0) for sign in signs]
    order = shuffled(rng, range(4))
    rows = [[numbers[b] for b in order] for numbers in (logp, old_logp, ref_logp, adv, mask)]
    return [losses(f"four responses of 1 to 5 tokens, padded to 6{OWN_KL}", *rows, "stats",
                   options={"beta": 0.5})]


def ratios_of(rng, counts, sign, T):
    """Ratios of one response: so many clipped, out of range yet not clipped, inside; padding."""
    acting, idle, inside = counts
    far, near = ((1.5, 2.6), (0.3, 0.6)) if sign > 0 else ((0.3, 0.6), (1.5, 2.6))
    real = [rng.uniform(*far) for _ in range(acting)] + [rng.uniform(*near) for _ in range(idle)]
    real += [rng.uniform(0.9, 1.1) for _ in range(inside)]
    return shuffled(rng, real) + [rng.uniform(3.5, 6.0) for _ in range(T - len(real))]


def loss_types(rng):
    """A loss of one number that is a float tensor, a dict of floats, and untouched arguments.

    The docstring on what is returned.
    """
    cases = []
    for form in ("float64", "float32"):
        mask = padded((3, 1, 2), 3)
        logp = logprobs(rng, 3, 3)
        others = moved(logp, apart(rng, 0.1, 0.5)), moved(logp, apart(rng, 0.1, 0.5))
        cases.append(losses(f"B = 3, T = 3, {form}", logp, *others, uniform(rng, -2, 2, 3), mask,
                            "loss_types", "afterwards", form=form))
    return cases


# ------------------------------------------------------------ task 5: grpo_step

DEFAULTS = {"G": 8, "inner_steps": 2, "lr": 0.5, "clip_eps": 0.2, "beta": 0.04, "temperature": 1.0,
            "scale_std": True, "max_grad_norm": 1.0}
STAND_INS = ["sample", "sequence_logprobs", "token_entropy",
             "sample_group", "group_advantages", "k3_kl", "grpo_loss"]


def step(rng, says, kinds, *observe, calls=1, hints=(), **settings):
    """A case of task 5, with a group for each of `kinds` ("wrong", "right" or "mixed").

    The settings are those of `DEFAULTS`; whatever a stand-in returns is scripted.
    """
    cfg = {**DEFAULTS, **settings}
    sums = [(rng.randint(1, 99), rng.randint(1, 99)) for _ in kinds]
    inputs = {name: {"stage": name} for name in ("policy", "ref", "opt")}
    inputs |= {"prompts": [f"{a}+{b}=" for a, b in sums], "answers": [str(a + b) for a, b in sums],
               "cfg": {"stage": "cfg"}}
    groups = [group_of(rng, kind, cfg["G"]) for kind in kinds]
    script = {
        "cfg": cfg,
        "policy": [sign * uniform(rng, 1.5, 3.0) for sign in (1, -1, 1)],
        "ref": [sign * uniform(rng, 1.5, 3.0) for sign in (-1, 1, 1)],
        "responses": [marks(str(rng.randint(0, 199))) for group in groups for _ in group],
        "rewards": [r for group in groups for r in group],
        "advantages": [round(1.7 * (r - group[0]), 3) for group in groups for r in group],
        **{name: shuffled(rng, [0.15, 0.35, 0.65, 0.95])
           for name in ("loss", "kl", "clip_frac", "ratio_max")},
    }
    return case(says, inputs, list(observe), replace=STAND_INS, script=script, calls=calls,
                hints=list(hints))


def group_of(rng, kind, G):
    """The rewards of one group."""
    if kind == "mixed":
        right = rng.randint(G // 2 - 1, G // 2)
        return [1.0, *shuffled(rng, [1.0] * (right - 1) + [0.0] * (G - right))]
    return [float(kind == "right")] * G


def passed_on(rng):
    """The policy samples once; rewards, advantages and mask go from each function to the next.

    Steps 1, 2 and 4 of the docstring.
    """
    return [step(rng, "2 prompts, G = 8, inner_steps = 2", ["mixed", "mixed"], "passed_on")]


def old_and_ref(rng):
    """old_logp is the policy's before the update, ref_logp is ref's; both are fixed, no gradients.

    Step 3 of the docstring.
    """
    return [step(rng, "2 prompts, G = 8, inner_steps = 2", ["mixed", "right"], "fixed")]


def inner_steps(rng):
    """cfg.inner_steps times: logp anew, a loss, an update.

    Step 4 of the docstring.
    """
    return [step(rng, f"inner_steps = {n}", ["mixed", "mixed"], "inner_steps", inner_steps=n)
            for n in (3, 1)]


def updates(rng):
    """Gradients are set to zero, computed, clipped to cfg.max_grad_norm, and then the step is made.

    Step 4 of the docstring: opt.zero_grad() to opt.step().
    """
    return [step(rng, f"two calls with inner_steps = 1, max_grad_norm = {norm}, SGD",
                 ["mixed", "mixed"], "updates", "gradient_left", calls=2,
                 hints=["the gradient left after the step"], inner_steps=1, lr=lr,
                 max_grad_norm=norm)
            for norm, lr in ((0.3, 0.5), (1000.0, 0.05))]


def step_stats(rng):
    """Six floats: of the samples, of the last inner step, of the groups, and of the policy.

    The docstring on what is returned.
    """
    kinds = shuffled(rng, ["wrong"] + ["right"] * 2 + ["mixed"] * 4)
    return [step(rng, "7 prompts, G = 8, inner_steps = 2", kinds, "step_stats", lr=0.0)]


def settings(rng):
    """G, temperature, scale_std, clip_eps and beta are those of cfg.

    The settings that steps 1, 2 and 4 of the docstring name.
    """
    cfg = {"G": 4, "inner_steps": 1, "scale_std": False, "temperature": rng.choice([0.6, 1.5]),
           "clip_eps": rng.choice([0.1, 0.3]), "beta": rng.choice([0.01, 0.1, 0.5])}
    says = ", ".join(f"{key} = {value}" for key, value in cfg.items())
    return [step(rng, says, ["mixed", "mixed"], "settings", **cfg)]


FIXTURES = {
    "sample_group": {
        "rows": rows_of_prompts, "temperature": temperature, "responses": responses,
        "rewards": rewards, "types": group_types},
    "group_advantages": {
        "values": proportions, "population_std": population_std, "groups": reach_of_a_reward,
        "eps": eps, "scale_std": scale_std, "input": rewards_afterwards},
    "k3_kl": {
        "values": k3_values, "direction": k3_direction, "nonnegative": k3_nonnegative,
        "gradient": k3_gradient, "shape": k3_shape},
    "grpo_loss": {
        "surrogate": surrogate, "kl": kl_part, "aggregation": aggregation,
        "gradient": loss_gradient, "stats": loss_stats, "types": loss_types},
    "grpo_step": {
        "rollout": passed_on, "old_and_ref": old_and_ref, "inner_steps": inner_steps,
        "optimizer": updates, "stats": step_stats, "config": settings},
}
