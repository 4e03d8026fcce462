"""Copies or lists the public headers (cmake/public_headers.txt) and the headers that they include. Copies have the installed layout: they are in
lockstep/ and include each other as "lockstep/...".

    python3 tools/public_headers.py --copy-to FOLDER
    python3 tools/public_headers.py --list          # only the public headers, as paths in src/
    python3 tools/public_headers.py --including torch/x.h   # headers that include it, directly or through other headers of Lockstep
"""

import argparse
import pathlib
import re
import shutil

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
INCLUDE = re.compile(r'^(\s*#include\s+")([^"]+)(")', re.M)


def public():
    lines = (ROOT / "cmake" / "public_headers.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def closure(headers):
    """Header -> its text with rewritten includes."""
    texts, waiting = {}, list(headers)
    while waiting:
        header = waiting.pop()
        if header in texts:
            continue
        text = (SOURCE / header).read_text()
        ours = [name for _, name, _ in INCLUDE.findall(text) if (SOURCE / name).exists()]
        waiting += ours
        texts[header] = INCLUDE.sub(
            lambda m, ours=ours: m[1] + ("lockstep/" if m[2] in ours else "") + m[2] + m[3], text)
    return texts


def copy_to(folder):
    texts = closure(public())
    for old in sorted((folder / "lockstep").rglob("*.h")):
        if str(old.relative_to(folder / "lockstep")) not in texts:
            old.unlink()
    for header, text in texts.items():
        path = folder / "lockstep" / header
        if not path.exists() or path.read_text() != text:  # unchanged files are not recompiled
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            shutil.copymode(SOURCE / header, path)


parser = argparse.ArgumentParser()
parser.add_argument("--copy-to", type=pathlib.Path)
parser.add_argument("--list", action="store_true")
parser.add_argument("--including")
arguments = parser.parse_args()
if arguments.list:
    print("\n".join(f"src/{header}" for header in public()))
if arguments.including:
    wanted = f"#include <{arguments.including}>"
    print(";".join(header for header in public() if any(wanted in text for text in closure([header]).values())), end="")
if arguments.copy_to:
    copy_to(arguments.copy_to)
