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
#include "ddprun/rendezvous/v1/journal.pb.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/wire/field_checker.h"

namespace ddprun::rendezvous {

// The path of one entry: "nodes[3]".
inline std::string At(absl::string_view list, size_t index) {
  return absl::StrCat(list, "[", index, "]");
}

// Refuses a value that has occurred before.
template <typename Value>
void RequireFresh(FieldChecker* checker, absl::flat_hash_set<Value>* seen, const Value& value,
                  absl::string_view field) {
  checker->Require(seen->insert(value).second, field, absl::StrCat(value, " comes twice"));
}

// Reads the live generation. Params: nodes: those that its members refer to.
std::optional<RoundRecord> ReadRound(FieldChecker* checker, const v1::JobRecord& proto,
                                     const std::vector<NodeRecord>& nodes);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_JOURNAL_RECORD_READER_H_
