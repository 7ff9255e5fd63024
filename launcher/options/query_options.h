#ifndef DDPRUN_LAUNCHER_OPTIONS_QUERY_OPTIONS_H_
#define DDPRUN_LAUNCHER_OPTIONS_QUERY_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/tls_files.h"
#include "launcher/core/environment.h"
#include "launcher/options/argument.h"
#include "launcher/options/host.h"
#include "launcher/options/option_set.h"
#include "launcher/options/values.h"
#include "rendezvous/etcd/core/etcd_settings.h"

namespace ddprun::launcher {

inline constexpr uint16_t kDefaultServicePort = 29400;

// The options of commands that call a rendezvous service.
struct QueryOptions {
  std::string host = "localhost";  // without brackets
  uint16_t port = kDefaultServicePort;
  std::string socket;  // "unix:/path", in place of host and port; "" = none
  // The service's address is in the job's record in etcd; nullopt = the fields above have it.
  std::optional<rendezvous::EtcdSettings> etcd;
  bool endpoint_given = false;  // false = jobs of this machine count, too
  std::string run_id;           // "" = all jobs, or the only one
  std::string token;            // of the job; "" = none
  TlsFiles tls;                 // none = without TLS
  absl::Duration timeout = absl::Seconds(5);
};

// The same as typed, before parsing.
struct QueryArguments {
  Argument endpoint{.text = absl::StrCat(QueryOptions().host, ":", QueryOptions().port)};
  Argument run_id;
  Argument backend{.text = "c10d"};
  Argument conf;
  Argument timeout{.text = DurationText(QueryOptions().timeout)};
};
// The caller's credentials: the job's secret and the cluster's certificates.
struct CredentialArguments {
  Argument token;
  Argument token_file;
  Argument tls_dir;
};

// Adds --rdzv_endpoint, --rdzv_id, --rdzv_backend, --rdzv_conf and --timeout, under "Service".
// `job`: the meaning of --rdzv_id, for example "The job to end."; `default_job`: its default.
void DefineQuery(QueryArguments* target, const std::string& job, const std::string& default_job,
                 OptionSet* options);
// Adds --token, --token_file and --tls_dir.
void DefineCredentials(CredentialArguments* target, OptionSet* options);
// Errors: those of ReadToken and ReadTlsDir.
absl::Status FinishCredentials(const CredentialArguments& arguments, const Host& host,
                               std::string* token, TlsFiles* tls);
// Errors: plan errors (argument.h).
absl::Status FinishQuery(const QueryArguments& arguments, const EnvironmentLookup& environment,
                         QueryOptions* options);

// Parses a command that takes only options. Returns true if the help is wanted.
// Params: instead: the advice if another word was typed.
// Errors: usage (argument.h), also for words that aren't options.
absl::StatusOr<bool> ParseOnlyOptions(OptionSet* options, const std::vector<std::string>& arguments,
                                      const EnvironmentLookup& environment,
                                      absl::string_view instead = "a job is named with --rdzv_id");

// The output format of a command.
enum class OutputForm { kText, kWide, kJson };

// --output and --json.
struct OutputArguments {
  Argument form;
  bool json = false;
};

// Adds -o json|wide, as in kubectl, and --json, which is the same as -o json.
// Params: wide, json: what the two print, for the help; wide "" = the command has only json.
void DefineOutput(OutputArguments* target, const std::string& wide, const std::string& json,
                  OptionSet* options);

// Errors: usage — another word, or `wide` if the command doesn't have it.
absl::StatusOr<OutputForm> ReadOutput(const OutputArguments& arguments, bool has_wide);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_QUERY_OPTIONS_H_
