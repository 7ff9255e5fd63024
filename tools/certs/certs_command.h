#ifndef DDPRUN_TOOLS_CERTS_CERTS_COMMAND_H_
#define DDPRUN_TOOLS_CERTS_CERTS_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/options/argument.h"

namespace ddprun::launcher {

// `ddprun certs`: the folder of --tls_dir for a cluster that has none.
struct CertsOptions {
  std::string dir;
  uint32_t days = 365;  // how long the nodes' certificate is valid
  bool renew = false;   // make a new certificate of the existing CA
};

// `arguments` come after the command's own name. Errors: usage (argument.h).
absl::StatusOr<OptionsOrHelp<CertsOptions>> ParseCertsOptions(
    const std::vector<std::string>& arguments);

// Makes the files; keys are readable by their owner only. Returns: a text for the user.
// Errors: plan — a file exists already, or is missing for --renew; else errno of the file that
// can't be written.
absl::StatusOr<std::string> MakeCerts(const CertsOptions& options);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CERTS_CERTS_COMMAND_H_
