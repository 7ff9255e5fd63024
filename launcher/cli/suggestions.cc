#include "launcher/cli/suggestions.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/nearest.h"

namespace ddprun::launcher {
namespace {

// What other tools call what ddprun has under another name.
struct Synonym {
  absl::string_view word;
  absl::string_view ours;
};
constexpr Synonym kSynonyms[] = {
    {"attach", "logs"},       {"cancel", "stop"},     {"check", "doctor"},
    {"delete", "stop"},       {"describe", "status"}, {"diagnose", "doctor"},
    {"get", "status"},        {"history", "events"},  {"info", "env"},
    {"init", "config"},       {"jobs", "status"},     {"kill", "stop"},
    {"list", "status"},       {"ls", "status"},       {"man", "help"},
    {"nodes", "status"},      {"ps", "status"},       {"undrain", "drain --undo"},
    {"version", "--version"}, {"watch", "top"},
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

}  // namespace ddprun::launcher
