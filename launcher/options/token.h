#ifndef DDPRUN_LAUNCHER_OPTIONS_TOKEN_H_
#define DDPRUN_LAUNCHER_OPTIONS_TOKEN_H_

#include <string>

#include "absl/status/statusor.h"
#include "launcher/core/environment.h"
#include "launcher/options/argument.h"
#include "launcher/options/host.h"
#include "launcher/options/option_set.h"

namespace ddprun::launcher {

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

#endif  // DDPRUN_LAUNCHER_OPTIONS_TOKEN_H_
