#!/usr/bin/env python3
"""Packs an installed Lockstep as a Python wheel, with the package of python/lockstep.

    tools/make_wheel.py BUILD [--output DIST]       prints the wheel's path

The wheel depends on exactly the torch that it was built with, and its Python package names that version if another one is installed. Programs and libraries find it next to the package, in site-packages/torch/lib, and
contain no path of the build machine. Uses only the Python standard library.
"""

import argparse
import base64
import hashlib
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

from elf import Elf

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The oldest glibc whose distributions ship a libstdc++ of this version: RHEL 9, Ubuntu 22.04,
# Debian 13.
GLIBC_OF_LIBSTDCXX = {(3, 4, 29): (2, 34), (3, 4, 30): (2, 35), (3, 4, 31): (2, 38), (3, 4, 32): (2, 38), (3, 4, 33): (2, 41)}


def cache_of(build):
    """Variables of a build folder's CMakeCache.txt."""
    text = (build / "CMakeCache.txt").read_text()
    return dict(re.findall(r"^([\w-]+):\w+=(.*)$", text, re.M))


def version_of(cache):
    return cache["CMAKE_PROJECT_VERSION"]


def torch_version(libtorch):
    """Public version, 2.11.0 for "2.11.0+cu130": the local part names the builder."""
    found = re.search(r"^__version__ = '([^'+]+)", (libtorch / "version.py").read_text(), re.M)
    return found[1]


def is_elf(path):
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def wheel_folder(entry, place, site, arrow):
    """RUNPATH entry in site-packages, or nothing. `place` is "$ORIGIN" with the path up to site-packages."""
    if entry.startswith("$ORIGIN"):
        return entry
    path = pathlib.Path(entry)
    if path == arrow:
        return f"{place}/pyarrow"
    return f"{place}/{path.relative_to(site)}" if path.is_relative_to(site) else None


def relocate(folder, libtorch, arrow):
    """Sets the RUNPATH of the programs and libraries below `folder` to libtorch, CUDA and Arrow in the same site-packages."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file() or not is_elf(path):
            continue
        elf = Elf(path)
        place = "/".join(["$ORIGIN", *[".."] * len(path.relative_to(folder).parts)])
        found = [wheel_folder(entry, place, libtorch.parent, arrow) for entry in elf.runpath()]
        elf.set_runpath(list(dict.fromkeys(entry for entry in found if entry)))
        elf.save()


def platform_tag(files):
    """manylinux tag for the versions of glibc and libstdc++ that the files require."""
    elves = [Elf(path) for path in files]
    glibc = max((elf.newest("GLIBC") for elf in elves), default=(2, 28))
    cxx = max((elf.newest("GLIBCXX") for elf in elves), default=())
    needed = [least for version, least in GLIBC_OF_LIBSTDCXX.items() if version <= cxx]
    if cxx > max(GLIBC_OF_LIBSTDCXX):
        raise SystemExit(f"make_wheel: unknown version GLIBCXX_{'.'.join(map(str, cxx))}; add it to GLIBC_OF_LIBSTDCXX")
    major, minor = max([glibc[:2], *needed])
    return f"manylinux_{major}_{minor}_{platform.machine()}"


def metadata(version, torch):
    readme = (ROOT / "README.md").read_text()
    return (
        "Metadata-Version: 2.1\n"
        "Name: lockstep\n"
        f"Version: {version}\n"
        "Summary: Training of transformer language models on many GPUs, or none\n"
        "Requires-Python: >=3.9\n"
        f"Requires-Dist: torch=={torch}\n"
        "Provides-Extra: parquet\n"
        "Requires-Dist: pyarrow==21.0.0; extra == 'parquet'\n"
        "Provides-Extra: stores\n"
        "Requires-Dist: pyarrow==21.0.0; extra == 'stores'\n"
        "Description-Content-Type: text/markdown\n\n" + readme)


class Wheel:
    """Zip file with a RECORD of the added files."""

    def __init__(self, path, information):
        self.archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6)
        self.information, self.record = information, []

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # a fixed time, so that equal files give equal bytes
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.archive.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def close(self):
        name = f"{self.information}/RECORD"
        self.add(name, ("\n".join([*self.record, f"{name},,"]) + "\n").encode())
        self.archive.close()


def stage(build, folder, cache):
    """Package with the layout of site-packages."""
    done = subprocess.run(["cmake", "--install", build, "--prefix", folder], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"make_wheel: nothing to install in {build}: run `make wheel`\n{done.stderr}")
    relocate(folder, pathlib.Path(cache["LIBTORCH"]), pathlib.Path(cache.get("ARROW", "")))
    for path in sorted((ROOT / "python" / "lockstep").glob("*.py")):
        shutil.copy(path, folder / path.name)
    init = folder / "__init__.py"
    text = init.read_text()
    for name, value in (("__version__", version_of(cache)), ("_TORCH_VERSION", torch_version(pathlib.Path(cache["LIBTORCH"])))):
        text = re.sub(rf'^{name} = ".*"', f'{name} = "{value}"', text, flags=re.M)
    init.write_text(text)


def make(build, output):
    cache = cache_of(build)
    version, torch = version_of(cache), torch_version(pathlib.Path(cache["LIBTORCH"]))
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / "lockstep"
        stage(build.resolve(), folder, cache)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        tag = f"py3-none-{platform_tag([path for path in files if is_elf(path)])}"
        information = f"lockstep-{version}.dist-info"
        output.mkdir(parents=True, exist_ok=True)
        result = output / f"lockstep-{version}-{tag}.whl"
        wheel = Wheel(result, information)
        for path in files:
            wheel.add(str(pathlib.Path("lockstep") / path.relative_to(folder)), path.read_bytes(), path.stat().st_mode & 0o777)
        wheel.add(f"{information}/METADATA", metadata(version, torch).encode())
        wheel.add(f"{information}/entry_points.txt", b"[console_scripts]\nlockstep = lockstep.__main__:main\n")
        wheel.add(
            f"{information}/WHEEL",
            f"Wheel-Version: 1.0\nGenerator: lockstep\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
        wheel.close()
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "dist")
    options = parser.parse_args()
    print(make(options.build, options.output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
