"""Python interface to the Lockstep program and the location of its library.

    import lockstep
    lockstep.launch(["--nproc-per-node", "2", "train", "-c", "job.yaml"])

This package does not import torch. The program finds libtorch next to this package, or where Python finds torch.
"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

__version__ = "0.1.0"
# The version of torch that the programs are linked with. tools/make_wheel.py fills it in.
_TORCH_VERSION = ""
__all__ = ["Failure", "launch", "library_path", "libtorch_path", "program", "run"]

_FOLDER = pathlib.Path(__file__).resolve().parent

_MEANINGS = {
    1: "the run failed",
    2: "usage or configuration",
    3: "the machine or the network",
    4: "data, a model folder or a checkpoint",
    5: "memory ran out",
    6: "numbers diverged",
    7: "another rank or machine was lost",
    75: "stopped on request after a save; start it again with resume_from_checkpoint=true",
}


class Failure(RuntimeError):
    """Raised if the program exits with a code other than 0. `code` is the exit code, or 128 + N after signal N."""

    def __init__(self, code, arguments, meaning=None):
        self.code = code
        meaning = meaning or _MEANINGS.get(code, f"ended by signal {code - 128}" if code > 128 else "see docs/errors.md")
        super().__init__(f"`lockstep {' '.join(arguments)}` ended with {code}: {meaning}")


def program():
    """Returns the path of the `lockstep` program."""
    return str(_FOLDER / "bin" / "lockstep")


def library_path():
    """Returns the folder for CMAKE_PREFIX_PATH, in which find_package(lockstep) finds the library, headers and libtorch."""
    return str(_FOLDER)


def libtorch_path():
    """Returns the folder of the torch that the program uses, or None if Python finds none."""
    beside = _FOLDER.parent / "torch"
    if (beside / "lib" / "libtorch_cpu.so").exists():
        return str(beside)
    found = importlib.util.find_spec("torch")  # does not import it
    return str(pathlib.Path(found.origin).parent) if found and found.origin else None


def torch_problem():
    """Returns why the installed torch does not fit this package, or None. libtorch's C++ interface changes with each version."""
    folder = libtorch_path()
    remedy = f"run `pip install torch=={_TORCH_VERSION}`"
    if not _TORCH_VERSION:
        return None
    if folder is None:
        return f"this package requires torch {_TORCH_VERSION}, and no torch is installed: {remedy}"
    try:
        text = pathlib.Path(folder, "version.py").read_text()
    except OSError:
        return None
    # The local part of a version, as in 2.11.0+cu130, names only the builder.
    found = re.search(r"^__version__ = '([^'+]+)", text, re.M)
    if found is None or found[1] == _TORCH_VERSION:
        return None
    return f"this package requires torch {_TORCH_VERSION}, but torch {found[1]} is installed in {folder}: {remedy}"


def environment(base=None):
    """Returns `base`, or this process's environment, with LD_LIBRARY_PATH added if torch is not next to this package."""
    variables = dict(os.environ if base is None else base)
    torch = libtorch_path()
    if torch is not None and pathlib.Path(torch).parent != _FOLDER.parent:
        site = pathlib.Path(torch).parent
        folders = [pathlib.Path(torch, "lib"), *sorted(site.glob("nvidia/*/lib"))]
        before = variables.get("LD_LIBRARY_PATH")
        variables["LD_LIBRARY_PATH"] = ":".join([*map(str, folders), *([before] if before else [])])
    return variables


def run(arguments, check=True, **options):
    """Runs `lockstep ARGUMENTS...` and returns its exit code. `options` are passed to subprocess.run.

    Raises Failure if `check` is true and the exit code is not 0. The code is 3 if the installed torch does not fit.
    """
    words = [str(word) for word in arguments]
    if problem := torch_problem():
        if check:
            raise Failure(3, words, problem)
        print(f"lockstep: {problem}", file=sys.stderr)
        return 3
    options["env"] = environment(options.get("env"))
    done = subprocess.run([program(), *words], check=False, **options)
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    if check and code != 0:
        raise Failure(code, words)
    return code


def launch(arguments, check=True, **options):
    """Runs `lockstep launch ARGUMENTS...`; see `run`."""
    return run(["launch", *arguments], check=check, **options)
