#include "rendezvous/core/job_record.h"

#include <algorithm>

#include "base/check.h"

namespace ddprun::rendezvous {

void Age(absl::Duration elapsed, JobRecord& record) {
  DDPRUN_CHECK(elapsed >= absl::ZeroDuration(), absl::FormatDuration(elapsed));
  if (record.round) {
    record.round->age += elapsed;
    if (record.round->closing) record.round->closing->age += elapsed;
  }
  record.forming.pause = std::max(record.forming.pause - elapsed, absl::ZeroDuration());
  for (BlameRecord& blame : record.blame) {
    for (absl::Duration& age : blame.ages) age += elapsed;
  }
  for (GenerationSummary& generation : record.generations) {
    generation.age += elapsed;
    if (generation.ended) *generation.ended += elapsed;
  }
  if (!record.verdict) record.ledger.age += elapsed;
}

void MarkFormerHost(Incarnation host, JobRecord& record) {
  const auto former = std::find_if(
      record.nodes.begin(), record.nodes.end(),
      [&](const NodeRecord& node) { return node.info.hosts_service && node.incarnation != host; });
  if (former != record.nodes.end()) record.vanished = former->id;
}

}  // namespace ddprun::rendezvous
