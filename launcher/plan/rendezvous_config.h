#ifndef DDPRUN_LAUNCHER_PLAN_RENDEZVOUS_CONFIG_H_
#define DDPRUN_LAUNCHER_PLAN_RENDEZVOUS_CONFIG_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/options/argument.h"
#include "launcher/options/option_set.h"
#include "launcher/plan/launch_arguments.h"
#include "rendezvous/etcd/core/etcd_settings.h"

namespace ddprun::launcher {

// The settings of --rdzv_conf; nullopt = not given.
struct RendezvousConfig {
  std::optional<absl::Duration> join_timeout;  // also as "timeout"
  std::optional<absl::Duration> read_timeout;
  std::optional<absl::Duration> last_call_timeout;
  std::optional<absl::Duration> lease;
  std::optional<std::string> state_dir;
  std::optional<bool> is_host;
  // Settings of etcd except its endpoints: prefix, TLS files, user.
  rendezvous::EtcdSettings etcd;
};

// Adds --rdzv_conf.
void DefineRendezvousConfig(Argument* target, OptionSet* options);

// Reads --rdzv_conf. Keys of torchrun's backends that have no meaning here, and unknown ones, get a
// warning each. Errors: plan errors that name key and value. `for_etcd`: accept the keys of etcd.
absl::StatusOr<RendezvousConfig> ParseRendezvousConfig(const Argument& argument, bool for_etcd,
                                                       std::vector<std::string>* warnings);

// Adds --service_port.
void DefineServicePort(LaunchArguments* target, OptionSet* options);

// Reads --rdzv_endpoint of --rdzv_backend etcd, the members of etcd, and --service_port into
// `plan`. `configured`: the settings of --rdzv_conf. Errors: INVALID_ARGUMENT — a value; the text
// names the option. Pure; threads: any.
absl::Status PlanEtcd(const LaunchArguments& arguments, const EnvironmentLookup& environment,
                      const rendezvous::EtcdSettings& configured, LaunchPlan* plan);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLAN_RENDEZVOUS_CONFIG_H_
