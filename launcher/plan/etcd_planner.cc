#include "launcher/plan/etcd_planner.h"

#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/host_port.h"
#include "base/status_macros.h"
#include "launcher/options/errors.h"
#include "launcher/options/values.h"

namespace ddprun::launcher {
namespace {

constexpr uint16_t kEtcdPort = 2379;
// Not on the command line, where everybody on the machine could read it.
constexpr char kEtcdPassword[] = "DDPRUN_ETCD_PASSWORD";

}  // namespace

// Members of etcd, "a:2379,b:2379". Which node has the service is for them to say.
absl::Status PlanEtcd(const LaunchArguments& arguments, const EnvironmentLookup& environment,
                      const rendezvous::EtcdSettings& configured, LaunchPlan* plan) {
  rendezvous::EtcdSettings& etcd = plan->etcd.emplace(configured);
  const Argument& given = arguments.rdzv_endpoint;
  const std::string list = given.filled() ? given.text : "localhost";
  for (const absl::string_view member : absl::StrSplit(list, ',')) {
    const Argument one{.text = std::string(absl::StripAsciiWhitespace(member)),
                       .source = given.source};
    DDPRUN_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(one));
    const uint16_t port = endpoint.port.value_or(kEtcdPort);
    if (port == 0) return BadValue(one, "port 0 is no port of etcd");
    if (etcd.endpoints.empty()) {
      plan->endpoint.host = endpoint.host;
      plan->endpoint.port = port;
    }
    etcd.endpoints.push_back(HostPort(endpoint.host, port));
  }
  plan->endpoint.kind = EndpointPlan::Kind::kTcp;
  plan->endpoint.hosting = EndpointPlan::Hosting::kNever;
  if (const auto password = environment(kEtcdPassword)) etcd.password = *password;
  if (etcd.user.empty() != etcd.password.empty()) {
    return BadValue(arguments.rdzv_conf,
                    absl::StrCat("etcd_user=NAME and the variable ", kEtcdPassword,
                                 " belong together; one of them is missing"));
  }
  if (etcd.cert_file.empty() != etcd.key_file.empty()) {
    return BadValue(arguments.rdzv_conf, "cert and key belong together; one of them is missing");
  }
  return absl::OkStatus();
}

}  // namespace ddprun::launcher
