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
#include "worker/shm/reduce.h"
#include "worker/shm/segment.h"

namespace ddprun::worker::shm {

// One collective of this rank, and its progress.
// The pointers are aligned for the type, and valid until the collective is done:
//   all-reduce, broadcast: inputs = {data}, outputs = {data}, `count` elements
//   all-gather: inputs = {mine}, outputs = one a rank, `count` elements each
//   reduce-scatter: inputs = one a rank, outputs = {mine}, `count` elements each
//   barrier: none
struct Call {
  Announcement what;
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;

  // For the communicator alone.
  enum class Phase { kNew, kDeposited, kReduced, kDone };
  Phase phase = Phase::kNew;
  bool compared = false;  // whether the announcements were compared
  uint64_t done = 0;      // elements that are done
  uint64_t chunk = 0;     // elements that are under way
  uint32_t set = 0;       // the set of slots in use
};

// Collectives of the ranks that share a segment, in any number of processes. Data go in chunks
// through the ranks' slots, with one barrier a chunk, or two if the ranks divide the reduction.
// Reductions run in the order of ranks, so every rank gets the same bits.
//
// Errors, of every call: the group is broken from then on, on all ranks, and later calls fail with
// the same reason. UNAVAILABLE — a peer ended or left (Segment::Break says so). DEADLINE_EXCEEDED —
// a peer didn't come in time. INVALID_ARGUMENT — the ranks called different collectives.
// Threads: one at a time.
class Communicator {
 public:
  Communicator(std::shared_ptr<Segment> segment, uint32_t rank);

  // Runs as much as possible without sleeping: spins for peers, at most `patience` a barrier.
  // Returns whether the call is done.
  absl::StatusOr<bool> Try(Call& call, absl::Duration patience);
  // Runs the rest. At each barrier spins for at most `patience`, then sleeps until peers arrive.
  absl::Status Finish(Call& call, absl::Duration patience, Instant deadline);

  // For tests: sets the count of arrivals (Segment::Line) before the first call.
  void StartFrom(uint32_t state) { target_ = state & ~Segment::kBroken; }

  uint32_t rank() const { return rank_; }
  uint32_t ranks() const { return segment_->ranks(); }
  // The number of calls begun.
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
  uint32_t target_ = 0;    // the count of every line when all have arrived at this rank's barrier
  uint32_t next_set_ = 0;  // the set of slots of the next chunk
  uint64_t sequence_ = 0;
};

// "all-reduce of 1000 float32 (sum)"; for people.
std::string Describe(const Announcement& what);

}  // namespace ddprun::worker::shm

#endif  // DDPRUN_WORKER_SHM_COMMUNICATOR_H_
