"""A picture of one batch of a live run from inside: the loss, its groups, one answer, its tokens.

As in `plots`: data in, a `Picture` out. What a token's ratio, branch, k3 and loss are is not
decided here: the learner's own grpo_loss says it. What is drawn are shares of the loss: those of an
answer's tokens add up to the answer's, those of a group's answers to the group's, and those of all
groups to the loss in the curve.
"""

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from tinylm.addition import MAX_ANSWER_TOKENS
from tinylm.batches import TOKEN_NAMES
from tinylm.picture import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    PALE,
    PALE_BLUE,
    PALE_ORANGE,
    Picture,
    signed,
    style,
)
from tinylm.plots import LARGEST_GROUP

TOP, ROW = 200, 19           # where the rows of the batch begin and how high they are, in pixels
TILES, SHARES = 84, 458      # left edge of the tiles, right edge of the groups' shares
WIDEST = 38                  # a tile, where a group is small
ANSWERS = (500, 600, 700, 828)                       # right edges of the columns of a group
TOKENS = (84, 176, 300, 416, 536, 676)               # and of those of an answer
DIGITS = 5
CLOSE = 1e-5                 # by how much float32 sums may differ from the loss


def shares_of(batch, token_losses):
    """The share of each token in the loss, (B, T): means over the tokens, then over the answers."""
    length = np.maximum(batch.mask.sum(axis=1, keepdims=True), 1)
    return token_losses * batch.mask / length / len(batch.mask)


@style()
def batch(P, iterations, loss_range):
    """One batch of a run, from the loss curve down to the tokens of one answer; empty at first.

    Args:
        P: how many prompts a batch has.
        iterations: how many a run has in all.
        loss_range: (lowest, highest) on the axis of the loss.

    It moves by `group` and `answer`, which are chosen, both from 1, and by `view`, a dict of
        batch: a Batch of P prompts;
        history: the loss of each iteration so far;
        token_losses: (B, T), the loss of each token alone;
        tokens: for each real token of the chosen answer a dict of its ratio, clipped and k3.
    """
    below = TOP + ROW * max(P, LARGEST_GROUP)
    figure = Picture(840, below + 60 + 22 * MAX_ANSWER_TOKENS, "Four views of one batch: the loss "
                     "of each iteration, the groups of the batch as rows of tiles, the answers of "
                     "one group, and the tokens of one answer.")
    sheet = figure.add_axes((0, 0, 1, 1))
    parts = _loss_curve(figure, iterations, loss_range), _groups(sheet, P), _answers(sheet), (
        _tokens(sheet, below + 22))
    sheet.set(xlim=(0, figure.width), ylim=(figure.height, 0))
    sheet.axis("off")

    def move(view, group, answer):
        if view is None:
            return ""
        view = {**view, "shares": shares_of(view["batch"], view["token_losses"])}
        return " ".join(part(view, group, answer) for part in parts)

    return figure.start(move, view=None, group=1, answer=1)


def group_size(batch, P):
    """G of a batch of P prompts. Raises ValueError for one that the picture has no room for."""
    B, T, G = len(batch.responses), batch.mask.shape[1], len(batch.responses) // P
    if len(batch.prompts) != P or B != P * G or G > LARGEST_GROUP or T > MAX_ANSWER_TOKENS:
        raise ValueError(f"a batch has {len(batch.prompts)} prompts and {B} answers of up to {T} "
                         f"tokens; expected {P} prompts, as many answers to each, {LARGEST_GROUP} "
                         f"at most, and at most {MAX_ANSWER_TOKENS} tokens.")
    return G


def _heading(sheet, x, y, text, size=10):
    return sheet.text(x, y, text, va="center", weight="bold" if size == 10 else "normal",
                      fontsize=size, color=INK if size == 10 else GREY)


def _loss_curve(figure, iterations, loss_range):
    """The whole run. Returns a function that sets the curve and says whether the shares fit it."""
    height = figure.height
    axes = figure.add_axes((0.075, 1 - 122 / height, 0.91, 90 / height))
    axes.set(xlim=(0, iterations + 1), ylim=loss_range)
    axes.set_title("the run: the loss of each iteration, in its last inner step", loc="left",
                   weight="bold")
    axes.axhline(0, color=GREY, linewidth=0.8)
    line, = axes.plot([], [], color=BLUE, linewidth=1.2, animated=True, label="loss")
    at = axes.axvline(1, color=ORANGE, linewidth=1.2, animated=True, zorder=2.5)
    here, = axes.plot([], [], "o", color=ORANGE, markersize=7, animated=True, zorder=3,
                      label="here")

    def move(view, _group, _answer):
        batch, losses = view["batch"], view["history"]
        line.set_data(range(1, len(losses) + 1), losses)
        at.set_xdata([batch.iteration] * 2)
        here.set_data([batch.iteration], [batch.loss])
        total, B = float(view["shares"].sum()), len(batch.responses)
        said = f"Iteration {batch.iteration}: the loss is {signed(batch.loss, DIGITS)}, "
        if abs(total - batch.loss) <= CLOSE:
            return said + f"the sum of the shares of its {B} answers."
        return said + (f"but the shares of its {B} answers add up to {signed(total, DIGITS)}: "
                       "lab.py has changed since, or its grpo_loss averages otherwise.")

    return move


def _groups(sheet, P):
    """All answers as tiles, a row for each prompt. Returns a function that sets them."""
    _heading(sheet, 8, TOP - 34, "the batch: a row for each group")
    _heading(sheet, 8, TOP - 14, "blue: advantage above 0, orange: below, grey: 0; dot: rewarded",
             8.5)
    sheet.text(SHARES, TOP - 14, "share", ha="right", va="center", fontsize=8.5, color=GREY)
    bottom = TOP + ROW * P
    tiles = sheet.imshow(np.ones((P, 1, 3)), aspect="auto", interpolation="nearest", animated=True)
    gaps = sheet.add_collection(LineCollection([], colors="white", linewidths=1.5, animated=True,
                                               zorder=1.5))
    dots, = sheet.plot([], [], "o", color=INK, markersize=4, animated=True)
    names, sums = ([sheet.text(x, TOP + ROW * (p + 0.5), "", ha="right", va="center", fontsize=9,
                               animated=True) for p in range(P)] for x in (TILES - 6, SHARES))
    box = _outline(sheet)

    def move(view, group, answer):
        batch = view["batch"]
        G = group_size(batch, P)
        width = min(WIDEST, ROW * LARGEST_GROUP / G)
        rewarded = batch.rewards.reshape(P, G) > 0
        tiles.set_extent((TILES, TILES + width * G, bottom, TOP))
        gaps.set_segments([[(TILES + width * i, TOP), (TILES + width * i, bottom)]
                           for i in range(G + 1)]
                          + [[(TILES, TOP + ROW * i), (TILES + width * G, TOP + ROW * i)]
                             for i in range(P + 1)])
        tiles.set_data(np.array([to_rgb(_tint(number)) for number in batch.advantages])
                       .reshape(P, G, 3))
        rows, columns = np.nonzero(rewarded)
        dots.set_data(TILES + width * (columns + 0.5), TOP + ROW * (rows + 0.5))
        of_groups = view["shares"].sum(axis=1).reshape(P, G).sum(axis=1)
        for p in range(P):
            weight = "bold" if p == group - 1 else "normal"
            names[p].set(text=batch.prompts[p], weight=weight)
            sums[p].set(text=signed(of_groups[p], DIGITS), weight=weight)
        box.set_bounds(TILES + width * (answer - 1), TOP + ROW * (group - 1), width, ROW)
        return (f"Group {group}, {batch.prompts[group - 1]} with the right answer "
                f"{batch.answers[group - 1]}: {rewarded[group - 1].sum()} of {G} rewarded, share "
                f"{signed(of_groups[group - 1], DIGITS)}.")

    return move


def _answers(sheet):
    """The answers of one group. Returns a function that sets them."""
    title = _heading(sheet, ANSWERS[0] - 8, TOP - 34, "")
    title.set_animated(True)
    heads = ("answer", "reward", "advantage", "share of the loss")
    for x, head, place in zip(ANSWERS, heads, ("left", "right", "right", "right"), strict=True):
        sheet.text(x, TOP - 14, head, ha=place, va="center", fontsize=8.5, color=GREY)
    rows = [[sheet.text(x, TOP + ROW * (i + 0.5), "", ha="left" if x == ANSWERS[0] else "right",
                        va="center", fontsize=9, animated=True) for x in ANSWERS]
            for i in range(LARGEST_GROUP)]
    box = _outline(sheet)

    def move(view, group, answer):
        batch = view["batch"]
        G = group_size(batch, len(batch.prompts))
        start = (group - 1) * G
        title.set_text(f"the group: {batch.prompts[group - 1]} right answer "
                       f"{batch.answers[group - 1]}")
        shares = view["shares"].sum(axis=1)
        for i, texts in enumerate(rows):
            words = _answer_words(batch, start + i, shares) if i < G else [""] * len(ANSWERS)
            for text, word in zip(texts, words, strict=True):
                text.set_text(word)
        box.set_bounds(ANSWERS[0] - 8, TOP + ROW * (answer - 1), ANSWERS[-1] - ANSWERS[0] + 14, ROW)
        chosen = start + answer - 1
        return (f"Answer {answer}, “{batch.responses[chosen]}”: advantage "
                f"{signed(batch.advantages[chosen])}, share {signed(shares[chosen], DIGITS)}.")

    return move


def _answer_words(batch, i, shares):
    mark = "✓" if batch.rewards[i] > 0 else "✗"
    return (batch.responses[i] or "–", f"{batch.rewards[i]:g} {mark}",
            signed(batch.advantages[i]), signed(shares[i], DIGITS))


def _tokens(sheet, top):
    """The tokens of one answer. Returns a function that sets them."""
    title = _heading(sheet, 8, top, "")
    title.set_animated(True)
    heads = ("token", "ratio ρ", "active branch", "k3", "loss", "share of the loss")
    for x, head in zip(TOKENS, heads, strict=True):
        sheet.text(x, top + 20, head, ha="right", va="center", fontsize=8.5, color=GREY)
    rows = [[sheet.text(x, top + 40 + 22 * t, "", ha="right", va="center", animated=True)
             for x in TOKENS] for t in range(MAX_ANSWER_TOKENS)]

    def move(view, group, answer):
        batch = view["batch"]
        i = (group - 1) * group_size(batch, len(batch.prompts)) + answer - 1
        real, B = np.flatnonzero(batch.mask[i] > 0), len(batch.responses)
        title.set_text(f"the answer “{batch.responses[i]}”: a token's share is its loss / "
                       f"{len(real)} tokens / {B} answers")
        for n, texts in enumerate(rows):
            words = (_token_words(view, i, real[n], view["tokens"][n]) if n < len(real)
                     else [""] * len(TOKENS))
            for text, word in zip(texts, words, strict=True):
                text.set(text=word, weight="bold" if word == "clipped" else "normal")
        clipped = sum(token["clipped"] > 0 for token in view["tokens"])
        return f"The clip acts on {clipped} of its {len(real)} tokens."

    return move


def _token_words(view, i, t, token):
    batch = view["batch"]
    return (TOKEN_NAMES[batch.ids[i, batch.prompt_len + t]], f"{token['ratio']:.3f}",
            "clipped" if token["clipped"] > 0 else "unclipped", f"{token['k3']:.4f}",
            signed(view["token_losses"][i, t], 4), signed(view["shares"][i, t], DIGITS))


def _tint(advantage):
    """PALE where two decimals show a zero, as in a group without signal."""
    return PALE if abs(advantage) < 0.005 else PALE_BLUE if advantage > 0 else PALE_ORANGE


def _outline(sheet):
    return sheet.add_patch(Rectangle((0, 0), 0, 0, fill=False, edgecolor=INK, linewidth=1.8,
                                     animated=True, zorder=3))
