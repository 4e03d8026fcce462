"""Training on emulated GPUs that enforce CUDA's rules and compute nothing (tests/null_gpu/README.md): tests the calls, their number, and
that runs complete. The libraries are in build/release/null_gpu; building them requires nvcc. Skipped if they are not built."""

import collections
import json
import pathlib
import re
import subprocess
import sys
import unittest

from gpu_plans import CONFIGS, LLAMA, PAIRS, PLANS, words_of_families
from harness import CONFIG, PROGRAM, SOURCE, ProgramTest, Result, environment, free_port, lockstep, long, start, wait_for
from test_t5 import T5

sys.path.insert(0, str(SOURCE / "tests" / "null_gpu"))
import pretend  # noqa: E402

LIBRARIES = pathlib.Path(PROGRAM).resolve().parent / "null_gpu"

# Additional waits of the host per step: for the gradients of each unit that it updates, and for the number of rows of each
# expert, per layer and micro-batch.
MORE_WAITS = {"offload-parameters": LLAMA["num_hidden_layers"] + 1, "expert": LLAMA["num_hidden_layers"]}
IN_FILES = {"optimizer-in-files", "all-in-files"}  # reading and writing files waits
PLAIN_KERNELS = {"512", "256", "128", "void", "at", "native", "vectorized_elementwise_kernel", "unrolled_elementwise_kernel", "elementwise_kernel",
                 "reduce_kernel", "elementwise_kernel_helper"}
LAYERS = {"llama": "num_hidden_layers", "gpt2": "n_layer"}
UNORDERED = {"NULL_GPU_ORDER": "0"}  # stream order is not yet verified for plans on 8 GPUs and for families
MOST_KERNELS = 80  # per layer, forward and backward
WIDE = {  # on 8 GPUs
    "tensor": ["parallel.tensor=8"],
    "sequence": ["parallel.tensor=4", "parallel.sequence_parallel=true"],
    "ring": ["parallel.context=4"],
    "ulysses": ["parallel.context=8", "parallel.context_attention=ulysses"],
    "expert": ["model.path=mixtral.json", "parallel.expert=4", "parallel.zero_stage=1"],
    "mixed": ["parallel.pipeline=2", "parallel.tensor=2", "parallel.zero_stage=1", "gradient_accumulation_steps=2"],
}


def short_name(kernel):
    """Name of the innermost function or functor in a kernel's name."""
    for pattern in (r"(\w*Functor\w*)", r"(\w+_kernel_cuda)\b", r"(\w+(?:_kernel|Kernel)\w*)", r"(\w+)"):
        found = [name for name in re.findall(pattern, kernel) if name not in PLAIN_KERNELS]
        if found:
            return found[0]
    return kernel


@unittest.skipUnless(pretend.libraries(LIBRARIES), f"no null GPU in {LIBRARIES}; building it requires nvcc and the CUDA headers")
class NullGpu(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, config in CONFIGS.items():
            (cls.folder / name).write_text(json.dumps(config))

    def on_gpus(self, name, *more, gpus=1, steps=2, ranks=None, code=0, memory_gb=80, **variables):
        """Reports of all ranks of a run on `gpus` GPUs. If the run succeeds, checks that no call was refused."""
        reports = self.folder / f"{name}.reports"
        result = lockstep(
            *self.train_arguments(name, *more, "use_cpu=false", ranks=ranks or gpus, steps=steps), cwd=self.folder,
            env=environment(**{**pretend.variables(LIBRARIES, reports, gpus, memory_gb), **variables}))
        self.assertEqual(result.code, code, result)
        self.told = result.err
        found = pretend.read_reports(reports)
        for report in found if code == 0 else []:
            self.assertEqual(report["refused"], [], result)
        return found

    def each_step(self, name, *more, gpus=1, first=3, last=5, **variables):
        """Counts per step for each rank: the difference between a longer and a shorter run, divided by the steps."""
        short, whole = (self.on_gpus(f"{name}-{steps}", *more, gpus=gpus, steps=steps, **variables) for steps in (first, last))
        self.assertEqual(len(whole), gpus)
        return [
            {key: collections.Counter({name: (count - before[key].get(name, 0)) / (last - first)
                                       for name, count in after[key].items()})
             for key in ("counts", "kernels", "moved", "waits")}
            for before, after in zip(short, whole)]

    def check_step(self, step, name, more=0):
        """Checks that the host waits at most 2 + `more` times and that no copy uses pageable memory."""
        waits = {where: count for where, count in step["waits"].items() if count > 0}
        self.assertLessEqual(step["counts"]["waits"], 2 + more, f"{name}: {waits}")
        self.assertEqual(step["counts"]["pageable_copies"], 0, f"{name}: {waits}")

    def test_a_step_waits_at_most_twice_and_copies_what_is_pinned(self):
        step, = self.each_step("plain", first=2, last=4)
        self.check_step(step, "gpt2")
        adamw = sum(count for name, count in step["kernels"].items() if "adamw_kernel" in name)
        self.assertEqual(adamw, 1)
        self.assertEqual(sum(count for name, count in step["kernels"].items() if "dropout_kernel" in name), 16)

    def test_a_save_is_copied_to_pinned_memory_while_training_goes_on(self):
        """Only the saver thread waits for the copies, once per save."""
        for step in self.each_step("saves", "model.path=llama.json", "bf16=true", *PLANS["zero-1"], "save_steps=1", gpus=2):
            self.check_step(step, "a save", 1)

    @long
    def test_memory_that_cannot_be_pinned_is_a_warning(self):
        self.on_gpus("unpinned", *PLANS["offload-optimizer"], "save_steps=1", NULL_GPU_PINS="0")
        self.assertIn("bytes of host memory, so copies", self.told)

    @long
    def test_in_memory_checkpoints_are_pinned(self):
        words = ["model.path=llama.json", "bf16=true", *PLANS["zero-1"], "checkpoint.in_memory_replicas=1", "save_strategy=no"]
        reports, kept = self.folder / "kept.reports", {}
        for steps in (2, 4):
            command, _, _, *arguments = self.train_arguments(f"kept-{steps}", *words, "use_cpu=false", steps=steps)
            result = lockstep("launch", "--nproc-per-node=2", "--max-restarts=1", command, *arguments, cwd=self.folder,
                              env=environment(**pretend.variables(LIBRARIES, reports, 2)))
            self.assertEqual(result.code, 0, result)
            self.assertIn("is kept in memory", result.err)
            kept[steps] = pretend.read_reports(reports)
        for before, after in zip(kept[2], kept[4]):
            more = {name: (after["counts"].get(name, 0) - before["counts"].get(name, 0)) / 2 for name in ("waits", "pageable_copies")}
            self.assertEqual((more["pageable_copies"], after["refused"]), (0, []))
            self.assertLessEqual(more["waits"], 2 + 1)  # one wait in a saver thread

    @long
    def test_main_plans_run_to_their_end(self):
        for name in ("zero-3", "1f1b", "ring", "8-bit"):
            self.on_gpus(name, "model.path=llama.json", "bf16=true", *PLANS[name], gpus=2, steps=1)
        ranks = self.on_gpus("mixed", "model.path=llama.json", "bf16=true", *WIDE["mixed"], gpus=8, steps=1)
        self.assertEqual(len(ranks), 8)
        for rank in ranks:  # of the tensor, data and pipeline axes
            self.assertGreater(rank["counts"]["ncclAllReduce"], 0)
            self.assertGreater(rank["counts"].get("ncclSend", 0) + rank["counts"].get("ncclRecv", 0), 0)

    def test_float8_products_use_libtorch(self):
        """Also covers shards that 16 does not divide. Each of a linear's three products has two operands, and two kernels round each operand. An
        input that two or three linears read is rounded once per pass."""
        (self.folder / "odd.json").write_text(json.dumps(dict(LLAMA, intermediate_size=90)))
        products = 2 * 7 * 3  # of the two middle blocks
        rounded = 2 * products - 2 * 2 * 3
        for scaling in ("row", "tensor"):
            ranks = self.on_gpus(
                f"fp8-{scaling}", "model.path=odd.json", "bf16=true", f"precision.fp8={scaling}", "parallel.tensor=2", gpus=2, steps=1)
            for rank in ranks:
                def launched(word):
                    return sum(count for name, count in rank["kernels"].items() if word in name)
                self.assertEqual(launched("round_kernel"), rounded + 1)  # plus one kernel that tests support on the device
                self.assertEqual(launched("largest_kernel"), rounded + 1)
                self.assertGreaterEqual(launched("cublasLtMatmul"), products + 1)
        self.on_gpus("fp8-old", "model.path=odd.json", "bf16=true", "precision.fp8=row", steps=1, code=3, NULL_GPU_CAPABILITY="80")
        self.assertIn("compute capability 8.9 or later", self.told)

    def test_any_command_runs_by_the_script(self):
        command = [sys.executable, SOURCE / "tests/null_gpu/pretend.py", 2, "--build", LIBRARIES.parent, "--reports", "found", "--",
                   "lockstep", *self.train_arguments("by-script", "use_cpu=false", ranks=1, steps=1)]
        done = subprocess.run(list(map(str, command)), cwd=self.folder, env=environment(), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"rank +kernels +waits.*\n +0 +\d{3,}")
        report, = pretend.read_reports(self.folder / "found")
        self.assertGreater(report["counts"]["launches"], 100)

    def test_stream_order_violations_are_named(self):
        main = other = r"stream \d+"
        wanted = {
            "read-before-wait": rf"read before wait: aten::mul\S* on {main} reads what aten::add_ on {other} writes",
            "copy-before-wait": rf"read before wait: aten::mul\S* on {main} reads what .*copy.* on {other} writes",
            "write-before-wait": rf"written before wait: aten::(zero|fill)_ on {main} writes what aten::mul on {other} reads",
            "free-before-done": rf"freed before done: what aten::mul uses on {other} was freed, and reused for {main}",
            "read-after-wait": None, "copy-apart": None, "write-after-wait": None, "free-recorded": None,
        }
        for name, told in wanted.items():
            with self.subTest(name):
                reports = self.folder / f"{name}.reports"
                done = subprocess.run(
                    [LIBRARIES / "torch" / "null_gpu_plants", name], capture_output=True, text=True,
                    env=environment(**pretend.variables(LIBRARIES, reports, 1)))
                self.assertEqual(done.returncode, 0, done.stderr)
                report, = pretend.read_reports(reports)
                if told is None:
                    self.assertEqual(report["refused"], [])
                else:
                    self.assertRegex("\n".join(report["refused"]), told)
                    self.assertIn("before", done.stderr)

    def test_mismatched_collectives_are_named_with_both_calls(self):
        met = r"no other rank joins the operation that this rank waits for.*rank {0}: {1}.*waits elsewhere: rank {2}: {3}"
        calls = (r"ncclAllReduce, .*?add_up", r"ncclBroadcast, .*?send_round")
        wanted = {
            "ranks-alike": [],
            "ranks-unlike": [r"ranks call different operations.*(ncclAllReduce.*add_up.*ncclBroadcast.*send_round"
                             r"|ncclBroadcast.*send_round.*ncclAllReduce.*add_up)"],
            "ranks-crossed": [met.format(0, calls[0], 1, calls[1]), met.format(1, calls[1], 0, calls[0])],
        }
        for name, told in wanted.items():
            with self.subTest(name):
                done = subprocess.run(
                    [LIBRARIES / "torch" / "null_gpu_plants", name], capture_output=True, text=True,
                    env=environment(NULL_GPU_PATIENCE="2", **pretend.variables(LIBRARIES, self.folder / f"{name}.reports", 2)))
                self.assertEqual(done.returncode, 86 if told else 0, done.stderr)
                self.assertTrue(not told or any(re.search(text, done.stderr, re.DOTALL) for text in told), done.stderr)

    def test_a_window_needs_no_mask(self):
        windowed = dict(LLAMA, model_type="mistral", sliding_window=16, num_key_value_heads=2)
        (self.folder / "windowed.json").write_text(json.dumps(windowed))
        report, = self.on_gpus("windowed", "model.path=windowed.json", "bf16=true", steps=1)
        flash = [name for name in report["kernels"] if "flash_fwd" in name or "flash_bwd" in name]
        self.assertGreater(len(flash), 1, report["kernels"])
        self.assertEqual([name for name in report["kernels"] if "fmha" in name or "attention_kernel" in name], [])

    def test_documents_of_a_row_need_no_mask(self):
        # Queries share heads. A full mask would be 2 x 64 x 64 elements for each layer and head.
        (self.folder / "packed.json").write_text(json.dumps(dict(LLAMA, num_key_value_heads=2)))
        words = ["model.path=packed.json", "bf16=true", "data.packing=documents", "data.text_documents=line"]
        step, = self.each_step("packed", *words, first=2, last=3)
        names = " ".join(name for name, count in step["kernels"].items() if count > 0)
        self.assertIn("flash_fwd", names)
        self.assertIn("flash_bwd", names)
        self.assertNotRegex(names, r"fmha|attention_kernel|searchsorted")
        self.check_step(step, "packed")
        whole, = self.each_step("not-packed", "model.path=packed.json", "bf16=true", first=2, last=3)
        self.assertLess(step["counts"]["launches"], whole["counts"]["launches"] + 10 * LLAMA["num_hidden_layers"])

    def layer_of(self, name, config, *words):
        """Kernels and bytes of one layer in a step, forward and backward: the difference between a model of two layers and one of one layer."""
        step = {}
        for layers in (1, 2):
            (self.folder / "layers.json").write_text(json.dumps({**config, LAYERS[config["model_type"]]: layers}))
            step[layers], = self.each_step(f"{name}-{layers}", "model.path=layers.json", "bf16=true", *words, first=2, last=3)
        layer = {}
        for key in ("kernels", "moved"):
            layer[key] = collections.Counter()
            for what in step[2][key] | step[1][key]:
                layer[key][short_name(what) if key == "kernels" else what] += step[2][key][what] - step[1][key][what]
        return layer

    def check_budget(self, family, layer):
        """Checks that kernel counts equal the recorded budget and that their sum is at most MOST_KERNELS."""
        budget = json.loads((SOURCE / "tests/null_gpu/kernels_of_a_layer.json").read_text())[family]
        found = {name: count for name, count in sorted(layer["kernels"].items()) if count}
        self.assertEqual(found, budget, f"{family}: {json.dumps(found, indent=2)}")
        self.assertLessEqual(sum(found.values()), MOST_KERNELS, family)

    def check_bytes(self, layer, config):
        """Checks that the bytes that kernels move equal the figures of `lockstep plan --explain`."""
        (self.folder / "planned.json").write_text(json.dumps(config))
        told = self.run_ok("plan", "--model", "planned.json", "--gpu", "h100-80gb", "--gpus", 1, "--global-batch", 1,
                           "data.sequence_length=2048", "--explain").out
        self.assertRegex(told, r"a rank's step on h200 +[\d.]+ ms, \d+ tokens/s, [\d.]+% of the peak")
        planned = {what.strip(): float(megabytes) for what, megabytes in re.findall(
            r"^  (\S[^\d\n]*?) +\d+ +([\d.]+) +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+$", told, re.MULTILINE)}
        moved = lambda *names: sum(  # noqa: E731
            count for what, count in layer["moved"].items() if any(name in what for name in names)) / 1e6
        for what, names in {
            "products": ["aten::mm"], "attention": ["_cudnn_attention"], "RMSNorm, with the residual": ["norm_kernel", "norm_backward_kernel", "norm_weight"],
            "RoPE": ["rotate_kernel"], "SwiGLU": ["swiglu"], "sums": ["aten::add"],
        }.items():
            self.assertAlmostEqual(moved(*names) / planned[what], 1, delta=0.01, msg=f"{what}: {planned} {dict(layer['moved'])}")
        self.assertEqual(int(re.search(r"^  all +(\d+) ", told, re.MULTILINE)[1]), sum(layer["kernels"].values()))
        # The update kernel receives its state as one structure, whose bytes the emulation cannot count; gradients are read twice.
        self.assertGreater(planned["AdamW, squares of gradients"], 7 * moved("adamw_kernel", "squares_kernel"))

    def test_the_budget_of_a_llama_layer(self):
        # Heads of 128 and one layer per unit, as in large models.
        wide = dict(LLAMA, hidden_size=1024, intermediate_size=3072, max_position_embeddings=2048, initializer_range=0.0)
        layer = self.layer_of("llama", wide, "data.sequence_length=2048", "per_device_train_batch_size=1")
        self.check_budget("llama", layer)
        self.check_bytes(layer, wide)

    def test_products_of_later_micro_batches_add_to_the_float32_sums(self):
        tokens, hidden, inner = 64, LLAMA["hidden_size"], LLAMA["intermediate_size"]
        layer = self.layer_of("accumulated", LLAMA, f"data.sequence_length={tokens}", "per_device_train_batch_size=1",
                              "gradient_accumulation_steps=2")
        weights = [(hidden, hidden)] * 4 + [(hidden, inner)] * 3
        self.assertEqual(layer["moved"]["aten::addmm"], sum(2 * 4 * a * b + 2 * tokens * (a + b) for a, b in weights))

    def test_the_heads_gradient_is_summed_inside_its_products(self):
        # Two slices of 1 GiB of logits; the product of the second reads and writes the float32 sum of the first.
        vocabulary, hidden, tokens = 131072, LLAMA["hidden_size"], 8192
        (self.folder / "words.json").write_text(json.dumps(dict(LLAMA, vocab_size=vocabulary, num_hidden_layers=1)))
        step, = self.each_step("words", "model.path=words.json", "bf16=true", "data.sequence_length=64",
                               f"per_device_train_batch_size={tokens // 64}", first=1, last=2)
        self.assertEqual(step["moved"]["aten::addmm"], 2 * 4 * vocabulary * hidden + 2 * tokens // 2 * (vocabulary + hidden))
        of_sum = [what for what, count in step["moved"].items() if "aten::add" in what and count >= 4 * vocabulary * hidden]
        self.assertEqual(of_sum, ["aten::addmm"])

    @long
    def test_the_budget_of_a_gpt2_layer(self):
        self.check_budget("gpt2", self.layer_of("gpt2", dict(CONFIG, n_head=1, resid_pdrop=0.0, attn_pdrop=0.0, embd_pdrop=0.0)))

    def test_graphs_replay_on_all_ranks_or_on_none(self):
        # Rows of two lengths, so that the ranks' shapes differ in some steps. NCCL calls of a replay match only those of other replays.
        (self.folder / "t5.json").write_text(json.dumps(dict(T5, dropout_rate=0.0)))
        rows = [" ".join("abc" if i % 5 else "abcdefgh") for i in range(64)]
        (self.folder / "lengths.jsonl").write_text("".join(json.dumps({"source": row, "target": row}) + "\n" for row in rows))
        ranks = self.on_gpus(
            "graphs", "model.path=t5.json", "bf16=true", "parallel.cuda_graphs=auto", "per_device_train_batch_size=1", *PAIRS,
            "data.train=lengths.jsonl", gpus=2, steps=16)
        replays = [rank["counts"].get("graph_launches", 0) for rank in ranks]
        self.assertEqual(replays[0], replays[1])
        self.assertGreater(replays[0], 0)
        self.assertLess(replays[0], 16 - 3)  # fewer than the steps after the warm-up: in some steps the shapes differed

    def test_graphs_draw_dropout_from_device_counters(self):
        step, = self.each_step("graphs-dropout", "bf16=true", "parallel.cuda_graphs=auto", first=5, last=7)
        self.assertEqual(step["counts"]["graph_launches"], 1, self.told)
        self.check_step(step, "gpt2")  # the keys of a step's dropouts are one pinned copy

    @long
    def test_graphs_take_the_memory_of_a_step_once(self):
        (self.folder / "wide.json").write_text(json.dumps(dict(
            LLAMA, hidden_size=512, intermediate_size=2048, max_position_embeddings=512, initializer_range=0.0)))
        words = ["model.path=wide.json", "bf16=true", "data.sequence_length=512"]
        most = []
        for name, more in (("without", []), ("with", ["parallel.cuda_graphs=auto"])):
            report, = self.on_gpus(f"{name}-graphs", *words, *more, steps=6)
            most.append(report["highest"]["device_bytes"])
        self.assertEqual(report["counts"]["graph_launches"], 3)
        self.assertLess(most[1], 1.25 * most[0])

    @long
    def test_failed_capture_on_one_rank_disables_graphs_on_all(self):
        results, reports = self.by_hand(
            "uncaptured", "model.path=llama.json", "bf16=true", "parallel.cuda_graphs=auto", each=({}, {"NULL_GPU_CAPTURES": "0"}))
        self.assertEqual([result.code for result in results], [0, 0], results)
        self.assertIn("step not captured in a CUDA graph", results[1].err)
        self.assertEqual([report["counts"].get("graph_launches", 0) for report in reports], [0, 0])

    def by_hand(self, name, *words, each, ends_both=False):
        """Results and reports of two ranks started as by a cluster, each with its own environment. With `ends_both`, one's exit ends the other."""
        reports, port = self.folder / f"{name}.reports", str(free_port())
        command, _, _, *arguments = self.train_arguments(name, *words, "use_cpu=false")
        processes = [start(command, *arguments, cwd=self.folder, env=environment(**{
            **pretend.variables(LIBRARIES, reports, 2), "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **each[rank]})) for rank in range(2)]
        results = []
        if ends_both:
            wait_for(lambda: any(process.poll() is not None for process in processes))
            for process in processes:
                process.kill()
        for process in processes:
            out, err = process.communicate(timeout=200)
            results.append(Result(process.returncode, out, err))
        return results, pretend.read_reports(reports)

    @long
    def test_a_rank_takes_the_one_gpu_that_it_sees(self):
        results, reports = self.by_hand("one-each", each=[{"CUDA_VISIBLE_DEVICES": str(i)} for i in range(2)])
        self.assertEqual(([result.code for result in results], len(reports)), ([0, 0], 2), results)
        results, _ = self.by_hand("the-same", each=[{"CUDA_VISIBLE_DEVICES": "1"}] * 2, ends_both=True)
        self.assertIn(3, [result.code for result in results], results)
        self.assertRegex(results[0].err + results[1].err, "has the same GPU as another rank")

    def test_failed_rank_aborts_waiting_collectives(self):
        """A collective that a failed rank never joins is aborted long before NCCL's timeout."""
        results, reports = self.by_hand(
            "lost", "model.path=llama.json", each=({"NULL_GPU_PATIENCE": "600"}, {"NULL_GPU_MEMORY": str(8 << 20)}))
        self.assertEqual([result.code for result in results], [7, 5], results)
        self.assertIn("rank 1", results[0].err)

    def test_unusable_gpus_are_an_error(self):
        for name, variables, why in (("hidden", {"CUDA_VISIBLE_DEVICES": "7"}, "no CUDA-capable device|no GPU is visible"),
                                     ("old", {"NULL_GPU_CAPABILITY": "70"}, "compute capability 7.0, but this build requires 7.5")):
            self.on_gpus(name, code=3, **variables)
            self.assertRegex(self.told, f"this machine has GPUs, but none can be used: .*({why})")
        few = lockstep("bench", "dp-vs-ddp", "--nproc", 3, cwd=self.folder, env=environment(**pretend.variables(LIBRARIES, self.folder / "few.reports", 2)))
        self.assertEqual(few.code, 3, few)
        self.assertIn("3 ranks are requested, and 2 GPUs are visible", few.err)

    @long
    def test_ranks_as_threads_print_a_warning(self):
        """Waits for the warning and not for the end of the run, which may hang."""
        process = start(
            *self.train_arguments("threads", "--in-process", "use_cpu=false", ranks=2), cwd=self.folder,
            env=environment(**pretend.variables(LIBRARIES, self.folder / "threads.reports", 2)))
        warned = any("2 ranks of one process share CUDA's locks, which may cause a hang" in line for line in process.stderr)
        process.kill()
        process.communicate()
        self.assertTrue(warned)

    @long
    def test_graphs_of_sharded_plans(self):
        words = ["model.path=llama.json", "bf16=true", "parallel.cuda_graphs=auto"]
        for stage in (1, 2, 3):
            with self.subTest(stage=stage):
                ranks = self.on_gpus(f"graphs-{stage}", *words, f"parallel.zero_stage={stage}", gpus=2, steps=6)
                self.assertEqual([rank["counts"].get("graph_launches", 0) for rank in ranks], [3, 3], self.told)

    @long
    def test_every_kind_of_plan_on_2_and_8(self):
        for name, words in PLANS.items():
            with self.subTest(name, gpus=2):
                for step in self.each_step(name, "model.path=llama.json", "bf16=true", *words, gpus=2, first=2, last=3):
                    if name not in IN_FILES:
                        self.check_step(step, name, MORE_WAITS.get(name, 0))
        for name, words in {**PLANS, **WIDE}.items():
            with self.subTest(name, gpus=8):
                ranks = self.on_gpus(f"{name}-on-8", "model.path=llama.json", "bf16=true", *words, gpus=8, steps=1, **UNORDERED)
                self.assertEqual(len(ranks), 8)

    @long
    def test_every_family_on_1_2_and_8(self):
        found = words_of_families(self.folder)
        self.assertGreater(len(found), 20)
        for family, words in found.items():
            for gpus, plan in ((1, []), (2, ["parallel.tensor=2"]),
                               (8, ["parallel.pipeline=2", "parallel.tensor=2", "parallel.zero_stage=1",
                                    "gradient_accumulation_steps=2"])):
                with self.subTest(family, gpus=gpus):
                    ranks = self.on_gpus(f"{family}-on-{gpus}", *words, "bf16=true", *plan, gpus=gpus, steps=1, **UNORDERED)
                    self.assertEqual(len(ranks), gpus)


if __name__ == "__main__":
    unittest.main(verbosity=2)
