"""Faults of the soak. Each is a function that injects one fault into a job and returns what must happen to the job."""

import errno
import os
import pathlib
import resource
import signal
import socket
import subprocess
import time

import flips
from harness import PROGRAM, environment, wait_for

GOES_ON = "goes on"          # no process may end
RESTARTS = "restarts"        # the job restarts by itself
ENDS = "ends"                # the launcher is lost, and the soak starts it again


def kill(job, random):
    """Kills a rank, as the kernel, an invalid pointer or an assertion would."""
    os.kill(job.some_rank(random), random.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM]))
    return RESTARTS


def kill_all(job, random):
    """Kills every rank within the same millisecond."""
    for pid in job.ranks().values():
        os.kill(pid, signal.SIGKILL)
    return RESTARTS


def stop(job, random):
    """Stops a rank for half a second to a minute, mostly for seconds. The launcher must name it, and it must continue."""
    _pause(job, job.some_rank(random), 0.5 * 120 ** random.random())
    return GOES_ON


def stop_launcher(job, random):
    _pause(job, job.process.pid, random.uniform(0.5, 3))
    return GOES_ON


def kill_launcher(job, random):
    """Kills the launcher. No process remains to restart the job, so all processes must end within seconds."""
    job.unkept_folders += not job.is_kept
    os.kill(job.process.pid, signal.SIGKILL)
    return ENDS


def kill_keeper(job, random):
    """Kills the process that cleans up after a killed launcher. The job must not need it while the launcher lives."""
    keepers = [pid for pid in _children(job.process.pid) if _name(pid) == "lockstep-keeper"]
    job.expect(len(keepers) == 1, f"one keeper and not {keepers}")
    os.kill(keepers[0], signal.SIGKILL)
    job.is_kept = False
    return GOES_ON


def full_disk(job, random):
    """Fills the disk of output_dir until a save has failed. Skipped without permission to mount a file system."""
    if not job.own_disk:
        return None
    filler, ranks = job.output / "filler", set(job.ranks().values())
    with open(filler, "wb", buffering=0) as file:
        try:
            while file.write(bytes(1 << 16)):
                pass
        except OSError:
            pass
    try:
        wait_for(lambda: not ranks & set(job.ranks().values()), 60)
    finally:
        filler.unlink()
    return RESTARTS


def failing_disk(job, random):
    """Makes writes and syncs in output_dir fail until a save has failed."""
    if not job.world.is_there:
        return None
    ranks = set(job.ranks().values())
    with job.world.during(disk_errno=random.choice([errno.EIO, errno.EROFS, errno.EDQUOT])):
        wait_for(lambda: not ranks & set(job.ranks().values()), 60)
    return RESTARTS


def slow_disk(job, random):
    """Delays each write and sync in output_dir by up to 0.2 s for some seconds. Saves wait, and nothing is lost."""
    return _with(job, random, "disk_delay_us", random.randrange(20_000, 200_000))


def slow_links(job, random):
    """Delays all data sent over the network, as links with packet loss do."""
    return _with(job, random, "link_delay_us", random.randrange(10_000, 300_000))


def clock_jump(job, random):
    """Changes the wall clock permanently by up to a day in either direction."""
    if not job.world.is_there:
        return None
    job.world.set("clock_offset_s", random.randrange(-86_400, 86_400))
    return GOES_ON


def cut(job, random):
    """Truncates a file of the newest checkpoint, then kills a rank. The job must resume from the checkpoint before."""
    for folder in job.checkpoints()[:1]:
        try:
            file = random.choice([path for path in sorted(folder.iterdir()) if path.stat().st_size > 1])
            os.truncate(file, random.randrange(file.stat().st_size))
        except OSError:
            pass  # it was removed by save_total_limit in between
    os.kill(job.some_rank(random), signal.SIGKILL)
    return RESTARTS


def second_writer(job, random):
    """Starts another run in the same folder. It must be refused, and the first run must be undisturbed."""
    done = subprocess.run([PROGRAM, *map(str, job.training(1))], cwd=job.folder, capture_output=True, timeout=120,
                          env=environment(), text=True)
    job.expect(done.returncode == 3 and "output_dir" in done.stderr, f"a second writer ended with {done.returncode}: {done.stderr}")
    return GOES_ON


def strangers(job, random):
    """Sends garbage to every listening socket of the job, partly slowly, for half a second."""
    guests = []
    for family, address in _listening(job):
        for _ in range(10):
            guest = socket.socket(family, socket.SOCK_STREAM)
            guest.settimeout(0.2)
            try:
                guest.connect(address)
                guest.sendall(random.randbytes(random.choice([1, 30, 5000])))
                guests.append(guest)
            except OSError:
                guest.close()  # the connection was refused
    time.sleep(0.5)
    for guest in guests:
        guest.close()
    return GOES_ON


def descriptors(job, random):
    """Lowers a rank's limit of open files to the current number, so that its next save fails and ends the job."""
    pid = job.some_rank(random)
    taken = max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 1
    open_ones = set(map(int, os.listdir(f"/proc/{pid}/fd")))
    lowest = next(i for i in range(taken + 1) if i not in open_ones)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest, lowest))
    wait_for(lambda: pid not in job.ranks().values(), 120)
    return RESTARTS


def flip(job, random):
    """Flips a bit in a rank's memory, in table rows that no batch reads, so that only the comparison of replicas can detect it."""
    return _overwrite(job, random, lambda old: bytes([old[0] ^ 1 << random.randrange(8)]) + old[1:], used=False)


def nan(job, random):
    """Replaces a value in a rank's memory that every batch reads by NaN."""
    return _overwrite(job, random, lambda old: b"\0\0\xc0\x7f", used=True)


KINDS = [kill, kill_all, stop, stop_launcher, kill_launcher, kill_keeper, full_disk, failing_disk, slow_disk, slow_links, clock_jump, cut,
         second_writer, strangers, descriptors, flip, nan]


def _with(job, random, field, value):
    if not job.world.is_there:
        return None
    with job.world.during(**{field: value}):
        time.sleep(random.uniform(0.5, 3))
    return GOES_ON


def _overwrite(job, random, change, used):
    """Overwrites one value of the positions table in one of its copies in a rank's memory. A few saves must detect it, unless the copy is no
    longer read."""
    table = flips.table_of_positions(job.checkpoints()[0])
    untrained = len(table) // 2
    pid = job.some_rank(random)
    try:
        place = random.choice(flips.places_of(pid, table[untrained:])) - untrained
        place += 4 * random.randrange(untrained // 4) + (0 if used else untrained)
        with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            memory.seek(place)
            old = memory.read(4)
            memory.seek(place)
            memory.write(change(old))
    except (OSError, IndexError):
        return None  # the rank or the copy no longer exists
    last = job.step() + 15
    wait_for(lambda: pid not in job.ranks().values() or job.step() > last, 60)
    return GOES_ON if pid in job.ranks().values() else RESTARTS


def _pause(job, pid, seconds):
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)
        job.fault_over = time.monotonic()  # latencies are recorded from here on


def _name(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _children(pid):
    """All descendants of `pid`."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found += [int(folder.name), *_children(int(folder.name))]
    return found


def _listening(job):
    """(family, address) of the job's listening sockets: TCP, and Unix sockets in its folder."""
    inodes = set()
    for pid in [job.process.pid, *_children(job.process.pid)]:
        try:
            inodes |= {os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}
        except OSError:
            continue
    found = []
    for row in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = row.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
            host, port = words[1].split(":")
            found.append((socket.AF_INET, (socket.inet_ntoa(bytes.fromhex(host)[::-1]), int(port, 16))))
    for path in job.output.iterdir():
        if path.is_socket():
            found.append((socket.AF_UNIX, str(path)))
    return found
