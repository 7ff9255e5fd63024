#ifndef DDPRUN_LAUNCHER_OPTIONS_ETCD_OPTIONS_H_
#define DDPRUN_LAUNCHER_OPTIONS_ETCD_OPTIONS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/core/environment.h"
#include "launcher/options/argument.h"
#include "rendezvous/etcd/core/etcd_settings.h"

namespace ddprun::launcher {

// The options for etcd, of launches and of other commands. Pure; threads: any.

// Whether a value of --rdzv_backend means etcd.
bool IsEtcdBackend(const std::string& backend);

// Reads one key of --rdzv_conf: one of torchrun's etcd and etcd-v2 backends, or ours. Returns:
// whether the key is one of those. Errors: INVALID_ARGUMENT — a value; the text names the key.
absl::StatusOr<bool> ReadEtcdKey(const std::string& key, const Argument& value,
                                 rendezvous::EtcdSettings* etcd);

// Reads the members from --rdzv_endpoint, "a:2379,b", and the password from the environment; then
// checks all settings. Errors: INVALID_ARGUMENT — a value, or one of two that belong together is
// missing; the text names the option.
absl::Status ReadEtcdMembers(const Argument& rdzv_endpoint, const Argument& rdzv_conf,
                             const EnvironmentLookup& environment, rendezvous::EtcdSettings* etcd);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_ETCD_OPTIONS_H_
