#ifndef DDPRUN_LAUNCHER_PLAN_RENDEZVOUS_CONFIG_H_
#define DDPRUN_LAUNCHER_PLAN_RENDEZVOUS_CONFIG_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "launcher/options/argument.h"
#include "launcher/options/option_set.h"
#include "rendezvous/etcd/core/etcd_settings.h"

namespace ddprun::launcher {

// What --rdzv_conf says to us; nullopt = nothing.
struct RendezvousConfig {
  std::optional<absl::Duration> join_timeout;  // also as "timeout"
  std::optional<absl::Duration> read_timeout;
  std::optional<absl::Duration> last_call_timeout;
  std::optional<absl::Duration> lease;
  std::optional<std::string> state_dir;
  std::optional<bool> is_host;
  // What etcd needs beside endpoints: prefix, files of TLS, user.
  rendezvous::EtcdSettings etcd;
};

// Adds --rdzv_conf.
void DefineRendezvousConfig(Argument* target, OptionSet* options);

// Reads --rdzv_conf. Keys of torchrun's backends that mean nothing here,
// and unknown ones, get a warning each. Errors: plan errors that name key and value.
// `for_etcd`: keys for etcd mean something.
absl::StatusOr<RendezvousConfig> ParseRendezvousConfig(const Argument& argument, bool for_etcd,
                                                       std::vector<std::string>* warnings);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLAN_RENDEZVOUS_CONFIG_H_
