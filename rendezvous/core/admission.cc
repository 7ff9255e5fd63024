#include "rendezvous/core/admission.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/version.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/releases.h"

namespace ddprun::rendezvous {
namespace {

absl::Status CheckName(const char* what, const std::string& name) {
  if (name.size() <= kNameBytesMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(what, " has ", name.size(), " bytes; at most ",
                                                   kNameBytesMax,
                                                   " are taken: choose a shorter one"));
}

absl::Status CheckDuration(const char* what, absl::Duration duration, absl::Duration least) {
  if (duration >= least && duration <= kTimeoutMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is ", absl::FormatDuration(duration), "; it must be between ",
                   absl::FormatDuration(least), " and ", absl::FormatDuration(kTimeoutMax)));
}

absl::Status CheckSizes(const JobSpec& job) {
  if (job.nodes_min == 0 || job.nodes_min > job.nodes_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the job asks for ", job.nodes_min, " to ", job.nodes_max,
        " nodes; the least number must be at least 1 and not above the most (--nnodes)"));
  }
  if (job.nodes_max > kNodesMax) {
    return absl::ResourceExhaustedError(absl::StrCat("the job asks for ", job.nodes_max,
                                                     " nodes; at most ", kNodesMax,
                                                     " are served (--nnodes)"));
  }
  return absl::OkStatus();
}

absl::Status CheckNode(const JobSpec& job, const NodeInfo& node) {
  if (node.worker_count == 0) {
    return absl::InvalidArgumentError("the node brings no workers (--nproc_per_node is 0)");
  }
  if (node.worker_count > kWorkersPerNodeMax) {
    return absl::ResourceExhaustedError(absl::StrCat("the node brings ", node.worker_count,
                                                     " workers; at most ", kWorkersPerNodeMax,
                                                     " are served (--nproc_per_node)"));
  }
  if (node.node_rank && *node.node_rank >= job.nodes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("node rank ", *node.node_rank, " is claimed by ", node.hostname,
                     ", but the job has at most ", CountText(job.nodes_max, "node"),
                     ": give a --node_rank from 0 to ", job.nodes_max - 1));
  }
  DDPRUN_RETURN_IF_ERROR(CheckName("the host name", node.hostname));
  DDPRUN_RETURN_IF_ERROR(CheckName("the address", node.address));
  DDPRUN_RETURN_IF_ERROR(CheckName("the role", node.role));
  return CheckName("the store's address", node.store_address);
}

}  // namespace

bool SameSecret(const std::string& expected, const std::string& offered) {
  unsigned difference = expected.size() == offered.size() ? 0 : 1;
  for (size_t i = 0; i < offered.size(); ++i) {
    const char wanted = expected.empty() ? '\0' : expected[i % expected.size()];
    difference |= static_cast<unsigned>(static_cast<unsigned char>(wanted) ^
                                        static_cast<unsigned char>(offered[i]));
  }
  return difference == 0;
}

absl::Status CheckProtocol(const Join& join) {
  if (join.protocol_major == kProtocolMajor) return absl::OkStatus();
  const bool agent_is_newer = join.protocol_major > kProtocolMajor;
  return absl::FailedPreconditionError(absl::StrCat(
      "this agent (ddprun ", join.node.release, ") speaks protocol ", join.protocol_major,
      ", the rendezvous service (ddprun ", kVersion, ") speaks ", kProtocolMajor, ": upgrade ",
      agent_is_newer ? "ddprun where the service runs" : "ddprun on the agent's node"));
}

absl::Status CheckRelease(const NodeInfo& node, const std::string& peer,
                          const std::string& release) {
  if (MayMeet(node.release, release)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(node.hostname, " has ddprun ", node.release, ", and ", peer, " has ", release,
                   ": releases in one job differ by one minor release at most; install ddprun ",
                   kVersion, " on ", node.hostname, ", or ", node.release, " on all other nodes"));
}

absl::Status CheckToken(const std::string& token, const Join& join) {
  if (SameSecret(token, join.token)) return absl::OkStatus();
  if (token.empty()) {
    return absl::UnauthenticatedError(
        "the agent has a token and the rendezvous service has none, so that anybody could join the "
        "job: start the service's node (or ddprun rendezvous) with the same token, too");
  }
  return absl::UnauthenticatedError(
      join.token.empty() ? "this job needs a token and the agent gave none: start it with the job's"
                         : "the agent's token is not that of this job: start it with the job's");
}

absl::Status CheckTerm(Term ours, const AgentMessage& message) {
  if (message.term == Term() || message.term == ours) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("this service started anew (term ", ours.value(),
                                         ") and doesn't know the running job of term ",
                                         message.term.value(), ": start the job again"));
}

absl::Status CheckBounds(const AgentMessage& message, const Join& join) {
  DDPRUN_RETURN_IF_ERROR(CheckName("the run id", message.run_id));
  DDPRUN_RETURN_IF_ERROR(CheckName("the node id", message.node_id.value()));
  if (message.run_id.empty() || message.run_id != join.job.run_id) {
    return absl::InvalidArgumentError(absl::StrCat("the message is for run id '", message.run_id,
                                                   "', its job is '", join.job.run_id,
                                                   "': both must name one job"));
  }
  if (message.node_id.value().empty() || message.incarnation == Incarnation() ||
      message.stream == StreamNumber()) {
    return absl::InvalidArgumentError(
        "a Join needs a node id, an incarnation and a stream number above 0");
  }
  if (join.group_state != GroupState::kIdle && message.generation == Generation()) {
    return absl::InvalidArgumentError(
        "a Join of a node with workers must name their generation; this one names 0");
  }
  DDPRUN_RETURN_IF_ERROR(CheckSizes(join.job));
  DDPRUN_RETURN_IF_ERROR(CheckNode(join.job, join.node));
  const JobSpec& job = join.job;
  DDPRUN_RETURN_IF_ERROR(CheckDuration("the lease", job.lease, kLeaseMin));
  DDPRUN_RETURN_IF_ERROR(
      CheckDuration("the reconnect grace", job.reconnect_grace, absl::ZeroDuration()));
  DDPRUN_RETURN_IF_ERROR(CheckDuration("join_timeout", job.join_timeout, absl::ZeroDuration()));
  DDPRUN_RETURN_IF_ERROR(
      CheckDuration("last_call_timeout", job.last_call_timeout, absl::ZeroDuration()));
  return CheckDuration("the stop grace", job.stop_grace, absl::ZeroDuration());
}

absl::Status CheckSameJob(const JobSpec& held, const std::string& holder, const JobSpec& offered) {
  std::vector<std::string> differences;
  if (held.run_id != offered.run_id) {
    differences.push_back(absl::StrCat("run id '", offered.run_id, "'"));
  }
  if (held.nodes_min != offered.nodes_min || held.nodes_max != offered.nodes_max) {
    differences.push_back(
        absl::StrCat("number of nodes ", NodesText(offered), " instead of ", NodesText(held)));
  }
  if (held.max_restarts != offered.max_restarts) {
    differences.push_back(
        absl::StrCat("max_restarts ", offered.max_restarts, " instead of ", held.max_restarts));
  }
  // The fingerprint covers everything that identifies a job; which part differs isn't known here.
  if (held.description != offered.description && held.fingerprint != offered.fingerprint) {
    differences.push_back(absl::StrCat("command: '", offered.description, "'"));
  } else if (differences.empty() && held.fingerprint != offered.fingerprint) {
    differences.emplace_back(
        "the kind of its command (script, module or program) or ddprun's version");
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("run id '", held.run_id, "' is held by ", holder, " with '", held.description,
                   "'; this node differs in ", absl::StrJoin(differences, " and "),
                   ": start all nodes with the same command, or give this job its own --rdzv_id"));
}

}  // namespace ddprun::rendezvous
