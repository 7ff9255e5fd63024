#ifndef DDPRUN_RENDEZVOUS_CORE_ADMISSION_H_
#define DDPRUN_RENDEZVOUS_CORE_ADMISSION_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "rendezvous/core/agent_message.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/core/node_info.h"

// The checks of a Join that don't involve other nodes; pure. Every status says what to do (R6, R9).
namespace ddprun::rendezvous {

// True if both are equal. The time depends only on the length of `offered`.
bool SameSecret(const std::string& expected, const std::string& offered);

// Errors: FAILED_PRECONDITION — another protocol major; names the side to upgrade.
absl::Status CheckProtocol(const Join& join);

// Errors: FAILED_PRECONDITION — an agent's release may not meet another one in a job; says what to
// install where. Params: peer: the owner of that one, as a text: "the
// rendezvous service of this job".
absl::Status CheckRelease(const NodeInfo& node, const std::string& peer,
                          const std::string& release);

// Errors: UNAUTHENTICATED — not the job's token. An empty `token` accepts agents without a token
// only: an agent with one was meant for a job that strangers can't join, and this one is open.
absl::Status CheckToken(const std::string& token, const Join& join);

// Errors: ABORTED — the agent knows another term.
absl::Status CheckTerm(Term ours, const AgentMessage& message);

// Errors: INVALID_ARGUMENT — a value that no correct agent sends; RESOURCE_EXHAUSTED — a bound.
absl::Status CheckBounds(const AgentMessage& message, const Join& join);

// Errors: ALREADY_EXISTS — the job of `join` is another one; names the holder and what differs.
absl::Status CheckSameJob(const JobSpec& held, const std::string& holder, const JobSpec& offered);

// The end of a refusal because another node holds the claim, for agents that can do without it.
inline constexpr absl::string_view kClaimHint = "give this node another --node_rank";

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_ADMISSION_H_
