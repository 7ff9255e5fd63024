#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/rng.h"
#include "launcher/advice/advisor.h"
#include "tests/fuzz/fuzz_target.h"

namespace ddprun::launcher {

// Gives `bytes` to the advisor as a worker's words, and as rules, and aborts when a promise is
// broken: there is always an answer, and advice is one line of a known rule with nothing of the
// worker's in it that a shell would carry out. Returns true when the words got advice; for tests
// that want some to.
bool FuzzAdvice(absl::string_view bytes);

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
    // The rules' own commands may have "$(ulimit", but none has a backquote.
    DDPRUN_CHECK(!absl::StrContains(advice->next, "`"), advice->next);
  }
  const absl::StatusOr<Advisor> rules = Advisor::Read(std::string(bytes));
  if (rules.ok()) rules->Advise(failure);
  return advice.has_value();
}

}  // namespace ddprun::launcher

namespace ddprun::launcher {
namespace {

constexpr uint64_t kSeed = 20261122;

// Pieces of workers' words and of rules.
constexpr const char* kPieces[] = {"\n",
                                   "\r",
                                   " ",
                                   "CUDA out of memory. Tried to allocate ",
                                   "2.00 GiB",
                                   ". GPU 0 has a total capacity of ",
                                   "`reboot`",
                                   "$(reboot)",
                                   "ModuleNotFoundError: No module named '",
                                   "a",
                                   "'",
                                   "can't open file '",
                                   "': [Errno 2]",
                                   "Connect to ",
                                   "10.0.0.1",
                                   "<1> failed",
                                   "EADDRINUSE",
                                   "port: 1",
                                   "\xff",
                                   "${host}",
                                   "- name: a\n",
                                   "  match: ['",
                                   "(?P<a>x)",
                                   "']\n",
                                   "  advice: ",
                                   "  next: n\n"};

TEST(AdviceSmokeTest, AnyPiecesHaveAnAnswer) {
  Rng rng(kSeed);
  int advised = 0;
  for (int round = 0; round < 5'000; ++round) {
    std::string bytes;
    for (uint64_t i = rng.Below(12); i > 0; --i) bytes += kPieces[rng.Below(std::size(kPieces))];
    if (FuzzAdvice(bytes)) ++advised;
  }
  EXPECT_GT(advised, 300);
}

TEST(AdviceSmokeTest, DamagedRulesHaveAnAnswer) {
  Rng rng(kSeed);
  const std::string whole = std::string(kAdviceRules).substr(0, 3000);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = whole.substr(0, rng.Below(whole.size() + 1));
    if (!bytes.empty()) bytes[rng.Below(bytes.size())] = static_cast<char>(rng.Below(256));
    FuzzAdvice(bytes);
  }
}

}  // namespace
}  // namespace ddprun::launcher

DDPRUN_FUZZER(bytes) { ddprun::launcher::FuzzAdvice(bytes); }
