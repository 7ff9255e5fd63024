#ifndef DDPRUN_LAUNCHER_OPTIONS_ENDPOINT_OPTIONS_H_
#define DDPRUN_LAUNCHER_OPTIONS_ENDPOINT_OPTIONS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tls_files.h"
#include "launcher/core/environment.h"
#include "launcher/options/argument.h"
#include "launcher/options/host.h"
#include "launcher/options/option_set.h"
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

// Adds --tls_dir.
void DefineTlsDir(Argument* target, OptionSet* options);

// The files in the folder of --tls_dir, checked: ca.crt, and node.crt with node.key, else tls.crt
// with tls.key, Kubernetes's names. Empty if the option wasn't given. Errors: plan: a file is
// missing or can't be read, isn't PEM, doesn't fit the others, or isn't valid at this time; the
// text names the file, and the time.
absl::StatusOr<TlsFiles> ReadTlsDir(const Argument& tls_dir, const Host& host);

// The secret of --token, else of --token_file; "" = none.
// Errors: plan — the file can't be read or is empty, or the secret is too long.
absl::StatusOr<std::string> ReadToken(const Argument& token, const Argument& token_file,
                                      const Host& host);

// Adds --status_page_token_file.
void DefineStatusPageToken(Argument* target, OptionSet* options);

// The password of the status page: that of the file, else of DDPRUN_STATUS_PAGE_TOKEN; "" = none.
// It has no option of its own, because all users of a machine see its command lines. Errors: those
// of ReadToken.
absl::StatusOr<std::string> ReadStatusPageToken(const Argument& file,
                                                const EnvironmentLookup& environment,
                                                const Host& host);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_ENDPOINT_OPTIONS_H_
