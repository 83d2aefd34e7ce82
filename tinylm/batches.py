"""Pictures made of rows of answers: `answers`, sampled groups, and `step`, a batch in a GRPO step.

As in `plots`: one function a figure, data in, a `Picture` out. A tick or a cross, a sign or a word
says whatever a colour says.
"""

from matplotlib.patches import Rectangle

from tinylm.addition import ALPHABET
from tinylm.picture import (
    GREY,
    INK,
    PALE,
    PALE_BLUE,
    PALE_ORANGE,
    Picture,
    signed,
    style,
)
from tinylm.plots import LARGEST_GROUP

LATER = "#bdbdbd"                               # for what is still to come
TOKEN_NAMES = [*ALPHABET, "end", ""]            # by id; padding has none


@style()
def answers(prompts, right_answers, responses, G=8, setting=""):
    """The answers that a policy sampled for a few prompts, each marked right or wrong.

    Args:
        prompts, right_answers: lists of P strings.
        responses: P lists of G or more sampled answers; the first G of each are shown.
        G: group size, 1 to 16.
        setting: how they were sampled, such as "temperature 1.0"; it opens the words.
    """
    rows = len(prompts)
    figure = Picture(760, 34 + 46 * rows, "A table of sampled answers: a row for each prompt, a "
                     "column for each answer of its group, marked right or wrong.")
    sheet = _sheet(figure)
    for i in range(LARGEST_GROUP):
        sheet.text(125 + 34 * i, 18, str(i + 1), ha="center", va="center", color=GREY, fontsize=9)
    sheet.text(752, 18, "right", ha="right", va="center", color=GREY, fontsize=9)
    groups = [_group_row(sheet, 32 + 46 * row, prompt, answer)
              for row, (prompt, answer) in enumerate(zip(prompts, right_answers, strict=True))]

    def move(responses, G, setting):
        _check_group(responses, G)
        said = [group(row[:G]) for group, row in zip(groups, responses, strict=True)]
        same = sum(row[:G].count(answer) in (0, G)
                   for row, answer in zip(responses, right_answers, strict=True))
        return (f"{setting}, {G} answers a prompt. ".lstrip(", ") + ", ".join(said)
                + f". {same} of {rows} groups have equal rewards and give no signal.")

    return figure.start(move, responses=responses, G=G, setting=setting)


def _check_group(responses, G):
    if not (isinstance(G, int) and 1 <= G <= LARGEST_GROUP):
        raise ValueError(f"G is {G!r}; expected a whole number from 1 to {LARGEST_GROUP}.")
    if short := [row for row in responses if len(row) < G]:
        raise ValueError(f"a prompt has {len(short[0])} answers; expected G = {G} or more.")


def _group_row(sheet, top, prompt, answer):
    """One prompt's row. Returns a function that fills it and says how many answers are right."""
    sheet.text(98, top + 14, prompt, ha="right", va="center", weight="bold")
    sheet.text(98, top + 31, f"right: {answer}", ha="right", va="center", color=GREY, fontsize=9)
    cells = [_cell(sheet, 109 + 34 * i, top, 32, 42, 9) for i in range(LARGEST_GROUP)]
    count = sheet.text(752, top + 21, "", ha="right", va="center", animated=True)

    def fill(responses):
        for i, (box, text) in enumerate(cells):
            text.set_visible(i < len(responses))
            if i >= len(responses):
                box.set_facecolor(PALE)
                continue
            right = responses[i] == answer
            box.set_facecolor(PALE_BLUE if right else PALE_ORANGE)
            text.set(text=f"{responses[i] or '–'}\n{'✓' if right else '✗'}",
                     fontsize=9 if len(responses[i]) < 4 else 8)
        number = responses.count(answer)
        same = number in (0, len(responses))
        count.set(text=f"{number} of {len(responses)}" + "\nno signal" * same,
                  color=GREY if same else INK)
        return f"{prompt} {number} right"

    return fill


@style()
def step(record, stage=7):
    """One real batch on its way through a GRPO step, with its tensors and their shapes.

    Args:
        record: `plots.recorded("step")`.
        stage: how far to show it, 1 to 7: prompts, repeat, sample, reward, advantage, ratio, loss.
    """
    figure = Picture(840, 340, "A table with a row for each sampled answer of a batch; its columns "
                     "are filled from left to right: prompts, tokens, rewards, advantages, ratios, "
                     "loss terms.")
    sheet = _sheet(figure)
    B, T = len(record["ids"]), len(record["mask"][0])
    parts = _columns(sheet, record, B, T)
    heads = _heads(sheet, len(record["prompts"]), B, T)
    parts.append((7, [sheet.text(832, 318, f"loss = minus the mean of these {B} = "
                                 f"{signed(record['loss'], 3)}", ha="right", va="center",
                                 weight="bold", animated=True)]))
    words = _step_words(record, B, T)

    def move(stage):
        if not (isinstance(stage, int) and 1 <= stage <= len(words)):
            raise ValueError(f"stage is {stage!r}; expected a whole number from 1 to {len(words)}.")
        for first, artists in parts:
            for artist in artists:
                artist.set_visible(stage >= first)
        for head in heads:
            head(stage)
        return f"{stage} of {len(words)}, {words[stage - 1]}"

    return figure.start(move, stage=stage)


# Where the columns of `step` begin, and how wide their cells are, in pixels.
PROMPT, TOKEN, REWARD, ADVANTAGE = (8, 66), (82, 34), (226, 46), (280, 58)
RATIO, TERM, MEAN = (346, 48), (548, 54), (774, 58)


def _top(row, G):
    return 62 + 28 * row + 14 * (row // G)


def _columns(sheet, record, B, T):
    """All cells of `step`: a list of (the stage that shows them, their artists)."""
    G, parts = record["G"], []
    for row in range(B):
        prompt = record["prompts"][row // G]
        right = record["rewards"][row] == 1
        put = _Row(sheet, _top(row, G), parts)
        put(1 if row % G == 0 else 2, PROMPT, prompt, PALE)
        put(4, REWARD, "1 ✓" if right else "0 ✗", PALE_BLUE if right else PALE_ORANGE)
        put(5, ADVANTAGE, signed(record["advantages"][row]), _tint(record["advantages"][row]))
        put(7, MEAN, signed(record["means"][row], 3), _tint(record["means"][row]))
        for t in range(T):
            token = TOKEN_NAMES[record["ids"][row][record["prompt_len"] + t]]
            real = record["mask"][row][t] == 1
            put(3, TOKEN, token if real else "·", PALE if real else "white", t)
            if real:
                clipped, ratio = record["clipped"][row][t], record["ratio"][row][t]
                put(6, RATIO, f"{ratio:.2f}", _tint(ratio - 1), t)
                put(7, TERM, signed(record["terms"][row][t]), _tint(record["terms"][row][t]), t,
                    edge=INK if clipped else "none")
    return parts


class _Row:
    """Puts cells into one row of `step`, and into the list of its parts."""

    def __init__(self, sheet, top, parts):
        self.sheet, self.top, self.parts = sheet, top, parts

    def __call__(self, stage, column, words, paper, index=0, edge="none"):
        left, width = column
        box, text = _cell(self.sheet, left + width * index, self.top, width - 2, 25)
        box.set(facecolor=paper, edgecolor=edge, linewidth=1.4)
        text.set_text(words)
        self.parts.append((stage, [box, text]))


def _tint(number):
    """Blue above zero, orange below, white where two decimals show a zero."""
    return "white" if abs(number) < 0.005 else PALE_BLUE if number > 0 else PALE_ORANGE


def _heads(sheet, P, B, T):
    """Names and shapes over the columns. Each returned function shows one for a stage."""
    each, token = f"({B},)", f"({B}, {T})"
    return [
        _head(sheet, PROMPT, 1, "prompts", {1: f"({P},)", 2: each}),
        _head(sheet, TOKEN, T, "tokens, mask", {3: token}),
        _head(sheet, REWARD, 1, "reward", {4: each}),
        _head(sheet, ADVANTAGE, 1, "adv", {5: each}),
        _head(sheet, RATIO, T, "ratio ρ", {6: token}),
        _head(sheet, TERM, T, "term, boxed where clipped", {7: token}),
        _head(sheet, MEAN, 1, "mean", {7: each}),
    ]


def _head(sheet, column, cells, name, shapes):
    """`shapes`: what stands under the name, by the stage from which it does."""
    middle = column[0] + column[1] * cells / 2 - 1
    title, below = (sheet.text(middle, y, text, ha="center", va="center", animated=True)
                    for y, text in ((20, name), (42, "")))

    def show(stage):
        begun = [first for first in shapes if first <= stage]
        for text in (title, below):
            text.set(color=INK if stage in shapes else GREY if begun else LATER,
                     weight="bold" if stage in shapes else "normal")
        below.set_text(shapes[begun[-1]] if begun else "")

    return show


def _step_words(record, B, T):
    """A sentence or two for each stage."""
    prompts, right, G = record["prompts"], record["answers"], record["G"]
    P, real = len(prompts), sum(map(sum, record["mask"]))
    groups = [record["rewards"][p * G : (p + 1) * G] for p in range(P)]
    low, high = 1 - record["clip_eps"], 1 + record["clip_eps"]
    ratios = [ratio for ratio_row, mask_row in zip(record["ratio"], record["mask"], strict=True)
              for ratio, is_real in zip(ratio_row, mask_row, strict=True) if is_real]
    levels = [f"{signed(max(some))} for a right answer and {signed(min(some))} for a wrong one"
              for some in (record["advantages"][p * G : (p + 1) * G] for p in range(P))]
    return (
        f"prompts: {P} prompts, " + " and ".join(
            f"{prompt} (right answer {answer})" for prompt, answer in zip(prompts, right,
                                                                          strict=True)) + ".",
        f"repeat (task 1): each prompt stands {G} times in a row, so there are {B} rows; the first "
        f"{G} are the first group.",
        f"sample (task 1): {B} answers of up to {T} tokens: {', '.join(record['responses'])}. "
        f"The mask counts {real} tokens, end tokens among them, and leaves out {B * T - real}.",
        "reward (task 1): 1 for the right answer, else 0; right are "
        + " and ".join(f"{sum(group):.0f} of {G}" for group in groups) + ".",
        "advantage (task 2): " + "; ".join(
            f"group {p + 1}, {level}" for p, level in enumerate(levels)) + ".",
        f"ratio (task 5): before the first inner step each ratio is 1; after it they run from "
        f"{min(ratios):.2f} to {max(ratios):.2f}, "
        f"{sum(not low <= ratio <= high for ratio in ratios)} of {real} outside {low:.1f} to "
        f"{high:.1f}.",
        f"loss (tasks 3 and 4): each token's clipped objective less {record['beta']} times k3, "
        f"averaged over the tokens of its answer; the clip acts on "
        f"{sum(map(sum, record['clipped']))} of {real} tokens. The loss is "
        f"{signed(record['loss'], 3)}, minus the mean over the {B} answers.",
    )


def _sheet(picture):
    """Axes over the whole picture, in CSS pixels from its upper left corner."""
    axes = picture.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, picture.width), ylim=(picture.height, 0))
    axes.axis("off")
    return axes


def _cell(sheet, left, top, width, height, size=10):
    """A box and its text, both moving."""
    box = sheet.add_patch(Rectangle((left, top), width, height, edgecolor="none", animated=True))
    text = sheet.text(left + width / 2, top + height / 2, "", ha="center", va="center",
                      fontsize=size, animated=True)
    return box, text
