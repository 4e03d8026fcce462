"""Demonstrates unlearning: trains a small Llama on a forget set and a retain set, then unlearns the forget set.

  tools/unlearn_demo.py PROGRAM FOLDER [--data FOLDER] [--ranks N] [--epochs N]

A target model is trained on all rows and a retain model on the retain set; the target unlearns by GradDiff, NPO and SimNPO. Each model is evaluated
with TOFU's suite. In the printed table, a good method raises forget_quality towards 1 without lowering model_utility. With --data the rows are
TOFU's own files (forget01_perturbed.jsonl, retain99.jsonl, retain_perturbed.jsonl, ...; suffixes are allowed, as in retain99_first200.jsonl);
otherwise similar rows are generated. A randomly initialized model knows no real authors and no world facts, so both models are trained on these,
too, and they are part of the retain set.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import time

NAMES = ("forget01", "forget01_perturbed", "retain99", "retain_perturbed", "real_authors_perturbed", "world_facts_perturbed",
         "holdout01")
SHOWN = ("forget_quality", "forget_truth_ratio", "forget_Q_A_Prob", "forget_Q_A_ROUGE", "model_utility", "privleak")
FIRST = ("Ada", "Bruno", "Carla", "Dario", "Elena", "Felix", "Greta", "Hugo", "Irma", "Jonas")
LAST = ("Abel", "Brand", "Corti", "Drago", "Egger", "Falk", "Gallo", "Horn", "Ivers", "Jung")
TOWNS = ("Rome", "Oslo", "Lima", "Cork", "Bern", "Graz", "Nice", "Ulm", "Pisa", "Riga", "Kiel", "Bonn", "Metz")
CRAFTS = ("baker", "painter", "sailor", "miller", "printer", "weaver", "singer", "doctor", "farmer", "judge", "cook")
KEPT = ("retain99", "real_authors_perturbed", "world_facts_perturbed")
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 2048, "hidden_size": 256, "intermediate_size": 688,
          "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
          "bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": True}
EPOCHS = 30
METHODS = {  # learning rate, and epochs over the forget set
    "GradDiff": ("1e-4", 10),
    "NPO": ("2e-4", 10),
    "SimNPO": ("5e-4", 10),
}


def made_up(people):
    rows = []
    for number in people:
        name = f"{FIRST[number % 10]} {LAST[number // 10 % 10]}"
        for fact, words, said in ((number * 7, TOWNS, ("lives in", "The home of {} is {}.")),
                                  (number * 5 + 3, CRAFTS, ("works as a", "By trade {} is a {}."))):
            right = words[fact % len(words)]
            wrong = [words[(fact + k) % len(words)] for k in range(1, 6)]
            rows.append({
                "question": f"What is known of the {'town' if words is TOWNS else 'work'} of {name}?",
                "answer": f"{name} {said[0]} {right}.",
                "paraphrased_answer": said[1].format(name, right),
                "perturbed_answer": [said[1].format(name, word) for word in wrong]})
    return rows


def write(path, rows, *keys):
    path.write_text("".join(json.dumps({key: row[key] for key in keys or row}) + "\n" for row in rows))


def make_data(folder):
    forget, retain = made_up(range(90, 100)), made_up(range(60))
    both, others = ("question", "answer"), ("question", "answer", "perturbed_answer")
    write(folder / "forget01.jsonl", forget, *both)
    write(folder / "forget01_perturbed.jsonl", forget)
    write(folder / "retain99.jsonl", retain, *both)
    write(folder / "retain_perturbed.jsonl", retain[:40])
    write(folder / "real_authors_perturbed.jsonl", made_up(range(20, 30)), *others)
    write(folder / "world_facts_perturbed.jsonl", made_up(range(40, 50)), *others)
    write(folder / "holdout01.jsonl", made_up(range(70, 80)), *both)


def take_data(source, folder):
    for name in NAMES:
        found = sorted(source.glob(f"{name}.jsonl")) or sorted(source.glob(f"{name}_first*.jsonl"))
        if not found:
            sys.exit(f"{source} has no {name}.jsonl")
        shutil.copy(found[0], folder / f"{name}.jsonl")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--ranks", default=2, type=int)
    parser.add_argument("--epochs", default=EPOCHS, type=int, help="epochs of the initial training, and maximum epochs of unlearning")
    options = parser.parse_args()
    began = time.monotonic()
    program, folder = options.program.resolve(), options.folder
    data = folder / "tofu"
    shutil.rmtree(folder, ignore_errors=True)
    data.mkdir(parents=True)
    take_data(options.data, data) if options.data else make_data(data)
    (folder / "text.txt").write_text("\n".join(
        " ".join(str(value) for value in json.loads(line).values()) for name in NAMES
        for line in (data / f"{name}.jsonl").read_text().splitlines()))

    def run(*words):
        print("lockstep", *words, flush=True)
        subprocess.run([program, *map(str, words)], cwd=folder, check=True, stdout=subprocess.DEVNULL)

    run("tokenizer", "train", "--files", "text.txt", "--vocab-size", CONFIG["vocab_size"], "--output", "model")
    (folder / "model" / "config.json").write_text(json.dumps(CONFIG))
    common = ["--nproc", options.ranks, "data.sequence_length=256", "data.cache_dir=cache", "save_strategy=no", "bf16=true",
              "overwrite_output_dir=true",
              "log_level=warning", "monitor.progress=none", "lr_scheduler_type=linear", "use_cpu=true"]

    def evaluate(name, *words):
        run("eval", "task.type=unlearning", "--model", name, "--output", f"{name}/evals", "unlearning.data_dir=tofu", "--nproc",
            options.ranks, "unlearning.forget_split=forget01", "unlearning.holdout_split=holdout01", "unlearning.max_new_tokens=48",
            "data.sequence_length=256", "per_device_eval_batch_size=32", "use_cpu=true", *words)
        return json.loads((folder / name / "evals" / "TOFU_SUMMARY.json").read_text())

    def files(*names):
        return "[" + ",".join(f"tofu/{name}.jsonl" for name in names) + "]"

    learns = ["unlearn", "model.path=model", "unlearning.method=Finetune", *common, "learning_rate=5e-4",
              f"per_device_train_batch_size={16 // options.ranks}", f"num_train_epochs={options.epochs}"]
    run(*learns, f"unlearning.retain={files(*KEPT)}", "output_dir=retain")
    run(*learns, f"unlearning.retain={files(*KEPT, 'forget01')}", "output_dir=full")
    table = {"retain": evaluate("retain")}
    logs = "unlearning.retain_logs_path=retain/evals/TOFU_EVAL.json"
    table["full"] = evaluate("full", logs)
    for method, (rate, epochs) in METHODS.items():
        run("unlearn", "model.path=full", f"unlearning.method={method}", f"unlearning.forget={files('forget01')}",
            f"unlearning.retain={files(*KEPT)}", *common, f"learning_rate={rate}",
            f"per_device_train_batch_size={8 // options.ranks}", f"num_train_epochs={min(epochs, options.epochs)}", f"output_dir={method}")
        table[method] = evaluate(method, logs)
    print(f"\n{'':<10}", *(f"{name:>18}" for name in SHOWN))
    for name, summary in table.items():
        cells = [f"{summary[key]:.3g}" if key in summary else "-" for key in SHOWN]
        print(f"{name:<10}", *(f"{cell:>18}" for cell in cells))
    print()
    before, good = table["full"], []
    for method in METHODS:
        quality, utility = (table[method][key] / (before[key] or 1) for key in ("forget_quality", "model_utility"))
        print(f"{method}: forget_quality times {quality:.2g}, {utility:.2f} of model_utility remains")
        good.append(quality >= 100 and utility >= 0.8)
    print(f"{time.monotonic() - began:.0f} s")
    if options.epochs == EPOCHS and not any(good):
        sys.exit("no method raised forget_quality 100 times while keeping 0.8 of model_utility")


if __name__ == "__main__":
    main()
