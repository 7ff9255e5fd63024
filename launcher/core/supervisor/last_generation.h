#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_LAST_GENERATION_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_LAST_GENERATION_H_

#include <cstdint>
#include <optional>

#include "launcher/core/supervisor/supervisor_events.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

// What the generation that ended last on this node came to, and whether its stores are gone.
// Pure; one thread.
class LastGeneration {
 public:
  // The next one begins.
  void OnAssigned() { succeeded_ = rendezvous::Generation(); }
  // Nothing of it is left.
  void OnEmpty(const GroupEmpty& event);
  // All its workers here ended well, and this node waits for the others (R8).
  void Succeed(rendezvous::Generation generation);
  // A failure elsewhere restarts it. Returns: whether it had succeeded here.
  bool Withdraw(rendezvous::Generation generation);
  // Its stores are to be dropped. Returns: whether they were not yet.
  bool EndStores(rendezvous::Generation generation);

  bool succeeded() const { return succeeded_ != rendezvous::Generation(); }
  const std::optional<uint64_t>& step() const { return step_; }
  const std::optional<rendezvous::NodeTime>& time() const { return time_; }

 private:
  rendezvous::Generation succeeded_;          // 0 = none, or it was withdrawn
  rendezvous::Generation stores_ended_;       // never goes back
  std::optional<uint64_t> step_;              // highest that was marked
  std::optional<rendezvous::NodeTime> time_;  // how it was spent
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_LAST_GENERATION_H_
