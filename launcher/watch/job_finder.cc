#include "launcher/watch/job_finder.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "base/status_macros.h"
#include "launcher/os/runtime_dir.h"
#include "launcher/watch/agent_client.h"
#include "rendezvous/client/control_client.h"

namespace ddprun::launcher {
namespace {

std::string TargetOf(const QueryOptions& options) {
  return options.socket.empty() ? HostPort(options.host, options.port) : options.socket;
}

// "\n  --rdzv_endpoint unix:/tmp/…  job7: train.py"
std::string ChoiceText(const FoundService& service) {
  std::string text = absl::StrCat("\n  --rdzv_endpoint ", service.target, " ");
  for (const auto& job : service.reply.jobs()) {
    absl::StrAppend(&text, " ", job.run_id(), ": ", job.description());
  }
  return text;
}

// Services that can be on any machine: the agents of this one know where.
std::set<std::string> TargetsOfAgents(const QueryOptions& options) {
  std::set<std::string> targets;
  for (const std::string& socket : FindLocalSockets(kAgentSocket)) {
    auto node = FetchNodeState(socket, options.timeout);
    if (!node.ok() || node->service().empty()) continue;
    if (options.run_id.empty() || options.run_id == node->run_id()) targets.insert(node->service());
  }
  return targets;
}

}  // namespace

absl::StatusOr<std::vector<FoundService>> FindServices(const QueryOptions& options) {
  std::vector<FoundService> found;
  if (!options.endpoint_given) {
    for (const std::string& target : FindLocalSockets(kServiceSocket)) {
      auto reply = rendezvous::FetchStatus(target, options.run_id, options.timeout, options.token);
      if (reply.ok()) found.push_back({target, *std::move(reply)});
    }
    for (const std::string& target : TargetsOfAgents(options)) {
      auto reply = rendezvous::FetchStatus(target, options.run_id, options.timeout, options.token,
                                           options.tls);
      if (reply.ok()) found.push_back({target, *std::move(reply)});
    }
  }
  const std::string target = TargetOf(options);
  auto reply =
      rendezvous::FetchStatus(target, options.run_id, options.timeout, options.token, options.tls);
  if (reply.ok()) {
    found.push_back({target, *std::move(reply)});
  } else if (options.endpoint_given) {
    return reply.status();
  }
  if (found.empty()) {
    return absl::NotFoundError(absl::StrCat(
        options.run_id.empty()
            ? "no job of yours runs on this machine"
            : absl::StrCat("no job '", options.run_id, "' of yours runs on this machine"),
        ", and ", reply.status().message(), "; say where the service is: --rdzv_endpoint"));
  }
  return found;
}

std::vector<agent::v1::NodeState> FindCutOffNodes(const QueryOptions& options,
                                                  const std::vector<FoundService>& found) {
  std::set<std::pair<std::string, std::string>> known;
  for (const FoundService& service : found) {
    for (const auto& job : service.reply.jobs()) {
      for (const auto& node : job.nodes()) known.emplace(job.run_id(), node.node_id());
    }
  }
  std::vector<agent::v1::NodeState> nodes;
  for (const std::string& target : FindLocalSockets(kAgentSocket)) {
    auto node = FetchNodeState(target, options.timeout);
    if (!node.ok() || !node->has_absence()) continue;
    if (known.contains({node->run_id(), node->node_id()})) continue;
    if (!options.run_id.empty() && options.run_id != node->run_id()) continue;
    if (options.endpoint_given && TargetOf(options) != node->endpoint()) continue;
    nodes.push_back(*std::move(node));
  }
  return nodes;
}

absl::StatusOr<std::string> FindTarget(const QueryOptions& options) {
  if (options.endpoint_given) return TargetOf(options);
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<FoundService> found, FindServices(options));
  if (found.size() == 1) return found.front().target;
  std::string text = "which job? There are several on this machine; name one with --rdzv_id, or by";
  for (const FoundService& service : found) absl::StrAppend(&text, ChoiceText(service));
  return absl::InvalidArgumentError(text);
}

}  // namespace ddprun::launcher
