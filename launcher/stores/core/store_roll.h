#ifndef DDPRUN_LAUNCHER_STORES_CORE_STORE_ROLL_H_
#define DDPRUN_LAUNCHER_STORES_CORE_STORE_ROLL_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::launcher {

// Which ranks have come to the workers' store of a generation. Ranks that wait there for others say
// nothing for as long as torch's time-out, so those that haven't come kMissingAfter after the first
// one are to be named, once. Nothing is named where nobody comes: a program may never use the
// store, or load its data first. Nor where a client can't be told by its process. Pure; one thread.
class StoreRoll {
 public:
  static constexpr absl::Duration kMissingAfter = absl::Seconds(10);

  // Who is missing.
  struct Missing {
    std::vector<uint32_t> local_ranks;
    uint32_t elsewhere = 0;  // ranks of other nodes, which aren't known by number
    bool any() const { return !local_ranks.empty() || elsewhere > 0; }
  };

  // A generation begins: `here` of its `world` ranks are workers of this node.
  void Begin(uint32_t world, uint32_t here);
  // A worker of this node has come. Later calls change nothing.
  void OnLocal(Instant now, uint32_t local_rank);
  // A process of another node has come; `name`: the same for its further connections.
  void OnRemote(Instant now, std::string name);
  // Nobody knows who came.
  void OnUnknown() { told_ = true; }
  // A worker of this node has ended, and isn't missed.
  void OnEnded(uint32_t local_rank) { came_.insert(local_rank); }
  // When OnTimer is wanted; infinite = not at all.
  Instant Deadline() const;
  // Who is to be named now.
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
