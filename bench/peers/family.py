"""Model of any family trained by Hugging Face's Trainer from its config.json, with the rows and settings of bench/families.py."""

import os
import sys

import torch
from common import Report, arguments, tokens
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, Trainer, TrainerCallback, TrainingArguments

a = arguments()
config = AutoConfig.from_pretrained(a.config)
hides = config.model_type == "bert"
torch.manual_seed(0)
model = (AutoModelForMaskedLM if hides else AutoModelForCausalLM).from_config(config)


class Rows(torch.utils.data.Dataset):
    """Rows. An encoder predicts 15 of 100 tokens; the time of a step does not depend on which."""

    def __init__(self, ids):
        self.ids = ids
        self.labels = ids.masked_fill(torch.rand(ids.shape, generator=torch.Generator().manual_seed(1)) > 0.15, -100) if hides else ids

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.labels[i]}


class Marks(TrainerCallback):
    def on_step_end(self, args, state, control, **more):
        if state.global_step == a.warm:
            report.mark("begin")
        if state.global_step == a.steps:
            report.mark("end")


settings = TrainingArguments(
    output_dir=str(a.out / "trainer"), per_device_train_batch_size=a.batch, max_steps=a.steps, learning_rate=1e-4, bf16=a.bf16, use_cpu=True,
    report_to=[], save_strategy="no", logging_steps=a.steps, dataloader_pin_memory=False, disable_tqdm=True)
report = Report(a, model)
ranks = int(os.environ.get("WORLD_SIZE", "1"))
a.vocabulary = config.vocab_size
trainer = Trainer(model=model, args=settings, train_dataset=Rows(tokens(a, a.steps * a.batch * ranks * 2)), callbacks=[Marks()])
result = trainer.train()
report.write(loss=result.training_loss)
# As in trainer.py: the normal exit would sometimes abort.
sys.stdout.flush()
os._exit(0)
