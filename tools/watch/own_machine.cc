#include "tools/watch/own_machine.h"

#include <grpc/support/time.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/address.h"
#include "ddprun/agent/v1/agent.grpc.pb.h"
#include "launcher/machine/host_probe.h"
#include "launcher/os/runtime_dir.h"
#include "rendezvous/client/failure_text.h"
#include "rendezvous/wire/grpc_settings.h"

namespace ddprun::launcher {
namespace {

// This process never cancels a call, so CANCELLED means that the agent ends.
absl::Status DescribeAgentFailure(const std::string& target, const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::CANCELLED) {
    return absl::UnavailableError(absl::StrCat(target, ": the agent there ends"));
  }
  return rendezvous::DescribeFailure(target, status, "agent");
}

}  // namespace

absl::Status ReadLogs(const rendezvous::ServiceAddress& agent,
                      const agent::v1::ReadLogsRequest& request,
                      const std::function<void(const agent::v1::LogPiece&)>& on_piece,
                      const TlsFiles& tls) {
  const auto stub = agent::v1::Agent::NewStub(rendezvous::MakeChannel(agent.target, tls));
  grpc::ClientContext context;
  const auto reader = stub->ReadLogs(&context, request);
  agent::v1::LogPiece piece;
  while (reader->Read(&piece)) on_piece(piece);
  const grpc::Status status = reader->Finish();
  return status.ok() ? absl::OkStatus() : DescribeAgentFailure(agent.name, status);
}

absl::StatusOr<agent::v1::NodeState> FetchNodeState(const std::string& target,
                                                    absl::Duration timeout) {
  const auto stub = agent::v1::Agent::NewStub(rendezvous::MakeChannel(target));
  grpc::ClientContext context;
  context.set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                   gpr_time_from_nanos(absl::ToInt64Nanoseconds(timeout), GPR_TIMESPAN)));
  agent::v1::NodeState state;
  const grpc::Status status = stub->GetNodeState(&context, {}, &state);
  if (!status.ok()) return DescribeAgentFailure(target, status);
  return state;
}

namespace {

using Addresses = std::vector<std::string>;

// "[::1]:29400" is "::1" and "29400".
std::pair<std::string, std::string> HostAndPort(const std::string& address) {
  const size_t colon = std::min(address.rfind(':'), address.size());
  const std::string host = absl::StrReplaceAll(address.substr(0, colon), {{"[", ""}, {"]", ""}});
  return {host, address.substr(colon)};
}

// Whether a service that listens on `host` is reached at one of these addresses of this machine.
bool ListensAt(const std::string& host, const Addresses& addresses) {
  if (host == "::" || host == "0.0.0.0") return true;
  const absl::StatusOr<Addresses> own = ResolveHost(host);
  return own.ok() && std::any_of(own->begin(), own->end(), [&](const std::string& address) {
           return std::find(addresses.begin(), addresses.end(), address) != addresses.end();
         });
}

}  // namespace

std::vector<OwnNode> FindOwnNodes(const std::string& run_id, absl::Duration timeout) {
  std::vector<OwnNode> nodes;
  for (std::string& socket : FindLocalSockets(kAgentSocket)) {
    absl::StatusOr<agent::v1::NodeState> state = FetchNodeState(socket, timeout);
    if (!state.ok() || (!run_id.empty() && run_id != state->run_id())) continue;
    nodes.push_back({std::move(socket), *std::move(state)});
  }
  return nodes;
}

// A socket may belong to another network namespace, as that of a container that shares /tmp: there
// the same address is another service's.
rendezvous::ServiceAddress AddressOf(const std::string& endpoint) {
  if (absl::StartsWith(endpoint, "unix:")) return endpoint;
  const auto [host, port] = HostAndPort(endpoint);
  const absl::StatusOr<Addresses> addresses = ResolveHost(host);
  if (!addresses.ok() || !std::any_of(addresses->begin(), addresses->end(), IsOwnAddress)) {
    return endpoint;
  }
  for (const LocalService& service : FindLocalServices()) {
    const auto [listen_host, listen_port] = HostAndPort(service.listen);
    if (listen_port == port && ListensAt(listen_host, *addresses) &&
        SharesOurNetwork(service.socket)) {
      return {service.socket, endpoint};
    }
  }
  return endpoint;
}

}  // namespace ddprun::launcher
