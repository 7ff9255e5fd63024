#include "launcher/daemon/spare_recipe.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/daemon/process_facts.h"
#include "launcher/keeper/agent_seat.h"

namespace ddprun::launcher {
namespace {

// Variables of a shell, a terminal or a login, and of one job.
constexpr const char* kLoose[] = {"_",
                                  "GNOME_TERMINAL_SCREEN",
                                  "GPG_TTY",
                                  "INVOCATION_ID",
                                  "JOURNAL_STREAM",
                                  "OLDPWD",
                                  "SHLVL",
                                  "SSH_CLIENT",
                                  "SSH_CONNECTION",
                                  "SSH_TTY",
                                  "STY",
                                  "SYSTEMD_EXEC_PID",
                                  "TMUX",
                                  "TMUX_PANE",
                                  "TORCHELASTIC_MAX_RESTARTS",
                                  "TORCHELASTIC_RUN_ID",
                                  "WINDOW",
                                  "WINDOWID",
                                  "XDG_SESSION_ID"};
// Ours, which no library reads.
constexpr const char* kLoosePrefixes[] = {"DDPRUN_", "PET_"};

// Indexed by the numbers of setrlimit(2), which are equal on all machines that ddprun is built for.
constexpr const char* kLimits[] = {"processor time",
                                   "file sizes",
                                   "data",
                                   "the stack",
                                   "core files",
                                   "resident memory",
                                   "processes",
                                   "open files",
                                   "locked memory",
                                   "address space",
                                   "file locks",
                                   "pending signals",
                                   "message queues",
                                   "niceness",
                                   "realtime priority",
                                   "realtime processor time"};

std::string NameOf(const std::string& variable) { return variable.substr(0, variable.find('=')); }

bool IsLoose(const std::string& name) {
  return std::any_of(std::begin(kLoose), std::end(kLoose),
                     [&name](const char* loose) { return name == loose; }) ||
         std::any_of(std::begin(kLoosePrefixes), std::end(kLoosePrefixes),
                     [&name](const char* prefix) { return absl::StartsWith(name, prefix); });
}

// A digest instead of the value, because the daemon must not keep secrets while it lives.
std::string Digest(absl::string_view value) {
  return absl::StrCat(absl::Hex(StableHash(value), absl::kZeroPad16), ".", value.size());
}

void AddVariables(const google::protobuf::RepeatedPtrField<std::string>& variables,
                  SpareFacts* facts) {
  for (const std::string& variable : variables) {
    const std::string name = NameOf(variable);
    if (!IsLoose(name)) (*facts)[absl::StrCat(kSecretFact, name)] = Digest(variable);
  }
}

}  // namespace

absl::StatusOr<daemon::v1::Recipe> MakeSpareRecipe(const LaunchPlan& plan,
                                                   const EnvironmentLookup& environment) {
  daemon::v1::Recipe recipe;
  DDPRUN_ASSIGN_OR_RETURN(*recipe.mutable_setup(), OwnSetup());
  const ParkRecipe park = MakeParkRecipe(plan, environment);
  recipe.set_name(BaseName(plan.entry_point));
  recipe.set_kept(plan.warm.kept);
  for (const std::string& argument : park.argv) recipe.add_argv(argument);
  for (const std::string& module : park.preload) recipe.add_preload(module);
  recipe.set_has_python_path(park.python_path.has_value());
  recipe.set_python_path(park.python_path.value_or(""));
  std::vector<std::string> varying = park.varying;
  for (const std::string& variable : OwnEnvironment()) {
    recipe.add_inherited(variable);
    if (IsLoose(NameOf(variable))) varying.push_back(NameOf(variable));
  }
  for (const std::string& variable : park.environment) {
    if (IsLoose(NameOf(variable))) {
      varying.push_back(NameOf(variable));
    } else {
      recipe.add_environment(variable);
    }
  }
  for (const std::string& name : varying) recipe.add_varying(name);
  return recipe;
}

SpareFacts FactsOf(const daemon::v1::Recipe& recipe) {
  const daemon::v1::Setup& setup = recipe.setup();
  SpareFacts facts(setup.facts().begin(), setup.facts().end());
  AddVariables(recipe.inherited(), &facts);
  AddVariables(recipe.environment(), &facts);
  facts["the interpreter"] = recipe.argv().empty() ? "" : recipe.argv(0);
  facts["the command"] = absl::StrJoin(recipe.argv(), " ");
  // Words with blanks in them, too.
  facts["the words of the command"] = Digest(absl::StrJoin(recipe.argv(), "\n"));
  facts["--preload"] = absl::StrJoin(recipe.preload(), ",");
  facts["what was learned"] = recipe.kept();
  facts["umask"] = absl::StrCat(setup.umask());
  facts["nice"] = absl::StrCat(setup.nice());
  facts["oom_score_adj"] = absl::StrCat(setup.oom_score_adj());
  facts["the CPUs"] = absl::StrJoin(setup.cpus(), ",");
  for (const daemon::v1::Limit& limit : setup.limits()) {
    const auto resource = static_cast<size_t>(limit.resource());
    if (resource >= std::size(kLimits)) continue;
    facts[absl::StrCat("the limit of ", kLimits[resource])] =
        absl::StrCat(limit.soft(), " of ", limit.hard());
  }
  return facts;
}

ParkRecipe ParkRecipeOf(const daemon::v1::Recipe& recipe) {
  ParkRecipe park;
  park.argv = {recipe.argv().begin(), recipe.argv().end()};
  park.environment = {recipe.environment().begin(), recipe.environment().end()};
  park.varying = {recipe.varying().begin(), recipe.varying().end()};
  if (recipe.has_python_path()) park.python_path = recipe.python_path();
  park.preload = {recipe.preload().begin(), recipe.preload().end()};
  return park;
}

}  // namespace ddprun::launcher
