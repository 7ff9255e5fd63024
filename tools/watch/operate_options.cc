#include "tools/watch/operate_options.h"

#include <cstddef>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/argument.h"
#include "launcher/options/option_set.h"
#include "launcher/options/values.h"

namespace ddprun::launcher {
namespace {

// How long ago something was, with its unit: "5m".
absl::StatusOr<absl::Duration> ReadAge(const Argument& since, absl::string_view or_else) {
  const std::optional<absl::Duration> age = ReadDuration(since.text);
  if (age.has_value() && *age >= absl::ZeroDuration()) return *age;
  return UsageError(absl::StrCat(since.source, " ", Quoted(since.text),
                                 ": give a time with its unit, as 90s, 5m or 2h", or_else));
}

constexpr char kDrainIntroduction[] = R"(usage: ddprun drain NODE [options]

Takes a node out of a running job in an orderly way. NODE is its host name, its
node id or its group rank, as ddprun status shows them. Where the workers ask
for a stop step, all ranks stop at the same step and save, and none is lost;
else the workers get TERM and --grace. Then the node's ddprun exits with status
75, the others go on with fewer nodes (--nnodes MIN:MAX), or wait for another
one, and the drained machine may not join again before --undo. Its owner
can do so on the service's machine; elsewhere it takes the job's token.

Examples:
  ddprun drain host3 --reason "disk is failing" --rdzv_endpoint host0:29400
  ddprun drain host3 --undo --rdzv_endpoint host0:29400)";

constexpr char kEventsIntroduction[] = R"(usage: ddprun events [options]

Shows what happened to a job, in order: nodes that came, left and were lost,
what ended each generation and how the next one began, hangs, preemptions and
the verdict. The service remembers the last 4096. From another machine than the
service's it takes the token of a job that has one.

Examples:
  ddprun events --rdzv_endpoint host0:29400
  ddprun events --since 10m
  ddprun events --rdzv_endpoint host0:29400 --follow -o json)";

constexpr char kLogsIntroduction[] = R"(usage: ddprun logs [RANK] [options]

Prints what the workers of a job have written, on all its nodes, with the rank in
front of each line. The job must keep its output in files: --tee 3 (files and
console) or --redirects 3 (files only), with --log_dir. Their owner can read a
node's logs on its machine; from another one it takes the job's token.

Examples:
  ddprun logs --rdzv_endpoint host0:29400 --token_file secret -f
  ddprun logs rank3 -n 20                  # the same: --rank 3 --tail 20
  ddprun logs --since 5m -o json | jq -r .line)";

constexpr char kTopIntroduction[] = R"(usage: ddprun top [options]

Shows a job on the whole terminal, again and again: a row for each rank with its
phase, step, how many steps it is behind the others, speed, and how busy and how
full its GPU is where there are NVIDIA GPUs. Who is slow, behind or silent is
marked. Steps and phases are those that the program marks (docs/PROGRESS.md).
q ends it; r, b, s and t sort by rank, steps behind, speed and silence. From
another machine than the service's a job with a token needs it.

Example:
  ddprun top --rdzv_endpoint host0:29400)";

struct LogsArguments {
  Argument rank;
  Argument tail;
  Argument since;
  OutputArguments output;
};

void DefineLogs(LogsArguments* target, LogsOptions* logs, OptionSet* options) {
  options->Group("Logs");
  options->AddFlag(&logs->follow,
                   {.names = "-f,--follow",
                    .help = "Go on with what the workers write, across restarts and on nodes that "
                            "come, until the job has ended.",
                    .environment = ""});
  options->AddValue(&target->rank, {.names = "--rank",
                                    .placeholder = "R",
                                    .help = "Only this global rank; the same as the word RANK.",
                                    .default_text = "all",
                                    .environment = ""});
  options->AddValue(&target->tail,
                    {.names = "-n,--tail",
                     .placeholder = "LINES",
                     .help = "Begin with so many last lines of each stream of the newest "
                             "generation.",
                     .default_text = "with everything",
                     .environment = ""});
  options->AddValue(&target->since,
                    {.names = "--since",
                     .placeholder = "TIME",
                     .help = "Begin with what was written 5m, 90s or 2h ago; up to 6 % earlier.",
                     .default_text = "with everything",
                     .environment = ""});
  DefineOutput(&target->output, "with node, generation and stream",
               "a line for each line, with all of that", options);
  options->AddFlag(&logs->raw, {.names = "--raw",
                                .help = "Bytes as they are, without the ranks in front.",
                                .environment = ""});
}

absl::Status FinishLogs(const LogsArguments& arguments, LogsOptions* logs) {
  const Argument& rank = arguments.rank;
  if (rank.given() && !absl::SimpleAtoi(rank.text, &logs->rank.emplace())) {
    return UsageError(
        absl::StrCat(rank.source, " ", Quoted(rank.text), ": give a global rank, from 0"));
  }
  const Argument& tail = arguments.tail;
  if (tail.given() && !absl::SimpleAtoi(tail.text, &logs->tail.emplace())) {
    return UsageError(
        absl::StrCat(tail.source, " ", Quoted(tail.text), ": give a number of lines"));
  }
  if (arguments.since.given()) {
    DDPRUN_ASSIGN_OR_RETURN(logs->since, ReadAge(arguments.since, ""));
  }
  DDPRUN_ASSIGN_OR_RETURN(logs->form, ReadOutput(arguments.output, /*has_wide=*/true));
  if (logs->raw && logs->form != OutputForm::kText) {
    return UsageError("--raw and --output exclude each other: give one of them");
  }
  return absl::OkStatus();
}

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
  DDPRUN_RETURN_IF_ERROR(FinishQuery(query, environment, &result.options));
  result.options.wait = !no_wait;
  result.options.reason = reason.text;
  DDPRUN_RETURN_IF_ERROR(
      FinishCredentials(credentials, host, &result.options.token, &result.options.tls));
  return result;
}

// Everything; `words` are what isn't an option, and what follows that.
absl::StatusOr<OptionsOrHelp<LogsOptions>> ParseLogs(const std::vector<std::string>& arguments,
                                                     const EnvironmentLookup& environment,
                                                     const Host& host,
                                                     std::vector<std::string>* words) {
  OptionSet options(kLogsIntroduction);
  QueryArguments query;
  DefineQuery(&query, "The job.", "the only one of the service", &options);
  CredentialArguments credentials;
  DefineCredentials(&credentials, &options);
  OptionsOrHelp<LogsOptions> result;
  LogsArguments logs;
  DefineLogs(&logs, &result.options, &options);
  DDPRUN_ASSIGN_OR_RETURN(ParsedArguments parsed, options.Parse(arguments, environment));
  *words = std::move(parsed.positionals);
  if (parsed.help) {
    result.help = options.Help();
    return result;
  }
  DDPRUN_RETURN_IF_ERROR(FinishQuery(query, environment, &result.options));
  DDPRUN_RETURN_IF_ERROR(FinishLogs(logs, &result.options));
  DDPRUN_RETURN_IF_ERROR(
      FinishCredentials(credentials, host, &result.options.token, &result.options.tls));
  return result;
}

// "rank3" or "3".
absl::StatusOr<uint32_t> ReadRankWord(const std::string& word) {
  uint32_t rank = 0;
  if (absl::SimpleAtoi(absl::StripPrefix(word, "rank"), &rank)) return rank;
  return UsageError(absl::StrCat("unexpected word ", Quoted(word),
                                 "; a rank is called rank3 or 3, and a job is named with "
                                 "--rdzv_id (see --help)"));
}

// The word that isn't an option may stand before the options, after them, or among them: of such a
// line the options before the word and those after it. Requires: `words` were parsed from `line`,
// and not empty.
std::vector<std::string> WithoutFirstWord(std::vector<std::string> line,
                                          const std::vector<std::string>& words) {
  line.erase(line.end() - static_cast<std::ptrdiff_t>(words.size()));
  return line;
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
    DDPRUN_ASSIGN_OR_RETURN(
        result, ParseDrain(WithoutFirstWord(arguments, words), environment, host, &words));
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
  OutputArguments output;
  DefineOutput(&output, "with the date and zone", "lines for programs, as in the event log",
               &options);
  Argument since;
  options.AddValue(&since, {.names = "--since",
                            .placeholder = "TIME|NUMBER",
                            .help = "Only events of the last 5m, 90s or 2h; or, without a unit, "
                                    "those after the one with this number.",
                            .default_text = "all that are remembered",
                            .environment = ""});
  DDPRUN_ASSIGN_OR_RETURN(const bool help, ParseOnlyOptions(&options, arguments, environment));
  if (help) {
    result.help = options.Help();
    return result;
  }
  DDPRUN_RETURN_IF_ERROR(FinishQuery(query, environment, &result.options));
  DDPRUN_ASSIGN_OR_RETURN(result.options.form, ReadOutput(output, /*has_wide=*/true));
  uint64_t number = 0;
  if (absl::SimpleAtoi(since.text, &number)) {
    result.options.after = number;
  } else if (since.given()) {
    DDPRUN_ASSIGN_OR_RETURN(result.options.since,
                            ReadAge(since,
                                    ", or the number of an event, as ddprun events shows "
                                    "it first"));
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
  options.AddValue(&interval,
                   {.names = "--interval",
                    .placeholder = "SECONDS",
                    .help = "Time between two updates; nodes report their progress once a "
                            "second.",
                    .environment = ""});
  OptionsOrHelp<TopOptions> result;
  DDPRUN_ASSIGN_OR_RETURN(const bool help, ParseOnlyOptions(&options, arguments, environment));
  if (help) {
    result.help = options.Help();
    return result;
  }
  DDPRUN_RETURN_IF_ERROR(FinishQuery(query, environment, &result.options));
  DDPRUN_ASSIGN_OR_RETURN(result.options.interval,
                          ParseDuration(interval, absl::Milliseconds(100)));
  DDPRUN_RETURN_IF_ERROR(
      FinishCredentials(credentials, host, &result.options.token, &result.options.tls));
  return result;
}

absl::StatusOr<OptionsOrHelp<LogsOptions>> ParseLogsOptions(
    const std::vector<std::string>& arguments, const EnvironmentLookup& environment,
    const Host& host) {
  std::vector<std::string> words;
  DDPRUN_ASSIGN_OR_RETURN(OptionsOrHelp<LogsOptions> result,
                          ParseLogs(arguments, environment, host, &words));
  if (!result.help.empty() || words.empty()) return result;
  DDPRUN_ASSIGN_OR_RETURN(const uint32_t rank, ReadRankWord(words.front()));
  DDPRUN_ASSIGN_OR_RETURN(result,
                          ParseLogs(WithoutFirstWord(arguments, words), environment, host, &words));
  if (!result.help.empty()) return result;
  if (!words.empty()) {
    return UsageError(absl::StrCat("unexpected word ", Quoted(words.front()),
                                   "; one rank is shown, or all (see --help)"));
  }
  if (result.options.rank.value_or(rank) != rank) {
    return UsageError(absl::StrCat("rank", rank, " and --rank ", *result.options.rank,
                                   " are two ranks; one is shown, or all (see --help)"));
  }
  result.options.rank = rank;
  return result;
}

}  // namespace ddprun::launcher
