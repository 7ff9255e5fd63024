#include "tests/sim/strangers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/timing.h"

namespace ddprun::sim {

using rendezvous::AgentMessage;
using rendezvous::Join;

std::optional<Intrusion> Intrude(Stranger kind, const AgentMessage& join,
                                 const rendezvous::JobView& view, uint64_t number) {
  if (view.phase == "ended" || view.nodes.empty()) return std::nullopt;
  const Join& known = std::get<Join>(join.body);
  const auto holder = std::find_if(view.nodes.begin(), view.nodes.end(), [&](const auto& node) {
    return node.node_id == join.node_id && node.info.agent_pid == known.node.agent_pid;
  });
  const bool is_here = holder != view.nodes.end() && holder->state != "unreachable" &&
                       holder->state != "draining" &&
                       holder->silent <= 2 * rendezvous::ProbeInterval(view.spec.lease);
  Intrusion intrusion{.message = join, .refusal = absl::StatusCode::kAborted};
  AgentMessage& message = intrusion.message;
  Join& said = std::get<Join>(message.body);
  message.incarnation = rendezvous::Incarnation(1'000'000 + number);
  message.stream = rendezvous::StreamNumber(1);
  message.generation = {};
  message.term = {};
  said.node.agent_pid = static_cast<uint32_t>(message.incarnation.value());
  said.group_state = rendezvous::GroupState::kIdle;
  if (kind != Stranger::kRival && kind != Stranger::kOldStream) {
    message.node_id = rendezvous::NodeId(absl::StrCat(join.node_id.value(), "x"));
  }
  switch (kind) {
    case Stranger::kRival:
      if (!is_here) return std::nullopt;
      intrusion.refusal = absl::StatusCode::kAlreadyExists;
      break;
    case Stranger::kOtherJob:
      said.job.fingerprint = "another";
      intrusion.refusal = absl::StatusCode::kAlreadyExists;
      break;
    case Stranger::kNoToken:
      said.token.clear();
      intrusion.refusal = absl::StatusCode::kUnauthenticated;
      break;
    case Stranger::kOtherTerm:
      message.term = rendezvous::Term(1'000'000);
      break;
    case Stranger::kOldStream:
      if (!is_here) return std::nullopt;
      message.incarnation = join.incarnation;
      message.term = join.term;
      break;
    case Stranger::kNoJoin:
      message.body = rendezvous::GroupSucceeded{};
      message.sequence = 1;
      intrusion.refusal = absl::StatusCode::kInvalidArgument;
      break;
    case Stranger::kBadClaim:
      said.node.node_rank = view.spec.nodes_max;
      intrusion.refusal = absl::StatusCode::kInvalidArgument;
      break;
    case Stranger::kOtherProtocol:
      ++said.protocol_major;
      intrusion.refusal = absl::StatusCode::kFailedPrecondition;
      break;
  }
  return intrusion;
}

}  // namespace ddprun::sim
