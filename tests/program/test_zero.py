"""ZeRO stages, recomputation, offload and optimizers."""

import json
import os
import signal
import unittest

from harness import ProgramTest, long, losses, metrics, processes_of, ranks_of, start, wait_for


class Zero(ProgramTest):
    def test_every_stage_trains_evaluates_and_saves_as_one_rank(self):
        # 8 validation batches on 3 ranks: in the last round some ranks have no batch.
        common = ["eval_strategy=steps", "eval_steps=6", "per_device_eval_batch_size=7"]
        self.train("one", "per_device_train_batch_size=6", *common)
        evaluated = [line["eval_loss"] for line in metrics(self.folder / "one") if "eval_loss" in line]
        for stage in (1, 2, 3):
            run = f"stage-{stage}"
            self.train(run, "per_device_train_batch_size=2", f"parallel.zero_stage={stage}", *common, ranks=3)
            self.assert_close(losses(self.folder / run), losses(self.folder / "one"), 1e-5)
            own = [line["eval_loss"] for line in metrics(self.folder / run) if "eval_loss" in line]
            self.assert_close(own, evaluated, 1e-5)

    def test_resume_under_another_stage_and_number_of_ranks(self):
        common = ["save_steps=3", "resume_from_checkpoint=true", "lr_scheduler_type=constant_with_warmup"]
        self.train("whole", "per_device_train_batch_size=6", *common, steps=9)
        for stage, ranks, steps in ((3, 3, 3), (1, 2, 6), (2, 1, 9)):
            self.train(
                "run", f"per_device_train_batch_size={6 // ranks}", f"parallel.zero_stage={stage}", *common, ranks=ranks,
                steps=steps)
        self.assert_close(losses(self.folder / "run"), losses(self.folder / "whole"), 1e-5)

    @long
    def test_recomputation_and_optimizers_are_settings(self):
        self.train("kept", "per_device_train_batch_size=2", steps=4)
        for name, words in {
                "full": ["gradient_checkpointing=true"],
                "selective": ["parallel.recompute=selective"],
                "half": ["parallel.recompute=full", "parallel.recompute_every=2"]}.items():
            self.train(name, "per_device_train_batch_size=1", "parallel.zero_stage=3", *words, ranks=2, steps=4)
            self.assert_close(losses(self.folder / name), losses(self.folder / "kept"), 1e-5)
        for optim in ("sgd", "lion_32bit", "adafactor", "adamw_8bit"):
            self.train(optim, "per_device_train_batch_size=1", "parallel.zero_stage=2", f"optim={optim}", "save_steps=2", ranks=2, steps=4)
            self.train(
                f"{optim}-resumed", "per_device_train_batch_size=2", f"optim={optim}",
                f"resume_from_checkpoint={self.folder / optim / 'checkpoint-2'}", steps=4)
            self.assert_close(losses(self.folder / f"{optim}-resumed"), losses(self.folder / optim)[2:], 2e-3)

    def test_float16_trains_near_float32_and_resumes(self):
        self.train("exact", "per_device_train_batch_size=4", steps=4)
        self.train("half", "per_device_train_batch_size=2", "fp16=true", "parallel.zero_stage=2", "save_steps=2", ranks=2, steps=4)
        self.assert_close(losses(self.folder / "half"), losses(self.folder / "exact"), 2e-2)
        state = json.loads((self.folder / "half" / "checkpoint-2" / "state.json").read_text())
        self.assertGreater(state["loss_scale"]["value"], 1)
        self.train(
            "half-on", "per_device_train_batch_size=2", "fp16=true", "parallel.zero_stage=2",
            f"resume_from_checkpoint={self.folder / 'half' / 'checkpoint-2'}", ranks=2, steps=4)
        self.assertEqual(losses(self.folder / "half-on"), losses(self.folder / "half")[2:])

    def test_a_rank_killed_in_stage_3_ends_the_others(self):
        process = start(
            *self.train_arguments("killed", "parallel.zero_stage=3", ranks=3, steps=1000000), cwd=self.folder)
        wait_for(lambda: len(losses(self.folder / "killed")) >= 3)
        os.kill(ranks_of("output_dir=killed")[1], signal.SIGKILL)
        _, err = process.communicate(timeout=30)
        self.assertNotEqual(process.returncode, 0, err)
        self.assertIn("SIGKILL", err)
        self.assertEqual(processes_of("output_dir=killed"), [])

    def test_ranks_may_be_threads_of_one_process(self):
        for name, words in {"processes": [], "threads": ["--in-process"]}.items():
            self.train(name, "per_device_train_batch_size=1", "parallel.zero_stage=3", "save_steps=2", *words, ranks=2, steps=4)
        self.assert_close(losses(self.folder / "threads"), losses(self.folder / "processes"), 1e-6)
        self.train("threads", "--in-process", "parallel.zero_stage=1", "resume_from_checkpoint=true", ranks=2, steps=5)
        failed = self.run_fails(4, *self.train_arguments("none", "--in-process", "model.path=nothing", ranks=2))
        self.assertIn("nothing", failed.err)

    @long
    def test_offloaded_state_changes_nothing(self):
        for name, words in {
                "kept": [], "cpu": ["parallel.offload_optimizer.device=cpu", "parallel.offload_param.device=cpu"],
                "nvme": ["parallel.offload_optimizer.device=nvme", "parallel.offload_optimizer.path=state",
                         "parallel.offload_param.device=nvme", "parallel.offload_param.path=state"]}.items():
            self.train(f"offload-{name}", "parallel.zero_stage=3", "bf16=true", "save_steps=2", *words, ranks=2, steps=4)
            self.assertEqual(losses(self.folder / f"offload-{name}"), losses(self.folder / "offload-kept"))
        self.assertEqual(list((self.folder / "state").iterdir()), [])
        self.train(
            "offload-on", "bf16=true", "per_device_train_batch_size=16",
            f"resume_from_checkpoint={self.folder / 'offload-nvme' / 'checkpoint-2'}", steps=4)
        self.assert_close(losses(self.folder / "offload-on"), losses(self.folder / "offload-kept")[2:], 2e-2)

    def test_deepspeed_configuration_file(self):
        (self.folder / "ds.json").write_text("""{
          "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
          "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 1e3, "overlap_comm": true}}""")
        self.train("plain", "per_device_train_batch_size=4", steps=4)
        self.train("ds", "per_device_train_batch_size=2", "deepspeed=ds.json", ranks=2, steps=4)
        self.assert_close(losses(self.folder / "ds"), losses(self.folder / "plain"), 1e-5)
        self.assertIn("zero_stage: 3", (self.folder / "ds" / "config.yaml").read_text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
