#include "tests/fuzz/slurm_fuzz.h"

#include <cstddef>
#include <string>

#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/text.h"
#include "launcher/schedulers/slurm_requeue.h"
#include "launcher/schedulers/slurm_text.h"

namespace ddprun::launcher {
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
