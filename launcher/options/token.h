#ifndef DDPRUN_LAUNCHER_OPTIONS_TOKEN_H_
#define DDPRUN_LAUNCHER_OPTIONS_TOKEN_H_

#include <string>

#include "absl/status/statusor.h"
#include "launcher/options/argument.h"
#include "launcher/options/host.h"

namespace ddprun::launcher {

// The secret of --token, else of --token_file; "" = none.
// Errors: plan — the file can't be read or is empty, or the secret is too long.
absl::StatusOr<std::string> ReadToken(const Argument& token, const Argument& token_file,
                                      const Host& host);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_TOKEN_H_
