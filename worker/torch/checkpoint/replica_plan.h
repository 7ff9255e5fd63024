#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_REPLICA_PLAN_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_REPLICA_PLAN_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

namespace ddprun::worker {

// Which ranks keep copies of another rank's share, and which state can be put together from copies
// when ranks are gone. Pure: numbers only.

// Returns, by rank, the ranks that keep copies of its share: `copies` of them, or all others if
// there are fewer. The copies of a share are on different hosts, as far as that is possible with
// every rank keeping the same number of copies.
// Params: hosts: by rank, the number of its host.
std::vector<std::vector<uint32_t>> ChooseHolders(const std::vector<uint32_t>& hosts,
                                                 uint32_t copies);

// Names a copy of the share that one of `world_size` ranks had after a step. The generation is part
// of the name, because a step that is done again may have a different result.
struct RecordKey {
  uint64_t generation = 0;
  uint32_t world_size = 0;
  int64_t step = 0;
  uint32_t shard = 0;  // the rank that had it
  int64_t bytes = 0;   // its length, which all copies have

  friend auto operator<=>(const RecordKey&, const RecordKey&) = default;
  bool SameState(const RecordKey& other) const {
    return generation == other.generation && world_size == other.world_size && step == other.step;
  }
};

// A state of the whole training, and which rank sends each shard.
struct RecoveryPoint {
  RecordKey state;                // without a meaning: `shard`, `bytes`
  std::vector<uint32_t> sources;  // by shard: the rank of its number if that has it, or the lowest
  std::vector<int64_t> bytes;     // by shard: its length
};

// Returns the whole state with the highest step; nullopt if no state is whole.
// Params: records: by rank, what it has.
std::optional<RecoveryPoint> ChooseRecoveryPoint(
    const std::vector<std::vector<RecordKey>>& records);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_REPLICA_PLAN_H_
