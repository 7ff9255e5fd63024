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
// The n-th operation of every rank must read the same: each rank writes its text, rank 0 compares
// and writes the verdict, which all ranks answer. That is two or three calls of the store an
// operation; for finding mistakes, not for production.
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

  // Where the program is, e.g. "in forward pass 3"; goes behind each operation's text. "" =
  // nowhere.
  void SetActivity(std::string activity);

  // Errors: FAILED_PRECONDITION — ranks are about to do different things; the text says which rank
  // does what. UNAVAILABLE, "PeerError: …" — the same, because other ranks have ended.
  // DEADLINE_EXCEEDED and others — of the store, thrown by it.
  absl::Status Compare(const std::string& operation);

  // This rank does nothing more with the others. Waits for nothing.
  void AnnounceEnd();
  // Waits until all ranks have come to their end, or begin something else.
  // Errors: FAILED_PRECONDITION — others go on.
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

// What is wrong with these texts, one a rank; "" when they are equal. Pure.
std::string JudgeOperations(const std::vector<std::string>& texts);

// The checks of contexts that are gone, which the end of a program still compares: called by
// RunWorker when its body succeeded. Errors: as CompareEnd.
void CompareAtEnd(std::shared_ptr<CollectiveCheck> check);
absl::Status CompareEnds();

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_STORE_COLLECTIVE_CHECK_H_
