#include "rendezvous/journal/record_reader.h"

#include <algorithm>

#include "base/progress_page.h"
#include "base/text.h"
#include "rendezvous/core/policy_rule.h"
#include "rendezvous/journal/record_bounds.h"

namespace ddprun::rendezvous {

absl::Duration RecordReader::Time(absl::string_view field, int64_t ns) {
  checker_.Require(ns >= 0 && ns <= kAgeMaxNs, field,
                   absl::StrCat(ns, " ns is not within 0 to 2^61"));
  return absl::Nanoseconds(std::clamp<int64_t>(ns, 0, kAgeMaxNs));
}

uint64_t RecordReader::Step(absl::string_view field, uint64_t step) {
  checker_.Require(step <= kProgressStepMax, field, absl::StrCat(step, " is not below 2^56"));
  return step;
}

std::string RecordReader::RuleOf(absl::string_view field, const std::string& name) {
  if (rendezvous::RuleOf(name).has_value()) return name;
  checker_.Require(false, field, absl::StrCat(Quoted(name), " is no rule of this release"));
  return "";
}

}  // namespace ddprun::rendezvous
