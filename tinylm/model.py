"""TinyLM: a causal transformer small enough for two CPU cores, which can carry a cache.

Pre-norm blocks, learned positions, no dropout. The model reads token ids and nothing else: it finds
the padding on the left by itself and counts positions from the first real token, so that a row
gives the same logits however far it is padded and whoever its neighbours are. Padding on the right
needs no care, because nothing looks ahead.

A `Cache` holds the keys and values of what was read so far. `sample` grows it by a token at a time;
`Cache.rows` hands one beginning to many rows, with gradients, so that a group of G answers pays for
its prompt once.
"""

import math
from dataclasses import asdict, dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

from tinylm.addition import PAD, VOCAB_SIZE

NEVER = -1e4                 # PAD's logit: its exp() is exactly 0, and 0 * -1e4 is 0, not NaN


@dataclass(frozen=True)
class ModelConfig:
    width: int = 64          # D, numbers that stand for one token
    depth: int = 2           # transformer blocks
    heads: int = 4           # attention heads; width must be a multiple
    context: int = 16        # the longest sequence, prompt and answer together


class Cache:
    """Keys and values of the tokens read so far, for each of B rows.

    Attributes:
        layers: a list, one tensor a block, (2, B, heads, S, D / heads): keys, then values.
        pad: (B,) long, how many left-padding tokens each row starts with; None while S = 0.
        length: S, the number of tokens read.
    """

    def __init__(self):
        self.layers, self.pad, self.length = [], None, 0

    def rows(self, index):
        """A new cache whose row i is this one's row index[i] ((B,) long). Gradients flow."""
        picked = Cache()
        picked.layers = [block.index_select(1, index) for block in self.layers]
        picked.pad, picked.length = self.pad[index], self.length
        return picked

    def extend(self, layer, new):
        """Append one block's keys and values; return all of that block's so far."""
        if layer == len(self.layers):
            self.layers.append(new)
        else:
            self.layers[layer] = torch.cat([self.layers[layer], new], 3)
        return self.layers[layer]


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, self.heads = config.width, config.heads
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x, bias, cache, layer):
        x = x + self.out(self.attend(self.norm_attention(x), bias, cache, layer))
        return x + self.down(F.relu(self.up(self.norm_mlp(x))))

    def attend(self, x, bias, cache, layer):
        B, S, D = x.shape
        qkv = self.qkv(x).view(B, S, 3, self.heads, D // self.heads)
        qkv = qkv.permute(2, 0, 3, 1, 4)                                    # (3, B, H, S, D/H)
        key, value = cache.extend(layer, qkv[1:])                           # (B, H, S0+S, D/H)
        mixed = F.scaled_dot_product_attention(qkv[0], key, value, attn_mask=bias)
        return mixed.transpose(1, 2).reshape(B, S, D)


class TinyLM(nn.Module):
    """The language model. See `ModelConfig` for its sizes.

    model(ids) -> logits:
        ids: (B, S) long, padded on either side with `PAD`.
        logits: (B, S, VOCAB_SIZE), in nats up to a constant; logits[:, t] speaks of token t + 1.
    With a `cache` that holds S0 tokens, `ids` are the S tokens after them, and the cache grows.
    Raises ValueError when a row is longer than `config.context`.
    """

    def __init__(self, config=None):
        super().__init__()
        self.config = config = config or ModelConfig()
        self.token = nn.Embedding(VOCAB_SIZE, config.width)
        self.position = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, VOCAB_SIZE, bias=False)
        never_pad = torch.zeros(VOCAB_SIZE)
        never_pad[PAD] = NEVER
        self.register_buffer("never_pad", never_pad, persistent=False)
        self.apply(self._init)

    def _init(self, module):
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=1 / math.sqrt(self.config.width))
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    @property
    def device(self):
        return self.token.weight.device

    def forward(self, ids, cache=None):
        cache = Cache() if cache is None else cache
        start = cache.length
        if cache.pad is None:
            cache.pad = (ids != PAD).long().cumsum(1).eq(0).sum(1)          # (B,)
        if start + ids.shape[1] > self.config.context:
            self.check_length(start + ids.shape[1] - int(cache.pad.min()))
        seen = torch.arange(start + ids.shape[1], device=ids.device)        # (S0+S,)
        here = seen[start:]                                                 # (S,)
        position = (here - cache.pad[:, None]).clamp(min=0)                 # (B, S)
        # A query sees real tokens up to itself. Padding sees itself, or its softmax would be NaN.
        first = torch.minimum(cache.pad[:, None], here)[:, :, None]         # (B, S, 1)
        visible = (first <= seen) & (seen <= here[:, None])                 # (B, S, S0+S)
        x = self.token(ids) + self.position(position)
        bias = torch.where(visible, 0.0, -math.inf)[:, None].to(x.dtype)    # (B, 1, S, S0+S)
        for layer, block in enumerate(self.blocks):
            x = block(x, bias, cache, layer)
        cache.length = len(seen)
        return F.linear(self.norm(x), self.head.weight, self.never_pad)

    def check_length(self, length):
        """Raise ValueError if a row of `length` tokens, prompt and answer together, is too long."""
        if length > self.config.context:
            raise ValueError(
                f"prompt and answer take {length} tokens; this model reads at most "
                f"{self.config.context}: shorten the prompt, or allow fewer new tokens."
            )

    def describe(self):
        """The sizes as a plain dict, as they are kept in a checkpoint."""
        return asdict(self.config)
