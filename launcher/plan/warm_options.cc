#include "launcher/plan/plan_parts.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "launcher/options/argument.h"
#include "launcher/options/option_set.h"
#include "launcher/options/values.h"

namespace ddprun::launcher {
namespace {

bool IsModule(absl::string_view name) {
  return !name.empty() && name.front() != '.' && name.back() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return absl::ascii_isalnum(byte) || c == '_' || c == '.' || byte >= 0x80;
         });
}

// The name depends on interpreter, script, folder and module path, because these decide what is
// imported. Programs with --warm on have another name than those without: the record of the former
// doesn't show that workers go on in their processes.
std::string KeptPath(const EnvironmentLookup& environment, const LaunchPlan& plan) {
  const std::string folder = UserFolder(environment, "XDG_CACHE_HOME", ".cache");
  if (folder.empty()) return "";
  std::string subject = absl::StrCat(plan.argv.front(), "\n", plan.entry_point);
  if (plan.warm.for_survivors) absl::StrAppend(&subject, "\nfor survivors");
  for (const char* name : {"PWD", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}) {
    absl::StrAppend(&subject, "\n", environment(name).value_or(""));
  }
  const std::string hash = absl::StrCat(absl::Hex(StableHash(subject), absl::kZeroPad16));
  return absl::StrCat(folder, "/ddprun/warm/", BaseName(plan.entry_point), "-", hash);
}

// Whether a script's text names ddprun.elastic, by which workers go on in their processes. A script
// that uses it by another module's hand starts its new workers cold, as without this.
bool NamesElastic(const LaunchPlan& plan, const Host& host) {
  if (!plan.runs_python || host.KindOf(plan.entry_point) != Host::PathKind::kFile) return false;
  const absl::StatusOr<std::string> text = host.ReadFile(plan.entry_point);
  return text.ok() && absl::StrContains(*text, "ddprun") && absl::StrContains(*text, "elastic");
}

}  // namespace

bool ReadMemory(absl::string_view text, WarmPlan* plan) {
  return ReadMemorySize(text, &plan->memory_bytes, &plan->memory_percent);
}

void DefineWarmOptions(LaunchArguments* target, OptionSet* options) {
  options->AddValue(&target->warm,
                    {.names = "--warm",
                     .placeholder = "on|off",
                     .help = "Keep a Python interpreter ready that has imported what the script "
                             "imports, and fork workers from it, so that a restart doesn't wait "
                             "for imports. What to import is learned from the first workers. "
                             "on: the first start waits for them, too, if an earlier job has "
                             "learned them, and a line says why workers start cold. off: never. "
                             "A program with ddprun's C++ runtime is started ahead instead, and "
                             "waits before its main(): by default where its workers live on in "
                             "their processes.",
                     .default_text = "as on, where workers may be restarted (--max_restarts, "
                                     "--in_process_restart, a script with ddprun.elastic, or a "
                                     "number of nodes that may change), but a start never waits "
                                     "for imports ahead that are slower than its own"});
  options->AddValue(&target->preload, {.names = "--preload",
                                       .placeholder = "MODULES",
                                       .help = "Modules to import ahead beside those that are "
                                               "learned, with commas between them, for instance "
                                               "torch,torch.nn.parallel."});
  options->AddValue(&target->warm_memory,
                    {.names = "--warm-memory",
                     .placeholder = "SIZE|PERCENT",
                     .help = "What that interpreter may hold of the memory, for "
                             "instance 2GiB or 5%; 0: there is none.",
                     .default_text = "all that it takes, but none is kept where less than a "
                                     "quarter of the memory is free"});
}

absl::Status PlanWarm(const LaunchArguments& arguments, const EnvironmentLookup& environment,
                      const Host& host, LaunchPlan* plan) {
  if (const std::string& warm = arguments.warm.text; warm != "on" && warm != "off") {
    return BadWord(arguments.warm, "is neither on nor off");
  }
  // Only if workers may be started again; otherwise imports ahead are never used.
  const bool by_default = !arguments.warm.given() && plan->runs_python &&
                          (plan->job.max_restarts > 0 || arguments.in_process_restart ||
                           plan->job.nodes_min < plan->job.nodes_max || NamesElastic(*plan, host));
  plan->warm.on = arguments.warm.given() ? arguments.warm.text == "on" : by_default;
  plan->warm.unasked = by_default && !arguments.preload.filled() && !arguments.warm_memory.filled();
  plan->warm.asks_daemon = plan->warm.on || !arguments.warm.given();
  plan->warm.for_survivors = !plan->runs_python && !arguments.warm.given();
  if (arguments.preload.filled()) {
    plan->warm.preload = absl::StrSplit(arguments.preload.text, ',');
    for (const std::string& module : plan->warm.preload) {
      if (!IsModule(module)) {
        return BadValue(arguments.preload,
                        absl::StrCat(Quoted(module),
                                     " is no name of a Python module; give names "
                                     "with commas between them, torch,numpy"));
      }
    }
  }
  if (arguments.warm_memory.filled() && !ReadMemory(arguments.warm_memory.text, &plan->warm)) {
    return BadValue(arguments.warm_memory, "is no size (2GiB, 512MiB) and no percentage (5%)");
  }
  plan->warm.kept = KeptPath(environment, *plan);
  return absl::OkStatus();
}

}  // namespace ddprun::launcher
