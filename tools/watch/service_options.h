#ifndef DDPRUN_TOOLS_WATCH_SERVICE_OPTIONS_H_
#define DDPRUN_TOOLS_WATCH_SERVICE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/tls_files.h"
#include "launcher/core/environment.h"
#include "launcher/options/argument.h"
#include "launcher/options/host.h"
#include "launcher/options/query_options.h"

namespace ddprun::launcher {

// `ddprun rendezvous`: only the service.
struct ServiceOptions {
  std::string listen_host = "0.0.0.0";         // without brackets
  uint16_t listen_port = kDefaultServicePort;  // 0 = any free port
  std::string token;                           // "" = none
  TlsFiles tls;                                // none = without TLS
  std::string event_log;                       // "" = none
  std::string status_page;                     // "host:port"; "" = none
  std::string status_page_token;               // that readers of the page need; "" = none
  std::string state_dir;                       // for state that outlives the service; "" = none
};

// `ddprun status`.
struct StatusOptions : QueryOptions {
  OutputForm form = OutputForm::kText;
  bool ended = false;                           // show jobs that have ended instead
  absl::Duration watch = absl::ZeroDuration();  // time between two updates; zero = print once
  std::string status_page;                      // "host:port" of a page; "" = print on stdout
  std::string status_page_token;                // that a reader of the page needs; "" = none
};

// `ddprun stop`.
struct StopOptions : QueryOptions {
  std::string reason;  // for people
};

// `arguments` come after the command's own name.
// Errors: usage and plan errors (argument.h).
absl::StatusOr<OptionsOrHelp<ServiceOptions>> ParseServiceOptions(
    const std::vector<std::string>& arguments, const EnvironmentLookup& environment,
    const Host& host);
absl::StatusOr<OptionsOrHelp<StatusOptions>> ParseStatusOptions(
    const std::vector<std::string>& arguments, const EnvironmentLookup& environment,
    const Host& host);
absl::StatusOr<OptionsOrHelp<StopOptions>> ParseStopOptions(
    const std::vector<std::string>& arguments, const EnvironmentLookup& environment,
    const Host& host);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_WATCH_SERVICE_OPTIONS_H_
