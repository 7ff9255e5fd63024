#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/rng.h"
#include "base/text.h"
#include "launcher/options/argument.h"
#include "launcher/options/values.h"
#include "launcher/plan/plan_parts.h"
#include "launcher/plan/rendezvous_config.h"
#include "rendezvous/core/bounds.h"
#include "tests/fuzz/fuzz_target.h"

namespace ddprun::launcher {

// Reads the bytes as a value with a grammar of its own: the first byte chooses between
// --rdzv_conf, --redirects, ranks, lists of texts and signals ('c', 's', 'r', 't', 'g').
// Checks what each reader promises. Returns: whether it was a value. Aborts if a promise is broken.
bool ReadValueBytes(absl::string_view bytes);

namespace {

template <typename Result>
bool CheckError(const Result& result) {
  if (result.ok()) return true;
  const std::string message(result.status().message());
  DDPRUN_CHECK(absl::StartsWith(message, "--option"), message);
  // Two values of 120 bytes each, all of them escaped to four, and a sentence.
  DDPRUN_CHECK(Printable(message) == message && message.size() < 1200, "an error without bounds");
  // A mistake inside of a value is no mistake in the command line's grammar.
  DDPRUN_CHECK(ExitStatusOf(result.status()) == 1, message);
  return false;
}

bool CheckRendezvousConfig(const Argument& argument) {
  std::vector<std::string> warnings;
  ParseRendezvousConfig(argument, /*for_etcd=*/true, &warnings).IgnoreError();
  const auto config = ParseRendezvousConfig(argument, /*for_etcd=*/false, &warnings);
  if (!CheckError(config)) return false;
  for (const auto& time : {config->join_timeout, config->last_call_timeout, config->lease}) {
    DDPRUN_CHECK(
        !time.has_value() || (*time > absl::ZeroDuration() && *time <= rendezvous::kTimeoutMax),
        "time");
  }
  return true;
}

bool CheckStreams(const Argument& argument) {
  const auto streams = ParseStreams(argument);
  if (!CheckError(streams)) return false;
  DDPRUN_CHECK(streams->by_rank.size() <= rendezvous::kWorkersPerNodeMax, "ranks");
  for (const uint32_t rank : {0U, 1U, 4095U, 4294967295U}) {
    DDPRUN_CHECK(streams->Of(rank) <= 3, "streams");
  }
  return true;
}

bool CheckRanks(const Argument& argument) {
  const auto ranks = ParseRanks(argument);
  if (!CheckError(ranks)) return false;
  DDPRUN_CHECK(!ranks->empty() && ranks->size() <= rendezvous::kWorkersPerNodeMax, "ranks");
  DDPRUN_CHECK(*std::max_element(ranks->begin(), ranks->end()) < rendezvous::kWorkersPerNodeMax,
               "rank");
  return true;
}

bool CheckTexts(const std::string& text) {
  std::vector<std::string> items = SplitTexts(text);
  DDPRUN_CHECK(!items.empty(), "no item");
  // A lone comma divides, two are one: writing them so gives the same items again.
  for (std::string& item : items) item = absl::StrReplaceAll(item, {{",", ",,"}});
  DDPRUN_CHECK(absl::StrJoin(items, ",") == text, "items are lost");
  return true;
}

bool CheckSignals(const Argument& argument) {
  LaunchArguments arguments;
  arguments.signals_to_handle = argument;
  std::vector<std::string> warnings;
  const auto plan = PlanSignals(arguments, absl::Seconds(30), &warnings);
  DDPRUN_CHECK(plan.ok() && plan->text == argument.text, "torchrun's list is never refused");
  for (const int number : plan->policy.ending) DDPRUN_CHECK(number >= 1 && number <= 31, "signal");
  LaunchArguments ours;
  ours.preempt_signals = argument;
  return CheckError(PlanSignals(ours, absl::Seconds(30), &warnings));
}

}  // namespace

bool ReadValueBytes(absl::string_view bytes) {
  if (bytes.empty()) return false;
  const Argument argument{.text = std::string(bytes.substr(1)), .source = "--option"};
  switch (bytes.front()) {
    case 'c':
      return CheckRendezvousConfig(argument);
    case 's':
      return CheckStreams(argument);
    case 'r':
      return CheckRanks(argument);
    case 't':
      return CheckTexts(argument.text);
    case 'g':
      return CheckSignals(argument);
    default:
      return false;
  }
}

}  // namespace ddprun::launcher

namespace ddprun::launcher {
namespace {

constexpr uint64_t kSeed = 20240609;
constexpr int kRounds = 40'000;

const char* const kPieces[] = {"0",
                               "1",
                               "3",
                               "12",
                               "4095",
                               "4096",
                               "99999999999999999999",
                               "-",
                               ":",
                               ",",
                               ",,",
                               "*",
                               "=",
                               " ",
                               "join_timeout",
                               "lease",
                               "is_host",
                               "true",
                               "5",
                               "150ms",
                               "nan",
                               "SIGTERM",
                               "usr1",
                               "KILL",
                               "15",
                               "\xff",
                               "\n",
                               "_",
                               "+"};

TEST(ValuesSmoke, RandomPieces) {
  Rng rng(kSeed);
  int values = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::string text(1, "csrtg"[rng.Below(5)]);
    for (uint64_t i = rng.Below(8); i > 0; --i) text += kPieces[rng.Below(std::size(kPieces))];
    values += ReadValueBytes(text) ? 1 : 0;
  }
  // Some inputs are taken and some refused: the run reached both sides of the readers.
  EXPECT_GT(values, kRounds / 20);
  EXPECT_LT(values, kRounds / 2);
}

TEST(ValuesSmoke, Bytes) {
  EXPECT_TRUE(ReadValueBytes("cjoin_timeout=5,is_host=true"));
  EXPECT_TRUE(ReadValueBytes("s0-3:1,*:2"));
  EXPECT_TRUE(ReadValueBytes("r0,2-4"));
  EXPECT_TRUE(ReadValueBytes("ta,,b,c"));
  EXPECT_TRUE(ReadValueBytes("gUSR1,SIGUSR2"));
  EXPECT_FALSE(ReadValueBytes("s4"));
  EXPECT_FALSE(ReadValueBytes(""));
}

}  // namespace
}  // namespace ddprun::launcher

DDPRUN_FUZZER(bytes) { ddprun::launcher::ReadValueBytes(bytes); }
