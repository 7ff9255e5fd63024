#include "launcher/core/worker_vital.h"

#include <algorithm>
#include <iterator>

namespace ddprun::launcher {
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
