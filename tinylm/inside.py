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
def batch(view, iterations, loss_range, group=1, answer=1):
    """One batch of a run, from the loss curve down to the tokens of one answer.

    Args:
        view: a dict of `batch` (a Batch), `history` (the loss of each iteration so far),
            `token_losses` (B, T), and `tokens`: for each real token of the chosen answer a dict of
            its ratio, clipped (0 or 1) and k3.
        iterations: how many the run has in all.
        loss_range: (lowest, highest) on the axis of the loss.
        group, answer: which are chosen, both from 1.
    """
    P, G = sizes(view["batch"])
    below = TOP + ROW * max(P, LARGEST_GROUP)
    figure = Picture(840, below + 60 + 22 * MAX_ANSWER_TOKENS, "Four views of one batch: the loss "
                     "of each iteration, the groups of the batch as rows of tiles, the answers of "
                     "one group, and the tokens of one answer.")
    sheet = figure.add_axes((0, 0, 1, 1))
    sheet.set(xlim=(0, figure.width), ylim=(figure.height, 0))
    sheet.axis("off")
    curve = _loss_curve(figure, iterations, loss_range)
    parts = _groups(sheet, P, G), _answers(sheet, G), _tokens(sheet, below + 22)

    def move(view, group, answer):
        view = {**view, "shares": shares_of(view["batch"], view["token_losses"])}
        return " ".join([curve(view), *(part(view, group, answer) for part in parts)])

    return figure.start(move, view=view, group=group, answer=answer)


def sizes(batch):
    """(P, G) of a batch. Raises ValueError for one that the picture has no room for."""
    P, B, T = len(batch.prompts), len(batch.responses), batch.mask.shape[1]
    if B % P or B // P > LARGEST_GROUP or T > MAX_ANSWER_TOKENS:
        raise ValueError(f"the batch has {P} prompts and {B} answers of up to {T} tokens; expected "
                         f"the same number of answers to each prompt, at most {LARGEST_GROUP}, and "
                         f"at most {MAX_ANSWER_TOKENS} tokens.")
    return P, B // P


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

    def move(view):
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


def _groups(sheet, P, G):
    """All answers as tiles, a row for each prompt. Returns a function that sets them."""
    _heading(sheet, 8, TOP - 34, "the batch: a row for each group")
    _heading(sheet, 8, TOP - 14, "blue: advantage above 0, orange: below, grey: 0; dot: rewarded",
             8.5)
    sheet.text(SHARES, TOP - 14, "share", ha="right", va="center", fontsize=8.5, color=GREY)
    width, limits = min(WIDEST, ROW * LARGEST_GROUP / G), (sheet.get_xlim(), sheet.get_ylim())
    right, bottom = TILES + width * G, TOP + ROW * P
    tiles = sheet.imshow(np.ones((P, G, 3)), extent=(TILES, right, bottom, TOP), aspect="auto",
                         interpolation="nearest", animated=True)
    sheet.set(xlim=limits[0], ylim=limits[1])            # imshow has changed them
    gaps = [[(TILES + width * i, TOP), (TILES + width * i, bottom)] for i in range(G + 1)]
    gaps += [[(TILES, TOP + ROW * i), (right, TOP + ROW * i)] for i in range(P + 1)]
    sheet.add_collection(LineCollection(gaps, colors="white", linewidths=1.5, animated=True,
                                        zorder=1.5))
    dots, = sheet.plot([], [], "o", color=INK, markersize=4, animated=True)
    names, sums = ([sheet.text(x, TOP + ROW * (p + 0.5), "", ha="right", va="center", fontsize=9,
                               animated=True) for p in range(P)] for x in (TILES - 6, SHARES))
    box = _outline(sheet, width, ROW)

    def move(view, group, answer):
        batch = view["batch"]
        rewarded = batch.rewards.reshape(P, G) > 0
        tiles.set_data(np.array([to_rgb(_tint(number)) for number in batch.advantages])
                       .reshape(P, G, 3))
        rows, columns = np.nonzero(rewarded)
        dots.set_data(TILES + width * (columns + 0.5), TOP + ROW * (rows + 0.5))
        of_groups = view["shares"].sum(axis=1).reshape(P, G).sum(axis=1)
        for p in range(P):
            weight = "bold" if p == group - 1 else "normal"
            names[p].set(text=batch.prompts[p], weight=weight)
            sums[p].set(text=signed(of_groups[p], DIGITS), weight=weight)
        box.set_xy((TILES + width * (answer - 1), TOP + ROW * (group - 1)))
        return (f"Group {group}, {batch.prompts[group - 1]} with the right answer "
                f"{batch.answers[group - 1]}: {rewarded[group - 1].sum()} of {G} rewarded, share "
                f"{signed(of_groups[group - 1], DIGITS)}.")

    return move


def _answers(sheet, G):
    """The answers of one group. Returns a function that sets them."""
    title = _heading(sheet, ANSWERS[0] - 8, TOP - 34, "")
    title.set_animated(True)
    heads = ("answer", "reward", "advantage", "share of the loss")
    for x, head, place in zip(ANSWERS, heads, ("left", "right", "right", "right"), strict=True):
        sheet.text(x, TOP - 14, head, ha=place, va="center", fontsize=8.5, color=GREY)
    rows = [[sheet.text(x, TOP + ROW * (i + 0.5), "", ha="left" if x == ANSWERS[0] else "right",
                        va="center", fontsize=9, animated=True) for x in ANSWERS]
            for i in range(G)]
    box = _outline(sheet, ANSWERS[-1] - ANSWERS[0] + 14, ROW)

    def move(view, group, answer):
        batch, start = view["batch"], (group - 1) * G
        title.set_text(f"the group: {batch.prompts[group - 1]} right answer "
                       f"{batch.answers[group - 1]}")
        shares = view["shares"].sum(axis=1)
        for i, texts in enumerate(rows, start):
            mark = "✓" if batch.rewards[i] > 0 else "✗"
            words = (batch.responses[i] or "–", f"{batch.rewards[i]:g} {mark}",
                     signed(batch.advantages[i]), signed(shares[i], DIGITS))
            for text, word in zip(texts, words, strict=True):
                text.set_text(word)
        box.set_xy((ANSWERS[0] - 8, TOP + ROW * (answer - 1)))
        chosen = start + answer - 1
        return (f"Answer {answer}, “{batch.responses[chosen]}”: advantage "
                f"{signed(batch.advantages[chosen])}, share {signed(shares[chosen], DIGITS)}.")

    return move


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
        i = (group - 1) * sizes(batch)[1] + answer - 1
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


def _outline(sheet, width, height):
    return sheet.add_patch(Rectangle((0, 0), width, height, fill=False, edgecolor=INK,
                                     linewidth=1.8, animated=True, zorder=3))
