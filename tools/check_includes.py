"""Modules include only what cmake/Modules.cmake declares, and libtorch only where it says TORCH."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TORCH = re.compile(r'#include\s+[<"](torch|ATen|c10|caffe2)/')
OURS = re.compile(r'#include\s+"(?:lockstep/)?([a-z_]+)/')


def declared():
    """Module -> (modules that it may include, whether it may use libtorch)."""
    rules = {}
    text = (ROOT / "cmake" / "Modules.cmake").read_text()
    for match in re.finditer(r"^lockstep_(?:module|program)\(([^)]*)\)", text, re.M):
        words = match[1].split()
        words = words[: words.index("APART")] if "APART" in words else words
        depends = words[words.index("DEPENDS") + 1 :] if "DEPENDS" in words else []
        rules[words[0]] = (set(depends) | {words[0]}, "TORCH" in words)
    return rules


def problems():
    rules = declared()
    for module in sorted(p.name for p in (ROOT / "src").iterdir() if p.is_dir()):
        if module == "cuda":  # liblockstep_cuda.so: it knows comm's headers, and CUDA
            continue
        if module not in rules:
            yield f"src/{module}: not declared in cmake/Modules.cmake"
            continue
        allowed, torch = rules[module]
        for path in sorted((ROOT / "src" / module).rglob("*")):
            if path.suffix not in (".h", ".cpp", ".cu", ".inc"):
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                where = f"{path.relative_to(ROOT)}:{number}"
                found = OURS.match(line)
                if found and found[1] in rules and found[1] not in allowed:
                    yield f"{where}: {module} may not include {found[1]}/"
                if TORCH.match(line) and not torch:
                    yield f"{where}: {module} does not use libtorch"


found = list(problems())
print("\n".join(found) if found else "includes: every module includes what it declares")
sys.exit(1 if found else 0)
