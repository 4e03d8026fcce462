"""Lockstep from Python: its program, and where its library is.

    import lockstep
    lockstep.launch(["--nproc-per-node", "2", "train", "-c", "job.yaml"])

Nothing here imports torch: the program finds libtorch beside this package, or where Python finds it.
"""

import importlib.util
import os
import pathlib
import subprocess

__version__ = "0.1.0"
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
    75: "stopped on request after a save: start it again with resume_from_checkpoint=true",
}


class Failure(RuntimeError):
    """The program ended with another exit code than 0: `code` is that, or 128 + N after signal N."""

    def __init__(self, code, arguments):
        self.code = code
        meaning = _MEANINGS.get(code, f"ended by signal {code - 128}" if code > 128 else "see docs/errors.md")
        super().__init__(f"`lockstep {' '.join(arguments)}` ended with {code}: {meaning}")


def program():
    """The path of the program `lockstep`."""
    return str(_FOLDER / "bin" / "lockstep")


def library_path():
    """The folder for CMAKE_PREFIX_PATH: find_package(lockstep) finds library, headers and libtorch."""
    return str(_FOLDER)


def libtorch_path():
    """The folder of the torch that the program will use; None where Python finds none."""
    beside = _FOLDER.parent / "torch"
    if (beside / "lib" / "libtorch_cpu.so").exists():
        return str(beside)
    found = importlib.util.find_spec("torch")  # does not import it
    return str(pathlib.Path(found.origin).parent) if found and found.origin else None


def environment(base=None):
    """`base`, or this process's environment, with LD_LIBRARY_PATH where torch is not beside this package."""
    variables = dict(os.environ if base is None else base)
    torch = libtorch_path()
    if torch is not None and pathlib.Path(torch).parent != _FOLDER.parent:
        site = pathlib.Path(torch).parent
        folders = [pathlib.Path(torch, "lib"), *sorted(site.glob("nvidia/*/lib"))]
        before = variables.get("LD_LIBRARY_PATH")
        variables["LD_LIBRARY_PATH"] = ":".join([*map(str, folders), *([before] if before else [])])
    return variables


def run(arguments, check=True, **options):
    """`lockstep ARGUMENTS...`, to its end; returns its exit code. `options` are subprocess.run's.

    With `check` a code other than 0 is a Failure.
    """
    words = [str(word) for word in arguments]
    options["env"] = environment(options.get("env"))
    done = subprocess.run([program(), *words], check=False, **options)
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    if check and code != 0:
        raise Failure(code, words)
    return code


def launch(arguments, check=True, **options):
    """`lockstep launch ARGUMENTS...`: the same of the launcher."""
    return run(["launch", *arguments], check=check, **options)
