#ifndef DDPRUN_TESTS_SIM_STRANGERS_H_
#define DDPRUN_TESTS_SIM_STRANGERS_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "rendezvous/core/agent_message.h"
#include "rendezvous/core/job/state_machine.h"

// First messages of streams that a service must refuse (R1, R2, R6, R9).
namespace ddprun::sim {

enum class Stranger {
  kRival,     // another agent of a live node's id
  kOtherJob,  // of another job
  kNoToken,
  kOtherTerm,
  kOldStream,  // of a live agent, from before its last one
  kNoJoin,
  kBadClaim,
  kOtherProtocol,
};
inline constexpr uint64_t kStrangers = 8;

struct Intrusion {
  rendezvous::AgentMessage message;
  absl::StatusCode refusal;  // with which its stream must end
};

// Params: join: the last Join of an agent that the service may know; view: the service's, of now;
// number: of this message. Returns nullopt if the service might rightly accept such a message now.
std::optional<Intrusion> Intrude(Stranger kind, const rendezvous::AgentMessage& join,
                                 const rendezvous::JobView& view, uint64_t number);

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_STRANGERS_H_
