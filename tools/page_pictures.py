#!/usr/bin/env python3
"""Makes the pictures of docs/monitor.md: trains two small runs and takes screenshots of their page and terminal.

    tools/page_pictures.py build/release/lockstep docs/pictures     requires Chromium (tools/setup.sh browser)

Uses only the Python standard library.
"""

import argparse
import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "program"))
import browser  # noqa: E402

MODEL = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 1024, "n_embd": 64, "n_layer": 4,
         "n_head": 4, "n_positions": 128, "bos_token_id": 0, "eos_token_id": 0}
RUNS = {
    "four-ranks": (4, ["parallel.pipeline=2", "gradient_accumulation_steps=4", "learning_rate=2e-3"]),
    "one-rank": (1, ["learning_rate=5e-4", "per_device_train_batch_size=16"]),
}


def train(program, folder, steps):
    def run(*words):
        subprocess.run([program, *map(str, words)], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       env=dict(os.environ, OMP_NUM_THREADS="1"))

    run("sample", "--output", "corpus", "--size", "1")
    run("tokenizer", "train", "--files", "corpus/train.txt", "--vocab-size", "1024", "--output", "tokenizer")
    (folder / "model.json").write_text(json.dumps(MODEL))
    for name, (ranks, more) in RUNS.items():
        run("train", "--nproc", ranks, "model.path=model.json", "tokenizer.path=tokenizer", "data.train=corpus/train.txt",
            "data.validation=corpus/validation.txt", "data.sequence_length=64", f"output_dir=runs/{name}", "overwrite_output_dir=true", f"max_steps={steps}",
            "logging_steps=2", "eval_strategy=steps", f"eval_steps={steps // 4}", f"save_steps={steps // 2}", "use_cpu=true", "monitor.peak_tflops=0.2",
            'monitor.samples=["One day", "The little"]', "monitor.sample_tokens=24", "--trace", f"runs/{name}/trace-3.json", *more)


def take(page, path, whole):
    """PNG of the window, or of the whole page."""
    shot = {"format": "png", "captureBeyondViewport": whole}
    if whole:
        height = page.value("document.documentElement.scrollHeight")
        width = page.value("document.documentElement.clientWidth")
        shot["clip"] = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    path.write_bytes(base64.b64decode(page.call("Page.captureScreenshot", **shot)["data"]))
    print(f"{path}: {path.stat().st_size // 1024} KiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--runs", type=pathlib.Path, help="folder of existing runs to show instead of training")
    options = parser.parse_args()
    chromium = browser.find()
    if chromium is None:
        sys.exit("Chromium is not installed: run tools/setup.sh browser")
    program = options.program.resolve()
    options.output.mkdir(parents=True, exist_ok=True)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-pictures-"))
    try:
        if options.runs is None:
            train(program, scratch, options.steps)
        runs = options.runs.resolve() if options.runs else scratch / "runs"
        server = subprocess.Popen([program, "monitor", runs], stdout=subprocess.PIPE, text=True)
        page = browser.Browser(chromium)
        try:
            page.size(1180, 760)
            page.scheme("light")
            page.call("Page.navigate", url=server.stdout.readline().strip())
            page.wait_for("document.body && document.body.dataset.ready")
            page.wait_for("document.querySelectorAll('rect.heat').length > 0")
            take(page, options.output / "page.png", whole=False)
            page.scheme("dark")
            page.value("document.querySelector('[data-ranks]').scrollIntoView()")
            page.wait_for("window.scrollY > 0")
            take(page, options.output / "ranks.png", whole=False)
            page.size(390, 844)
            page.value("window.scrollTo(0, 0)")
            page.wait_for("window.scrollY === 0")
            take(page, options.output / "phone.png", whole=False)
            for complaint in page.complaints:
                sys.exit(f"the page complains: {complaint}")
        finally:
            page.close()
            server.terminate()
            server.wait()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
