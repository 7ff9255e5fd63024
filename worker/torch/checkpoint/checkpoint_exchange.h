#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINT_EXCHANGE_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINT_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ddprun/context.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"
#include "worker/torch/checkpoint/checkpoint_directory.h"

// What ranks tell each other about checkpoints: each has a directory, of which some, or all, are
// the same. All are collectives. Errors of all: UNAVAILABLE — a peer is gone.
namespace ddprun::worker {

// The newest checkpoint of `range` that any rank has whole: those that lack it get it from the
// lowest rank that has it. Null = there is none.
// Errors: DATA_LOSS — there are some, but no rank has a whole one; the text names the newest.
absl::StatusOr<std::unique_ptr<LoadedCheckpoint>> AgreeOnNewest(Context& context,
                                                                const std::string& directory,
                                                                const CheckpointRange& range);

// Hands the shards of a checkpoint to `take`, in order: the own one alone when as many ranks wrote
// it, each finds its own, and that `suffices` for each (another stage or size of buckets deals
// parameters out otherwise); else all, which go around from ranks that have them.
// Answers whether there were all, the same on every rank; if not, a warning says what is missing.
absl::StatusOr<bool> TakeShards(
    Context& context, const std::string& directory, const FoundCheckpoint& checkpoint,
    const std::function<bool(const CheckpointTensors& tensors)>& suffices,
    const std::function<void(uint32_t shard, const CheckpointTensors& tensors)>& take);

// The checkpoints up to `newest` that are whole, newest first, the same on every rank: rank 0 has
// them, and each shard that they count is on the disk of the rank of its number (of that number
// modulo the ranks, where they are fewer now).
absl::StatusOr<std::vector<FoundCheckpoint>> AgreeOnWhole(Context& context,
                                                          const std::string& directory,
                                                          const CheckpointId& newest);

// Every rank's number, by rank.
absl::StatusOr<std::vector<int64_t>> GatherNumber(Context& context, int64_t own);

// All ranks' outcomes: OK when all are; else the own error, or ABORTED with the words of the lowest
// rank that has one: "PeerError: rank 1 could not <what>: …".
absl::Status AgreeOnSuccess(Context& context, const absl::Status& mine, absl::string_view what);

// Rank 0's outcome, on every rank.
absl::Status OutcomeOfMain(Context& context, const absl::Status& of_main);

// Without collectives, for a thread beside training: each rank tells rank 0 by the store the
// checksum of its shard of the `number`-th checkpoint. Rank 0 waits for as long as their disks
// take, a day at most, whatever the store's timeout was (300 s by default): the store tells of the
// death of one. Returns, on rank 0: all of them; none: one has failed. Throws as c10d.
std::vector<uint32_t> ShareChecksums(c10d::Store& store, uint64_t number, uint32_t rank,
                                     uint32_t world_size, const absl::StatusOr<uint32_t>& own);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINT_EXCHANGE_H_
