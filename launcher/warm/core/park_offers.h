#ifndef DDPRUN_LAUNCHER_WARM_CORE_PARK_OFFERS_H_
#define DDPRUN_LAUNCHER_WARM_CORE_PARK_OFFERS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>

namespace ddprun::launcher {

// Matches offers with pids. A worker reports to the agent that its program can be started ahead,
// and the keeper reports the worker's pid; on a busy node the offer may come first. Pure; one
// thread.
class ParkOffers {
 public:
  // A worker of that local rank is to be started. Forgets the worker before it.
  void OnPrepared(uint32_t local_rank);
  // The worker has started. Returns its pid if its offer has come already.
  std::optional<int32_t> OnStarted(uint32_t local_rank, int32_t pid);
  // The worker offers its program. Returns its pid if that is known.
  std::optional<int32_t> OnOffered(uint32_t local_rank);

 private:
  std::map<uint32_t, int32_t> started_;  // the newest of each local rank
  std::set<uint32_t> early_;             // offers without a pid; disjoint from started_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WARM_CORE_PARK_OFFERS_H_
