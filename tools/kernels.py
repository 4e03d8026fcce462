#!/usr/bin/env python3
"""Checks the registers and local memory of the CUDA kernels against src/cuda/kernels.txt.

  tools/kernels.py compile FILE -- NVCC...   run nvcc with `-Xptxas -v` and write each kernel's usage to FILE
  tools/kernels.py check FOLDER              fail if a kernel uses more registers than the table allows, or spills
  tools/kernels.py write FOLDER              rewrite the table: the maximum number of registers over all architectures
"""

import pathlib
import re
import subprocess
import sys

TABLE = pathlib.Path(__file__).resolve().parent.parent / "src/cuda/kernels.txt"
HEADER = "# kernel, maximum registers per thread on any architecture. No kernel may spill. Written by tools/kernels.py.\n"
ENTRY = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\d+)'")
MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
TOLD = re.compile(r"^ptxas info|bytes stack frame|^\s*$")


def name_of(symbol):
    text = subprocess.run(["c++filt", symbol], capture_output=True, text=True, check=True).stdout.strip()
    text = re.sub(r"\(anonymous namespace\)::|lockstep::cuda::|^void ", "", text)
    return re.sub(r"\(.*", "", text)


def compile_kernels(file, command):
    """Rows of kernel, architecture, registers, and bytes of stack, of spill stores and of spill loads."""
    done = subprocess.run(command, capture_output=True, text=True)
    rows, kernel, architecture, memory = [], None, None, (0, 0, 0)
    for line in (done.stdout + done.stderr).splitlines():
        if match := ENTRY.search(line):
            kernel, architecture = name_of(match[1]), match[2]
        elif match := MEMORY.search(line):
            memory = match.groups()
        elif match := REGISTERS.search(line):
            rows.append((kernel, architecture, match[1], *memory))
        if not TOLD.search(line):
            print(line, file=sys.stderr)
    file.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    return done.returncode


def read_usage(folder):
    """Kernel -> maximum registers; and a list of complaints."""
    registers, complaints = {}, []
    files = sorted(folder.glob("*.usage"))
    if not files:
        complaints.append(f"{folder} contains no .usage files: build lockstep_cuda first")
    for file in files:
        for line in file.read_text().splitlines():
            kernel, architecture, used, stack, stores, loads = line.split("\t")
            registers[kernel] = max(registers.get(kernel, 0), int(used))
            if (stack, stores, loads) != ("0", "0", "0"):
                complaints.append(f"{kernel} on sm_{architecture}: {stack} bytes of stack, {stores} and {loads} of spills")
    return registers, complaints


def check(folder):
    registers, complaints = read_usage(folder)
    rows = [line.rsplit(" ", 1) for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    table = {kernel.strip(): int(most) for kernel, most in rows}
    for kernel, used in registers.items():
        if used > table.get(kernel, 0):
            complaints.append(f"{kernel} uses {used} registers, {table.get(kernel, 'none')} in {TABLE.name}")
    complaints += [f"{kernel} is in {TABLE.name}, but was not compiled" for kernel in table.keys() - registers.keys()]
    for complaint in complaints:
        print(complaint)
    print(f"{len(registers)} kernels, {len(complaints)} complaints")
    return 1 if complaints else 0


def write(folder):
    registers, _ = read_usage(folder)
    TABLE.write_text(HEADER + "".join(f"{kernel} {used}\n" for kernel, used in sorted(registers.items())))
    return 0


def main():
    verb, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    if verb == "compile":
        return compile_kernels(folder, sys.argv[sys.argv.index("--") + 1 :])
    return {"check": check, "write": write}[verb](folder)


if __name__ == "__main__":
    sys.exit(main())
