#include "launcher/core/witness.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {

void ReadGroups(absl::string_view text, Witness* witness) {
  witness->groups.clear();
  witness->inside_group.clear();
  witness->inside_call.clear();
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  const std::vector<absl::string_view> inside = absl::StrSplit(lines.front(), '\t');
  if (inside.size() != 2) return;
  for (size_t i = 1; i < lines.size() && i <= rendezvous::kGroupsMax; ++i) {
    const std::vector<absl::string_view> fields = absl::StrSplit(lines[i], '\t');
    rendezvous::GroupProgress group;
    if (fields.size() != 3 || fields[0].empty() ||
        fields[0].size() > rendezvous::kGroupNameBytesMax ||
        !absl::SimpleAtoi(fields[1], &group.sequence) ||
        !absl::SimpleAtoi(fields[2], &group.size)) {
      break;
    }
    group.name = std::string(fields[0]);
    witness->groups.push_back(std::move(group));
  }
  if (inside[0].size() > rendezvous::kGroupNameBytesMax) return;
  for (const rendezvous::GroupProgress& group : witness->groups) {
    if (inside[0].empty() || inside[1] != group.name) continue;
    witness->inside_call = std::string(inside[0]);
    witness->inside_group = group.name;
  }
}

namespace {

constexpr absl::Duration kTick = absl::Milliseconds(10);
// A main thread that waits with a timeout again and again wakes less often than this. One that
// works with sockets wakes more often; /proc doesn't count bytes of sockets.
constexpr double kTurnsPerSecond = 10;

}  // namespace

// Recognized by the names of kernel functions.
bool WaitsForFile(const WorkerVital& vital) {
  constexpr const char* kParts[] = {
      "fuse",       "request_wait_answer", "nfs", "rpc_wait", "ceph", "ptlrpc",
      "cl_sync_io", "p9_client",           "smb", "cifs",     "gpfs", "fsync",
      "sync_f",     "write_and_wait"};
  return std::any_of(std::begin(kParts), std::end(kParts), [&vital](const char* part) {
    return vital.stack.find(part) != std::string::npos;
  });
}

bool Acts(const WorkerVital& before, const WorkerVital& after, absl::Duration interval,
          int idle_share) {
  const absl::Duration idle = std::max(kTick, interval / idle_share);
  if (after.cpu - before.cpu > idle || after.bytes != before.bytes) return true;
  const double turns = static_cast<double>(after.turns - before.turns);
  return turns > kTurnsPerSecond * absl::ToDoubleSeconds(interval) + 1;
}

}  // namespace ddprun::launcher
