#include "launcher/daemon/daemon_command.h"

#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "ddprun/daemon/v1/daemon.pb.h"
#include "launcher/daemon/daemon.h"
#include "launcher/daemon/daemon_client.h"
#include "launcher/options/argument.h"
#include "launcher/options/option_set.h"
#include "launcher/options/values.h"
#include "launcher/os/cgroup.h"
#include "launcher/plan/plan_parts.h"

namespace ddprun::launcher {
namespace {

constexpr char kIntroduction[] = R"(usage: ddprun daemon [options] [status | stop]

For the loop of editing a script and running it: keeps Python interpreters ready
between runs that have imported what your scripts import, so that ddprun
train.py reaches its first step without the imports. Runs until Ctrl-C, TERM or
ddprun daemon stop; ddprun daemon status shows what it keeps.

While it runs, every ddprun of yours on this machine asks it; --warm off doesn't.
The first run of a script is learned from, the second finds its interpreter. A
script may be edited: only modules of the installation are imported ahead, and
none that was changed since. Other arguments, variables, folders or limits are
another job, with an interpreter of its own.

Nobody else can reach it: its folder and socket are yours alone, and both sides
look whose process is at the other end.

Examples:
  ddprun daemon --memory 4GiB &
  ddprun daemon status)";
constexpr double kPercentDefault = 25;

uint64_t BytesOf(const WarmPlan& memory) {
  if (memory.memory_bytes.has_value()) return *memory.memory_bytes;
  const std::optional<Memory> machine = MachineMemory();
  if (!machine.has_value()) return UINT64_MAX;
  const double percent = memory.memory_percent.value_or(kPercentDefault);
  return static_cast<uint64_t>(static_cast<double>(machine->total) / 100 * percent);
}

int Serve(const DaemonOptions& options) {
  const bool forever = options.idle_timeout == absl::ZeroDuration();
  const DaemonConfig config{.folder = options.folder,
                            .memory_max = BytesOf(options.memory),
                            .idle_max = forever ? absl::InfiniteDuration() : options.idle_timeout};
  const absl::StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Create(config);
  if (!daemon.ok()) {
    Notify(absl::StrCat("error: ", daemon.status().message()));
    return 1;
  }
  Notify(absl::StrCat("daemon: keeps interpreters ready for your scripts (at most ",
                      BytesText(config.memory_max), ", ",
                      forever ? "for as long as it runs"
                              : absl::StrCat("each for ", absl::FormatDuration(config.idle_max),
                                             " after its last use"),
                      "); ", config.folder));
  (*daemon)->Run();
  return 0;
}

void Show(const daemon::v1::Shelf& shelf) {
  uint64_t bytes = 0;
  for (const daemon::v1::Spare& spare : shelf.spares()) bytes += spare.bytes();
  std::printf("daemon (pid %" PRIu32 "): %s of at most %s\n", shelf.pid(), BytesText(bytes).c_str(),
              BytesText(shelf.bytes_max()).c_str());
  for (const daemon::v1::Spare& spare : shelf.spares()) {
    const std::string why = spare.why_none().empty() ? "" : absl::StrCat(": ", spare.why_none());
    std::printf("  %-24s %-8s %10s   last used %s ago%s\n", Shown(spare.name(), 24).c_str(),
                spare.state().c_str(), BytesText(spare.bytes()).c_str(),
                absl::FormatDuration(absl::Seconds(spare.unused_ms() / 1000)).c_str(),
                Printable(why).c_str());
  }
}

int AskDaemon(const DaemonOptions& options, bool stop) {
  const absl::StatusOr<daemon::v1::Shelf> shelf = AskForShelf(options.folder, stop);
  if (!shelf.ok()) {
    Notify(absl::StrCat("error: ", shelf.status().message()));
    return 1;
  }
  if (stop) {
    Notify(absl::StrCat("daemon: pid ", shelf->pid(), " ends; jobs that run go on"));
  } else {
    Show(*shelf);
  }
  return 0;
}

}  // namespace

absl::StatusOr<OptionsOrHelp<DaemonOptions>> ParseDaemonOptions(
    const std::vector<std::string>& arguments, const EnvironmentLookup& environment) {
  OptionSet options(kIntroduction);
  OptionsOrHelp<DaemonOptions> result;
  options.Group("Daemon");
  Argument memory;
  options.AddValue(&memory, {.names = "--memory",
                             .placeholder = "SIZE|PERCENT",
                             .help = "What all interpreters that wait may hold of the memory, for "
                                     "instance 4GiB or 10%. Those that were not used for longest "
                                     "go first.",
                             .default_text = absl::StrCat(kPercentDefault, "%"),
                             .environment = ""});
  Argument idle{.text = DurationText(result.options.idle_timeout)};
  options.AddValue(&idle, {.names = "--idle-timeout",
                           .placeholder = "TIME",
                           .help = "How long an interpreter waits for the next run; 0: forever.",
                           .environment = ""});
  DDPRUN_ASSIGN_OR_RETURN(const ParsedArguments parsed, options.Parse(arguments, environment));
  if (parsed.help) {
    result.help = options.Help();
    return result;
  }
  result.options.folder = DaemonFolder(environment);
  if (memory.filled() && !ReadMemory(memory.text, &result.options.memory)) {
    return BadValue(memory, "is no size (4GiB, 512MiB) and no percentage (10%)");
  }
  DDPRUN_ASSIGN_OR_RETURN(result.options.idle_timeout, ParseDuration(idle, absl::ZeroDuration()));
  if (parsed.positionals.empty()) return result;
  const std::string& word = parsed.positionals.front();
  if (parsed.positionals.size() > 1 || (word != "status" && word != "stop")) {
    return UsageError(absl::StrCat("ddprun daemon ", Quoted(word),
                                   ": give status, stop, or nothing to run it (see --help)"));
  }
  result.options.what = word == "stop" ? DaemonOptions::What::kStop : DaemonOptions::What::kStatus;
  return result;
}

int RunDaemonCommand(const DaemonOptions& options) {
  if (options.what == DaemonOptions::What::kServe) return Serve(options);
  return AskDaemon(options, options.what == DaemonOptions::What::kStop);
}

}  // namespace ddprun::launcher
