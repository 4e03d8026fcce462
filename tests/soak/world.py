"""Simulated system of a run (interposer.c): faults change its disk, its links and its clock."""

import contextlib
import mmap
import pathlib
import shutil
import struct
import subprocess

FIELDS = ["disk_delay_us", "disk_errno", "link_delay_us", "clock_offset_s", "counts", "operations", "first_failure", "last_failure",
          "failure"]  # in the order of interposer.c
PATH_MAX = 4096  # bytes of the path after the fields


class World:
    """`output` is the folder on the simulated disk. Without a C compiler `is_there` is false, and faults have no effect."""

    def __init__(self, folder, output):
        self.variables, library = {}, pathlib.Path(folder) / "interposer.so"
        compiler = shutil.which("cc") or shutil.which("gcc")
        self.is_there = compiler is not None
        if not self.is_there:
            return
        subprocess.run([compiler, "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library,
                        pathlib.Path(__file__).with_name("interposer.c"), "-ldl"], check=True)
        path = pathlib.Path(folder) / f"{output.name}.world"
        path.write_bytes(bytes(8 * len(FIELDS) + PATH_MAX))
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self.variables = {"LD_PRELOAD": str(library), "SOAK_WORLD": str(path), "SOAK_FOLDER": f"{output.resolve()}/"}

    def set(self, field, value):
        struct.pack_into("=q", self._memory, 8 * FIELDS.index(field), value)

    def get(self, field):
        return struct.unpack_from("=q", self._memory, 8 * FIELDS.index(field))[0]

    def failed_path(self):
        """Path of the first change that failed since the last call."""
        at = 8 * len(FIELDS)
        path = bytes(self._memory[at:]).partition(b"\0")[0].decode()
        self._memory[at:] = bytes(PATH_MAX)
        return path

    @contextlib.contextmanager
    def during(self, **fields):
        for field, value in fields.items():
            self.set(field, value)
        try:
            yield
        finally:
            for field in fields:
                self.set(field, 0)
