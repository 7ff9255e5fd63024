"""The card beside what ddprun says of it: checks ask nvidia-smi, or in a twin a stand-in that reads the fake driver's file."""

import json
import os
import subprocess

from gpu_bed import DDPRUN, FAKE_GPU, ON_GPU, PATIENCE, GpuCase, nvidia_smi

from fake_machine import regular

WHOLE_GPU = FAKE_GPU + ";compute=9.0;ecc=1;corrected=0;uncorrected=0;remap_pending=0;persistence=1;mig=0"


def number(text):
    """The number in nvidia-smi's text; 0 for "[N/A]"."""
    return float(text) if text.replace(".", "", 1).isdigit() else 0


class Machine:
    """This machine, with GPUs in /proc and /sys, for processes in a mount namespace of their own."""

    def __init__(self, folder, gpus):
        self.folder = folder
        regular(1, 1, 1, 1, 1, gpus=[0] * gpus).write(folder)

    def command(self, _host, command):
        """The same as Cluster.command() (tests/support/cluster.py)."""
        own = ["--user", "--map-root-user"] if os.geteuid() else []
        script = ('mount --bind "$0/proc/driver" /proc/driver && '
                  'mount --bind "$0/sys/bus/pci/devices" /sys/bus/pci/devices && exec "$@"')
        return ["unshare", *own, "--mount", "sh", "-c", script, self.folder, *command]


class CardCase(GpuCase):
    """A twin's card is WHOLE_GPU, until a case says otherwise."""

    def setUp(self):
        super().setUp()
        if ON_GPU:
            # This case asks which GPUs are seen: no choice is set before.
            self.bed.environment.pop("CUDA_VISIBLE_DEVICES", None)
            return
        self.cards(WHOLE_GPU)
        self.use_fake_smi()

    def cards(self, *lines):
        """Sets a twin's cards; on a GPU, the real ones stay."""
        if not ON_GPU:
            self.bed.environment.update(self.fake_gpu(*lines))

    def machine(self, gpus):
        """The machine for bed.run's `host`: in a twin one with so many GPUs; None: this one."""
        if ON_GPU:
            return None
        self.cards(*[WHOLE_GPU.replace("GPU-aa", f"GPU-aa{gpu}") for gpu in range(gpus)])
        folder = self.bed.path(f"machine{gpus}")
        self.bed.cluster = Machine(folder, gpus)
        tried = subprocess.run(self.bed.cluster.command("here", ["true"]), capture_output=True, text=True, check=False)
        if tried.returncode != 0:
            self.skipTest(f"no mount namespaces here: {tried.stderr.strip()}")
        return "here"

    def run_ddprun(self, *words, status=0):
        """What `ddprun words…` prints; `status` None: any."""
        result = subprocess.run([DDPRUN, *map(str, words)], env=self.bed.environment, stdin=subprocess.DEVNULL,
                                capture_output=True, text=True, timeout=PATIENCE, check=False)
        if status is not None:
            self.assertEqual(status, result.returncode, result.stdout + result.stderr)
        return result

    def run_json(self, *words, status=0):
        return json.loads(self.run_ddprun(*words, "--json", status=status).stdout)

    def card(self, *fields):
        """What nvidia-smi says of the first GPU, by field."""
        return dict(zip(fields, nvidia_smi(*fields)[0]))
