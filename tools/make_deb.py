#!/usr/bin/env python3
"""Packs the programs and the libtorch libraries that they need as a Debian package.

    tools/make_deb.py BUILD [--output DIST] [--cuda] [--plan]      prints the package's path

Files are in /usr/lib/lockstep, with the layout of site-packages (docs/decisions/0101); /usr/bin/lockstep is a link to the program. --cuda includes
the GPU libraries; --plan prints the files and their size without packing them. Requires dpkg-deb.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from elf import Elf
from make_wheel import ROOT, cache_of, is_elf, relocate, version_of

PREFIX = pathlib.Path("usr/lib/lockstep")
# Libraries that a Debian system provides through the packages in the control file.
SYSTEM = ("libc.so", "libm.so", "libdl.so", "librt.so", "libpthread.so", "libgcc_s.so", "libstdc++.so", "ld-linux", "libutil.so")
GCC_OF_LIBSTDCXX = {(3, 4, 29): 11, (3, 4, 30): 12, (3, 4, 31): 13, (3, 4, 32): 13, (3, 4, 33): 14}


def library_folders(site, arrow):
    """Folders in which libraries that do not belong to the system may be, in site-packages and next to it."""
    return [site / "torch" / "lib", *sorted(site.glob("nvidia/*/lib")), arrow]


def closure(files, folders):
    """Libraries in `folders` that `files` need directly or indirectly, and the names of those that were not found."""
    found, missing, waiting = {}, set(), [name for file in files for name in Elf(file).needed()]
    while waiting:
        name = waiting.pop()
        if name in found or name.startswith(SYSTEM):
            continue
        places = [folder / name for folder in folders if (folder / name).exists()]
        if not places:
            missing.add(name)
            continue
        found[name] = places[0]
        waiting += Elf(places[0]).needed()
    return found, missing


def place_of(library, site, arrow):
    """Path in the package of a library in site-packages."""
    return pathlib.Path("pyarrow") / library.name if library.parent == arrow else library.relative_to(site)


def control(version, files):
    """Control file of the package; its dependencies are the versions that the files require."""
    elves = [Elf(file) for file in files]
    glibc = max(elf.newest("GLIBC") for elf in elves)
    cxx = max(elf.newest("GLIBCXX") for elf in elves)
    gcc = GCC_OF_LIBSTDCXX.get(cxx, max(GCC_OF_LIBSTDCXX.values()) if cxx > max(GCC_OF_LIBSTDCXX) else 11)
    architecture = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
    size = sum(file.stat().st_size for file in files) // 1024
    return (
        "Package: lockstep\n"
        f"Version: {version}\n"
        f"Architecture: {architecture}\n"
        "Maintainer: The Lockstep project <lockstep@localhost>\n"
        f"Installed-Size: {size}\n"
        f"Depends: libc6 (>= {glibc[0]}.{glibc[1]}), libstdc++6 (>= {gcc}), libgcc-s1\n"
        "Recommends: ca-certificates, openssh-client, libcurl4, libdw1\n"
        "Section: science\n"
        "Priority: optional\n"
        "Description: training of transformer language models on many GPUs, or none\n"
        " One program launches, trains, evaluates, generates, verifies, plans and resumes.\n"
        " The part of libtorch that it needs is inside.\n")


def programs_of(build, scratch, cuda):
    """Installed programs and libraries, without the files for development."""
    done = subprocess.run(["cmake", "--install", build, "--prefix", scratch], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"make_deb: nothing to install in {build}: run `make deb`\n{done.stderr}")
    for name in ("lib/cmake", "include"):
        shutil.rmtree(scratch / name)
    (scratch / "lib" / "liblockstep.a").unlink()
    if not cuda:
        (scratch / "lib" / "liblockstep_cuda.so").unlink(missing_ok=True)
    return sorted(path for path in scratch.rglob("*") if path.is_file() and is_elf(path))


def fill(tree, own, libraries, site, arrow):
    """Places all files below `tree`; returns the programs and libraries."""
    folder = tree / PREFIX
    (folder).mkdir(parents=True)
    shutil.move(own, folder / "lockstep")
    relocate(folder / "lockstep", site / "torch", arrow)
    for library in libraries:
        place = folder / place_of(library, site, arrow)
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(library.resolve(), place)  # avoids copying half a gigabyte
        except OSError:
            shutil.copy(library.resolve(), place)
    (tree / "usr" / "bin").mkdir()
    (tree / "usr" / "bin" / "lockstep").symlink_to("../lib/lockstep/lockstep/bin/lockstep")
    papers = tree / "usr" / "share" / "doc" / "lockstep"
    papers.mkdir(parents=True)
    for name in ("README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, papers / name)
    return sorted(path for path in folder.rglob("*") if path.is_file() and is_elf(path))


def make(build, output, cuda=False, plan=False):
    cache = cache_of(build)
    site, arrow = pathlib.Path(cache["LIBTORCH"]).parent, pathlib.Path(cache.get("ARROW", ""))
    if cache["LIBTORCH"] != str(site / "torch"):
        raise SystemExit(f"make_deb: the folder of libtorch, {cache['LIBTORCH']}, must be named torch: set LIBTORCH=.../torch")
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output) as scratch:  # on the same file system, for hard links
        tree, own = pathlib.Path(scratch) / "tree", pathlib.Path(scratch) / "own"
        tree.mkdir(mode=0o755)
        programs = programs_of(build.resolve(), own, cuda)
        libraries, missing = closure(programs, library_folders(site, arrow))
        if missing:
            raise SystemExit(f"make_deb: not in {site}: {', '.join(sorted(missing))}\n"
                             "set up with LOCKSTEP_CUDA=1, or make the package without --cuda")
        if plan:
            for file in [*programs, *sorted(libraries.values())]:
                print(f"{file.stat().st_size / 2**20:8.1f} MiB  {file.name}")
            return None
        files = fill(tree, own, libraries.values(), site, arrow)
        text = control(version_of(cache), files)
        (tree / "DEBIAN").mkdir()
        (tree / "DEBIAN" / "control").write_text(text)
        architecture = text.split("Architecture: ")[1].split("\n")[0]
        result = output / f"lockstep_{version_of(cache)}_{architecture}.deb"
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Zzstd", "-z3", "--build", tree, result],
                       check=True, stdout=subprocess.DEVNULL)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "dist")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--plan", action="store_true")
    options = parser.parse_args()
    result = make(options.build, options.output, options.cuda, options.plan)
    if result:
        print(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
