#!/usr/bin/env python3
"""Writes CTest definitions for a GoogleTest program, one CTest test per test file, because starting a libtorch program takes 0.2 s of a core. An
instance of a parameterized suite that is named Long becomes a separate test with the label `long`, which `make test` does not run.

  cmake/list_tests.py PROGRAM PREFIX OUTPUT SLOTS LABEL [EMULATOR...]     LABEL may be empty; a cross build runs the program with an emulator
"""

import collections
import json
import pathlib
import subprocess
import sys
import tempfile


def listed(command):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "tests.json")
        subprocess.run([*command, "--gtest_list_tests", f"--gtest_output=json:{path}"], stdout=subprocess.DEVNULL, check=True)
        return json.loads(path.read_text())["testsuites"]


def main():
    program, prefix, output, slots, label, *emulator = sys.argv[1:]
    command = [*emulator, program]
    quoted = " ".join(f"[==[{word}]==]" for word in command)
    files = collections.defaultdict(dict)  # (file, label) -> names of the tests in order
    for suite in listed(command):
        wanted = "long" if suite["name"].startswith("Long/") else label
        places = {test["name"]: pathlib.Path(test["file"]).stem.removesuffix("_test") for test in suite["testsuite"]}
        whole = len(set(places.values())) == 1
        for test, place in places.items():
            files[place, wanted][f"{suite['name']}.{'*' if whole else test}"] = None
    cost = 150 if slots == "2" else 50  # tests that compute start first, and others run alongside them
    with open(output, "w", encoding="utf-8") as script:
        for (place, wanted), names in sorted(files.items()):
            name = prefix + place + (".long" if wanted == "long" else "")
            script.write(
                f"add_test([==[{name}]==] {quoted} [==[--gtest_filter={':'.join(names)}]==] --gtest_brief=1)\n"
                f"set_tests_properties([==[{name}]==] PROPERTIES TIMEOUT 600 COST {cost} PROCESSORS {slots} LABELS [==[{wanted}]==]\n"
                "  ENVIRONMENT [==[TORCH_FR_BUFFER_SIZE=0;OMP_NUM_THREADS=1]==])\n")


if __name__ == "__main__":
    main()
