#!/usr/bin/env python3
"""Compares Lockstep with its peers on CPU ranks of this machine: tokens/s, fraction of the matrix-product peak, memory, time to the first forward
pass, checkpoints. Prints a table and writes bench/RESULTS.md.

    python3 bench/run.py --program build/release/lockstep [--short | --full] [--models small,wide,gpt2,llama] [--types bfloat16,float32]
        [--sides lockstep,trainer,...] [--repeats 3] [--steps 8] [--warm 2] [--minutes 25]

By default Lockstep, the Trainer and the DDP loop run with each model and type, and the other sides with the small model in bfloat16. --full runs
every side with every model and type and takes as long as it needs; --short runs the first three sides once, in about two minutes. Checkpoints are
measured for the small model in bfloat16. When --minutes are nearly over, the remaining sides run fewer repeats, the first three sides last; the
table contains the number of runs.

The sides alternate, so that other load affects all of them; figures are medians of the repeats. Every side uses as many cores as ranks, with one
thread per rank, and is measured as a user runs it: Lockstep's real trainer with loader and clipping, its peers as in bench/peers/. Times are wall
time from the start of the command.
"""

import argparse
import concurrent.futures
import datetime
import json
import mmap
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
    "gpt2": {"layers": 12, "width": 768, "heads": 12, "vocabulary": 50257, "length": 512, "batch": 2},  # GPT-2 with 124M parameters
    # Same size as the wide model: as many parameters per block, with query heads in groups of four.
    "llama": {"layers": 12, "width": 512, "heads": 8, "kv_heads": 2, "inner": 1408, "vocabulary": 8192},
}
# Lockstep's sides -> the peer that each is compared with; the peers' loops replicate all state, as stage 0 does.
OURS = {
    "lockstep": [],
    "lockstep-zero1": ["parallel.zero_stage=1"],
    "lockstep-zero2": ["parallel.zero_stage=2"],
    "lockstep-zero3": ["parallel.zero_stage=3"],
}
SIDES = {
    "lockstep": "Lockstep",
    "lockstep-zero1": "Lockstep, ZeRO 1",
    "lockstep-zero2": "Lockstep, ZeRO 2",
    "lockstep-zero3": "Lockstep, ZeRO 3",
    "trainer": "Hugging Face Trainer",
    "ddp": "PyTorch DDP loop",
    "fsdp2": "PyTorch FSDP2 loop",
    "zero2": "DeepSpeed ZeRO 2, Trainer",
    "zero3": "DeepSpeed ZeRO 3, Trainer",
    "zero2-offload": "DeepSpeed ZeRO 2 with offload, Trainer",
    "zero3-offload": "DeepSpeed ZeRO 3 with offload, Trainer",
}
CHECKPOINTED = ("lockstep", "trainer", "ddp")
MAIN = ("lockstep", "lockstep-zero1", "trainer", "ddp")


class Machine:
    """The cores that every side uses, and the environment that a side starts with."""

    def __init__(self):
        self.cores = sorted(os.sched_getaffinity(0))[:RANKS]
        hidden = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
        self.environment = {k: v for k, v in os.environ.items() if k not in hidden}
        self.environment.update(OMP_NUM_THREADS="1", LOCKSTEP_MEASURE_MACHINE="0", DS_ACCELERATOR="cpu", HF_HUB_OFFLINE="1",
                                TOKENIZERS_PARALLELISM="false", PYTHONWARNINGS="ignore")

    def start(self, command, cores=None, **more):
        held = cores or self.cores
        return subprocess.Popen([str(c) for c in command], env=self.environment, text=True,
                                preexec_fn=lambda: os.sched_setaffinity(0, held), **more)


def length_of(model):
    return model.get("length", LENGTH)


def batch_of(model):
    return model.get("batch", BATCH)


def name_of(model):
    family = f"Llama with {model['heads'] // model['kv_heads']} queries per group," if "kv_heads" in model else "GPT-2"
    rows = f", {batch_of(model)} x {length_of(model)} tokens per rank" if length_of(model) != LENGTH else ""
    return f"{family} of {model['layers']} layers, width {model['width']}, vocabulary {model['vocabulary']:,}{rows}"


def config_of(model):
    """JSON text of the model's config.json."""
    sizes = {"bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": True, "vocab_size": model["vocabulary"]}
    if "kv_heads" in model:
        return json.dumps({
            **sizes, "model_type": "llama", "hidden_size": model["width"], "intermediate_size": model["inner"],
            "num_hidden_layers": model["layers"], "num_attention_heads": model["heads"], "num_key_value_heads": model["kv_heads"],
            "max_position_embeddings": length_of(model), "rms_norm_eps": 1e-5})
    return json.dumps({
        **sizes, "model_type": "gpt2", "n_positions": length_of(model), "n_embd": model["width"], "n_layer": model["layers"],
        "n_head": model["heads"], "activation_function": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})


def flops_per_token(model):
    """Operations of training per token, as in docs/plan.md: three times two operations per multiplied weight, plus the attention scores."""
    width, layers = model["width"], model["layers"]
    block = 12 * width**2
    if "kv_heads" in model:
        block = width * (2 * width + 2 * width * model["kv_heads"] // model["heads"] + 3 * model["inner"])
    return 6 * (layers * block + width * model["vocabulary"]) + 6 * layers * length_of(model) * width


def peak_gflops(machine, dtype):
    """Measured peak of all ranks together, one per core."""
    running = [machine.start([PYTHON, HERE / "peers" / "peak.py", dtype], [core], stdout=subprocess.PIPE)
               for core in machine.cores]
    return sum(float(process.communicate()[0]) for process in running)


def sheet_gflops(cores, dtype):
    """Peak from the processor's data sheet, at the reported clock: operations per core and cycle. None if it is unknown."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    found = {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines()) for key in [key.strip()]}
    flags = found.get("flags", "").split()
    a_cycle = 0
    if "avx512f" in flags:  # Zen 4 needs two cycles for 64 bytes
        a_cycle = 32 if (found.get("vendor_id"), found.get("cpu family")) == ("AuthenticAMD", "25") else 64
    elif "fma" in flags:
        a_cycle = 32
    if dtype == "bfloat16" and a_cycle:
        a_cycle = 1024 if "amx_bf16" in flags else 2 * a_cycle if "avx512_bf16" in flags else None
    return a_cycle * float(found["cpu MHz"]) / 1e3 * cores if a_cycle and "cpu MHz" in found else None


class Failed(Exception):
    pass


def processor_seconds(root):
    """Processor seconds of a process and its running descendants."""
    parents, seconds = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # the process ended meanwhile
                continue
            parents[int(entry.name)] = int(fields[1])
            seconds[int(entry.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    family = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in family} - family
        if not more:
            return sum(seconds.get(pid, 0) for pid in family)
        family |= more


def write_seconds(path, size):
    """Seconds to write `size` bytes to the disk, by the faster of two ways: through the page cache, and around it with one thread per rank."""
    block = mmap.mmap(-1, 1 << 20)  # page-aligned, as O_DIRECT requires
    block.write(os.urandom(len(block)))
    size = -size % len(block) + size

    def seconds(flag, threads):
        begin = time.monotonic()
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | flag)
        os.posix_fallocate(file, 0, size)

        def write(first):
            for at in range(first * len(block), size, threads * len(block)):
                os.pwrite(file, block, at)

        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            list(pool.map(write, range(threads)))
        os.fsync(file)
        os.close(file)
        took = time.monotonic() - begin
        path.unlink()
        return took

    try:
        return min(seconds(0, 1), seconds(os.O_DIRECT, RANKS))
    except OSError:  # a file system without O_DIRECT
        return seconds(0, 1)


class Lockstep:
    def __init__(self, program, folder, machine, settings=()):
        self.program, self.folder, self.machine, self.settings = program, folder, machine, settings
        for command in (
            ["sample", "--output", folder / "sample", "--size", "2", "--seed", "1"],
            ["tokenizer", "train", "--files", folder / "sample" / "train.txt", "--vocab-size", "4096", "--output",
             folder / "tokenizer"],
        ):
            subprocess.run([program, *map(str, command)], check=True, stdout=subprocess.DEVNULL)

    def config(self, model):
        path = self.folder / f"{model['layers']}x{model['width']}x{model.get('kv_heads', 0)}.json"
        path.write_text(config_of(model))
        return path

    def run(self, model, dtype, steps, warm, out, save=False, resume=False, more=0):
        """Trains `steps` from the start, or `more` steps after the checkpoint of `steps`."""
        last = steps + more
        command = [
            self.program, "train", "--nproc", RANKS, f"model.path={self.config(model)}",
            f"tokenizer.path={self.folder}/tokenizer", f"data.train={self.folder}/sample/train.txt",
            f"data.sequence_length={length_of(model)}", f"data.cache_dir={self.folder}/cache", f"output_dir={out}/run",
            f"max_steps={last}", f"per_device_train_batch_size={batch_of(model)}", "learning_rate=1e-4", "logging_steps=1",
            f"bf16={'true' if dtype == 'bfloat16' else 'false'}", "monitor.progress=plain", "use_cpu=true",
            "overwrite_output_dir=true", f"save_strategy={'steps' if save else 'no'}", f"save_steps={last}",
        ]
        command += self.settings
        if resume:
            command.append("resume_from_checkpoint=true")
        started = time.time()
        process = self.machine.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        first = steps + 1 if resume else 1
        arrivals, processor, text = {}, {}, []
        for line in process.stderr:  # timestamps each step's line on arrival
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
            "said": "".join(text),
        }
        if not resume:
            begin = first + warm - 1
            tokens = steps_seen[last]["tokens"] - steps_seen[begin]["tokens"]
            result["tokens_per_s"] = tokens / (arrivals[last] - arrivals[begin])
            result["processor_ms"] = (processor[last] - processor[begin]) / tokens * 1e6
            # Fraction of its best product at the start, as in its progress lines.
            result["own_share"] = statistics.median(line["peak_share"] for step, line in steps_seen.items() if step > begin)
        if save:  # a checkpoint folder gets its name when it is complete on disk
            checkpoint = out / "run" / f"checkpoint-{last}"
            result["save_s"] = checkpoint.stat().st_ctime - arrivals[last]
            result["checkpoint_bytes"] = sum(file.stat().st_size for file in checkpoint.iterdir())
            result["disk_s"] = write_seconds(out / "as-many-bytes", result["checkpoint_bytes"])
        return result


class Peer:
    script, more = None, ()  # another script than the kind's, and further arguments for it

    def __init__(self, kind, machine):
        self.kind, self.machine = kind, machine

    def run(self, model, dtype, steps, warm, out, save=False, resume=False, more=0):
        script = self.script or ("loop.py" if self.kind in ("ddp", "fsdp2") else "trainer.py")
        command = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", RANKS,
                   HERE / "peers" / script, "--kind", self.kind, "--out", out, "--steps", steps, "--more", more, "--warm", warm,
                   "--length", length_of(model), "--batch", batch_of(model), *self.more]
        if "kv_heads" in model:
            (out / "config.json").write_text(config_of(model))
            command += ["--config", out / "config.json", "--vocabulary", model["vocabulary"]]
        else:
            for key in ("layers", "width", "heads", "vocabulary"):
                command += [f"--{key}", model[key]] if key in model else []
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
        if not resume:
            tokens = (steps - warm) * batch_of(model) * length_of(model) * RANKS
            result["tokens_per_s"] = tokens / (marks["end"] - marks["begin"])
            used = sum(rank["end_processor"] - rank["begin_processor"] for rank in ranks)
            result["processor_ms"] = used / tokens * 1e6
        if save:
            result["save_s"] = marks["save_end"] - marks["save_begin"]
        return result


def measure(side, arguments, model, dtype, scratch, checkpoints):
    """One run of a side. With `checkpoints` it saves at its end, and a further short run resumes."""
    out = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    try:
        result = side.run(model, dtype, arguments.steps, arguments.warm, out, save=checkpoints)
        if checkpoints:
            resumed = side.run(model, dtype, arguments.steps, arguments.warm, out, resume=True, more=1)
            # The additional time of a start with a checkpoint.
            result["load_s"] = max(0.0, resumed["first_forward_s"] - result["first_forward_s"])
        return result
    finally:
        shutil.rmtree(out, ignore_errors=True)


def median(runs, key):
    values = [run[key] for run in runs if key in run]
    return statistics.median(values) if values else None


def table(results, peak, sheet, model):
    """Rows of a Markdown table. Ratios compare Lockstep without ZeRO with the side."""
    def cell(value, form):
        return "-" if value is None else form.format(value)

    figures = {name: {key: median(runs, key) for key in
                      ("tokens_per_s", "own_share", "processor_ms", "peak_bytes", "first_forward_s", "save_s", "load_s")}
               for name, runs in results.items() if runs}
    ours = figures.get("lockstep")
    rows = ["| | tokens/s | of the peak | of its own best product | of the data sheet | Lockstep's ratio | processor time per 1,000 tokens | Lockstep's ratio | memory per rank "
            "| Lockstep's ratio | first forward | save | load | runs |",
            "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for name, f in figures.items():
        rate = f["tokens_per_s"] * flops_per_token(model) / 1e9
        of_ours = {key: ours[key] / f[key] if ours and name not in OURS else None
                   for key in ("tokens_per_s", "processor_ms", "peak_bytes")}
        rows.append("| " + " | ".join([
            SIDES[name], f"{f['tokens_per_s']:,.0f}", f"{rate / peak:.2f}", cell(f["own_share"], "{:.2f}"),
            cell(sheet and rate / sheet, "{:.2f}"), cell(of_ours["tokens_per_s"], "{:.2f} x"),
            f"{f['processor_ms']:,.0f} ms", cell(of_ours["processor_ms"], "{:.2f}"),
            f"{f['peak_bytes'] / 2**20:,.0f} MiB", cell(of_ours["peak_bytes"], "{:.2f}"), f"{f['first_forward_s']:.2f} s",
            cell(f["save_s"], "{:.2f} s"), cell(f["load_s"], "{:.2f} s"), str(len(results[name]))]) + " |")
    for name in [n for n in results if n not in figures]:
        rows.append(f"| {SIDES[name]} | failed |" + " |" * 12)
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
        f"Written by `make bench` on {datetime.date.today()}: {processor()}, {RANKS} ranks on {RANKS} cores, one thread per",
        f"rank, sequences of {LENGTH}, {BATCH} per rank unless noted; medians of up to {arguments.repeats} runs of {arguments.steps} steps"
        f" ({arguments.warm} of them warm-up); the sides alternate.",
        f"Peers: {versions[-1] if versions else 'unknown'}.", "",
        f"The machine's load average was {load[0]:.1f} before and {load[1]:.1f} after, of {os.cpu_count()} cores"
        + ("." if max(load) < RANKS + 0.5 else ": it was busy with other work, so ratios are more reliable than absolute figures, and those of processor time most."),
        "",
        "Lockstep runs its real trainer, with loader and clipping. The loops neither clip nor load; the Trainer does both.",
        "First forward: from the command to the first forward pass, on cached data. Load: additional time of a start",
        "with a checkpoint. The peak: PyTorch's product of 1,024 cubed on every core at once; its own best product: 768 cubed, as the",
        "trainer measures it; the data sheet: operations per cycle at the clock in /proc/cpuinfo. Processor time is that of both ranks. bfloat16 is autocast over float32 weights for the Trainer and",
        "the loops.",
    ]
    for title, rows in sections:
        lines += ["", f"## {title}", "", *rows]
    return "\n".join(lines) + "\n"


class Plan:
    """Decides which sides run with which model, and how often, within --minutes."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.started = time.monotonic()
        self.sides = arguments.sides.split(",") if arguments.sides else list(SIDES)
        self.sections = [(model, dtype) for model in arguments.models.split(",") for dtype in arguments.types.split(",")]

    def sides_of(self, model, dtype):
        if dtype == "float32":  # DeepSpeed's stages are for 16-bit types
            names = [name for name in self.sides if "zero" not in name]
        else:
            names = self.sides
        everywhere = self.arguments.full or self.arguments.sides or (model, dtype) == ("small", "bfloat16")
        return [name for name in names if everywhere or name in MAIN]

    def has_time(self, name, repeat, section):
        """True if a further run fits. The first run of each side always runs, later ones while the section's share of the minutes lasts. The first
        section, which has most sides, has nearly half. The main sides come before the others."""
        if repeat == 0 or self.arguments.full:
            return True
        last = len(self.sections) - 1
        part = 1 if section == last else 0.45 + 0.55 * section / last
        used = (time.monotonic() - self.started) / (60 * self.arguments.minutes)
        return used < part * (1 if name in MAIN else 0.9)


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, default=HERE.parent / "build" / "release" / "lockstep")
    parser.add_argument("--short", action="store_true", help="run only the main sides once, with the small model in bfloat16")
    parser.add_argument("--full", action="store_true", help="run every side with every model and type")
    parser.add_argument("--models")
    parser.add_argument("--types")
    parser.add_argument("--sides")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--no-checkpoints", dest="checkpoints", action="store_false")
    parser.add_argument("--output", type=pathlib.Path)
    arguments = parser.parse_args()
    short = arguments.short
    arguments.models = arguments.models or ("small" if short else ",".join(MODELS))
    arguments.types = arguments.types or ("bfloat16" if short else "bfloat16,float32")
    arguments.sides = arguments.sides or (",".join(MAIN) if short else "")
    arguments.repeats = arguments.repeats or (1 if short else 3)
    # A partial run does not overwrite the complete results.
    part = short or arguments.sides or arguments.models != ",".join(MODELS) or arguments.types != "bfloat16,float32"
    arguments.output = arguments.output or (None if part else HERE / "RESULTS.md")
    asked = [n for n in arguments.sides.split(",") if n] + arguments.models.split(",")
    unknown = [n for n in asked if n not in SIDES and n not in MODELS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; sides are {', '.join(SIDES)}, models {', '.join(MODELS)}")
    if arguments.steps <= arguments.warm:
        parser.error(f"--steps {arguments.steps} leaves no steps after --warm {arguments.warm}")
    return arguments


def measure_section(section, sides, plan, machine, scratch):
    """Title and table of one model and type."""
    model_name, dtype = plan.sections[section]
    model, peak = MODELS[model_name], peak_gflops(machine, dtype)
    results = {name: [] for name in plan.sides_of(model_name, dtype)}
    for repeat in range(plan.arguments.repeats):
        for name in results:
            if not plan.has_time(name, repeat, section):
                continue
            checkpoints = plan.arguments.checkpoints and (model_name, dtype) == ("small", "bfloat16") and name in CHECKPOINTED
            try:
                run = measure(sides[name], plan.arguments, model, dtype, scratch, checkpoints)
            except Failed as error:
                print(f"{name} failed:\n{error}", file=sys.stderr)
                continue
            results[name].append(run)
            print(f"{(time.monotonic() - plan.started) / 60:4.1f} min: {model_name} {dtype} run {repeat + 1} {name}: "
                  f"{run['tokens_per_s']:,.0f} tokens/s, {run['peak_bytes'] / 2**20:,.0f} MiB, loss {run['loss']:.4f}",
                  flush=True)
    sheet = sheet_gflops(RANKS, dtype)
    of_sheet = f", data sheet {sheet:,.0f}" if sheet else ""
    title = f"{name_of(model)}, {dtype} (peak {peak:,.0f} GFLOP/s{of_sheet})"
    rows = table(results, peak, sheet, model)
    size, seconds = median(results.get("lockstep", []), "checkpoint_bytes"), median(results.get("lockstep", []), "disk_s")
    if size:
        rows += ["", f"A checkpoint of Lockstep has {size / 2**20:,.0f} MiB; writing as many bytes to this disk takes {seconds:.2f} s."]
    return title, rows


def main():
    arguments = parse_arguments()
    machine = Machine()
    if len(machine.cores) < RANKS:
        sys.exit(f"{RANKS} cores are required, but this process may use only {len(machine.cores)}")
    plan = Plan(arguments)
    load = [os.getloadavg()[0]]
    sections = []
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as scratch:
        scratch = pathlib.Path(scratch)
        sides = {name: Lockstep(arguments.program.resolve(), scratch, machine, OURS[name]) if name in OURS
                 else Peer(name, machine) for name in plan.sides}
        for section in range(len(plan.sections)):
            sections.append(measure_section(section, sides, plan, machine, scratch))
            print("\n".join(["", sections[-1][0], "", *sections[-1][1], ""]), flush=True)
            load.append(os.getloadavg()[0])
            if arguments.output:  # partial results are kept if a later section fails
                arguments.output.write_text(report(sections, arguments, (load[0], load[-1])))
    if arguments.output:
        print(f"written: {arguments.output}")


if __name__ == "__main__":
    main()
