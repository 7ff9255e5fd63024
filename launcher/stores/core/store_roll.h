#ifndef DDPRUN_LAUNCHER_STORES_CORE_STORE_ROLL_H_
#define DDPRUN_LAUNCHER_STORES_CORE_STORE_ROLL_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::launcher {

// The ranks that have connected to the workers' store of a generation. Ranks that wait there for
// others print nothing until torch's time-out, so ranks that haven't come kMissingAfter after the
// first one are reported, once. None is reported if no rank comes, because a program may never use
// the store, or load its data first; nor if a client's process can't be identified. Pure; one
// thread.
class StoreRoll {
 public:
  static constexpr absl::Duration kMissingAfter = absl::Seconds(10);

  // The missing ranks.
  struct Missing {
    std::vector<uint32_t> local_ranks;
    uint32_t elsewhere = 0;  // ranks of other nodes, which aren't known by number
    bool any() const { return !local_ranks.empty() || elsewhere > 0; }
  };

  // A generation begins: `here` of its `world` ranks are workers of this node.
  void Begin(uint32_t world, uint32_t here);
  // A worker of this node has connected. Later calls change nothing.
  void OnLocal(Instant now, uint32_t local_rank);
  // A process of another node has connected. `name`: the same for each connection of that process.
  void OnRemote(Instant now, std::string name);
  // A client that can't be identified has connected: nothing is reported any more.
  void OnUnknown() { told_ = true; }
  // A worker of this node has ended, and doesn't count as missing.
  void OnEnded(uint32_t local_rank) { came_.insert(local_rank); }
  // When OnTimer is wanted; infinite = not at all.
  Instant Deadline() const;
  // The ranks to report now.
  Missing OnTimer(Instant now);

 private:
  Missing Absent() const;

  uint32_t world_ = 0;
  uint32_t here_ = 0;
  Instant first_ = Instant::Infinite();  // when the first one came
  std::set<uint32_t> came_;              // local ranks
  std::set<std::string> remote_;
  bool told_ = false;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORES_CORE_STORE_ROLL_H_
