#include "launcher/cli/suggestions.h"

#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/text.h"
#include "launcher/options/argument.h"
#include "launcher/options/values.h"

namespace ddprun::launcher {
namespace {

// A command of other tools, and ddprun's name for it.
struct Synonym {
  absl::string_view word;
  absl::string_view ours;
};
constexpr Synonym kSynonyms[] = {
    {"attach", "logs"},          {"cancel", "stop"},       {"check", "doctor"},
    {"delete", "stop"},          {"describe", "status"},   {"diagnose", "doctor"},
    {"get", "status"},           {"history", "events"},    {"info", "env"},
    {"init", "config"},          {"jobs", "status"},       {"kill", "stop"},
    {"list", "status"},          {"ls", "status"},         {"man", "help"},
    {"nodes", "status"},         {"preflight", "test"},    {"ps", "status"},
    {"undrain", "drain --undo"}, {"version", "--version"}, {"watch", "top"},
};

}  // namespace

std::string SuggestCommand(const std::string& word, const std::vector<std::string>& commands) {
  if (word == "run" || word == "launch" || word == "start") {
    return absl::StrCat("a run has no command: leave ", word, " out");
  }
  std::string meant;
  for (const Synonym& synonym : kSynonyms) {
    if (synonym.word == word) meant = std::string(synonym.ours);
  }
  if (meant.empty()) meant = NearestWord(word, commands);
  return meant.empty() ? "" : absl::StrCat("did you mean ddprun ", meant, "?");
}

std::string SuggestScript(const std::string& word, const Host& host) {
  std::string with_suffix = absl::EndsWith(word, ".py") ? word : absl::StrCat(word, ".py");
  if (host.KindOf(with_suffix) == Host::PathKind::kFile) return with_suffix;
  const size_t name = word.rfind('/') + 1;  // 0 without one
  const std::string folder = word.substr(0, name);
  std::vector<std::string> scripts;
  for (std::string& each : host.NamesIn(folder.empty() ? "." : folder)) {
    if (absl::EndsWith(each, ".py")) scripts.push_back(std::move(each));
  }
  const std::string near = NearestWord(with_suffix.substr(name), scripts);
  return near.empty() ? "" : absl::StrCat(folder, near);
}

std::string TakenScript(const std::vector<std::string>& words) {
  constexpr size_t kOptionBytesMax = 64;
  if (words.empty() || !absl::EndsWith(words.back(), ".py")) return "";
  std::pair<std::string, std::string> taken;  // the option, its value
  absl::string_view cure = ": is a blank missing before the script?";
  if (absl::StartsWith(words.back(), "-")) {
    taken = absl::StrSplit(words.back(), absl::MaxSplits('=', 1));
  } else if (words.size() > 1 && !absl::StrContains(words[words.size() - 2], '=')) {
    taken = {words[words.size() - 2], words.back()};
    cure = ", which needs one before the script";
  }
  if (!absl::StartsWith(taken.first, "-") || taken.second.empty()) return "";
  return absl::StrCat(Quoted(taken.second), " is the value of ",
                      Shown(taken.first, kOptionBytesMax), cure);
}

namespace {

// The paths in an installation and in a build folder, both beside bin.
constexpr const char* kBash[] = {"share/bash-completion/completions/ddprun", "manual/ddprun.bash"};
constexpr const char* kZsh[] = {"share/zsh/site-functions/_ddprun", "manual/_ddprun"};

}  // namespace

absl::StatusOr<std::string> CompletionScript(const Argument& shell, const Host& host) {
  if (shell.text == "tcsh") {
    return BadValue(shell, "there is no completion for tcsh; give bash or zsh");
  }
  if (shell.text != "bash" && shell.text != "zsh") return BadWord(shell, "give bash or zsh");
  for (const char* place : shell.text == "bash" ? kBash : kZsh) {
    absl::StatusOr<std::string> script =
        host.ReadFile(absl::StrCat(host.ProgramFolder(), "/../", place));
    if (script.ok()) return script;
  }
  return PlanError(absl::StrCat(shell.source, " ", shell.text, ": ", host.ProgramFolder(),
                                "/../share has no completion; it is installed with ddprun, so copy "
                                "the program's share folder too"));
}

}  // namespace ddprun::launcher
