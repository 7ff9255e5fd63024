#include "launcher/plan/worker_command.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/version.h"
#include "launcher/options/argument.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kCommandBytesShown = 160;
// One more than the largest minor number of Python 3 that is looked for.
constexpr int kMinorsOfPython = 30;

// --run_path: torchrun's run_script_path() in a process of its own. An exception is recorded in the
// worker's error file, as torch's @record does, unless the script has done that itself. A worker
// that has finished waits until all others of the node have, or the agent releases it
// (finish_barrier.h). Must not contain '$', because macros in workers' arguments are replaced.
constexpr char kRunPath[] = R"(import json, os, runpy, sys, time, traceback
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
barrier = os.environ.pop("DDPRUN_FINISH_BARRIER", "")
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    if end.code not in (None, 0):
        raise
except Exception as error:
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path and not os.path.exists(path):
        text = {"message": f"{type(error).__name__}: {error}", "extraInfo": {
            "py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}}
        with open(path, "w") as sink:
            json.dump({"message": text}, sink)
    raise
if barrier:
    import socket
    try:
        with socket.socket(socket.AF_UNIX) as all_finished:
            all_finished.connect(barrier)
            while all_finished.recv(1):
                pass
    except OSError:
        pass  # the agent is gone, and lets nobody wait
)";

// Whether the first line of a file has a shell run it: "#!/bin/sh -e", "#! /usr/bin/env -S bash
// -eu".
bool NamesShell(absl::string_view first_line) {
  if (!absl::ConsumePrefix(&first_line, "#!")) return false;
  const std::vector<std::string> words =
      absl::StrSplit(first_line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
  size_t at = 0;
  if (!words.empty() && BaseName(words[0]) == "env") {
    at = 1;
    while (at < words.size() && (words[at][0] == '-' || absl::StrContains(words[at], '='))) ++at;
  }
  return at < words.size() && absl::EndsWith(BaseName(words[at]), "sh");
}

// Whether a file with a shell's first line is a Python script. In such a file the shell executes
// Python with the file itself, by a line that is a string in Python:
//
//   #!/bin/sh
//   # -*- coding: utf-8 -*-
//   '''exec' "/a/path/too/long/for/the/first/line/python3" "$0" "$@"
//   ' '''
//
// pip and uv write such scripts for distributions. ddprun starts Python itself, so the first line
// is only a comment.
bool ReadsAsPython(absl::string_view text) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripLeadingAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const size_t prefix = std::min(line.find_first_not_of("rRbBuUfF"), line.size() - 1);
    const bool is_string = prefix <= 2 && (line[prefix] == '\'' || line[prefix] == '"');
    return is_string || absl::StartsWith(line, "import ") || absl::StartsWith(line, "from ");
  }
  return false;
}

// Python's own words for these are about null bytes, or syntax.
absl::Status CheckIsPython(const std::string& script, const Host& host) {
  const absl::StatusOr<std::string> bytes = host.ReadFile(script);
  if (!bytes.ok()) return absl::OkStatus();  // Python's business
  absl::string_view first = *bytes;
  first = first.substr(0, first.find('\n'));
  const bool is_shell =
      NamesShell(first) && !absl::EndsWith(script, ".py") && !ReadsAsPython(*bytes);
  if (!is_shell && !absl::StartsWith(first,
                                     "\x7f"
                                     "ELF"))
    return absl::OkStatus();
  return PlanError(absl::StrCat("script ", Quoted(script), " is a ",
                                is_shell ? "shell script" : "program",
                                ", and not for Python: add --no_python"));
}

// "CUDA_VISIBLE_DEVICES=0"
bool IsAssignment(absl::string_view word) {
  const size_t name = word.find('=');
  return name != absl::string_view::npos && name > 0 &&
         std::all_of(word.begin(), word.begin() + static_cast<ptrdiff_t>(name),
                     [](unsigned char c) {
                       return absl::ascii_isupper(c) || absl::ascii_isdigit(c) || c == '_';
                     });
}

// Refuses a file's path as a module: Python would run a part of it before it reports the error.
absl::Status CheckModule(const std::string& module, const Host& host) {
  const bool is_path = absl::StrContains(module, '/');
  const bool is_script =
      absl::EndsWith(module, ".py") && host.KindOf(module) == Host::PathKind::kFile;
  if (!is_path && !is_script) return absl::OkStatus();
  return PlanError(absl::StrCat("module ", Quoted(module), " is a ", is_path ? "path" : "file",
                                ": leave -m out to run it, or name the module, as package.train"));
}

absl::Status CheckScript(const std::string& script, const Host& host) {
  if (script == "-") return absl::OkStatus();  // Python reads its standard input
  const Host::PathKind kind = host.KindOf(script);
  if (kind == Host::PathKind::kDirectory) {
    if (host.CheckReadable(absl::StrCat(script, "/__main__.py")).ok()) return absl::OkStatus();
    return PlanError(
        absl::StrCat("script ", Quoted(script), " is a directory without a readable __main__.py"));
  }
  const absl::Status readable = host.CheckReadable(script);
  // Reading a pipe would take the script away from Python.
  if (readable.ok() && kind == Host::PathKind::kFile) return CheckIsPython(script, host);
  if (readable.ok()) return absl::OkStatus();
  absl::string_view cure = kPathAdvice;
  if (kind != Host::PathKind::kMissing) {
    cure = "; may this user read it (ls -l)?";
  } else if (script == "python" || script == "python3" || absl::StartsWith(script, "python3.")) {
    cure = "; ddprun starts Python itself: leave that word out";
  } else if (script == "torchrun" || script == "accelerate" || script == "deepspeed") {
    cure = "; ddprun takes its place: leave that word out, and accelerate's launch, too";
  } else if (IsAssignment(script)) {
    cure = "; variables go in front of ddprun";
  } else if (host.FindProgram(script).ok()) {
    cure = "; to run the program of that name add --no_python";
  }
  return PlanError(absl::StrCat("can't read the script: ", readable.message(), cure));
}

// What to do about a program that can't be run, by the file that is there.
std::string ProgramAdvice(const std::string& program, const Host& host) {
  if (host.KindOf(program) != Host::PathKind::kFile) return "; give its path, or a name in PATH";
  for (const char* source : {".c", ".cc", ".cpp", ".cxx", ".cu"}) {
    if (absl::EndsWith(program, source)) {
      return "; that is source code: compile it, and give the program that the compiler writes";
    }
  }
  const std::string here = absl::StrCat("./", program);
  if (!absl::StrContains(program, '/') && host.FindProgram(here).ok()) {
    return absl::StrCat("; did you mean ", here, "?");
  }
  if (!absl::EndsWith(program, ".py")) return "; chmod +x makes it a program";
  return "; chmod +x makes it a program, and without --no_python Python runs it";
}

// Whether the script's arguments ask for DeepSpeed: --deepspeed, --deepspeed_config,
// --use_deepspeed.
bool AsksForDeepSpeed(const std::vector<std::string>& argv) {
  return std::any_of(argv.begin(), argv.end(), [](const std::string& argument) {
    return absl::StartsWith(argument, "--deepspeed") ||
           absl::StartsWith(argument, "--use_deepspeed");
  });
}

std::string NodesText(const rendezvous::JobSpec& job) {
  if (job.nodes_min != job.nodes_max) {
    return absl::StrCat(job.nodes_min, " to ", job.nodes_max, " nodes");
  }
  return CountText(job.nodes_max, "node");
}

void IdentifyJob(const WorkerCommand& command, rendezvous::JobSpec* job) {
  const std::string subject =
      absl::StrJoin({job->run_id, absl::StrCat(job->nodes_min), absl::StrCat(job->nodes_max),
                     absl::StrCat(job->max_restarts), absl::StrCat(static_cast<int>(command.kind)),
                     BaseName(command.entry_point), absl::StrCat(kProtocolMajor)},
                    absl::string_view("\0", 1));
  job->fingerprint = absl::StrCat(absl::Hex(StableHash(subject), absl::kZeroPad16));

  size_t skipped = command.kind == WorkerCommand::Kind::kProgram ? 0 : 2;  // "python3 -u"
  if (command.argv.size() > 3 && command.argv[3] == kRunPath) skipped += 2;
  const std::string line = absl::StrJoin(command.argv.begin() + static_cast<ptrdiff_t>(skipped),
                                         command.argv.end(), " ");
  job->description = absl::StrCat(Shown(line, kCommandBytesShown), " (", NodesText(*job), ")");
}

// Whether a folder is a virtual environment, or an installation or environment of conda's.
bool IsEnvironment(const std::string& folder, const Host& host) {
  return host.KindOf(folder + "/pyvenv.cfg") == Host::PathKind::kFile ||
         host.KindOf(folder + "/conda-meta") == Host::PathKind::kDirectory;
}

// Whether an environment has torch, for any Python 3 that torch was ever built for.
bool HasTorch(const std::string& environment, const Host& host) {
  for (int minor = 5; minor < kMinorsOfPython; ++minor) {
    const std::string packages =
        absl::StrCat(environment, "/lib/python3.", minor, "/site-packages/torch");
    if (host.KindOf(packages) == Host::PathKind::kDirectory) return true;
  }
  return false;
}

// The Python of the environment that the user's shell has activated; "" = there is none. A virtual
// environment and one of conda may both be active, in either order, as base is in each shell of
// many users: what was activated last stands first in PATH. Where PATH has neither, the virtual
// environment counts, because nobody activates it by default.
std::string ActivePython(const EnvironmentLookup& environment, const Host& host) {
  const absl::StatusOr<std::string> first = host.FindProgram("python3");
  std::string active;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const auto folder = environment(variable);
    if (!folder.has_value() || folder->empty()) continue;
    const auto python = host.FindProgram(absl::StrCat(*folder, "/bin/python3"));
    if (python.ok() && first.ok() && *python == *first) return *python;
    if (python.ok() && active.empty()) active = *python;
  }
  return active;
}

}  // namespace

absl::StatusOr<std::string> FindPython(const EnvironmentLookup& environment, const Host& host) {
  if (const auto chosen = environment("PYTHON_EXEC"); chosen.has_value() && !chosen->empty()) {
    if (absl::Status found = host.FindProgram(*chosen).status(); !found.ok()) {
      return PlanError(absl::StrCat("PYTHON_EXEC can't be run: ", found.message()));
    }
    return *chosen;
  }
  // Prefer the environment that has this ddprun, activated or not: torchrun, too, runs scripts with
  // the Python that it was installed for. If that has no torch, ddprun was installed as a tool
  // (pipx, uv tool), and the active environment is meant.
  const std::string own = host.ProgramFolder();
  if (!own.empty() && IsEnvironment(absl::StrCat(own, "/.."), host)) {
    std::string active = ActivePython(environment, host);
    if (!active.empty() && !HasTorch(absl::StrCat(own, "/.."), host)) return active;
    absl::StatusOr<std::string> found = host.FindProgram(absl::StrCat(own, "/python3"));
    if (found.ok()) return found;
  }
  for (const char* name : {"python3", "python"}) {
    absl::StatusOr<std::string> found = host.FindProgram(name);
    if (found.ok()) return found;
  }
  return PlanError(
      "there is no python3 in PATH; set PYTHON_EXEC to an interpreter, or run a program with "
      "--no_python");
}

absl::StatusOr<WorkerCommand> MakeWorkerCommand(const LaunchArguments& arguments,
                                                const EnvironmentLookup& environment,
                                                const Host& host) {
  if (arguments.command.empty() || arguments.command.front().empty()) {
    return UsageError(
        "the script to run is missing; usage: ddprun [options] script [arguments of the script], "
        "as in: ddprun --nproc_per_node 2 train.py (see --help)");
  }
  // --run_path wins over both, as in torchrun.
  const bool no_python = arguments.no_python && !arguments.run_path;
  const bool module = arguments.module && !arguments.run_path;
  if (module && no_python) {
    return PlanError("--module and --no_python exclude each other; leave one out");
  }
  if (no_python && !arguments.use_env) {
    return PlanError("a program of --no_python gets no --local-rank; leave --use_env=false out");
  }
  WorkerCommand command;
  command.entry_point = arguments.command.front();
  if (no_python) {
    command.kind = WorkerCommand::Kind::kProgram;
    if (absl::Status found = host.FindProgram(command.entry_point).status(); !found.ok()) {
      return PlanError(absl::StrCat("can't run the program: ", found.message(),
                                    ProgramAdvice(command.entry_point, host)));
    }
    command.argv = arguments.command;
    return command;
  }
  if (module) {
    command.kind = WorkerCommand::Kind::kModule;
    DDPRUN_RETURN_IF_ERROR(CheckModule(command.entry_point, host));
  } else {
    DDPRUN_RETURN_IF_ERROR(CheckScript(command.entry_point, host));
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::string python, FindPython(environment, host));
  command.argv = {python, "-u"};
  if (arguments.run_path) command.argv.insert(command.argv.end(), {"-c", kRunPath});
  if (module) command.argv.push_back("-m");
  command.argv.push_back(command.entry_point);
  // torch.distributed.launch's argument; the macro is replaced for each worker.
  if (!arguments.use_env) command.argv.push_back("--local-rank=${local_rank}");
  command.argv.insert(command.argv.end(), arguments.command.begin() + 1, arguments.command.end());
  return command;
}

void PlanCommand(const LaunchArguments& arguments, WorkerCommand command, LaunchPlan* plan) {
  IdentifyJob(command, &plan->job);
  plan->argv = std::move(command.argv);
  plan->runs_python = command.kind != WorkerCommand::Kind::kProgram;
  plan->is_module = command.kind == WorkerCommand::Kind::kModule;
  plan->entry_point = std::move(command.entry_point);
  plan->run_path = arguments.run_path;
  plan->extra_environment = arguments.worker_environment;
  if (arguments.debug) {
    plan->extra_environment.emplace_back("NCCL_DEBUG", "INFO");
    plan->extra_environment.emplace_back("TORCH_DISTRIBUTED_DEBUG", "DETAIL");
  }
  plan->deepspeed = AsksForDeepSpeed(plan->argv);
}

}  // namespace ddprun::launcher
