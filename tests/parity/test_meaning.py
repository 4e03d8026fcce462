"""A fixed sample of the fuzzer of meaning (tests/parity/meaning.py): each changed input has transformers' result, a message, or an error."""

import meaning
import pytest

# Parts of subjects' names, and numbers of changes.
SAMPLES = {"gemma2": 25, "qwen2_moe": 25, "t5-gated": 15, "bert classifier": 25, "generation": 25, "adapter llama": 20, "tokenizer of BertTokenizer": 25,
           "chat template": 25, "rows of": 30}


@pytest.mark.parametrize("subject", SAMPLES)
def test_a_changed_input_is_not_ignored_silently(tmp_path, subject):
    total, counts, failures = meaning.campaign([subject], SAMPLES[subject], seed=7, jobs=2, place=tmp_path)
    assert total > SAMPLES[subject]
    assert not failures, "\n\n".join(failures)
    # The sample contains changes that both programs read, and changes that Lockstep refuses.
    assert counts["equal"] + counts["reported"] > 0
    assert counts["error"] > 0


def test_a_silent_change_is_found(tmp_path):
    """The fuzzer itself: a result that differs without a message is a failure."""
    subject, mutation = meaning.subjects.ChatText(), meaning.Mutation("x", "eos_token", None)
    base, same, other = meaning.Outcome(["a"]), meaning.Outcome(["a"]), meaning.Outcome(["b"])
    assert meaning.verdict(subject, base, mutation, same, other) == "SILENT"
    assert meaning.verdict(subject, base, mutation, other, other) == "equal"
    assert meaning.verdict(subject, base, mutation, meaning.Outcome(["b"], "eos_token is ignored"), same) == "reported"
    assert meaning.verdict(subject, base, mutation, meaning.Outcome(None, "error", 4), same) == "error"
    assert meaning.verdict(subject, base, mutation, meaning.Outcome(None, "Segmentation fault", -11), same) == "CRASH"
