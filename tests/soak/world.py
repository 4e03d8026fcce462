"""Simulated system of the soak (interposer.c): faults change its disk, its links and its clock."""

import contextlib
import mmap
import pathlib
import shutil
import struct
import subprocess

FIELDS = ["disk_delay_us", "disk_errno", "link_delay_us", "clock_offset_s"]  # in the order of interposer.c


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
        path.write_bytes(bytes(8 * len(FIELDS)))
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 8 * len(FIELDS))
        self.variables = {"LD_PRELOAD": str(library), "SOAK_WORLD": str(path), "SOAK_FOLDER": f"{output.resolve()}/"}

    def set(self, field, value):
        struct.pack_into("=q", self._memory, 8 * FIELDS.index(field), value)

    @contextlib.contextmanager
    def during(self, **fields):
        for field, value in fields.items():
            self.set(field, value)
        try:
            yield
        finally:
            for field in fields:
                self.set(field, 0)
