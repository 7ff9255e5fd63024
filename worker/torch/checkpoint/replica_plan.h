#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_REPLICA_PLAN_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_REPLICA_PLAN_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

namespace ddprun::worker {

// Who keeps copies of what one rank alone has, and what can be put together from them when ranks
// are gone. Pure: numbers only.

// By rank: who keeps copies of its share: `copies` ranks, or all others where they are fewer. They
// are on other hosts than it and each other, as far as there are such hosts for all ranks. Each
// rank keeps as many as any other.
// Params: hosts: each rank's.
std::vector<std::vector<uint32_t>> ChooseHolders(const std::vector<uint32_t>& hosts,
                                                 uint32_t copies);

// A copy of what one of `world_size` ranks had after a step. A step that is done again in a later
// generation may come to something else.
struct RecordKey {
  uint64_t generation = 0;
  uint32_t world_size = 0;
  int64_t step = 0;
  uint32_t shard = 0;  // the rank whose it was
  int64_t bytes = 0;   // its length; the same of all copies

  friend auto operator<=>(const RecordKey&, const RecordKey&) = default;
  bool SameState(const RecordKey& other) const {
    return generation == other.generation && world_size == other.world_size && step == other.step;
  }
};

// A state of the whole training, and which rank has each part.
struct RecoveryPoint {
  RecordKey state;                // `shard` says nothing
  std::vector<uint32_t> sources;  // by shard: that rank itself, where it can be; else the lowest
  std::vector<int64_t> bytes;     // by shard: of its copies
};

// The one with the highest step of those that are whole; none: none is.
// Params: records: by rank, what it has.
std::optional<RecoveryPoint> ChooseRecoveryPoint(
    const std::vector<std::vector<RecordKey>>& records);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_REPLICA_PLAN_H_
