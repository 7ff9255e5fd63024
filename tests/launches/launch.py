"""A launch, as plain values: what it says to the launcher, where it runs, and what its workers do.

A Launch becomes a shell script for each agent (`scripts()`), which is what runs and what a failed test prints. Each field has
a plain value; a smaller launch is one with more plain values.
"""

import copy
import json
import os
import shlex

HERE = os.path.dirname(os.path.abspath(__file__))
WORKER = os.path.join(HERE, "worker.py")

# What this machine is called and where it is reached, within a lane.
HOST = "box"
ADDRESSES = {"lan4": "10.88.0.2", "lan6": "fd00:88::2", "translated": "203.0.113.7", "hostname": HOST,
             "domain": f"{HOST}.example"}
# What its host name means: lines of /etc/hosts.
MEANINGS = {"lan4": [ADDRESSES["lan4"]], "lan6": [ADDRESSES["lan6"]], "debian": ["127.0.1.1"], "loopback": ["127.0.0.1"],
            "both": [ADDRESSES["lan6"], ADDRESSES["lan4"]], "nothing": []}

PLAIN = {
    "agents": 1,  # ddprun's of the job, all on this machine
    "nnodes": "",  # "" = not said, "N" or "MIN:MAX"
    "nproc": 1,
    "nproc_second": 0,  # workers of the second agent; 0 = as many
    "rendezvous": "none",  # none, standalone, static, c10d, etcd
    "by": "master",  # static: which options name address and port: master_addr and master_port, or the endpoint
    "address": "",  # what is said for it: "" = nothing, a key of ADDRESSES, or the text itself
    "port": "given",  # given, default, zero
    "local_addr": "",
    "is_host": False,  # is_host=1 for the first agent, 0 for the second
    "host_is": "lan4",  # a key of MEANINGS
    "program": "script",  # a key of PROGRAMS
    "arguments": [],
    "options": [],  # [name, value] of others; the value of a flag is true
    "spelled": {},  # {option: how}, else "--name_of_it value"
    "around": [],  # keys of AROUND
    "deed": "well",
    "doer": 0,  # rank; -1: all
    "amount": 0,
    "others": "end",
    "lines": 3,
    "restarts": 0,
}
SPELLINGS = ("blank", "equals", "dash", "dash_equals", "variable", "file", "short", "abbreviated", "twice", "over_variable")
_FLAGS = ("standalone", "module", "no_python", "run_path", "virtual_local_rank")
_SHORT = {"redirects": "-r", "tee": "-t", "module": "-m"}
# Prefixes that are torchrun's options alone.
_ABBREVIATED = {"nnodes": "nno", "nproc_per_node": "nproc-p", "standalone": "standal", "max_restarts": "max-r",
                "node_rank": "node-r", "master_addr": "master-a", "master_port": "master_p", "rdzv_endpoint": "rdzv-e",
                "rdzv_backend": "rdzv_b", "rdzv_id": "rdzv-i", "rdzv_conf": "rdzv-c", "local_addr": "local-a",
                "module": "modu", "no_python": "no-p", "run_path": "run-p", "log_dir": "log-d", "role": "rol",
                "redirects": "redir", "tee": "te", "monitor_interval": "monitor-i", "virtual_local_rank": "virtual-l"}
# Another value, which the one that counts must win over.
_ANOTHER = {"nnodes": "7", "nproc_per_node": "5", "max_restarts": "9", "node_rank": "3", "master_addr": "198.51.100.1",
            "master_port": "1", "rdzv_endpoint": "198.51.100.1:1", "rdzv_id": "another", "role": "another", "tee": "0",
            "redirects": "0", "log_dir": "/nonexistent/logs", "local_addr": "198.51.100.1", "monitor_interval": "9"}

# How the program is given: (options, words before the arguments, lines of the shell that make it). A word that begins with @ is
# a path in the folder of the launch.
PROGRAMS = {
    "script": ([], ["@train.py"], ['cp "$WORKER" train.py']),
    "absolute": ([], ["@train.py"], ['cp "$WORKER" train.py']),
    "blanks": ([], ["@my folder/train it.py"], ["mkdir -p 'my folder'", 'cp "$WORKER" "my folder/train it.py"']),
    "dots": ([], ["@./sub/../train.py"], ["mkdir -p sub", 'cp "$WORKER" train.py']),
    "link": ([], ["@link.py"], ['cp "$WORKER" train.py', "ln -sf train.py link.py"]),
    "no_suffix": ([], ["@train"], ['cp "$WORKER" train']),
    "executable": ([], ["@train"], ['cp "$WORKER" train', "chmod +x train"]),
    "accents": ([], ["@entraîné.py"], ['cp "$WORKER" entraîné.py']),
    "returns": ([], ["@train.py"], ['sed "s/\\$/\\r/" "$WORKER" > train.py']),
    "mark": ([], ["@train.py"], ['{ printf "\\357\\273\\277"; sed 1d "$WORKER"; } > train.py']),
    "folder": ([], ["@app"], ["mkdir -p app", 'cp "$WORKER" app/__main__.py']),
    "zip": ([], ["@app.zip"], ['cp "$WORKER" __main__.py', 'python3 -m zipfile -c app.zip __main__.py']),
    "compiled": ([], ["@train.pyc"], [
        "python3 -c 'import os, py_compile; py_compile.compile(os.environ[\"WORKER\"], cfile=\"train.pyc\", doraise=True)'"]),
    "module": ([["module", True]], ["train"], ['cp "$WORKER" train.py']),
    "package": ([["module", True]], ["pkg.train"], ["mkdir -p pkg", ": > pkg/__init__.py", 'cp "$WORKER" pkg/train.py']),
    "package_main": ([["module", True]], ["pkg"], ["mkdir -p pkg", 'cp "$WORKER" pkg/__main__.py']),
    "no_python": ([["no_python", True]], ["python3", "-u", "@train.py"], ['cp "$WORKER" train.py']),
    "program": ([["no_python", True]], ["@./train"], ['cp "$WORKER" train', "chmod +x train"]),
    "shell": ([["no_python", True]], ["@./train.sh"], [
        "printf '#!/bin/sh\\nexec python3 \"$WORKER\" \"$@\"\\n' > train.sh", "chmod +x train.sh"]),
    "shell_waits": ([["no_python", True]], ["bash", "@train.sh"], [
        "printf 'python3 \"$WORKER\" \"$@\"\\nexit $?\\n' > train.sh"]),
    "run_path": ([["run_path", True]], ["@train.py"], ['cp "$WORKER" train.py']),
    "run_path_folder": ([["run_path", True]], ["@app"], ["mkdir -p app", 'cp "$WORKER" app/__main__.py']),
    "stdin": ([], ["-"], []),
    "dev_stdin": ([], ["/dev/stdin"], []),
    "env": ([["no_python", True]], ["env", "-u", "NOTHING", "python3", "@train.py"], ['cp "$WORKER" train.py']),
    "inline": ([["no_python", True]], ["sh", "-c", 'exec python3 "$WORKER" "$@"', "sh"], []),
    "above": ([], ["@sub/../../0/train.py"], ["mkdir -p sub", 'cp "$WORKER" train.py']),
    "odd_name": ([], ["@./-a=b %s 'c'.py"], ["cp \"$WORKER\" \"./-a=b %s 'c'.py\""]),
    "text": ([], ["@train.txt"], ['cp "$WORKER" train.txt']),
    "uv": ([], ["@train.py"], ["{ echo '#!/usr/bin/env -S uv run --script'; sed 1d \"$WORKER\"; } > train.py"]),
    "other_python": ([], ["@train.py"], ["{ echo '#!/opt/missing/bin/python2.7'; sed 1d \"$WORKER\"; } > train.py"]),
    "latin": ([], ["@train.py"], [
        "{ printf '#!/usr/bin/python3\\n# -*- coding: latin-1 -*-\\n# \\351\\n'; sed 1d \"$WORKER\"; } > train.py"]),
    "empty_lines": ([], ["@train.py"], ["{ printf '\\n\\n\\n'; cat \"$WORKER\"; } > train.py"]),
}
# Scripts that a shell and Python understand: (first lines, which hand over to Python).
POLYGLOTS = {
    "quoted_exec": "#!/bin/sh\n'''exec' python3 \"$0\" \"$@\"\n' '''\n",
    "string_exec": '#!/bin/sh\n"exec" "python3" "$0" "$@"\n',
    "env_bash": "#!/usr/bin/env bash\n'''exec' python3 \"$0\" \"$@\"\n' '''\n",
    "colon": '#!/bin/sh\n""":"\nexec python3 "$0" "$@"\n":"""\n',
}
for _name, _head in POLYGLOTS.items():
    PROGRAMS[_name] = ([], ["@train"], [f'{{ printf %s {shlex.quote(_head)}; sed 1d "$WORKER"; }} > train', "chmod +x train"])

_SLURM = {"SLURM_JOB_ID": "71", "SLURM_JOBID": "71", "SLURM_JOB_NAME": "train",
          "SLURM_JOB_NODELIST": HOST, "SLURM_NODELIST": HOST,
          "SLURM_JOB_NUM_NODES": "1", "SLURM_NNODES": "1", "SLURM_CPUS_ON_NODE": "2", "SLURM_NODEID": "0", "SLURM_PROCID": "0",
          "SLURM_LOCALID": "0", "SLURM_NTASKS": "1", "SLURM_TASKS_PER_NODE": "1", "SLURM_JOB_CPUS_PER_NODE": "2",
          "SLURMD_NODENAME": HOST, "SLURM_CLUSTER_NAME": "c", "SLURM_SUBMIT_DIR": "/"}
_STEP = {"SLURM_STEP_ID": "0", "SLURM_STEPID": "0", "SLURM_STEP_NODELIST": HOST, "SLURM_STEP_NUM_NODES": "1",
         "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_SRUN_COMM_HOST": HOST}
_TWO = {"SLURM_JOB_NODELIST": f"{HOST},other", "SLURM_NODELIST": f"{HOST},other", "SLURM_JOB_NUM_NODES": "2", "SLURM_NNODES": "2",
        "SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_JOB_CPUS_PER_NODE": "2(x2)", "SLURM_NTASKS": "2"}


def _exports(variables):
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


# What is around a launch: lines of the shell before it.
AROUND = {
    "stale": _exports({
        "RANK": "5", "LOCAL_RANK": "3", "WORLD_SIZE": "9", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "3",
        "ROLE_RANK": "5", "ROLE_WORLD_SIZE": "9", "ROLE_NAME": "old", "MASTER_ADDR": "198.51.100.9", "MASTER_PORT": "1",
        "TORCHELASTIC_RESTART_COUNT": "3", "TORCHELASTIC_MAX_RESTARTS": "9", "TORCHELASTIC_RUN_ID": "old",
        "TORCHELASTIC_USE_AGENT_STORE": "False"}),
    "stale_master": _exports({"MASTER_ADDR": ADDRESSES["lan4"], "MASTER_PORT": "29611"}),
    "slurm_batch": _exports(_SLURM),
    "slurm_step": _exports({**_SLURM, **_STEP}),
    "slurm_batch_of_two": _exports({**_SLURM, **_TWO}),
    "pod": _exports({"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443", "HOSTNAME": "train-0"}),
    "no_home": ["unset HOME"],
    "false_home": ["export HOME=/nonexistent"],
    "no_input": [],
    "no_output": [],
    "no_error": [],
    "few_files": ["ulimit -n 128"],
    "no_core": ["ulimit -c 0"],
    "small_stack": ["ulimit -s 1024"],
    "small_files": ["ulimit -f 20000"],
    "umask": ["umask 077"],
    "gone": ["mkdir gone", "cd gone", "rmdir ../gone"],
    "threads": _exports({"OMP_NUM_THREADS": "3"}),
    "c_locale": _exports({"LC_ALL": "C", "LANG": "C"}),
    "no_gpus": _exports({"CUDA_VISIBLE_DEVICES": ""}),
    "safe_path": _exports({"PYTHONSAFEPATH": "1"}),
    "isolated_tmp": ["mkdir -p /tmp/'t m p'", "export TMPDIR=/tmp/'t m p'"],
    "long_tmp": [f"mkdir -p /tmp/{'t' * 140}", f"export TMPDIR=/tmp/{'t' * 140}"],
    "runtime": ["mkdir -p /tmp/runtime", "export XDG_RUNTIME_DIR=/tmp/runtime"],
    "no_runtime": ["export XDG_RUNTIME_DIR=/nonexistent"],
    "ignores": ["trap '' HUP INT QUIT"],
    "ignores_children": ["trap '' CHLD"],
    "odd_variables": ["export BLANKS='a  b' LINES_OF_TWO='one\ntwo' EMPTY= DOLLAR='$x ${local_rank} $$'",
                      "export BYTES=$(printf 'x\\377y')"],
    "large_variable": ['export LARGE=$(printf %100000s x)'],
    "no_proxy": _exports({"http_proxy": "http://198.51.100.1:3128", "https_proxy": "http://198.51.100.1:3128",
                          "grpc_proxy": "http://198.51.100.1:3128", "all_proxy": "http://198.51.100.1:3128"}),
    "job_control": ["set -m"],
    "many_files": ["ulimit -n 1048576 || :"],
    "little_memory": ["ulimit -v 4000000"],
    "little_locked": ["ulimit -l 64"],
    "no_path": ["unset PATH"],
    "warnings": _exports({"PYTHONWARNINGS": "error", "PYTHONDEVMODE": "1"}),
    "optimized": _exports({"PYTHONOPTIMIZE": "2"}),
    "own_site": ["mkdir -p \"$HERE/site\"",
                 "echo 'import os; os.environ[\"OWN_SITE\"] = \"seen\"' > \"$HERE/site/sitecustomize.py\"",
                 'export PYTHONPATH="$HERE/site${PYTHONPATH:+:$PYTHONPATH}"'],
    "neighbours": ["for name in torch ddprun numpy yaml accelerate; do echo 'raise SystemExit(55)' > \"$HERE/$name.py\"; done"],
    "linked_folder": ['ln -s "$HERE" "$HERE.link"', 'cd "$HERE.link"'],
    "stale_pwd": ["export PWD=/nonexistent OLDPWD=/nonexistent"],
    "no_tmp": ["export TMPDIR=/nonexistent"],
    "relative_tmp": ["mkdir -p tmp", "export TMPDIR=tmp"],
    "more_descriptors": ['exec 7<"$WORKER" 8>/dev/null 9>"$HERE/lock"'],
    "oom_first": ["echo 500 > /proc/$$/oom_score_adj"],
    "by_link": [], "by_name": [], "nice": [], "session": [], "one_processor": [], "timeout": [], "nohup": [], "background": [],
    "piped": [], "one_pipe": [], "one_file": [], "terminal": [],
}
_WRAPPERS = {"nice": "nice -n 5", "session": "setsid -w", "one_processor": "taskset -c 0", "timeout": "timeout 100",
             "nohup": "nohup", "background": "sh -c '\"$@\" & wait $!' sh", "piped": "bash -o pipefail -c '\"$@\" | cat' bash",
             "one_pipe": "bash -o pipefail -c '\"$@\" 2>&1 | cat' bash"}
# Places where stdout and stderr are one stream.
MERGED = ("one_pipe", "one_file", "terminal")
_CLOSED = {"no_input": "<&-", "no_output": ">&-", "no_error": "2>&-", "one_file": "2>&1"}

ODD_ARGUMENTS = ("--lr", "0.1", "a b", "", "$x", "${local_rank}", "$$y", "--help", "-m", "é", "*", "quote'\"", "two\nlines",
                 "-c",
                  "--nproc_per_node", "=", "--x=--y", "a -- b")


class Launch:
    """One launch; its fields are those of PLAIN."""

    def __init__(self, **fields):
        unknown = set(fields) - set(PLAIN)
        if unknown:
            raise ValueError(f"no field of a launch: {', '.join(sorted(unknown))}")
        self.__dict__.update(copy.deepcopy(PLAIN))
        self.__dict__.update(fields)

    def changed(self, **fields):
        return Launch(**{**copy.deepcopy(self.__dict__), **fields})

    def text(self):
        """What isn't plain, as JSON."""
        return json.dumps({name: value for name, value in self.__dict__.items() if value != PLAIN[name]})

    def __eq__(self, other):
        return self.__dict__ == other.__dict__

    # ---------------------------------------------------------------- the workers

    def workers_of(self, agent):
        return self.nproc_second if agent == 1 and self.nproc_second else self.nproc

    @property
    def world(self):
        return sum(self.workers_of(agent) for agent in range(self.agents))

    @property
    def attempts(self):
        """How often the workers are started."""
        if self.deed == "once":
            return 1 + min(self.amount, self.restarts)
        return 1 + self.restarts if self.fails else 1

    @property
    def fails(self):
        """Whether each attempt ends with a worker's failure."""
        if self.deed == "once":
            return self.amount > self.restarts
        return self.deed in ("raise", "signal", "text", "records", "deaf") or (
            self.deed in ("exit", "os_exit", "segment", "execs") and self.amount % 256 != 0)

    @property
    def status(self):
        """The exit status that the workers deserve (as torchrun: 1 for any failure)."""
        return 1 if self.fails else 0

    def plan(self, journal, patience):
        return {"deed": self.deed, "doer": self.doer, "amount": self.amount, "others": self.others, "lines": self.lines,
                "journal": journal, "patience": patience}

    # ---------------------------------------------------------------- the words

    def host_of_address(self):
        return ADDRESSES.get(self.address, self.address)

    def said_of_rendezvous(self, agent, ports):
        """[name, value] of the options that let the agents meet."""
        if self.rendezvous == "standalone":
            return [["standalone", True]]
        host = self.host_of_address()
        bracketed = f"[{host}]" if ":" in host else host
        if self.rendezvous == "static":
            said = [["node_rank", str(agent)]] if self.agents > 1 else []
            if self.by == "endpoint":
                return [*said, ["rdzv_backend", "static"], ["rdzv_endpoint", f"{bracketed}:{ports['job']}"]]
            said += [["master_addr", host]] if host else []
            return said + ([["master_port", str(ports["job"])]] if self.port == "given" else [])
        if self.rendezvous in ("c10d", "etcd"):
            port = {"given": f":{ports['job']}", "default": "", "zero": ":0"}[self.port]
            endpoint = ports.get("etcd", "") if self.rendezvous == "etcd" else f"{bracketed}{port}"
            said = [["rdzv_backend", self.rendezvous], *([["rdzv_endpoint", endpoint]] if endpoint else [])]
            conf = ["last_call_timeout=1"] if ":" in self.nnodes and self.agents == 1 else []
            conf += [f"is_host={int(agent == 0)}"] if self.is_host else []
            said += [["rdzv_conf", ",".join(conf)]] if conf else []
            return said + ([["local_addr", ADDRESSES.get(self.local_addr, self.local_addr)]] if self.local_addr else [])
        return []

    def options_of(self, agent, ports):
        """[name, value] of all options of an agent."""
        said = [["nnodes", self.nnodes]] if self.nnodes else []
        workers = self.workers_of(agent)
        said += [["nproc_per_node", str(workers)]] if workers > 1 or "nproc_per_node" in self.spelled else []
        said += self.said_of_rendezvous(agent, ports)
        said += [["max_restarts", str(self.restarts)]] if self.restarts else []
        said += [["grace", "0.3"]] if self.deed == "deaf" else []
        said += [["leftovers", "wait=0.3"]] if self.deed == "straggler" else []
        return said + self.options + PROGRAMS[self.program][0]

    def spell(self, options, ours, folder):
        """(lines of the shell, words, the text of the file for --config)."""
        lines, words, file = [], [], []
        for name, value in options:
            how = self.spelled.get(name, "blank")
            how = "blank" if how == "file" and not ours else how
            if how == "file":
                file.append(f"{name}: {json.dumps(value)}")
            elif how == "variable":
                lines.append(f"export PET_{name.upper()}={shlex.quote('1' if value is True else value)}")
            else:
                long = "--" + (name.replace("_", "-") if how.startswith("dash") else name)
                if how in ("twice", "over_variable") and name in _ANOTHER:
                    if how == "twice":
                        words += [long, _ANOTHER[name]]
                    else:
                        lines.append(f"export PET_{name.upper()}={_ANOTHER[name]}")
                if how == "abbreviated" and name in _ABBREVIATED:
                    words += ["--" + _ABBREVIATED[name]] + ([] if value is True else [value])
                elif how == "short" and name in _SHORT:
                    words += [_SHORT[name]] if value is True else [_SHORT[name] + value]
                elif value is True:
                    words.append(long)
                elif how.endswith("equals"):
                    words.append(f"{long}={value}")
                else:
                    words += [long, value]
        if file:
            words = ["--config", os.path.join(folder, "job.yaml"), *words]
        return lines, words, "".join(line + "\n" for line in file)

    def script_of(self, agent, launcher, folder, ports, patience):
        """The shell script of an agent. `launcher`: its words; `folder`: where the launch runs."""
        ours = os.path.basename(launcher[0]) != "torchrun"
        lines, words, file = self.spell(self.options_of(agent, ports), ours, folder)
        _, program, makes = PROGRAMS[self.program]
        whole = f"{folder}/" if "gone" in self.around or self.program == "absolute" else ""
        program = [whole + word[1:] if word.startswith("@") else word for word in program]
        text = [f"HERE={folder}", "cd $HERE", f"export WORKER={shlex.quote(WORKER)}",
                f"export PLAN={shlex.quote(json.dumps(self.plan(folder + '/journal', patience)))}", *makes]
        if file:
            text += [f"cat > job.yaml <<'END'\n{file}END"]
        if self.program in _BY_NAME:
            text.append(f"export PYTHONPATH={shlex.quote(folder)}")
        for name in sorted(self.around, key=lambda each: each == "no_path"):
            text += AROUND[name]
        text += lines
        if "slurm_batch_of_two" in self.around and agent == 1:
            text.append("export SLURM_NODEID=1 SLURM_PROCID=1")
        closed = " ".join(_CLOSED[name] for name in self.around if name in _CLOSED)
        source = '<"$WORKER"' if self.program in FROM_STDIN else ""
        wrapped = " ".join(_WRAPPERS[name] for name in self.around if name in _WRAPPERS)
        if "by_link" in self.around:
            text.append(f"/bin/ln -s {launcher[0]} $HERE/{os.path.basename(launcher[0])}")
            launcher = [f"{folder}/{os.path.basename(launcher[0])}", *launcher[1:]]
        elif "by_name" in self.around:
            text.append(f"PATH={os.path.dirname(launcher[0])}:$PATH")
            launcher = [os.path.basename(launcher[0]), *launcher[1:]]
        shown = map(shlex.quote, [*launcher, *words, *program, *self.arguments])
        if "terminal" in self.around:
            shown = ["script -qec", shlex.quote(" ".join(shown)), "/dev/null"]
        text += ["/bin/cat /proc/self/limits /proc/self/status > $HERE/before",
                 'echo "oom:\t$(/bin/cat /proc/self/oom_score_adj)" >> $HERE/before']
        command = " ".join(filter(None, ["exec", wrapped, *shown, closed, source]))
        return "\n".join([*text, command, ""])


# Programs that are read from stdin.
FROM_STDIN = ("stdin", "dev_stdin")
# Programs that are found by their names, in PYTHONPATH.
_BY_NAME = ("module", "package", "package_main")

