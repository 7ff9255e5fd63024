#ifndef DDPRUN_WORKER_TORCH_STORE_COLLECTIVE_CHECK_H_
#define DDPRUN_WORKER_TORCH_STORE_COLLECTIVE_CHECK_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace ddprun::worker {

// Compares what all ranks are about to do before they do it, over the store. Ranks that disagree
// would otherwise wait for each other until the collectives' timeout, or exchange wrong bytes.
//
// The n-th operation of every rank must have the same text: each rank writes its text, rank 0
// compares them and writes the verdict, which all ranks return. Costs two or three calls of the
// store an operation; for finding mistakes, not for production.
// Threads: any, but operations of several threads at once have no order to compare.
//
// Not by a collective, as TORCH_DISTRIBUTED_DEBUG=DETAIL does it: a rank that has ended takes part
// in none, and the others would wait for the timeout. Texts instead of hashes, because a hash can't
// say what differs.
class CollectiveCheck {
 public:
  // Params: timeout: for the slowest rank to come to the same operation.
  CollectiveCheck(c10::intrusive_ptr<c10d::Store> store, uint32_t rank, uint32_t world_size,
                  absl::Duration timeout);

  // Sets what the program is doing, "in forward pass 3", which is added to each operation's text.
  void SetActivity(std::string activity);

  // Errors: FAILED_PRECONDITION — ranks are about to do different things; the text says which rank
  // does what. UNAVAILABLE, "PeerError: …" — the same, because other ranks have ended. Throws the
  // store's errors, DEADLINE_EXCEEDED among them.
  absl::Status Compare(const std::string& operation);

  // Reports that this rank does nothing more with the others. Doesn't wait.
  void AnnounceEnd();
  // Waits until all ranks have called AnnounceEnd, or a rank begins something else.
  // Errors: FAILED_PRECONDITION — other ranks go on.
  absl::Status CompareEnd();

 private:
  void Announce(const std::string& text);
  absl::Status AwaitVerdict(bool ended);

  const c10::intrusive_ptr<c10d::Store> store_;
  const uint32_t rank_;
  const uint32_t world_size_;
  const absl::Duration timeout_;
  std::mutex mutex_;
  std::string activity_;   // guarded by mutex_
  uint64_t sequence_ = 0;  // guarded by mutex_: operations announced
};

// Describes how these texts, one a rank, differ; "" if they are equal. Pure.
std::string JudgeOperations(const std::vector<std::string>& texts);

// Keeps the check of a context that is destroyed, for CompareEnds.
void CompareAtEnd(std::shared_ptr<CollectiveCheck> check);
// Compares the ends of all kept checks: called by RunWorker when its body succeeded. Errors: as
// CompareEnd.
absl::Status CompareEnds();

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_STORE_COLLECTIVE_CHECK_H_
