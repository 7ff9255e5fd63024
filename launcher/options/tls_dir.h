#ifndef DDPRUN_LAUNCHER_OPTIONS_TLS_DIR_H_
#define DDPRUN_LAUNCHER_OPTIONS_TLS_DIR_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/tls_files.h"
#include "launcher/options/argument.h"
#include "launcher/options/host.h"
#include "launcher/options/option_set.h"

namespace ddprun::launcher {

// Adds --tls_dir.
void DefineTlsDir(Argument* target, OptionSet* options);

// The files in the folder of --tls_dir, checked: ca.crt, and node.crt with node.key, else tls.crt
// with tls.key, Kubernetes's names. Empty if the option wasn't given. Errors: plan: a file is
// missing or can't be read, isn't PEM, doesn't fit the others, or isn't valid at this time; the
// text names the file, and the time.
absl::StatusOr<TlsFiles> ReadTlsDir(const Argument& tls_dir, const Host& host);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_TLS_DIR_H_
