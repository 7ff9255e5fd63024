#include "launcher/watch/operate_options.h"

#include <cstddef>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/errors.h"
#include "launcher/options/option_set.h"
#include "launcher/options/values.h"

namespace ddprun::launcher {
namespace {

constexpr char kDrainIntroduction[] = R"(usage: ddprun drain NODE [options]

Takes a node out of a running job in an orderly way. NODE is its host name, its
node id or its group rank, as ddprun status shows them. Where the workers ask
for a stop step, all ranks stop at the same step and save, and none is lost;
else the workers get TERM and --grace. Then the node's ddprun exits with status
75, the others go on with fewer nodes (--nnodes MIN:MAX), or wait for another
one, and the drained machine may not join again before --undo. A job with a
token needs it; without one this works from the service's own machine only.

Examples:
  ddprun drain host3 --reason "disk is failing" --rdzv_endpoint host0:29400
  ddprun drain host3 --undo --rdzv_endpoint host0:29400)";

constexpr char kEventsIntroduction[] = R"(usage: ddprun events [options]

Shows what happened to a job, in order: nodes that came, left and were lost,
what ended each generation and how the next one began, hangs, preemptions and
the verdict. The service remembers the last 4096. From another machine than the
service's a job with a token needs it.

Examples:
  ddprun events --rdzv_endpoint host0:29400
  ddprun events --rdzv_endpoint host0:29400 --follow --json)";

constexpr char kLogsIntroduction[] = R"(usage: ddprun logs [options]

Prints what the workers of a job have written, on all its nodes, with the rank in
front of each line. The job must keep its output in files: --tee 3 (files and
console) or --redirects 3 (files only), with --log_dir. A job with a token needs
it; without one a node's logs are read on its own machine only.

Examples:
  ddprun logs --rdzv_endpoint host0:29400 --token_file secret -f
  ddprun logs --rank 3 --tail 20)";

constexpr char kTopIntroduction[] = R"(usage: ddprun top [options]

Shows a job on the whole terminal, again and again: a row for each rank with its
phase, step, how many steps it is behind the others, speed, and how busy and how
full its GPU is where there are NVIDIA GPUs. Who is slow, behind or silent is
marked. Steps and phases are those that the program marks (docs/PROGRESS.md).
q ends it; r, b, s and t sort by rank, steps behind, speed and silence. From
another machine than the service's a job with a token needs it.

Example:
  ddprun top --rdzv_endpoint host0:29400)";

// Everything but the node; `words` are what isn't an option, and what follows that.
absl::StatusOr<OptionsOrHelp<DrainOptions>> ParseDrain(const std::vector<std::string>& arguments,
                                                       const EnvironmentLookup& environment,
                                                       const Host& host,
                                                       std::vector<std::string>* words) {
  OptionSet options(kDrainIntroduction);
  QueryArguments query;
  DefineQuery(&query, "The job.", "the only one of the service", &options);
  CredentialArguments credentials;
  DefineCredentials(&credentials, &options);
  options.Group("Draining");
  Argument reason;
  options.AddValue(&reason, {.names = "--reason",
                             .placeholder = "TEXT",
                             .help = "Why, for people; the node and the events show it.",
                             .environment = ""});
  OptionsOrHelp<DrainOptions> result;
  options.AddFlag(&result.options.undo,
                  {.names = "--undo",
                   .help = "Let the machine join again; start ddprun there yourself.",
                   .environment = ""});
  bool no_wait = false;
  options.AddFlag(&no_wait, {.names = "--no-wait",
                             .help = "Return at once. Default: wait until the node has left.",
                             .environment = ""});
  DDPRUN_ASSIGN_OR_RETURN(ParsedArguments parsed, options.Parse(arguments, environment));
  *words = std::move(parsed.positionals);
  if (parsed.help) {
    result.help = options.Help();
    return result;
  }
  DDPRUN_RETURN_IF_ERROR(FinishQuery(query, &result.options));
  result.options.wait = !no_wait;
  result.options.reason = reason.text;
  DDPRUN_RETURN_IF_ERROR(
      FinishCredentials(credentials, host, &result.options.token, &result.options.tls));
  return result;
}

}  // namespace

// The node's name may stand before the options, after them, or among them.
absl::StatusOr<OptionsOrHelp<DrainOptions>> ParseDrainOptions(
    const std::vector<std::string>& arguments, const EnvironmentLookup& environment,
    const Host& host) {
  std::vector<std::string> words;
  DDPRUN_ASSIGN_OR_RETURN(OptionsOrHelp<DrainOptions> result,
                          ParseDrain(arguments, environment, host, &words));
  if (!result.help.empty()) return result;
  if (words.empty()) {
    return UsageError("which node? Give its host name, node id or group rank (see --help)");
  }
  const std::string node = words.front();
  if (words.size() > 1) {
    std::vector<std::string> others = arguments;
    others.erase(others.end() - static_cast<std::ptrdiff_t>(words.size()));
    DDPRUN_ASSIGN_OR_RETURN(result, ParseDrain(others, environment, host, &words));
    if (!result.help.empty()) return result;
    if (!words.empty()) {
      return UsageError(absl::StrCat("unexpected word ", Quoted(words.front()),
                                     "; one node is drained at a time (see --help)"));
    }
  }
  if (node.empty()) return UsageError("which node? Its name is empty (see --help)");
  result.options.node = node;
  return result;
}

absl::StatusOr<OptionsOrHelp<EventsOptions>> ParseEventsOptions(
    const std::vector<std::string>& arguments, const EnvironmentLookup& environment,
    const Host& host) {
  OptionSet options(kEventsIntroduction);
  QueryArguments query;
  DefineQuery(&query, "The job.", "the only one of the service", &options);
  CredentialArguments credentials;
  DefineCredentials(&credentials, &options);
  options.Group("Events");
  OptionsOrHelp<EventsOptions> result;
  options.AddFlag(&result.options.follow,
                  {.names = "-f,--follow",
                   .help = "Go on with what happens, until the job has ended.",
                   .environment = ""});
  options.AddFlag(&result.options.json,
                  {.names = "--json",
                   .help = "Print JSON lines for programs, as in the event log.",
                   .environment = ""});
  Argument since{.text = "0"};
  options.AddValue(&since, {.names = "--since",
                            .placeholder = "NUMBER",
                            .help = "Only events after the one with this number.",
                            .default_text = "0, all that are remembered",
                            .environment = ""});
  DDPRUN_ASSIGN_OR_RETURN(const bool help, ParseOnlyOptions(&options, arguments, environment));
  if (help) {
    result.help = options.Help();
    return result;
  }
  DDPRUN_RETURN_IF_ERROR(FinishQuery(query, &result.options));
  if (!absl::SimpleAtoi(since.text, &result.options.since)) {
    return UsageError(
        absl::StrCat(since.source, " ", Quoted(since.text),
                     ": give the number of an event, as ddprun events shows it first"));
  }
  DDPRUN_RETURN_IF_ERROR(
      FinishCredentials(credentials, host, &result.options.token, &result.options.tls));
  return result;
}

absl::StatusOr<OptionsOrHelp<TopOptions>> ParseTopOptions(const std::vector<std::string>& arguments,
                                                          const EnvironmentLookup& environment,
                                                          const Host& host) {
  OptionSet options(kTopIntroduction);
  QueryArguments query;
  DefineQuery(&query, "The job.", "the only one of the service", &options);
  CredentialArguments credentials;
  DefineCredentials(&credentials, &options);
  options.Group("Terminal");
  Argument interval{.text = DurationText(TopOptions().interval)};
  options.AddValue(&interval, {.names = "--interval",
                               .placeholder = "SECONDS",
                               .help = "Time between two looks; nodes tell how far they are once a "
                                       "second.",
                               .environment = ""});
  OptionsOrHelp<TopOptions> result;
  DDPRUN_ASSIGN_OR_RETURN(const bool help, ParseOnlyOptions(&options, arguments, environment));
  if (help) {
    result.help = options.Help();
    return result;
  }
  DDPRUN_RETURN_IF_ERROR(FinishQuery(query, &result.options));
  DDPRUN_ASSIGN_OR_RETURN(result.options.interval,
                          ParseDuration(interval, absl::Milliseconds(100)));
  DDPRUN_RETURN_IF_ERROR(
      FinishCredentials(credentials, host, &result.options.token, &result.options.tls));
  return result;
}

absl::StatusOr<OptionsOrHelp<LogsOptions>> ParseLogsOptions(
    const std::vector<std::string>& arguments, const EnvironmentLookup& environment,
    const Host& host) {
  OptionSet options(kLogsIntroduction);
  QueryArguments query;
  DefineQuery(&query, "The job.", "the only one of the service", &options);
  CredentialArguments credentials;
  DefineCredentials(&credentials, &options);
  options.Group("Logs");
  OptionsOrHelp<LogsOptions> result;
  options.AddFlag(&result.options.follow,
                  {.names = "-f,--follow",
                   .help = "Go on with what the workers write, across restarts and on nodes that "
                           "come, until the job has ended.",
                   .environment = ""});
  Argument rank;
  options.AddValue(&rank, {.names = "--rank",
                           .placeholder = "R",
                           .help = "Only this global rank.",
                           .default_text = "all",
                           .environment = ""});
  Argument tail;
  options.AddValue(&tail, {.names = "--tail",
                           .placeholder = "LINES",
                           .help = "Begin with so many last lines of each stream of the newest "
                                   "generation.",
                           .default_text = "with everything",
                           .environment = ""});
  options.AddFlag(&result.options.raw, {.names = "--raw",
                                        .help = "Bytes as they are, without the ranks in front.",
                                        .environment = ""});
  DDPRUN_ASSIGN_OR_RETURN(const bool help, ParseOnlyOptions(&options, arguments, environment));
  if (help) {
    result.help = options.Help();
    return result;
  }
  DDPRUN_RETURN_IF_ERROR(FinishQuery(query, &result.options));
  if (rank.given() && !absl::SimpleAtoi(rank.text, &result.options.rank.emplace())) {
    return UsageError(
        absl::StrCat(rank.source, " ", Quoted(rank.text), ": give a global rank, from 0"));
  }
  if (tail.given() && !absl::SimpleAtoi(tail.text, &result.options.tail.emplace())) {
    return UsageError(
        absl::StrCat(tail.source, " ", Quoted(tail.text), ": give a number of lines"));
  }
  DDPRUN_RETURN_IF_ERROR(
      FinishCredentials(credentials, host, &result.options.token, &result.options.tls));
  return result;
}

}  // namespace ddprun::launcher
