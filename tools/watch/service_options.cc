#include "tools/watch/service_options.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/core/signal_policy.h"
#include "launcher/options/argument.h"
#include "launcher/options/endpoint_options.h"
#include "launcher/options/option_set.h"
#include "launcher/options/query_options.h"
#include "launcher/options/values.h"

namespace ddprun::launcher {
absl::StatusOr<OptionsOrHelp<ServiceOptions>> ParseServiceOptions(
    const std::vector<std::string>& arguments, const EnvironmentLookup& environment,
    const Host& host) {
  OptionSet options(R"(usage: ddprun rendezvous [options]

Runs the rendezvous service alone, for any number of jobs, until it is told to
end (Ctrl-C, TERM). Nodes reach it with --rdzv_endpoint HOST:PORT.

Example:
  ddprun rendezvous --listen 0.0.0.0:29400 --token_file secret)");
  Argument listen{
      .text = absl::StrCat(ServiceOptions().listen_host, ":", ServiceOptions().listen_port)};
  Argument event_log;
  Argument status_page;
  Argument status_page_token_file;
  Argument state_dir;
  CredentialArguments credentials;
  options.Group("Service");
  options.AddForeign("port", "the address is --listen HOST:PORT");
  options.AddValue(&listen, {.names = "--listen",
                             .placeholder = "HOST[:PORT]",
                             .help = "Address to listen on; port 0 is any free one.",
                             .environment = ""});
  DefineCredentials(&credentials, &options);
  options.AddValue(&event_log, {.names = "--event-log",
                                .placeholder = "FILE",
                                .help = "Append the service's timeline to FILE, as JSON lines."});
  options.AddValue(&status_page,
                   {.names = "--status-page",
                    .placeholder = "[HOST:]PORT",
                    .help = "Show the jobs on a page, and to Prometheus, over HTTP: read "
                            "only, to any client that reaches the address. Without HOST: "
                            "this machine alone."});
  DefineStatusPageToken(&status_page_token_file, &options);
  options.AddValue(&state_dir,
                   {.names = "--state-dir",
                    .placeholder = "DIR",
                    .help = "Keep what the service knows of its jobs in DIR: one that is started "
                            "again with the same DIR goes on with them.",
                    .default_text = "nothing is kept"});
  DDPRUN_ASSIGN_OR_RETURN(const bool help, ParseOnlyOptions(&options, arguments, environment,
                                                            "the address is --listen HOST:PORT"));
  OptionsOrHelp<ServiceOptions> result;
  if (help) {
    result.help = options.Help();
    return result;
  }
  DDPRUN_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(listen));
  result.options.listen_host = endpoint.host;
  result.options.listen_port = endpoint.port.value_or(kDefaultServicePort);
  result.options.event_log = event_log.text;
  if (state_dir.given() && !state_dir.filled()) return BadValue(state_dir, "give a directory");
  result.options.state_dir = state_dir.text;
  DDPRUN_ASSIGN_OR_RETURN(result.options.status_page, ParseStatusPage(status_page));
  DDPRUN_ASSIGN_OR_RETURN(result.options.status_page_token,
                          ReadStatusPageToken(status_page_token_file, environment, host));
  DDPRUN_RETURN_IF_ERROR(
      FinishCredentials(credentials, host, &result.options.token, &result.options.tls));
  return result;
}

absl::StatusOr<OptionsOrHelp<StatusOptions>> ParseStatusOptions(
    const std::vector<std::string>& arguments, const EnvironmentLookup& environment,
    const Host& host) {
  OptionSet options(R"(usage: ddprun status [options]

Shows the jobs of a rendezvous service: nodes, how far their workers are,
restarts, and what each generation was. Where the service doesn't answer, what
this machine's nodes know of it. From another machine than the service's it takes
the token of a job that has one.

Examples:
  ddprun status --rdzv_endpoint host0:29400 --rdzv_id job7
  ddprun status --rdzv_endpoint host0:29400 --watch 1
  ddprun status -o json | jq '.jobs[].nodes[].state'
  ddprun status --ended                      # your jobs that are over
  ddprun status --rdzv_endpoint host0:29400 --status_page 8080)");
  QueryArguments query;
  DefineQuery(&query, "The job to show.", "all", &options);
  CredentialArguments credentials;
  DefineCredentials(&credentials, &options);
  Argument watch{.text = ""};
  options.AddValue(&watch, {.names = "--watch",
                            .placeholder = "SECONDS",
                            .help = "Look again every so many seconds, until Ctrl-C or the end of "
                                    "the service.",
                            .default_text = "look once",
                            .environment = ""});
  Argument status_page;
  Argument status_page_token_file;
  options.AddValue(&status_page,
                   {.names = "--status-page",
                    .placeholder = "[HOST:]PORT",
                    .help = "Show it on a page, and to Prometheus, over HTTP, until Ctrl-C; with "
                            "etcd until the job's end, at one address, also when another node "
                            "takes the job over. Without HOST: this machine alone.",
                    .environment = ""});
  DefineStatusPageToken(&status_page_token_file, &options);
  OptionsOrHelp<StatusOptions> result;
  options.AddFlag(&result.options.ended,
                  {.names = "--ended",
                   .help = "Show your jobs that have ended, newest first, as this machine has them "
                           "on record: the last 100. No service is asked.",
                   .environment = ""});
  OutputArguments output;
  DefineOutput(&output, "also each rank, and all generations",
               "for programs, indented, with --watch on one line each time", &options);
  DDPRUN_ASSIGN_OR_RETURN(const bool help, ParseOnlyOptions(&options, arguments, environment));
  if (help) {
    result.help = options.Help();
    return result;
  }
  DDPRUN_RETURN_IF_ERROR(FinishQuery(query, environment, &result.options));
  if (!watch.text.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(result.options.watch, ParseDuration(watch, absl::Milliseconds(100)));
  }
  if (result.options.ended && (watch.given() || status_page.given())) {
    return UsageError("--ended looks once: leave out --watch and --status_page");
  }
  DDPRUN_ASSIGN_OR_RETURN(result.options.form, ReadOutput(output, /*has_wide=*/true));
  DDPRUN_ASSIGN_OR_RETURN(result.options.status_page, ParseStatusPage(status_page));
  DDPRUN_ASSIGN_OR_RETURN(result.options.status_page_token,
                          ReadStatusPageToken(status_page_token_file, environment, host));
  DDPRUN_RETURN_IF_ERROR(
      FinishCredentials(credentials, host, &result.options.token, &result.options.tls));
  return result;
}

absl::StatusOr<OptionsOrHelp<StopOptions>> ParseStopOptions(
    const std::vector<std::string>& arguments, const EnvironmentLookup& environment,
    const Host& host) {
  OptionSet options(R"(usage: ddprun stop [options]

Ends a job: every node stops its workers and exits. Its owner can do so on the
service's machine; elsewhere it takes the job's token. On a terminal it asks
before it ends the only job of this machine, unless you name the job.

Example:
  ddprun stop --rdzv_endpoint host0:29400 --rdzv_id job7)");
  QueryArguments query;
  DefineQuery(&query, "The job to end.", "the only one of the service", &options);
  CredentialArguments credentials;
  DefineCredentials(&credentials, &options);
  Argument reason{.text = "stopped by ddprun stop"};
  options.AddValue(&reason, {.names = "--reason",
                             .placeholder = "TEXT",
                             .help = "Why, for people; every node shows it.",
                             .environment = ""});
  DDPRUN_ASSIGN_OR_RETURN(const bool help, ParseOnlyOptions(&options, arguments, environment));
  OptionsOrHelp<StopOptions> result;
  if (help) {
    result.help = options.Help();
    return result;
  }
  DDPRUN_RETURN_IF_ERROR(FinishQuery(query, environment, &result.options));
  if (query.run_id.given() && !query.run_id.filled()) {
    return BadValue(query.run_id, "give the name of a job");
  }
  result.options.reason = reason.text;
  DDPRUN_RETURN_IF_ERROR(
      FinishCredentials(credentials, host, &result.options.token, &result.options.tls));
  return result;
}

}  // namespace ddprun::launcher
