#include "tests/fuzz/advice_fuzz.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "launcher/advice/advisor.h"

namespace ddprun::launcher {

bool FuzzAdvice(absl::string_view bytes) {
  rendezvous::WorkerFailure failure;
  failure.hostname = std::string(bytes.substr(0, 4));
  failure.message = std::string(bytes.substr(0, bytes.size() / 4));
  failure.stderr_tail = std::string(bytes);
  failure.facts = {std::string(bytes.substr(bytes.size() / 2))};
  const std::optional<Advice> advice = Advisor::Known().Advise(failure);
  if (advice.has_value()) {
    static const std::vector<std::string> names = Advisor::Known().RuleNames();
    DDPRUN_CHECK(std::find(names.begin(), names.end(), advice->rule) != names.end(), advice->rule);
    DDPRUN_CHECK(!absl::StrContains(advice->next, "\n"), advice->next);
    DDPRUN_CHECK(!absl::StrContains(advice->text, "${"), advice->text);
    // Of the rules' own, some have "$(ulimit": none has a backquote.
    DDPRUN_CHECK(!absl::StrContains(advice->next, "`"), advice->next);
  }
  const absl::StatusOr<Advisor> rules = Advisor::Read(std::string(bytes));
  if (rules.ok()) rules->Advise(failure);
  return advice.has_value();
}

}  // namespace ddprun::launcher
