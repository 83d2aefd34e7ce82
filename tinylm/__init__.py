from tinylm.addition import make_batch, reward
from tinylm.rollout import accuracy, decode_responses, sample, sequence_logprobs, token_entropy
def load_or_train_sft(*a): pass
