#ifndef DDPRUN_RENDEZVOUS_JOURNAL_RECORD_READER_H_
#define DDPRUN_RENDEZVOUS_JOURNAL_RECORD_READER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "ddprun/rendezvous/v1/journal.pb.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/wire/field_checker.h"

namespace ddprun::rendezvous {

// Workers of one job.
inline constexpr uint32_t kWorkersMax = kNodesMax * kWorkersPerNodeMax;

// The path of one entry: "nodes[3]".
inline std::string At(absl::string_view list, size_t index) {
  return absl::StrCat(list, "[", index, "]");
}

// Reads the fields that only records have, in addition to those of messages. After an error values
// mean nothing.
class RecordReader {
 public:
  FieldChecker& checker() { return checker_; }
  bool ok() const { return checker_.status().ok(); }

  // An age or a duration to come; never negative.
  absl::Duration Time(absl::string_view field, int64_t ns);
  uint64_t Step(absl::string_view field, uint64_t step);
  // The name of a Rule.
  std::string RuleOf(absl::string_view field, const std::string& name);

 private:
  FieldChecker checker_;
};

// Refuses a value that has occurred before.
template <typename Value>
void RequireFresh(RecordReader* in, absl::flat_hash_set<Value>* seen, const Value& value,
                  absl::string_view field) {
  in->checker().Require(seen->insert(value).second, field, absl::StrCat(value, " comes twice"));
}

// Reads the live generation. Params: nodes: those that its members refer to.
std::optional<RoundRecord> ReadRound(RecordReader* in, const v1::JobRecord& proto,
                                     const std::vector<NodeRecord>& nodes);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_JOURNAL_RECORD_READER_H_
