#include "launcher/plan/etcd_planner.h"

#include <cstdint>
#include <limits>

#include "base/status_macros.h"
#include "launcher/options/etcd_options.h"
#include "launcher/options/values.h"

namespace ddprun::launcher {

void DefineServicePort(LaunchArguments* target, OptionSet* options) {
  options->AddValue(&target->service_port,
                    {.names = "--service-port",
                     .placeholder = "PORT",
                     .help = "With --rdzv_backend etcd: the port of the service on the node that "
                             "has it, whichever that is, for firewalls.",
                     .default_text = "any free one, another after each takeover"});
}

// With etcd, the node that runs the service is elected.
absl::Status PlanEtcd(const LaunchArguments& arguments, const EnvironmentLookup& environment,
                      const rendezvous::EtcdSettings& configured, LaunchPlan* plan) {
  rendezvous::EtcdSettings& etcd = plan->etcd.emplace(configured);
  DDPRUN_RETURN_IF_ERROR(
      ReadEtcdMembers(arguments.rdzv_endpoint, arguments.rdzv_conf, environment, &etcd));
  DDPRUN_ASSIGN_OR_RETURN(const Endpoint first, ParseEndpoint({.text = etcd.endpoints.front()}));
  plan->endpoint.host = first.host;
  plan->endpoint.port = *first.port;
  DDPRUN_ASSIGN_OR_RETURN(const int64_t port, ParseInteger(arguments.service_port, 0,
                                                           std::numeric_limits<uint16_t>::max()));
  plan->service_port = static_cast<uint16_t>(port);
  plan->endpoint.kind = EndpointPlan::Kind::kTcp;
  plan->endpoint.hosting = EndpointPlan::Hosting::kNever;
  return absl::OkStatus();
}

}  // namespace ddprun::launcher
