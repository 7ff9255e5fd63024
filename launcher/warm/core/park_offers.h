#ifndef DDPRUN_LAUNCHER_WARM_CORE_PARK_OFFERS_H_
#define DDPRUN_LAUNCHER_WARM_CORE_PARK_OFFERS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>

namespace ddprun::launcher {

// Which process a worker is that says that its program can be started ahead. A worker says so to
// the agent, and its pid comes from the keeper: on a busy node the former may be heard first.
// Pure; one thread.
class ParkOffers {
 public:
  // A worker of that local rank is to be started. What was heard of the one before it is past.
  void OnPrepared(uint32_t local_rank);
  // It has started; returns its pid when it has said so already.
  std::optional<int32_t> OnStarted(uint32_t local_rank, int32_t pid);
  // It says so; returns its pid when that is known.
  std::optional<int32_t> OnOffered(uint32_t local_rank);

 private:
  std::map<uint32_t, int32_t> started_;  // the newest of each local rank
  std::set<uint32_t> early_;             // who has said so and hasn't started; none of started_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WARM_CORE_PARK_OFFERS_H_
