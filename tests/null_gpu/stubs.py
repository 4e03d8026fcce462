"""Writes assembly stubs for the entry points of NVIDIA's libraries that libtorch needs and the null GPU does not implement. cuBLAS products
count as kernels; all other stubs end the process with their name.

stubs.py TORCH OUTPUT OBJECTS...: OBJECTS implement entry points, for which no stubs are written.
"""

import pathlib
import re
import subprocess
import sys

LIBRARIES = ("libtorch_cuda.so", "libc10_cuda.so", "libtorch_cpu.so", "libtorch_nvshmem.so", "libcaffe2_nvrtc.so")
NVIDIA = re.compile(r"(__cuda|cuda|cu[A-Z]|cublas|cudnn|cusparse|cufft|curand|nccl|nvrtc|nvshmem)")
PRODUCT = re.compile(r"cublas(?!Lt)\w*(Gemm|gemm|gemv|dot|Dot|trsm)")


def symbols(*arguments):
    lines = subprocess.run(["nm", *arguments], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[-1].split("@")[0] for line in lines if line}


def main():
    torch, output, *objects = sys.argv[1:]
    paths = [pathlib.Path(torch) / "lib" / name for name in LIBRARIES]
    needed = set().union(*(symbols("-D", "-u", path) for path in paths if path.exists()))
    # libtorch loads these driver functions by name.
    needed |= set(re.findall(r"_\((cu\w+), ", (pathlib.Path(torch) / "include/c10/cuda/driver_api.h").read_text()))
    names = sorted(filter(NVIDIA.match, needed.difference(*(symbols("--defined-only", path) for path in objects))))
    lines = [".text"]
    for name in names:
        register, target = ("rsi", "null_gpu_product") if PRODUCT.match(name) else ("rdi", "null_gpu_unknown")
        lines += [f".globl {name}", f".type {name}, @function",
                  f"{name}: lea name_{name}(%rip), %{register}", f"  jmp {target}@PLT"]
    lines += [".section .rodata", *(f'name_{name}: .asciz "{name}"' for name in names)]
    lines += ['.section .note.GNU-stack,"",@progbits']
    pathlib.Path(output).write_text("\n".join(lines) + "\n")


main()
