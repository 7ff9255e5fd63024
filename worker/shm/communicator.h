#ifndef DDPRUN_WORKER_SHM_COMMUNICATOR_H_
#define DDPRUN_WORKER_SHM_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "worker/shm/segment.h"
#include "worker/shm/types.h"

namespace ddprun::worker::shm {

// One collective of this rank, and how far it is.
// The pointers are aligned for the type and valid until it is done:
//   all-reduce, broadcast: inputs = {data}, outputs = {data}, `count` elements
//   all-gather: inputs = {mine}, outputs = one a rank, `count` elements each
//   reduce-scatter: inputs = one a rank, outputs = {mine}, `count` elements each
//   barrier: none
struct Call {
  Announcement what;
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;

  // The communicator's own.
  enum class Phase { kNew, kDeposited, kReduced, kDone };
  Phase phase = Phase::kNew;
  bool compared = false;  // the announcements
  uint64_t done = 0;      // elements
  uint64_t chunk = 0;     // elements that are under way
  uint32_t set = 0;       // of slots
};

// Collectives of the ranks that share a segment, in any number of processes. Data go in chunks
// through the ranks' slots, with one barrier a chunk (two where the work of reducing is shared
// out). Every rank gets the same bits, as reductions run in the order of ranks.
//
// Errors, of every call: the group is broken from then on, on all ranks, and later calls fail with
// the same reason. UNAVAILABLE — a peer ended or left (Segment::Break says so). DEADLINE_EXCEEDED —
// a peer didn't come in time. INVALID_ARGUMENT — the ranks called different collectives.
// Threads: one at a time.
class Communicator {
 public:
  Communicator(std::shared_ptr<Segment> segment, uint32_t rank);

  // Runs what can be run without sleeping, waiting for peers at most `patience` (busily, a
  // barrier). Returns whether the call is done.
  absl::StatusOr<bool> Try(Call& call, absl::Duration patience);
  // Runs the rest. Waits for peers asleep, after `patience` of waiting busily at each barrier.
  absl::Status Finish(Call& call, absl::Duration patience, Instant deadline);

  // For tests: as if so many arrivals (Segment::Line) had been before. Requires: no call yet.
  void StartFrom(uint32_t state) { target_ = state & ~Segment::kBroken; }

  uint32_t rank() const { return rank_; }
  uint32_t ranks() const { return segment_->ranks(); }
  // Calls begun.
  uint64_t sequence() const { return sequence_; }
  Segment& segment() { return *segment_; }

 private:
  bool Reached(uint32_t peer) const;
  bool SpinUntilAllArrive(absl::Duration patience) const;
  absl::Status SleepUntilArrived(uint32_t peer, const Call& call, Instant deadline);
  absl::Status Failure() const;
  absl::Status CompareAnnouncements(const Call& call);

  void Begin(Call& call);
  absl::Status Advance(Call& call);
  void Deposit(Call& call);
  void Collect(Call& call);
  void ReduceMyPart(Call& call);
  void CollectParts(Call& call);
  void ReduceInto(const Call& call, std::byte* out, size_t first, size_t count, bool own_is_input);
  void Arrive();
  bool SharesReduction(const Call& call) const;
  uint64_t ChunkOf(const Call& call) const;

  const std::shared_ptr<Segment> segment_;
  const uint32_t rank_;
  uint32_t target_ = 0;    // of the lines' counts, for the barrier at which this rank is
  uint32_t next_set_ = 0;  // of slots
  uint64_t sequence_ = 0;
};

// "all-reduce of 1000 float32 (sum)"; for people.
std::string Describe(const Announcement& what);

}  // namespace ddprun::worker::shm

#endif  // DDPRUN_WORKER_SHM_COMMUNICATOR_H_
