"""A real Slurm on hosts made of namespaces: slurmctld on the last host, a slurmd on each of the others.

Everything is private: its own munge key and socket, state and ports; it ends with the test program.
"""

import glob
import os
import re
import shutil
import signal
import subprocess
import time

from bed import PATIENCE
from timeline import Process, TimelineError, wait_readable

PROGRAMS = ("slurmctld", "slurmd", "munged", "srun", "sbatch", "scontrol", "squeue", "sinfo")
# A silent node is down after NODE_TIMEOUT seconds; Slurm's default is 300. slurmctld pings all nodes at each third of it, and
# takes the others' answers only when the silent node's ping has ended, after MESSAGE_TIMEOUT: 4 + 5 s, or all of them are down.
NODE_TIMEOUT = 12
MESSAGE_TIMEOUT = 5

_CONF = """
ClusterName=test
SlurmctldHost=n{last}
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SwitchType=switch/none
SlurmdParameters=config_overrides
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=100000,batch_sched_delay=0
ReturnToService=2
InactiveLimit=0
KillWait=5
MinJobAge=300
SlurmctldTimeout=30
SlurmdTimeout={timeout}
MessageTimeout={message_timeout}
Waittime=0
JobRequeue=1
GresTypes=gpu
NodeName=DEFAULT CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=500 Gres=gpu:2
NodeName={name}[1-{nodes}] NodeAddr=10.77.0.[1-{nodes}] NodeHostname=n[1-{nodes}]
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not():
    """Why Slurm can't run here; '' when it can, as far as one sees before."""
    os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"no Slurm here: {', '.join(missing)} not installed (scripts/setup installs them)"
    if os.geteuid() != 0:
        return "no Slurm here: slurmd and munged want root"
    return ""


class Slurm:
    """Nodes n1 … n`nodes` of a cluster.Cluster, which has one host more for slurmctld. With another `name` the nodes have
    one that only Slurm knows, as in clouds.

    Errors: TimelineError when a daemon doesn't come up, with its log.
    """

    def __init__(self, cluster, nodes, folder, name="n"):
        self.cluster, self.nodes, self.folder, self.name = cluster, nodes, folder, name
        self.environment = {**{name: value for name, value in os.environ.items() if not name.startswith("SLURM_")},
                            "SLURM_CONF": os.path.join(folder, "slurm.conf")}
        self._daemons = {}
        for made in ("state", "munge", *(f"spool/{name}{i}" for i in range(1, nodes + 1))):
            os.makedirs(os.path.join(folder, made))
        self._write("slurm.conf", _CONF.format(last=nodes + 1, nodes=nodes, folder=folder, timeout=NODE_TIMEOUT,
                                            message_timeout=MESSAGE_TIMEOUT, name=name))
        self._write("gres.conf", f"NodeName={name}[1-{nodes}] Name=gpu File=/dev/tty[1-2]\n")
        self._start_munge()
        self._start("slurmctld", nodes + 1, ["slurmctld", "-D", "-c"])
        for i in range(1, nodes + 1):
            self.start_node(i)
        self.until(lambda: len(re.findall("^idle", self.ask("sinfo", "-h", "-N", "-o", "%T"), re.MULTILINE)) == nodes,
                   "all nodes idle")

    def _write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as sink:
            sink.write(text)

    def _start_munge(self):
        folder = os.path.join(self.folder, "munge")
        os.chmod(folder, 0o755)
        with open(os.path.join(folder, "key"), "wb") as sink:
            sink.write(os.urandom(256))
        os.chmod(os.path.join(folder, "key"), 0o600)
        files = [f"--{option}-file={folder}/{option}" for option in ("key", "pid", "log", "seed")]
        self._start("munged", None, ["munged", "--foreground", "--force", f"--socket={folder}/socket", *files])
        self.until(lambda: os.path.exists(f"{folder}/socket"), "munged's socket")

    def _start(self, name, host, command):
        command = command if host is None else self.cluster.command(host, command)
        self._daemons[name] = Process(name, command, output=os.path.join(self.folder, f"{name}.out"), env=self.environment,
                                      cwd=self.folder, start_new_session=True)

    def start_node(self, i):
        self._start(f"slurmd{i}", i, ["slurmd", "-D", "-N", f"{self.name}{i}"])

    # ---------------------------------------------------------------- asking

    def until(self, condition, what, timeout=None):
        """condition()'s first true value. Slurm reports no events, so it is asked again and again."""
        deadline = time.monotonic() + (timeout or PATIENCE)
        read, write = os.pipe()
        try:
            while True:
                value = condition()
                if value:
                    return value
                if time.monotonic() > deadline:
                    raise TimelineError(f"not within {timeout or PATIENCE:g} s: {what}\n{self.story()}")
                wait_readable(read, 0.1)  # nobody writes
        finally:
            os.close(read)
            os.close(write)

    def ask(self, *command):
        """What a command of Slurm printed on the controller's host, whether or not it worked."""
        result = subprocess.run(self.cluster.command(self.nodes + 1, list(command)), env=self.environment, cwd=self.folder,
                                capture_output=True, text=True, check=False)
        return result.stdout + result.stderr

    def submit(self, script, *options, env=None):
        """The number of the job that runs the script's text."""
        path = os.path.join(self.folder, f"script-{time.monotonic_ns()}.sh")
        with open(path, "w", encoding="utf-8") as sink:
            sink.write(script)
        result = subprocess.run(self.cluster.command(self.nodes + 1, ["sbatch", "--parsable", *options, path]),
                                env={**self.environment, **(env or {})}, cwd=self.folder, capture_output=True, text=True,
                                check=False)
        if result.returncode != 0:
            raise TimelineError(f"sbatch: {result.stderr}")
        return result.stdout.strip()

    def fact(self, job, name):
        """A field of scontrol show job; None = the job isn't known, or has no such field."""
        found = re.search(rf"\b{name}=(\S*)", self.ask("scontrol", "show", "job", job))
        return found.group(1) if found else None

    def wait_state(self, job, *states, timeout=None):
        return self.until(lambda: self.fact(job, "JobState") in states and self.fact(job, "JobState"),
                          f"job {job} in state {' or '.join(states)}", timeout)

    def output(self, job):
        path = os.path.join(self.folder, f"slurm-{job}.out")
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8", errors="replace") as source:
            return source.read()

    # ---------------------------------------------------------------- faults

    def processes_of(self, i):
        """Every process of host i, by its network namespace."""
        space = os.stat(os.path.join("/mnt", f"n{i}")).st_ino
        found = []
        for path in glob.glob("/proc/[0-9]*"):
            try:
                if os.stat(f"{path}/ns/net").st_ino == space:
                    found.append(int(os.path.basename(path)))
            except OSError:
                pass
        return found

    def kill_node(self, i):
        """The host loses its power: nothing is said on the network, and nothing is left of its processes."""
        self.cluster.pull_cable(i)
        for _ in range(3):  # those that were being started meanwhile
            for pid in self.processes_of(i):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    # ---------------------------------------------------------------- ending

    def story(self):
        text = [self.ask("sinfo", "-N"), self.ask("squeue")]
        for path in sorted(glob.glob(f"{self.folder}/*.log") + glob.glob(f"{self.folder}/*.out")):
            with open(path, encoding="utf-8", errors="replace") as source:
                text.append(f"---- {os.path.basename(path)}\n" + "".join(source.readlines()[-30:]))
        return "\n".join(text)

    def close(self):
        self.ask("scancel", "--full", "--signal=KILL", "--user=root")
        for i in range(1, self.nodes + 1):
            self.kill_node(i)
        for daemon in self._daemons.values():
            daemon.close()
        self.cluster.heal()
        shutil.rmtree(self.folder, ignore_errors=True)
