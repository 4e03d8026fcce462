"""Reads every configuration file of a folder of another program (examples of Axolotl, LLaMA-Factory, torchtune or TRL) with
`lockstep train --print-config`, and reports how many are accepted and why the others are refused.

  python3 tools/foreign_configs.py --program build/release/lockstep FOLDER

A file counts as accepted if its only problem is a data set that is not on this machine. Nothing is trained or downloaded."""

import argparse
import collections
import pathlib
import re
import subprocess
import sys

ABSENT = re.compile(r"data\.dataset_name|dataset_info\.json|on the Hub, and not a file|cannot be read|training\.deepspeed")


def problems(text):
    """The problems of an error message, without numbers."""
    listed = re.findall(r"^  \d+\. (.*)$", text, re.M)
    return listed or [re.sub(r"^error: ", "", text.strip().split("\n")[-1] if text.strip() else "no output")]


def reason(problem):
    """A problem without its key, value and place: what it has in common with other files."""
    key, _, rest = problem.partition(" (")
    place, _, why = rest.partition("): ")
    names = re.sub(r": .*?(, |$)", r"\1", key)
    return f"{names}: {(why or problem)[:110]}" if place.rpartition(":")[2].isdigit() else problem[:140]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--program", default="build/release/lockstep", type=pathlib.Path)
    parser.add_argument("--cwd", default=".", help="folder that paths in the files are relative to")
    parser.add_argument("words", nargs="*", help="further arguments of each command, such as data.train=FILE")
    parser.add_argument("--verbose", action="store_true", help="print the outcome of each file")
    options = parser.parse_args()
    program, folder = options.program.resolve(), options.folder.resolve()
    outcomes, reasons, read_as, keys = collections.Counter(), collections.Counter(), collections.Counter(), [0, 0]
    for path in sorted(p for p in folder.rglob("*") if p.suffix in (".yaml", ".yml", ".json")):
        run = subprocess.run([program, "train", "--print-config", "-c", path, *options.words], cwd=options.cwd, capture_output=True, text=True, timeout=60)
        found = re.search(r"read as a file of ([\w-]+): (\d+) keys translated(?:, (\d+) ignored)?", run.stderr)
        if found:
            keys = [keys[0] + int(found[2]), keys[1] + int(found[3] or 0)]
        missing = [] if run.returncode == 0 else problems(run.stderr)
        refused = [p for p in missing if not ABSENT.search(p)]
        outcome = "accepted" if not missing else "accepted, data not on this machine" if not refused else "refused"
        outcomes[outcome] += 1
        reasons.update({reason(p) for p in refused})
        if options.verbose:
            print(f"{path.relative_to(folder)}: {outcome}: {'; '.join(refused)[:300]}")
    for outcome, count in outcomes.most_common():
        print(f"{count:5} {outcome}")
    print(f"{keys[0]} keys translated and {keys[1]} ignored in the accepted files")
    for text, count in reasons.most_common(60):
        print(f"{count:5} {text}")


if __name__ == "__main__":
    sys.exit(main())
