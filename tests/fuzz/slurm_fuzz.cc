#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/rng.h"
#include "base/text.h"
#include "launcher/schedulers/slurm_run.h"
#include "launcher/schedulers/slurm_step.h"
#include "tests/fuzz/fuzz_target.h"

namespace ddprun::launcher {

// Reads the bytes as a text of Slurm's: the first byte chooses between host lists, counts, times
// and the record of a job that is requeued ('h', 'c', 't', 'r'). Checks what each reader promises.
// Returns: whether it was one. Aborts if a promise is broken.
bool ReadSlurmBytes(absl::string_view bytes);

namespace {

constexpr size_t kHostsMax = 300;
constexpr size_t kNameBytes = 255;
constexpr size_t kMessageBytes = 1200;

template <typename Result>
bool CheckSlurmError(const Result& result) {
  if (result.ok()) return true;
  const std::string message(result.status().message());
  DDPRUN_CHECK(Printable(message) == message && message.size() < kMessageBytes,
               "an error without bounds");
  return false;
}

bool CheckHosts(absl::string_view text) {
  const auto hosts = ExpandHostList(text, kHostsMax);
  if (!CheckSlurmError(hosts)) return false;
  DDPRUN_CHECK(!hosts->empty() && hosts->size() <= kHostsMax, "hosts");
  for (const std::string& host : *hosts) {
    DDPRUN_CHECK(!host.empty() && host.size() <= kNameBytes, "name");
    DDPRUN_CHECK(host.find_first_of("[], \n") == std::string::npos, host);
  }
  // What is written out is a list of the same names.
  const auto again = ExpandHostList(absl::StrJoin(*hosts, ","), kHostsMax);
  DDPRUN_CHECK(again.ok() && *again == *hosts, "the written list differs");
  return true;
}

bool CheckCounts(absl::string_view text) {
  const auto counts = ExpandCounts(text, kHostsMax);
  if (!CheckSlurmError(counts)) return false;
  DDPRUN_CHECK(!counts->empty() && counts->size() <= kHostsMax, "counts");
  return true;
}

bool CheckTime(absl::string_view text) {
  const auto time = ReadSlurmTime(text);
  if (!time.has_value()) return false;
  DDPRUN_CHECK(*time >= absl::ZeroDuration() && *time < absl::InfiniteDuration(), "time");
  return true;
}

// A comment that is kept is read back as it was.
bool CheckRecord(absl::string_view text) {
  const RequeueRecord record = ReadRequeueRecord(text);
  DDPRUN_CHECK(ReadRequeueRecord("Comment=" + CommentText(record)) == record, "record");
  return record != RequeueRecord();
}

}  // namespace

bool ReadSlurmBytes(absl::string_view bytes) {
  if (bytes.empty()) return false;
  const absl::string_view text = bytes.substr(1);
  switch (bytes.front()) {
    case 'h':
      return CheckHosts(text);
    case 'c':
      return CheckCounts(text);
    case 't':
      return CheckTime(text);
    case 'r':
      return CheckRecord(text);
    default:
      return false;
  }
}

}  // namespace ddprun::launcher

namespace ddprun::launcher {
namespace {

constexpr uint64_t kSeed = 20261122;
constexpr int kRounds = 40'000;

const char* const kPieces[] = {"n",  "gpu-a", "[",         "]",  ",", "-", "01-03", "7",
                               "0",  "12",    "999999999", "9",  " ", ":", "(x",    ")",
                               "2-", "1-2",   "\xff",      "\n", "x", "a", "[1-2]", "[08-10,12]"};

TEST(SlurmSmoke, RandomPieces) {
  Rng rng(kSeed);
  int good = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::string text(1, "hct"[rng.Below(3)]);
    for (uint64_t i = rng.Below(8); i > 0; --i) text += kPieces[rng.Below(std::size(kPieces))];
    good += ReadSlurmBytes(text) ? 1 : 0;
  }
  // Some inputs are taken and some refused: the run reached both sides of the readers.
  EXPECT_GT(good, kRounds / 50);
  EXPECT_LT(good, kRounds / 2);
}

TEST(SlurmSmoke, Bytes) {
  EXPECT_TRUE(ReadSlurmBytes("hnode[01-03,7],other"));
  EXPECT_TRUE(ReadSlurmBytes("c2(x3),1"));
  EXPECT_TRUE(ReadSlurmBytes("t1-00:30:00"));
  EXPECT_TRUE(ReadSlurmBytes("rComment=of mine ddprun:no_progress=2,step=17"));
  EXPECT_TRUE(ReadSlurmBytes("rComment=ddprun:no_progress=5 xddprun:no_progress=,step=-1"));
  EXPECT_FALSE(ReadSlurmBytes("rJobId=1 Comment=in the line"));
  EXPECT_FALSE(ReadSlurmBytes("hn[1-[2-3]]"));
  EXPECT_FALSE(ReadSlurmBytes("hn[0-999999999]"));
  EXPECT_FALSE(ReadSlurmBytes(""));
}

}  // namespace
}  // namespace ddprun::launcher

DDPRUN_FUZZER(bytes) { ddprun::launcher::ReadSlurmBytes(bytes); }
