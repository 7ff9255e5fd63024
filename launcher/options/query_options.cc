#include "launcher/options/query_options.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/message_name.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/argument.h"
#include "launcher/options/endpoint_options.h"
#include "launcher/options/values.h"

namespace ddprun::launcher {

void DefineCredentials(CredentialArguments* target, OptionSet* options) {
  options->AddValue(&target->token,
                    {.names = "--token",
                     .placeholder = "SECRET",
                     .help = "Secret of the jobs. Visible in the list of processes, which "
                             "--token_file and the variable are not.",
                     .environment = "DDPRUN_TOKEN"});
  options->AddValue(
      &target->token_file,
      {.names = "--token-file", .placeholder = "FILE", .help = "File that holds the secret."});
  DefineTlsDir(&target->tls_dir, options);
}

absl::Status FinishCredentials(const CredentialArguments& arguments, const Host& host,
                               std::string* token, TlsFiles* tls) {
  DDPRUN_ASSIGN_OR_RETURN(*token, ReadToken(arguments.token, arguments.token_file, host));
  DDPRUN_ASSIGN_OR_RETURN(*tls, ReadTlsDir(arguments.tls_dir, host));
  return absl::OkStatus();
}

absl::StatusOr<bool> ParseOnlyOptions(OptionSet* options, const std::vector<std::string>& arguments,
                                      const EnvironmentLookup& environment,
                                      absl::string_view instead) {
  DDPRUN_ASSIGN_OR_RETURN(ParsedArguments parsed, options->Parse(arguments, environment));
  if (!parsed.positionals.empty()) {
    return UsageError(absl::StrCat("unexpected word ", Quoted(parsed.positionals.front()), "; ",
                                   instead, " (see --help)"));
  }
  return parsed.help;
}

void DefineQuery(QueryArguments* target, const std::string& job, const std::string& default_job,
                 OptionSet* options) {
  options->Group("Service");
  options->AddValue(&target->endpoint,
                    {.names = "--rdzv-endpoint",
                     .placeholder = "HOST[:PORT]|unix:PATH",
                     .help = "Where the rendezvous service is; with --rdzv_backend etcd, etcd's "
                             "members, that know the services of all jobs.",
                     .default_text = absl::StrCat("that of your only job on this machine, or ",
                                                  target->endpoint.text)});
  options->AddValue(
      &target->run_id,
      {.names = "--rdzv-id", .placeholder = "NAME", .help = job, .default_text = default_job});
  options->AddValue(&target->backend,
                    {.names = "--rdzv-backend",
                     .placeholder = "static|c10d|etcd",
                     .help = "As the job was started. etcd: it says which node has the service, "
                             "also after another node has taken the job over.",
                     .default_text = "c10d"});
  options->AddValue(&target->conf,
                    {.names = "--rdzv-conf",
                     .placeholder = "KEY=VALUE,…",
                     .help = "As the job was started: etcd's prefix, user and files of TLS; other "
                             "keys have no meaning here.",
                     .default_text = "",
                     .shape = ValueShape::kAssignments});
  options->AddValue(&target->timeout, {.names = "--timeout",
                                       .placeholder = "SECONDS",
                                       .help = "How long to wait for the answer.",
                                       .environment = ""});
}

namespace {

absl::Status FinishEtcd(const QueryArguments& arguments, const EnvironmentLookup& environment,
                        QueryOptions* options) {
  rendezvous::EtcdSettings& etcd = options->etcd.emplace();
  DDPRUN_ASSIGN_OR_RETURN(const auto values, ParseKeyValues(arguments.conf));
  for (const auto& [key, value] : values) {
    const std::string source = absl::StrCat(arguments.conf.source, " ", Printable(key));
    DDPRUN_RETURN_IF_ERROR(ReadEtcdKey(key, {.text = value, .source = source}, &etcd).status());
  }
  const Argument members = arguments.endpoint.given() ? arguments.endpoint : Argument();
  options->endpoint_given = true;
  return ReadEtcdMembers(members, arguments.conf, environment, &etcd);
}

}  // namespace

absl::Status FinishQuery(const QueryArguments& arguments, const EnvironmentLookup& environment,
                         QueryOptions* options) {
  const std::string& backend = arguments.backend.text;
  options->endpoint_given = arguments.endpoint.filled();
  if (IsEtcdBackend(backend)) {
    DDPRUN_RETURN_IF_ERROR(FinishEtcd(arguments, environment, options));
  } else if (backend != "c10d" && backend != "static") {
    return BadValue(arguments.backend, "give static, c10d or etcd");
  } else if (absl::StartsWith(arguments.endpoint.text, "unix:")) {
    options->socket = arguments.endpoint.text;
  } else if (!arguments.endpoint.text.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(arguments.endpoint));
    options->host = endpoint.host;
    options->port = endpoint.port.value_or(kDefaultServicePort);
  }
  if (options->port == 0) return BadValue(arguments.endpoint, "port 0 can't be called");
  options->run_id = NameInMessages(arguments.run_id.text);
  DDPRUN_ASSIGN_OR_RETURN(options->timeout,
                          ParseDuration(arguments.timeout, absl::Milliseconds(1)));
  return absl::OkStatus();
}

void DefineOutput(OutputArguments* target, const std::string& wide, const std::string& json,
                  OptionSet* options) {
  const bool has_wide = !wide.empty();
  options->AddValue(&target->form,
                    {.names = "-o,--output",
                     .placeholder = has_wide ? "json|wide" : "json",
                     .help = has_wide ? absl::StrCat("json: ", json, "; wide: ", wide, ".")
                                      : absl::StrCat("json: ", json, "."),
                     .default_text = "text for people",
                     .environment = ""});
  options->AddFlag(&target->json,
                   {.names = "--json", .help = "The same as -o json.", .environment = ""});
}

absl::StatusOr<OutputForm> ReadOutput(const OutputArguments& arguments, bool has_wide) {
  const Argument& form = arguments.form;
  if (form.given() && form.text != "json" && (form.text != "wide" || !has_wide)) {
    return BadWord(form, has_wide ? "give json or wide" : "give json");
  }
  if (arguments.json || form.text == "json") return OutputForm::kJson;
  return form.text == "wide" ? OutputForm::kWide : OutputForm::kText;
}

}  // namespace ddprun::launcher
