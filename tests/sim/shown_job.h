#ifndef DDPRUN_TESTS_SIM_SHOWN_JOB_H_
#define DDPRUN_TESTS_SIM_SHOWN_JOB_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "rendezvous/core/job/state_machine.h"
#include "tests/sim/sim_node.h"

namespace ddprun::sim {

// What the service shows of a job, for checks at each tick. The view is taken anew when something
// may have changed, and now and then if nothing has. How far workers are, and how long ago a node
// was heard, may be out of date: no check looks at them.
class ShownJob {
 public:
  struct Shown {
    rendezvous::JobView view;
    std::vector<const SimNode*> nodes;  // the machine of each node of the view
  };

  // Params: node_called: returns the node with an id.
  explicit ShownJob(std::function<const SimNode*(const rendezvous::NodeId&)> node_called)
      : node_called_(std::move(node_called)) {}

  // The service has taken a step.
  void OnStep(const rendezvous::Event& event, const std::vector<rendezvous::Effect>& effects);
  // The view is stale from now on: another service has the job.
  void Forget() { old_ = true; }
  // Valid until the next look.
  const Shown& Look(const rendezvous::StateMachine& machine, Instant now);

 private:
  const std::function<const SimNode*(const rendezvous::NodeId&)> node_called_;
  Shown shown_;
  bool old_ = true;  // something may have changed
  uint64_t looks_ = 0;
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_SHOWN_JOB_H_
