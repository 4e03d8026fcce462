"""A SLURM cluster of two nodes on this machine, for tests: munged, slurmctld and two slurmd processes, in a mount namespace whose /etc/hosts
names the nodes. All files are in one scratch folder; `close` ends all processes and removes it."""

import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PROGRAMS = ("slurmctld", "slurmd", "munged", "srun", "sbatch", "scontrol", "squeue", "unshare")

CONFIGURATION = """
ClusterName=lockstep
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
KillWait=10
SlurmctldTimeout=30
SlurmdTimeout=30
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=16000 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=16000 State=UNKNOWN
PartitionName=low Nodes=n1,n2 Default=YES PriorityTier=1 GraceTime=20 OverSubscribe=NO State=UP
PartitionName=high Nodes=n1,n2 PriorityTier=9 OverSubscribe=NO State=UP
"""


def obstacle():
    """Reason why this machine cannot run a cluster; None if it can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: slurm-wlm and munge)"
    return None if os.geteuid() == 0 else "starting slurmd requires root"


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Cluster:
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-slurm-"))
        self.folder.chmod(0o755)
        self.daemons = []
        self.configuration = self.folder / "slurm.conf"
        self.configuration.write_text(
            CONFIGURATION.format(folder=self.folder, host=socket.gethostname().split(".")[0], ports=free_ports(3)))
        for name in ("state", "spool-n1", "spool-n2"):
            (self.folder / name).mkdir()
        hosts = self.folder / "hosts"
        hosts.write_text(pathlib.Path("/etc/hosts").read_text() + "\n127.0.0.1 n1 n2\n")
        # Only commands that run in this namespace resolve the nodes' names.
        self.inside = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                       f'mount --bind {hosts} /etc/hosts && exec "$@"', "sh"]
        self.environment = {**os.environ, "SLURM_CONF": str(self.configuration)}
        try:
            self.start()
        except Exception:
            self.close()
            raise

    def daemon(self, *command):
        log = (self.folder / f"{pathlib.Path(command[0]).name}-{len(self.daemons)}.out").open("w")
        self.daemons.append(subprocess.Popen(
            [*self.inside, *map(str, command)], env=self.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            start_new_session=True))
        log.close()

    def start(self):
        munge = self.folder / "munge"
        munge.mkdir(mode=0o755)
        key = munge / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        user = pwd.getpwuid(os.geteuid()).pw_name
        self.daemon("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.socket",
                    f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        self.wait(lambda: (self.folder / "munge.socket").exists(), f"munged did not start as {user}")
        self.daemon("slurmctld", "-D", "-i")
        for node in ("n1", "n2"):
            self.daemon("slurmd", "-D", "-N", node)
        self.wait(lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D", check=False).strip() == "2",
                  "the nodes did not become idle", seconds=40)

    def wait(self, condition, problem, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                return
            time.sleep(0.1)
        raise AssertionError(f"{problem() if callable(problem) else problem}\n{self.logs()}")

    def logs(self):
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}"
                         for path in sorted(self.folder.glob("*.log")) + sorted(self.folder.glob("*.out")))

    def run(self, *command, check=True, **options):
        """Runs a client command; returns its stdout."""
        options.setdefault("env", self.environment)
        done = subprocess.run([*self.inside, *map(str, command)], capture_output=True, text=True, timeout=120, check=False, **options)
        if check and done.returncode != 0:
            raise AssertionError(f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.logs()}")
        return done.stdout

    def job(self, number):
        """Fields of `scontrol show job`."""
        text = self.run("scontrol", "-o", "show", "job", number)
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def wait_for(self, number, *states, seconds=60):
        """Waits until the job is in one of these states; returns its fields."""
        found = {}

        def arrived():
            found.update(self.job(number))
            return found["JobState"] in states
        self.wait(arrived, f"job {number} did not become {states}", seconds)
        return found

    def processes(self):
        """Running processes of the cluster and its jobs, whose environment contains its configuration."""
        mark, found = f"SLURM_CONF={self.configuration}".encode(), []
        for folder in pathlib.Path("/proc").iterdir():
            try:
                if folder.name.isdigit() and mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

    def close(self):
        subprocess.run([*self.inside, "scancel", "--full", "--user=root"], env=self.environment, capture_output=True,
                       timeout=60, check=False)
        end = time.monotonic() + 15
        while len(self.processes()) > len(self.daemons) and time.monotonic() < end:
            time.sleep(0.1)
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons:
            try:
                daemon.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait()
        for pid in self.processes():  # the next cluster starts its job numbers at 1, and ports depend on them
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        shutil.rmtree(self.folder, ignore_errors=True)
