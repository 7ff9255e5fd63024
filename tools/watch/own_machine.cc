#include "tools/watch/own_machine.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "base/own_address.h"
#include "launcher/machine/host_probe.h"
#include "launcher/os/runtime_dir.h"
#include "tools/watch/agent_client.h"

namespace ddprun::launcher {
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
