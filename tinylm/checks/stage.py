"""The stage of a case: its inputs, and stand-ins that record how they are called.

Stand-ins have the names and arguments of the functions whose places they take, and return what the
case has scripted. They compute something else than the right answer on purpose: a wrong function of
an earlier task then costs nothing here, and nothing that can be imported solves a task.
"""

from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace

import torch
import torch.nn.functional as F

from tinylm.addition import ALPHABET, MAX_ANSWER_TOKENS, VOCAB_SIZE, encode
from tinylm.checks.plain import values

MARKS = ALPHABET + "$_"      # in a script, $ is the end token and _ is padding
STEEPNESS = 5.0              # of the scripted loss: its gradient is longer than the clip allows
DTYPES = {"float64": torch.float64, "float32": torch.float32}


@dataclass
class Call:
    """A call of a stand-in: its arguments as plain data, and which of them carry gradients."""

    name: str
    arguments: dict
    with_gradient: set


class Stage:
    """All that a case needs, made fresh for each run.

    Attributes:
        calls: the calls of stand-ins so far, in order.
        policy, ref, opt, cfg: models, optimizer and settings, where the case has a script for them.
        updates: the policy's parameters after each opt.step().
    """

    def __init__(self, case):
        self.case, self.script, self.calls, self.updates = case, case.get("script", {}), [], []
        self.cfg = SimpleNamespace(**self.script.get("cfg", {}))
        self.position = 0                        # the next scripted row of `sample`
        self.policy = TinyPolicy(self.script.get("policy", [1.0]))
        self.ref = TinyPolicy(self.script.get("ref", [1.0])).requires_grad_(False)

    @cached_property
    def opt(self):
        opt = torch.optim.SGD(self.policy.parameters(), lr=self.cfg.lr)
        opt.register_step_post_hook(lambda *_: self.updates.append(self.policy.numbers()))
        return opt

    def decoded(self, value):
        """An input as the function gets it."""
        if isinstance(value, dict):
            (form, content), = value.items()
            return getattr(self, content) if form == "stage" else _tensor(content, DTYPES[form])
        return list(value) if isinstance(value, list) else value

    def stand_ins(self):
        return {name: getattr(self, name) for name in self.case.get("replace", [])}

    def named(self, name):
        """The calls of the stand-in `name`."""
        return [call for call in self.calls if call.name == name]

    def _note(self, name, **arguments):
        plain = {key: self._plain(value) for key, value in arguments.items()}
        with_gradient = {key for key, value in arguments.items()
                         if isinstance(value, torch.Tensor) and value.requires_grad}
        self.calls.append(Call(name, plain, with_gradient))

    def _plain(self, value):
        if isinstance(value, torch.nn.Module):
            known = {id(self.policy): "policy", id(self.ref): "ref"}
            return known.get(id(value), "another model")
        return values(value)

    # -------------------------------------------------------- tinylm's functions

    def sample(self, model, prompts, temperature=1.0, greedy=False,
               max_new_tokens=MAX_ANSWER_TOKENS, generator=None):
        self._note("sample", model=model, prompts=prompts, temperature=temperature, greedy=greedy)
        script, start = self.script["responses"], self.position
        self.position += len(prompts)
        return _rollout(prompts, [script[(start + i) % len(script)] for i in range(len(prompts))],
                        torch.float32)

    def sequence_logprobs(self, model, out):
        self._note("sequence_logprobs", model=model)
        return _logprobs(model, out)

    def token_entropy(self, model, out):
        self._note("token_entropy", model=model)
        with torch.no_grad():
            logp = F.log_softmax(_logits(model, out), -1)
            entropy = -(logp.exp() * logp).sum(-1)                          # (B, T)
            return float((entropy * out["mask"]).sum() / out["mask"].sum())

    # -------------------------------------------------------- tasks 1 to 4

    def sample_group(self, model, prompts, answers, G, temperature=1.0):
        self._note("sample_group", model=model, prompts=prompts, answers=answers, G=G,
                   temperature=temperature)
        prompts = [p for p in self.case["inputs"]["prompts"] for _ in range(self.cfg.G)]
        responses = self.script["responses"]
        return {
            "out": _rollout(prompts, responses, torch.float64),
            "responses": [text.rstrip("_").rstrip("$") for text in responses],
            "rewards": _tensor(self.script["rewards"], torch.float64),
        }

    def group_advantages(self, rewards, G, scale_std=True, eps=1e-4):
        self._note("group_advantages", rewards=rewards, G=G, scale_std=scale_std)
        return _tensor(self.script["advantages"], torch.float64)

    def k3_kl(self, logp, ref_logp):
        self._note("k3_kl")
        d = ref_logp - logp
        return d * d * torch.sigmoid(d)          # smooth, positive, and not k3

    def grpo_loss(self, logp, old_logp, ref_logp, adv, mask, clip_eps=0.2, beta=0.04):
        k = len(self.named("grpo_loss"))
        self._note("grpo_loss", logp=logp, old_logp=old_logp, ref_logp=ref_logp, adv=adv, mask=mask,
                   clip_eps=clip_eps, beta=beta)
        self._note_freshness(logp)
        weight = torch.linspace(1, 2, logp.shape[0], dtype=logp.dtype)[:, None]
        loss = STEEPNESS * (weight * logp).mean() + self.script["loss"][k % 4]
        stats = {key: self.script[key][k % 4] for key in ("kl", "clip_frac", "ratio_max")}
        return loss, stats

    def _note_freshness(self, logp):
        """Whether logp is that of the policy as it stands now, and not of an earlier step."""
        with torch.no_grad():
            now = _logprobs(self.policy, self._out())
        same = logp.shape == now.shape and bool((logp.detach() - now).abs().max() < 1e-9)
        self.calls[-1].arguments["fresh"] = same

    def _out(self):
        prompts = [p for p in self.case["inputs"]["prompts"] for _ in range(self.cfg.G)]
        return _rollout(prompts, self.script["responses"], torch.float64)


class TinyPolicy(torch.nn.Module):
    """A model of a few numbers, with all that a step asks of a model: logits and gradients."""

    def __init__(self, numbers):
        super().__init__()
        self.weight = torch.nn.Parameter(_tensor(numbers, torch.float64))

    @property
    def device(self):
        return self.weight.device

    def numbers(self):
        return values(self.weight.detach())

    def forward(self, ids):
        token, k = torch.arange(VOCAB_SIZE), torch.arange(1, 1 + len(self.weight))
        angle = (ids[..., None, None] + 1) * (token[:, None] + 2) * k        # (B, S, V, K)
        return torch.sin(angle.double()) @ self.weight                      # (B, S, V)


def _tensor(content, dtype):
    return torch.tensor(content, dtype=dtype)


def _rollout(prompts, responses, dtype):
    """A rollout as tinylm.sample returns it, from prompts and scripted responses."""
    ids = encode(prompts)
    response = torch.tensor([[MARKS.index(mark) for mark in text] for text in responses])
    mask = (response != MARKS.index("_")).to(dtype)
    return {"ids": torch.cat([ids, response], 1), "prompt_len": ids.shape[1], "mask": mask}


def _logits(model, out):
    return model(out["ids"][:, :-1])[:, out["prompt_len"] - 1:]              # (B, T, V)


def _logprobs(model, out):
    logp = F.log_softmax(_logits(model, out), -1)
    token = out["ids"][:, out["prompt_len"]:, None]
    return logp.gather(-1, token)[..., 0] * out["mask"]
