#ifndef DDPRUN_TESTS_SIM_SIM_STORE_H_
#define DDPRUN_TESTS_SIM_SIM_STORE_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "base/instant.h"
#include "rendezvous/core/job_record.h"

namespace ddprun::sim {

// A job's record, and when it was taken.
struct Kept {
  rendezvous::JobRecord record;
  Instant taken;
  uint64_t step = 0;  // of its service
};

// The record of one job, for one service after the other, or two at once: a write holds only while
// its writer is the last one that has taken the store (R10). Stands for etcd's key of the leader,
// and for the holder's name beside a file.
class SimStore {
 public:
  // Params: ignores_fence: a bug, for negative controls.
  explicit SimStore(bool ignores_fence) : ignores_fence_(ignores_fence) {}

  // Called before anything is read. Returns the number of the leadership that begins.
  uint64_t Take() { return ++leader_; }
  // False: another service has taken the store, and nothing is written.
  bool Put(uint64_t leadership, Kept&& kept) {
    if (leadership != leader_ && !ignores_fence_) return false;
    before_ = std::move(kept_);
    kept_ = std::move(kept);
    return true;
  }
  // Drops the record, which is of the past. False: another service has taken the store.
  bool Retract(uint64_t leadership) {
    if (leadership != leader_ && !ignores_fence_) return false;
    kept_.reset();
    before_.reset();
    return true;
  }

  const std::optional<Kept>& kept() const { return kept_; }
  const std::optional<Kept>& before() const { return before_; }

 private:
  const bool ignores_fence_;
  uint64_t leader_ = 0;
  std::optional<Kept> kept_;
  std::optional<Kept> before_;
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_SIM_STORE_H_
