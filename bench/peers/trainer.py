"""Hugging Face's Trainer: plain (its DDP), with DeepSpeed ZeRO 2 or 3, or with PEFT adapters."""

import os
import sys

import torch
from common import Report, arguments, make_adapted_model, make_model, tokens
from transformers import Trainer, TrainerCallback, TrainingArguments

a = arguments()


class Rows(torch.utils.data.Dataset):
    def __init__(self, ids):
        self.ids = ids

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


class Marks(TrainerCallback):
    def on_step_end(self, args, state, control, **more):
        done = state.global_step - first
        if done == a.warm:
            report.mark("begin")
        if done == a.steps:
            report.mark("end")
            report.mark("save_begin")

    def on_save(self, args, state, control, **more):
        report.mark("save_end")


first = a.steps if a.resume else 0
last = first + (a.more if a.resume else a.steps)
more = {}
if a.kind.startswith("zero"):
    zero = {"stage": int(a.kind[4])}
    if a.kind.endswith("-offload"):
        zero["offload_optimizer"] = {"device": "cpu"}
        if zero["stage"] == 3:
            zero["offload_param"] = {"device": "cpu"}
    more["deepspeed"] = {
        "zero_optimization": zero,
        # DeepSpeed would compile its own Adam for offloaded states at first use; torch's is sufficient.
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": a.bf16},
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "zero_allow_untested_optimizer": True,
    }
settings = TrainingArguments(
    output_dir=str(a.out / "trainer"),
    per_device_train_batch_size=a.batch,
    max_steps=last,
    learning_rate=1e-4,
    bf16=a.bf16,
    use_cpu=not torch.cuda.is_available(),
    report_to=[],
    save_strategy="steps" if a.save else "no",
    save_steps=a.steps,
    logging_steps=a.steps,
    dataloader_pin_memory=False,
    disable_tqdm=True,
    **more,
)
model = make_adapted_model(a) if a.kind.startswith("peft") else make_model(a)
report = Report(a, model)
ranks = int(os.environ.get("WORLD_SIZE", "1"))
trainer = Trainer(
    model=model,
    args=settings,
    train_dataset=Rows(tokens(a, last * a.batch * ranks * 2)),
    callbacks=[Marks()],
)
result = trainer.train(resume_from_checkpoint=a.resume or None)
report.write(loss=result.training_loss)
# A gloo thread that still runs would sometimes abort the normal exit; all results are written.
sys.stdout.flush()
os._exit(0)
