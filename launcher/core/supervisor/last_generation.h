#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_LAST_GENERATION_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_LAST_GENERATION_H_

#include <cstdint>
#include <optional>

#include "launcher/core/supervisor/supervisor_events.h"
#include "rendezvous/core/identifiers.h"

namespace ddprun::launcher {

// How the last generation on this node ended, and whether its stores are gone.
// Pure; one thread.
class LastGeneration {
 public:
  // The next one begins.
  void OnAssigned() { succeeded_ = rendezvous::Generation(); }
  // No process of the generation is left.
  void OnEmpty(const GroupEmpty& event);
  // All workers here ended well, and this node waits for the others (R8).
  void Succeed(rendezvous::Generation generation);
  // A failure on another node restarts the generation. Returns: whether it had succeeded here.
  bool Withdraw(rendezvous::Generation generation);
  // The generation's stores are to be dropped. Returns: whether this is the first call for it.
  bool EndStores(rendezvous::Generation generation);

  bool succeeded() const { return succeeded_ != rendezvous::Generation(); }
  const std::optional<uint64_t>& step() const { return step_; }
  const std::optional<rendezvous::NodeTime>& time() const { return time_; }

 private:
  rendezvous::Generation succeeded_;          // 0 = none, or it was withdrawn
  rendezvous::Generation stores_ended_;       // never goes back
  std::optional<uint64_t> step_;              // highest that was marked
  std::optional<rendezvous::NodeTime> time_;  // how the workers spent the generation
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_LAST_GENERATION_H_
