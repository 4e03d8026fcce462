"""Reads and changes the parts of an ELF file's dynamic section that packaging needs: needed libraries, their search path, and symbol versions.

Supports only 64-bit little-endian files; uses only the Python standard library.
"""

import pathlib
import re
import struct

NULL, NEEDED, STRTAB, RPATH, RUNPATH = 0, 1, 5, 15, 29
PT_LOAD, PT_DYNAMIC = 1, 2


class Elf:
    """Bytes of a file; `save` writes them back."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.data = bytearray(self.path.read_bytes())
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is no 64-bit little-endian ELF file")
        offset, = struct.unpack_from("<Q", self.data, 32)
        size, count = struct.unpack_from("<HH", self.data, 54)
        segments = [struct.unpack_from("<IIQQQQ", self.data, offset + i * size) for i in range(count)]
        self.loads = [(address, place, length) for kind, _, place, address, _, length in segments if kind == PT_LOAD]
        self.entries = []
        for kind, _, place, _, _, length in segments:
            if kind == PT_DYNAMIC:
                self.entries = list(struct.iter_unpack("<qQ", self.data[place:place + length]))
        if NULL in (tag for tag, _ in self.entries):
            self.entries = self.entries[:[tag for tag, _ in self.entries].index(NULL)]

    def _place(self, address):
        for begin, place, length in self.loads:
            if begin <= address < begin + length:
                return place + address - begin
        raise ValueError(f"{self.path}: no segment contains {address:#x}")

    def _strings(self, *tags):
        """(offset, string) of the entries with these tags."""
        tables = [value for tag, value in self.entries if tag == STRTAB]
        found = []
        for tag, value in self.entries:
            if tag in tags:
                place = self._place(tables[0]) + value
                found.append((place, self.data[place:self.data.index(0, place)].decode()))
        return found

    def needed(self):
        """Names of the needed libraries."""
        return [text for _, text in self._strings(NEEDED)]

    def runpath(self):
        """Folders of the search path."""
        return [folder for _, text in self._strings(RPATH, RUNPATH) for folder in text.split(":") if folder]

    def set_runpath(self, folders):
        """Overwrites the search path with one that is not longer, as CMake does during installation."""
        text = ":".join(folders).encode()
        for place, old in self._strings(RPATH, RUNPATH):
            if len(text) > len(old):
                raise ValueError(f"{self.path}: {text.decode()!r} does not fit into {old!r}; link it with a longer RPATH")
            self.data[place:place + len(old)] = text.ljust(len(old), b"\0")
            return
        if folders:
            raise ValueError(f"{self.path} was linked without an RPATH and has no space for {text.decode()!r}")

    def newest(self, library):
        """Newest version of `library` ("GLIBC", "GLIBCXX") that the file requires, as numbers; () if it requires none."""
        found = re.findall(rb"\0" + library.encode() + rb"_([\d.]+)(?=\0)", bytes(self.data))
        return max((tuple(map(int, version.split(b"."))) for version in found), default=())

    def save(self):
        """Writes a new file under the same name; hard links and running programs keep the old one."""
        fresh = self.path.with_name(self.path.name + ".new")
        fresh.write_bytes(self.data)
        fresh.chmod(self.path.stat().st_mode)
        fresh.replace(self.path)
