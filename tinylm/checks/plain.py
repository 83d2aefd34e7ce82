"""From a learner's objects to plain data: numbers, strings, and lists of them.

Tensors are read through the methods of their C base class, which nothing can replace, and only if
they are exactly that: an object that merely behaves like a tensor, or is equal to everything, is
written down as what it is.
"""

import torch

MOST = 10_000                # a larger tensor is written down by its kind and shape alone

_Base = torch._C.TensorBase
_FLOATS = {torch.float32, torch.float64}
_PLAIN = (bool, int, float, str, list, tuple, dict)


def kind(x):
    """What `x` is, in words: "float tensor", "int64 tensor", "list", "numpy.float64"."""
    if x is None or any(type(x) is plain for plain in _PLAIN):
        return type(x).__name__
    if type(x) is not torch.Tensor:
        return f"{type(x).__module__}.{type(x).__name__}"
    if _Base.layout.__get__(x) is not torch.strided or _Base.is_meta.__get__(x):
        return "tensor without readable numbers"
    dtype = _Base.dtype.__get__(x)
    return "float tensor" if dtype in _FLOATS else f"{dtype} tensor".removeprefix("torch.")


def shape(x):
    """The shape of a tensor as a tuple; None for anything else."""
    return tuple(_Base.shape.__get__(x)) if type(x) is torch.Tensor else None


def values(x):
    """What is in `x`, as far as it is a tensor, a number, a string or a list; else its kind."""
    if type(x) is torch.Tensor:
        readable = "without" not in kind(x) and _Base.numel(x) <= MOST
        return _Base.tolist(x) if readable else f"{kind(x)} of shape {shape(x)}"
    if type(x) in (list, tuple) and len(x) <= MOST:
        return [values(item) if type(item) not in (list, tuple) else kind(item) for item in x]
    return x if type(x) in (str, int, float, bool) else kind(x)


def number(x):
    """One number as a float, whether it is a tensor or not; the kind of `x` if it is no number."""
    if type(x) is torch.Tensor and shape(x) in ((), (1,)):
        x = values(x)
        x = x[0] if type(x) is list else x
    return float(x) if type(x) in (int, float, bool) else kind(x)


def numbers(x):
    """All numbers in a tensor or a list, flat, whatever the shape and type; or the kind of `x`."""
    items = values(_Base.reshape(x, (-1,)) if type(x) is torch.Tensor else x)
    return [number(item) for item in items] if type(items) is list else kind(x)


def floats(x):
    """The numbers of a float tensor, flat; None where there are none."""
    found = numbers(x) if kind(x) == "float tensor" else None
    return found if type(found) is list and found else None


def entries(x, name):
    """The entries of a dict as {'name["key"]': value}; empty for anything else."""
    return {f'{name}["{key}"]': value for key, value in x.items()} if type(x) is dict else {}
