"""Checks that modules include exactly the modules that cmake/Modules.cmake declares, that only those marked TORCH include libtorch, and that the
rooms of a module (its subfolders) include exactly the rooms below them that it declares."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TORCH = re.compile(r'#include\s+[<"](torch|ATen|c10|caffe2)/')
OURS = re.compile(r'#include\s+"(?:lockstep/)?([a-z_]+)/')


def declared():
    """Module -> (modules that it may include, True if it may use libtorch)."""
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
        if module in ("cuda", "arrow", "object_stores"):  # libraries that are loaded at run time and built only where possible
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
            yield f"cmake/Modules.cmake: {module} declares {name} but does not include it"


def rooms():
    """Module -> {room: rooms that it includes}, in the order of the file, lowest first."""
    text = (ROOT / "cmake" / "Modules.cmake").read_text()
    found = {}
    for match in re.finditer(r"^lockstep_rooms\(([^)]*)\)", text, re.M):
        module, *words = match[1].split()
        found[module] = {room: set(filter(None, below.split(","))) for room, _, below in (w.partition(":") for w in words)}
    return found


def room_problems():
    for module, declared_rooms in rooms().items():
        folder = ROOT / "src" / module
        seen = {room: set() for room in declared_rooms}
        for path in sorted(folder.rglob("*")):
            if path.suffix not in (".h", ".cpp", ".cu", ".inc"):
                continue
            parts = path.relative_to(folder).parts
            room = parts[0] if len(parts) > 1 else "top"
            if room not in seen:
                yield f"{path.relative_to(ROOT)}: cmake/Modules.cmake does not declare the room {room} of {module}"
                seen[room] = set()
            for match in re.finditer(rf'^#include "{module}/([\w/]+)\.h"', path.read_text(), re.M):
                other = match[1].split("/")[0] if "/" in match[1] else "top"
                seen[room] |= {other} - {room}
        below = set()
        for room, allowed in declared_rooms.items():
            for other in sorted(seen[room] ^ allowed):
                yield f"src/{module}: its room {room} " + (
                    f"includes {other}, which cmake/Modules.cmake does not declare" if other in seen[room]
                    else f"declares {other} but does not include it")
            for other in sorted(allowed - below):
                yield f"cmake/Modules.cmake: {module}'s room {room} includes {other}, which is not below it"
            below.add(room)


found = [*problems(), *room_problems()]
print("\n".join(found) if found else "includes: the declared includes equal those of every module and room")
sys.exit(1 if found else 0)
