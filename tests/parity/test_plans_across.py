"""A run saved with three axes on 8 ranks and finished with ZeRO stage 3 on 3 ranks opens in transformers and equals the model of a run on
one rank."""

import pathlib
import sys

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
from test_plans import Plans  # noqa: E402


def test_transformers_opens_a_run_across_plans():
    Plans.setUpClass()
    try:
        run = Plans()
        run.train_on_one_rank()
        run.save_on_8_and_resume_on_3()
        models = {}
        for name in ("whole", "on_3"):
            models[name], info = transformers.AutoModelForCausalLM.from_pretrained(
                Plans.folder / name, output_loading_info=True)
            assert not any(info.values()), info
        expected = dict(models["whole"].named_parameters())
        for name, parameter in models["on_3"].named_parameters():
            torch.testing.assert_close(parameter, expected[name], atol=1e-4, rtol=0, msg=name)
        ids = torch.arange(60).view(2, 30)
        with torch.no_grad():
            torch.testing.assert_close(
                models["on_3"](ids).logits, models["whole"](ids).logits, atol=1e-3, rtol=0)
        transformers.AutoTokenizer.from_pretrained(Plans.folder / "on_3")
    finally:
        Plans.tearDownClass()
