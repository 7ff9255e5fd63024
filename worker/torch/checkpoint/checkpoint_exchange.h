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

// Collectives by which ranks agree on checkpoints. Each rank has a directory; some or all ranks may
// share one. Errors of all: UNAVAILABLE — a peer is gone.
namespace ddprun::worker {

// Loads the newest checkpoint of `range` that any rank has whole; ranks that lack it get it from
// the lowest rank that has it. Null = there is none.
// Errors: DATA_LOSS — there are checkpoints, but no rank has a whole one; the text names the
// newest.
absl::StatusOr<std::unique_ptr<LoadedCheckpoint>> AgreeOnNewest(Context& context,
                                                                const std::string& directory,
                                                                const CheckpointRange& range);

// Calls `take` with shards of a checkpoint, in order. With only the own shard if as many ranks
// wrote the checkpoint, each rank finds its own shard, and that `suffices` for each (another stage
// or size of buckets divides parameters differently). Otherwise with all shards, which ranks that
// have them send. Returns whether all shards were found, the same on every rank; if not, a warning
// says which are missing.
absl::StatusOr<bool> TakeShards(
    Context& context, const std::string& directory, const FoundCheckpoint& checkpoint,
    const std::function<bool(const CheckpointTensors& tensors)>& suffices,
    const std::function<void(uint32_t shard, const CheckpointTensors& tensors)>& take);

// The whole checkpoints up to `newest`, newest first, the same on every rank. Whole means: rank 0
// has the main file, and each shard is on the disk of the rank of its number (modulo the number of
// ranks, if they are fewer now).
absl::StatusOr<std::vector<FoundCheckpoint>> AgreeOnWhole(Context& context,
                                                          const std::string& directory,
                                                          const CheckpointId& newest);

// Exchanges a number of each rank; returns them by rank.
absl::StatusOr<std::vector<int64_t>> GatherNumber(Context& context, int64_t own);

// Combines all ranks' outcomes: OK if all are; else the own error, or ABORTED with the text of the
// lowest rank that has an error: "PeerError: rank 1 could not <what>: …".
absl::Status AgreeOnSuccess(Context& context, const absl::Status& mine, absl::string_view what);

// Returns rank 0's outcome on every rank.
absl::Status OutcomeOfMain(Context& context, const absl::Status& of_main);

// Sends rank 0 the checksums of all ranks' shards of the `number`-th checkpoint, through the store:
// not a collective, for a thread beside training. Rank 0 waits for the ranks' disks, a day at most,
// whatever the store's timeout is (300 s by default), because the store reports the death of a
// rank. Returns, on rank 0: all checksums; empty if a rank failed. Throws as c10d.
std::vector<uint32_t> ShareChecksums(c10d::Store& store, uint64_t number, uint32_t rank,
                                     uint32_t world_size, const absl::StatusOr<uint32_t>& own);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINT_EXCHANGE_H_
