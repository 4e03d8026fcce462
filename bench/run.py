#!/usr/bin/env python3
"""Lockstep beside its peers on CPU ranks of this machine: tokens/s, share of the matrix-product peak, memory, time to
the first forward pass, checkpoints. Prints a table and writes bench/RESULTS.md.

    python3 bench/run.py --program build/release/lockstep [--models small,wide] [--types bfloat16,float32]
        [--sides lockstep,trainer,...] [--repeats 3] [--steps 20] [--warm 5] [--no-checkpoints]

Sides take turns, so that what else the machine does falls on all of them alike; each figure is the median of the
repeats. Every side is held to as many cores as it has ranks, with one thread a rank, and measured as a user runs it:
Lockstep's real trainer with loader and clipping, its peers as bench/peers/ has them. Times are taken by the clock on
the wall from the start of the command.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = HERE.parent / ".deps" / "peers" / "bin" / "python"
RANKS, LENGTH, BATCH = 2, 256, 4
MODELS = {
    "small": {"layers": 4, "width": 256, "heads": 4, "vocabulary": 50257},
    "wide": {"layers": 12, "width": 512, "heads": 8, "vocabulary": 8192},
}
SIDES = {
    "lockstep": "Lockstep",
    "trainer": "Hugging Face Trainer",
    "ddp": "PyTorch DDP loop",
    "fsdp2": "PyTorch FSDP2 loop",
    "zero2": "DeepSpeed ZeRO 2, Trainer",
    "zero3": "DeepSpeed ZeRO 3, Trainer",
}


class Machine:
    """The cores that every side is held to, and what a side is started with."""

    def __init__(self):
        self.cores = sorted(os.sched_getaffinity(0))[:RANKS]
        hidden = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
        self.environment = {k: v for k, v in os.environ.items() if k not in hidden}
        self.environment.update(OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu", HF_HUB_OFFLINE="1",
                                TOKENIZERS_PARALLELISM="false", PYTHONWARNINGS="ignore")

    def start(self, command, cores=None, **more):
        held = cores or self.cores
        return subprocess.Popen([str(c) for c in command], env=self.environment, text=True,
                                preexec_fn=lambda: os.sched_setaffinity(0, held), **more)


def flops_per_token(model):
    """Of training, as docs/plan.md counts them: three times two operations a weight that multiplies, and the scores."""
    width, layers = model["width"], model["layers"]
    return 6 * (12 * layers * width**2 + width * model["vocabulary"]) + 6 * layers * LENGTH * width


def peak_gflops(machine, dtype):
    """Of all ranks at once, each on its core."""
    running = [machine.start([PYTHON, HERE / "peers" / "peak.py", dtype], [core], stdout=subprocess.PIPE)
               for core in machine.cores]
    return sum(float(process.communicate()[0]) for process in running)


class Failed(Exception):
    pass


def processor_seconds(root):
    """Of a process and all that it started and that still run."""
    parents, seconds = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            parents[int(entry.name)] = int(fields[1])
            seconds[int(entry.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    family = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in family} - family
        if not more:
            return sum(seconds.get(pid, 0) for pid in family)
        family |= more


class Lockstep:
    def __init__(self, program, folder, machine):
        self.program, self.folder, self.machine = program, folder, machine
        for command in (
            ["sample", "--output", folder / "sample", "--size", "2", "--seed", "1"],
            ["tokenizer", "train", "--files", folder / "sample" / "train.txt", "--vocab-size", "4096", "--output",
             folder / "tokenizer"],
        ):
            subprocess.run([program, *map(str, command)], check=True, stdout=subprocess.DEVNULL)

    def config(self, model):
        path = self.folder / f"{model['layers']}x{model['width']}.json"
        path.write_text(json.dumps({
            "model_type": "gpt2", "vocab_size": model["vocabulary"], "n_positions": LENGTH, "n_embd": model["width"],
            "n_layer": model["layers"], "n_head": model["heads"], "activation_function": "gelu_new",
            "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "tie_word_embeddings": True,
            "bos_token_id": 0, "eos_token_id": 0,
        }))
        return path

    def run(self, model, dtype, steps, warm, out, save=False, resume=False):
        last = 2 * steps if resume else steps
        command = [
            self.program, "train", "--nproc", RANKS, f"model.path={self.config(model)}",
            f"tokenizer.path={self.folder}/tokenizer", f"data.train={self.folder}/sample/train.txt",
            f"data.sequence_length={LENGTH}", f"data.cache_dir={self.folder}/cache", f"output_dir={out}/run",
            f"max_steps={last}", f"per_device_train_batch_size={BATCH}", "learning_rate=1e-4", "logging_steps=1",
            f"bf16={'true' if dtype == 'bfloat16' else 'false'}", "monitor.progress=plain", "use_cpu=true",
            "overwrite_output_dir=true", f"save_strategy={'steps' if save else 'no'}", f"save_steps={last}",
        ]
        if resume:
            command.append("resume_from_checkpoint=true")
        started = time.time()
        process = self.machine.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        first = steps + 1 if resume else 1
        arrivals, processor, text = {}, {}, []
        for line in process.stderr:  # each step's line is stamped as it comes
            text.append(line)
            if line.startswith("step "):
                step = int(line.split("/")[0].split()[1])
                arrivals[step] = time.time()
                if step in (first + warm - 1, last):
                    processor[step] = processor_seconds(process.pid)
        if process.wait() != 0:
            raise Failed("".join(text[-20:]))
        lines = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]
        steps_seen = {line["step"]: line for line in lines if "step_s" in line}
        result = {
            "first_forward_s": arrivals[first] - steps_seen[first]["step_s"] - started,
            "peak_bytes": max(line["peak_memory_bytes"] for line in steps_seen.values()),
            "loss": steps_seen[last]["loss"],
        }
        if steps > warm:
            begin = first + warm - 1
            tokens = steps_seen[last]["tokens"] - steps_seen[begin]["tokens"]
            result["tokens_per_s"] = tokens / (arrivals[last] - arrivals[begin])
            result["processor_ms"] = (processor[last] - processor[begin]) / tokens * 1e6
        if save:  # a folder gets its name when all of it is on the disk
            result["save_s"] = (out / "run" / f"checkpoint-{last}").stat().st_ctime - arrivals[last]
        return result


class Peer:
    def __init__(self, kind, machine):
        self.kind, self.machine = kind, machine

    def run(self, model, dtype, steps, warm, out, save=False, resume=False):
        script = "loop.py" if self.kind in ("ddp", "fsdp2") else "trainer.py"
        command = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", RANKS,
                   HERE / "peers" / script, "--kind", self.kind, "--out", out, "--steps", steps, "--warm", warm,
                   "--length", LENGTH, "--batch", BATCH]
        for key, value in model.items():
            command += [f"--{key}", value]
        command += [f"--{name}" for name, on in
                    (("bf16", dtype == "bfloat16"), ("save", save), ("resume", resume)) if on]
        started = time.time()
        process = self.machine.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = process.communicate()[0]
        if process.returncode != 0:
            raise Failed(text[-3000:])
        ranks = [json.loads((out / f"rank{r}.json").read_text()) for r in range(RANKS)]
        marks = ranks[0]
        result = {
            "first_forward_s": marks["first_forward"] - started,
            "peak_bytes": max(rank["peak_bytes"] for rank in ranks),
            "loss": marks["loss"],
        }
        if "begin" in marks and steps > warm:
            tokens = (steps - warm) * BATCH * LENGTH * RANKS
            result["tokens_per_s"] = tokens / (marks["end"] - marks["begin"])
            used = sum(rank["end_processor"] - rank["begin_processor"] for rank in ranks)
            result["processor_ms"] = used / tokens * 1e6
        if save:
            result["save_s"] = marks["save_end"] - marks["save_begin"]
        return result


def measure(side, arguments, model, dtype, scratch):
    """One run of a side; with checkpoints two short ones more, of which the second resumes."""
    out = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    try:
        result = side.run(model, dtype, arguments.steps, arguments.warm, out)
        if arguments.checkpoints:
            shutil.rmtree(out)
            out.mkdir()
            saved = side.run(model, dtype, 2, 2, out, save=True)
            resumed = side.run(model, dtype, 2, 2, out, resume=True)
            result["first_forward_s"] = min(result["first_forward_s"], saved["first_forward_s"])
            result["save_s"] = saved["save_s"]
            # What a start with a checkpoint takes longer than one without.
            result["load_s"] = max(0.0, resumed["first_forward_s"] - result["first_forward_s"])
        return result
    finally:
        shutil.rmtree(out, ignore_errors=True)


def median(runs, key):
    values = [run[key] for run in runs if key in run]
    return statistics.median(values) if values else None


def table(results, peak, model):
    """Rows of a Markdown table; ratios are Lockstep's figure to the side's."""
    def cell(value, form):
        return "-" if value is None else form.format(value)

    figures = {name: {key: median(runs, key) for key in
                      ("tokens_per_s", "processor_ms", "peak_bytes", "first_forward_s", "save_s", "load_s")}
               for name, runs in results.items() if runs}
    ours = figures.get("lockstep")
    rows = ["| | tokens/s | of the peak | Lockstep is | processor time of 1,000 tokens | Lockstep takes | memory of a rank "
            "| Lockstep takes | first forward | save | load |",
            "|---|---|---|---|---|---|---|---|---|---|---|"]
    for name, f in figures.items():
        share = f["tokens_per_s"] * flops_per_token(model) / (peak * 1e9)
        of_ours = {key: ours[key] / f[key] if ours and name != "lockstep" else None
                   for key in ("tokens_per_s", "processor_ms", "peak_bytes")}
        rows.append("| " + " | ".join([
            SIDES[name], f"{f['tokens_per_s']:,.0f}", f"{share:.2f}", cell(of_ours["tokens_per_s"], "{:.2f} x"),
            f"{f['processor_ms']:,.0f} ms", cell(of_ours["processor_ms"], "{:.2f}"),
            f"{f['peak_bytes'] / 2**20:,.0f} MiB", cell(of_ours["peak_bytes"], "{:.2f}"), f"{f['first_forward_s']:.2f} s",
            cell(f["save_s"], "{:.2f} s"), cell(f["load_s"], "{:.2f} s")]) + " |")
    for name in [n for n in results if n not in figures]:
        rows.append(f"| {SIDES[name]} | failed |" + " |" * 9)
    return rows


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor()


def report(sections, arguments, load):
    versions = subprocess.run(
        [PYTHON, "-c", "import torch, transformers, accelerate, deepspeed; print('torch', torch.__version__, "
         "'- transformers', transformers.__version__, '- accelerate', accelerate.__version__, "
         "'- deepspeed', deepspeed.__version__)"],
        capture_output=True, text=True, check=False, env={**os.environ, "DS_ACCELERATOR": "cpu"}).stdout.splitlines()
    lines = [
        "# Side by side", "",
        f"Written by `make bench` on {datetime.date.today()}: {processor()}, {RANKS} ranks on {RANKS} cores, one thread a",
        f"rank, sequences of {LENGTH}, {BATCH} a rank; medians of {arguments.repeats} runs of {arguments.steps} steps"
        f" ({arguments.warm} of them to warm up), the sides taking turns.",
        f"Peers: {versions[-1] if versions else 'unknown'}.", "",
        f"The machine's load average was {load[0]:.1f} before and {load[1]:.1f} after, of {os.cpu_count()} cores"
        + ("." if max(load) < RANKS + 0.5 else ": it was busy with other work, so ratios, and of these the processor time's, are worth more than figures."),
        "",
        "Lockstep is its real trainer, with loader and clipping. The loops neither clip nor load; the Trainer does both.",
        "First forward: from the command to the first forward pass, on cached data. Load: what a start with a checkpoint",
        "takes longer. Processor time is that of both ranks. bfloat16 is autocast over float32 weights for the Trainer and",
        "the loops.",
    ]
    for title, rows in sections:
        lines += ["", f"## {title}", "", *rows]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, default=HERE.parent / "build" / "release" / "lockstep")
    parser.add_argument("--models", default="small,wide")
    parser.add_argument("--types", default="bfloat16,float32")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm", type=int, default=5)
    parser.add_argument("--no-checkpoints", dest="checkpoints", action="store_false")
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "RESULTS.md")
    arguments = parser.parse_args()
    names = arguments.sides.split(",")
    unknown = [n for n in names if n not in SIDES] + [m for m in arguments.models.split(",") if m not in MODELS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; sides are {', '.join(SIDES)}, models {', '.join(MODELS)}")
    machine = Machine()
    if len(machine.cores) < RANKS:
        parser.error(f"{RANKS} cores are needed, and this process may use {len(machine.cores)}")
    load = [os.getloadavg()[0]]
    sections = []
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as scratch:
        scratch = pathlib.Path(scratch)
        sides = {name: Lockstep(arguments.program.resolve(), scratch, machine) if name == "lockstep"
                 else Peer(name, machine) for name in names}
        for model_name in arguments.models.split(","):
            model = MODELS[model_name]
            for dtype in arguments.types.split(","):
                peak = peak_gflops(machine, dtype)
                results = {name: [] for name in sides}
                if dtype == "float32":  # DeepSpeed's stages are for smaller types
                    results = {name: [] for name in sides if not name.startswith("zero")}
                for repeat in range(arguments.repeats):
                    for name in results:
                        try:
                            run = measure(sides[name], arguments, model, dtype, scratch)
                        except Failed as error:
                            print(f"{name} failed:\n{error}", file=sys.stderr)
                            continue
                        results[name].append(run)
                        print(f"{model_name} {dtype} run {repeat + 1} {name}: {run['tokens_per_s']:,.0f} tokens/s, "
                              f"{run['peak_bytes'] / 2**20:,.0f} MiB, loss {run['loss']:.4f}", flush=True)
                title = (f"GPT-2 of {model['layers']} layers, width {model['width']}, vocabulary "
                         f"{model['vocabulary']:,}, {dtype} (peak {peak:,.0f} GFLOP/s)")
                sections.append((title, table(results, peak, model)))
                print("\n".join(["", title, *sections[-1][1], ""]), flush=True)
    load.append(os.getloadavg()[0])
    arguments.output.write_text(report(sections, arguments, load))
    print(f"written: {arguments.output}")


if __name__ == "__main__":
    main()
