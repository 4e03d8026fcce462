"""Modules include exactly the modules that cmake/Modules.cmake declares, and libtorch only where it says TORCH."""

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
        words = re.split(r"\s(?:TESTS|APART)\s", match[1])[0].split()
        depends = words[words.index("DEPENDS") + 1 :] if "DEPENDS" in words else []
        rules[words[0]] = (set(depends) | {words[0]}, "TORCH" in words)
    return rules


def problems():
    rules = declared()
    for module in sorted(p.name for p in (ROOT / "src").iterdir() if p.is_dir()):
        if module == "cuda":  # liblockstep_cuda.so, which is built where it is asked for
            continue
        if module not in rules:
            yield f"src/{module}: not declared in cmake/Modules.cmake"
            continue
        allowed, torch = rules[module]
        unused = allowed - {module}
        for path in sorted((ROOT / "src" / module).rglob("*")):
            if path.suffix not in (".h", ".cpp", ".cu", ".inc"):
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                where = f"{path.relative_to(ROOT)}:{number}"
                found = OURS.match(line)
                unused -= {found[1]} if found else set()
                if found and found[1] in rules and found[1] not in allowed:
                    yield f"{where}: {module} may not include {found[1]}/"
                if TORCH.match(line) and not torch:
                    yield f"{where}: {module} does not use libtorch"
        for name in sorted(unused):
            yield f"cmake/Modules.cmake: {module} declares {name} and includes nothing of it"


found = list(problems())
print("\n".join(found) if found else "includes: every module includes what it declares, and declares what it includes")
sys.exit(1 if found else 0)
