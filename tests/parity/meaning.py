"""Fuzzer of meaning: changes one thing that a user gives, and compares the result with Hugging Face's.

  .deps/python/bin/python tests/parity/meaning.py --cases 2000 --seed 1 [--subjects llama,rows] [--jobs 2]

A thing is a file of a folder, a key of a JSON file, a tensor, or a field of a row. It is removed, renamed, set to null, given another type or
another value, or added. The program must then end with an error, or give the result of transformers (losses within 1e-5, equal ids and
text), or print a message with the name of the thing. Any other outcome is silent, and the exit code is 1.
tests/parity/test_meaning.py runs a fixed sample.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import copy
import dataclasses
import json
import math
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import meaning_subjects as subjects  # noqa: E402

PROGRAM = pathlib.Path(os.environ.get("LOCKSTEP_PROGRAM", "build/release/lockstep")).resolve()
DELIBERATE = (2, 4, 6)  # exit codes of wrong settings, wrong data, and losses that are not finite
# Words for a key that does not exist, and values of another type for each type.
UNKNOWN = "lockstep_has_no_such_name"
OTHER_TYPES = {bool: ["yes", 2], int: ["7", 1.5, [3], True], float: ["0.5", [0.5], True], str: [7, ["x"], {}], list: [{}, "x", 3],
               dict: [[], "x", 3], type(None): [7, "x", True, []]}


@dataclasses.dataclass
class Outcome:
    value: object = None  # None: the program ended with an error
    told: str = ""
    status: int = 0


@dataclasses.dataclass
class Mutation:
    words: str  # for people
    name: str  # of the thing, which a message must contain
    apply: object  # function(folder)
    is_addition: bool = False


def other_values(value):
    """Values of the same type that may change a result."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value * 2, max(value // 2, 0), 0, -1]
    if isinstance(value, float):
        return [value * 2 + 0.25, 0.0, 1.0]
    if isinstance(value, str):
        return [value + "_x", "", *subjects.WORDS.get(value, [])]
    if isinstance(value, list):
        return [[], value[::-1], value[:-1], value + value[-1:]]
    return [{}] if isinstance(value, dict) else []


def paths_of(value, depth, path=()):
    """Paths of all entries of nested objects, and of the first and last two of lists."""
    entries = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    if isinstance(value, list) and len(entries) > 4:
        entries = entries[:2] + entries[-2:]
    for key, child in entries[:60]:
        yield (*path, key)
        if depth > 1:
            yield from paths_of(child, depth - 1, (*path, key))


def at_path(value, path):
    for key in path:
        value = value[key]
    return value


def edit(file, line, change):
    """Returns a function that changes the JSON of a file (or of one of its lines) in a folder."""
    def apply(folder):
        lines = (folder / file).read_text().splitlines() if line is not None else [(folder / file).read_text()]
        value = json.loads(lines[line or 0])
        change(value)
        lines[line or 0] = json.dumps(value)
        (folder / file).write_text("\n".join(lines) + "\n")
    return apply


def json_mutations(folder, file, depth, added, line=None):
    """Yields all changes of one JSON object. `added`: names of keys that related programs know, and values for them."""
    text = (folder / file).read_text()
    root = json.loads(text if line is None else text.splitlines()[line])
    for path in paths_of(root, depth):
        value = at_path(root, path)
        names = [str(key) for key in path if not isinstance(key, int)]
        name = names[-1]
        shown = f"{file}: {'.'.join(map(str, path))}"

        def change(action, words, path=path, name=name, shown=shown):
            return Mutation(f"{shown} {words}", name, edit(file, line, lambda new: action(at_path(new, path[:-1]), path[-1])))

        def rename(place, key):
            place[f"{key}_{UNKNOWN}"] = place.pop(key)

        def put(new):
            def action(place, key):
                place[key] = copy.deepcopy(new)
            return action

        yield change(lambda place, key: place.pop(key), "removed")
        if isinstance(path[-1], str):
            yield change(rename, "renamed")
        for new in [None, *OTHER_TYPES[type(value)], *other_values(value)]:
            if new is not value:
                yield change(put(new), f"= {json.dumps(new)[:60]}")
    for name, values in {UNKNOWN: [1], **added}.items():
        for value in values if name not in root else []:
            yield Mutation(f"{file}: {name} = {json.dumps(value)[:60]} added", name,
                           edit(file, line, lambda new, name=name, value=value: new.update({name: value})), is_addition=True)


def file_mutations(folder, added):
    """Yields removals and other names of files, and additional files."""
    for file in sorted(path.name for path in folder.iterdir() if path.is_file()):
        yield Mutation(f"{file} removed", file, lambda folder, file=file: (folder / file).unlink())
        yield Mutation(f"{file} renamed", file, lambda folder, file=file: (folder / file).rename(folder / f"other_{file}"))
    for file, content in added.items():
        def write(folder, file=file, content=content):
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_bytes(content(folder) if callable(content) else content)
        if not (folder / file).exists():
            yield Mutation(f"{file} added", pathlib.PurePath(file).name, write, is_addition=True)


def tensor_mutations(folder, file, added):
    """Yields changes of the tensors of a safetensors file. `added`: additional tensors, a function of those of the file."""
    import torch
    from safetensors.torch import load_file, save_file
    tensors = load_file(folder / file)

    def mutation(words, name, change):
        def apply(folder):
            changed = {key: value.clone() for key, value in load_file(folder / file).items()}
            change(changed)
            save_file({key: value.contiguous() for key, value in changed.items()}, folder / file, {"format": "pt"})
        return Mutation(f"{file}: {words}", name, apply)

    for name, tensor in sorted(tensors.items()):
        yield mutation(f"{name} removed", name, lambda changed, name=name: changed.pop(name))
        yield mutation(f"{name} renamed", name, lambda changed, name=name: changed.update({f"{name}_{UNKNOWN}": changed.pop(name)}))
        for dtype in (torch.bfloat16, torch.float64, torch.int32):
            yield mutation(f"{name} as {dtype}", name, lambda changed, name=name, dtype=dtype: changed.update({name: changed[name].to(dtype)}))
        yield mutation(f"{name} twice as large", name, lambda changed, name=name: changed.update({name: torch.cat([changed[name]] * 2)}))
        yield mutation(f"{name} with NaN", name, lambda changed, name=name: changed[name].view(-1).__setitem__(0, math.nan))
        yield mutation(f"{name} changed", name, lambda changed, name=name: changed[name].mul_(1.5))
        if tensor.dim() == 2 and tensor.shape[0] != tensor.shape[1]:
            yield mutation(f"{name} transposed", name, lambda changed, name=name: changed.update({name: changed[name].t()}))
    for name, make in {UNKNOWN: lambda _: torch.ones(3), **added}.items():
        if name not in tensors:
            yield mutation(f"{name} added", name, lambda changed, name=name, make=make: changed.update({name: make(changed)}))


def run(*words):
    """Runs the program; returns its exit code, its output and its messages."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "LOCKSTEP_MEASURE_MACHINE": "0", "HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, env=environment, timeout=600)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def ours(subject, folder):
    told = ""
    value = []
    for words, read in subject.commands(folder):
        status, out, messages = run(*words)
        told += messages.replace(str(folder), "FOLDER")
        if status != 0:
            return Outcome(None, told, status)
        try:
            value.append(read(out))
        except (KeyError, ValueError, TypeError, AttributeError):
            value.append(out)  # output of another form is another result
    return Outcome(value, told)


def theirs(subject, folder):
    """Result of Hugging Face's libraries; None if they raise an exception."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Outcome(subject.reference(folder))
        except Exception as error:  # any exception of a library means that it refuses the input
            return Outcome(None, f"{type(error).__name__}: {error}"[:300], 1)


def are_equal(left, right, tolerance=1e-5):
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(are_equal(*pair, tolerance) for pair in zip(left, right))
    if isinstance(left, float) or isinstance(right, float):
        return isinstance(left, (int, float)) and isinstance(right, (int, float)) and math.isclose(left, right, rel_tol=tolerance, abs_tol=tolerance / 10)
    return left == right


def verdict(subject, base, mutation, mine, reference):
    """Returns "error", "reported", "equal", "tolerated", or for failures "SILENT" or "CRASH"."""
    if mine.value is None:
        return "error" if mine.status in DELIBERATE else "CRASH"
    new_lines = [line for line in mine.told.splitlines() if line not in base.told.splitlines()]
    if any(mutation.name in line for line in new_lines):
        return "reported"
    if subject.must_report_unused and are_equal(mine.value, base.value):
        return "SILENT"  # the library may ignore a field of a row; the program reports it
    if reference is None:
        return "equal"
    # Programs round to smaller types at different places.
    tolerance = 1e-3 if any(dtype in mutation.words for dtype in ("bfloat16", "float16")) else 1e-5
    if reference.value is not None and are_equal(mine.value, reference.value, tolerance):
        return "equal"
    if reference.value is None and are_equal(mine.value, base.value):
        return "tolerated"  # the library validates a value that has no effect
    return "SILENT"


@dataclasses.dataclass
class Case:
    subject: object
    mutation: Mutation
    base: Outcome
    pristine: pathlib.Path


def cases_of(subject, place):
    """Makes the subject's folder, checks that both programs agree on it, and returns its cases."""
    pristine = place / subject.name.replace(" ", "-")
    pristine.mkdir(parents=True)
    subject.make(pristine)
    base = ours(subject, pristine)
    if base.value is None:
        raise AssertionError(f"{subject.name}: {base.told}")
    if subject.has_reference:
        reference = theirs(subject, pristine)
        if reference.value is None or not are_equal(base.value, reference.value):
            raise AssertionError(f"{subject.name}: {base.value} and {reference.value} {reference.told}")
    mutations = []
    for file, depth, added, line in subject.json_files:
        mutations += json_mutations(pristine, file, depth, added, line)
    if subject.changes_files:
        mutations += file_mutations(pristine, subject.added_files)
    for file in subject.tensor_files:
        mutations += tensor_mutations(pristine, file, subject.added_tensors)
    return [Case(subject, mutation, base, pristine) for mutation in mutations]


def judge(cases, jobs, place):
    """Yields (case, verdict, our outcome, their outcome)."""
    def prepare(number, case):
        folder = place / "mutated" / str(number)
        shutil.copytree(case.pristine, folder)
        case.mutation.apply(folder)
        return folder, ours(case.subject, folder)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = collections.deque()
        numbered = enumerate(cases)
        for number, case in numbered:
            waiting.append((case, pool.submit(prepare, number, case)))
            if len(waiting) < 4 * jobs and number + 1 < len(cases):
                continue
            while waiting and (len(waiting) >= 4 * jobs or number + 1 == len(cases)):
                case, future = waiting.popleft()
                folder, mine = future.result()
                reference = None
                if mine.value is not None and case.subject.has_reference:
                    reference = theirs(case.subject, folder)
                found = verdict(case.subject, case.base, case.mutation, mine, reference)
                shutil.rmtree(folder)
                yield case, found, mine, reference


def shown_failure(case, found, mine, reference):
    told = "\n      ".join(mine.told.splitlines()[-6:])
    return (f"{found}  {case.subject.name}: {case.mutation.words}\n    base {case.base.value}\n    ours {mine.value} (exit code {mine.status})\n"
            f"    theirs {reference and (reference.value or reference.told)}\n      {told}")


def campaign(names, count, seed, jobs, place):
    """Runs a random sample of all mutations of the subjects; returns their number, counts and the failures in words."""
    everything, failures = [], []
    for subject in subjects.all_subjects():
        if not names or any(name in subject.name for name in names):
            try:
                everything += cases_of(subject, place)
            except AssertionError as error:
                failures.append(f"DIFFERS  {error}")
                print(failures[-1], flush=True)
    chosen = random.Random(seed).sample(everything, min(count, len(everything)))
    chosen.sort(key=lambda case: case.subject.name)
    counts = collections.Counter()
    for case, found, mine, reference in judge(chosen, jobs, place):
        counts[case.subject.name, found] += 1
        counts[found] += 1
        if found.isupper():
            failures.append(shown_failure(case, found, mine, reference))
            print(failures[-1], flush=True)
    return len(everything), counts, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--subjects", default="", help="parts of names, separated by commas")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        total, counts, failures = campaign([name for name in options.subjects.split(",") if name], options.cases, options.seed, options.jobs,
                                           pathlib.Path(place))
    for key, count in sorted((key, count) for key, count in counts.items() if isinstance(key, tuple)):
        print(f"{key[0]:24} {key[1]:10} {count}")
    print(f"{sum(count for key, count in counts.items() if isinstance(key, str))} of {total} mutations: "
          + ", ".join(f"{count} {key}" for key, count in sorted(counts.items(), key=str) if isinstance(key, str)))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
