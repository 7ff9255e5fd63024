#include "launcher/agent/end_report.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"
#include "launcher/advice/advisor.h"
#include "launcher/core/exit_status.h"
#include "launcher/core/failure_report.h"
#include "launcher/machine/host_probe.h"
#include "launcher/os/error_file.h"
#include "launcher/os/files.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/verdict.h"

namespace ddprun::launcher {
namespace {

using nlohmann::json;
using rendezvous::Outcome;
using rendezvous::Verdict;
using rendezvous::WorkerFailure;

constexpr int kSchemaVersion = 1;

std::string OutcomeName(const Exit& exit) {
  if (exit.verdict.has_value()) return rendezvous::OutcomeName(exit.verdict->outcome);
  if (exit.signal != 0) return exit.status == kExitPreempted ? "preempted" : "stopped";
  return exit.status == 0 ? "left" : "lost";
}

// torchrun's message for an agent that was ended by a signal.
std::string SignalText(int signal) {
  return absl::StrCat("SignalException: Process ", getpid(), " got signal: ", signal);
}

std::string ReasonOf(const Exit& exit) {
  if (exit.verdict.has_value()) return exit.verdict->reason;
  return exit.why.empty() && exit.signal != 0 ? SignalText(exit.signal) : exit.why;
}

json FailureJson(const WorkerFailure& failure) {
  json object = {{"rank", failure.rank},
                 {"local_rank", failure.local_rank},
                 {"node", failure.node_id.value()},
                 {"host", failure.hostname},
                 {"pid", failure.pid},
                 {"generation", failure.generation.value()},
                 {"exit_code", nullptr},
                 {"signal", nullptr},
                 {"signal_name", nullptr},
                 {"core_dumped", failure.core_dumped},
                 {"hung", failure.hung},
                 {"preflight", failure.preflight},
                 {"texts_left_out", failure.texts_left_out},
                 {"cause", DescribeFailure(failure)},
                 {"start_error", failure.start_error},
                 {"message", failure.message},
                 {"traceback", failure.traceback},
                 {"error_file", failure.error_file},
                 {"stderr_tail", failure.stderr_tail},
                 {"facts", failure.facts},
                 {"time_ms", failure.wall_time_ms},
                 {"after_first_ms", failure.after_first_ms}};
  if (failure.signal != 0) {
    object["signal"] = failure.signal;
    object["signal_name"] = SignalName(failure.signal);
  } else if (failure.start_error.empty()) {
    object["exit_code"] = failure.exit_code;
  }
  return object;
}

json AdviceJson(const WorkerFailure& failure) {
  const std::optional<Advice> advice = Advisor::Known().Advise(failure);
  if (!advice.has_value()) return nullptr;
  return {{"rule", advice->rule},
          {"line", advice->line},
          {"text", advice->text},
          {"next", advice->next}};
}

json FailuresJson(const std::vector<WorkerFailure>& failures, size_t begin, size_t end) {
  json list = json::array();
  for (size_t i = begin; i < end; ++i) list.push_back(FailureJson(failures[i]));
  return list;
}

int ErrorCode(const WorkerFailure& failure) {
  return failure.signal != 0 ? -failure.signal : failure.exit_code;
}

void WriteOrWarn(absl::string_view what, const std::string& path, const std::string& bytes) {
  const absl::Status written = WriteFile(path, bytes, 0666);
  if (!written.ok()) {
    Notify(absl::StrCat("warning: ", what, " was not written: ", written.message()));
  }
}

}  // namespace

std::string ReportJson(const LaunchPlan& plan, const std::string& node_id, const Exit& exit,
                       absl::Time now) {
  const Verdict verdict = exit.verdict.value_or(Verdict());
  const size_t count = verdict.failures.size();
  const size_t causes = count == 0 ? 0 : std::clamp<size_t>(verdict.first_causes, 1, count);
  json root_causes = FailuresJson(verdict.failures, 0, causes);
  for (size_t i = 0; i < causes; ++i) root_causes[i]["advice"] = AdviceJson(verdict.failures[i]);
  const json report = {{"version", kSchemaVersion},
                       {"outcome", OutcomeName(exit)},
                       {"status", exit.status},
                       {"reason", ReasonOf(exit)},
                       {"rule", verdict.rule},
                       {"run_id", plan.job.run_id},
                       {"entry_point", plan.entry_point},
                       {"generation", verdict.generation.value()},
                       {"restart_count", verdict.restart_count},
                       {"max_restarts", plan.job.max_restarts},
                       {"node", node_id},
                       {"host", Hostname()},
                       {"time_ms", absl::ToUnixMillis(now)},
                       {"root_causes", std::move(root_causes)},
                       {"other_failures", FailuresJson(verdict.failures, causes, count)},
                       {"failures_left_out", verdict.failures_left_out},
                       {"causes_left_out", verdict.causes_left_out},
                       {"whole_on", verdict.whole_on},
                       {"stopped", FailuresJson(exit.stopped, 0, exit.stopped.size())}};
  return absl::StrCat(report.dump(2, ' ', false, json::error_handler_t::replace), "\n");
}

std::optional<std::string> OwnErrorFile(const std::string& node_id, const Exit& exit,
                                        absl::Time now) {
  if (exit.status == 0) return std::nullopt;
  const bool has_cause = exit.verdict.has_value() && !exit.verdict->failures.empty();
  if (!has_cause) {
    return FormatErrorFile({.message = ReasonOf(exit), .timestamp = absl::ToUnixSeconds(now)});
  }
  const WorkerFailure& cause = exit.verdict->failures.front();
  if (cause.error_file.empty()) return std::nullopt;
  if (cause.node_id.value() == node_id) {
    const absl::StatusOr<std::string> bytes = ReadErrorFileBytes(cause.error_file);
    std::optional<std::string> copy =
        bytes.ok() ? WithErrorCode(*bytes, ErrorCode(cause)) : std::nullopt;
    if (copy.has_value()) return copy;
  }
  // The error file is on another node or isn't JSON: write the known facts in its format.
  return WithErrorCode(
      FormatErrorFile({.message = cause.message,
                       .traceback = cause.traceback,
                       .timestamp = static_cast<int64_t>(cause.wall_time_ms / 1000)}),
      ErrorCode(cause));
}

absl::Status CheckReportFile(const LaunchPlan& plan) {
  if (plan.report_file.empty()) return absl::OkStatus();
  const size_t slash = plan.report_file.rfind('/');
  return MakeWritableFolder(slash == std::string::npos ? "."
                            : slash == 0               ? "/"
                                                       : plan.report_file.substr(0, slash));
}

// " (rule crash_loop)"; "" if the rule adds nothing: no restart was allowed anyway, or the sentence
// itself says that the job was stopped.
std::string RuleText(const LaunchPlan& plan, const Verdict& verdict) {
  using rendezvous::Rule;
  using rendezvous::RuleName;
  const bool is_plain =
      (plan.job.max_restarts == 0 && verdict.rule == RuleName(Rule::kRestartsSpent)) ||
      verdict.rule == RuleName(Rule::kStopped) || verdict.rule == RuleName(Rule::kPreempted);
  return verdict.rule.empty() || is_plain ? "" : absl::StrCat(" (rule ", verdict.rule, ")");
}

std::string WithoutSsh(absl::string_view command) {
  const std::vector<absl::string_view> words = absl::StrSplit(command, absl::MaxSplits(' ', 2));
  if (words.size() < 3 || words[0] != "ssh") return std::string(command);
  absl::string_view rest = words[2];
  if (!absl::ConsumePrefix(&rest, "'")) return std::string(rest);
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(rest, absl::MaxSplits('\'', 1));
  return absl::StrCat(parts.first, parts.second);
}

void ReportEnd(const LaunchPlan& plan, const Exit& exit) {
  if (!exit.verdict.has_value()) {  // the reason was printed when it happened
    if (exit.signal == 0 || !exit.why.empty()) return;
    return Notify(absl::StrCat("this node has left the job on ", SignalName(exit.signal),
                               "; exit status ", exit.status));
  }
  const Verdict& verdict = *exit.verdict;
  if (verdict.outcome == Outcome::kSucceeded) return;
  const std::string rule = RuleText(plan, verdict);
  if (verdict.outcome == Outcome::kStopped) {
    return Notify(absl::StrCat("the job was stopped: ", verdict.reason, rule));
  }
  if (verdict.outcome == Outcome::kPreempted) {
    return Notify(absl::StrCat("the job was preempted, start it again: ", verdict.reason, rule,
                               "; exit status ", exit.status));
  }
  const bool for_good = verdict.outcome == Outcome::kFailedForGood;
  Notify(absl::StrCat("error: the job failed", for_good ? " for good: " : ": ", verdict.reason,
                      rule, for_good ? absl::StrCat("; exit status ", exit.status) : ""));
  ReportOptions options{.entry_point = plan.entry_point,
                        .time_zone = absl::LocalTimeZone(),
                        .stopped = exit.stopped,
                        .runs_python = plan.runs_python};
  if (!verdict.failures.empty()) {
    options.advice = Advisor::Known().Advise(verdict.failures.front());
    // A reader at a terminal of the failed worker's machine needs no ssh to it; a file, such as a
    // scheduler's output, may be read on any machine.
    const bool here = verdict.failures.front().hostname == Hostname();
    if (here && options.advice.has_value() && isatty(STDERR_FILENO) == 1) {
      options.advice->next = WithoutSsh(options.advice->next);
    }
  }
  NotifyLines(FailureReport(verdict, options));
}

void WriteEndFiles(const LaunchPlan& plan, const std::string& node_id, const Exit& exit) {
  if (!plan.report_file.empty()) {
    WriteOrWarn("--report_file", plan.report_file, ReportJson(plan, node_id, exit, absl::Now()));
  }
  const char* own_file = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (own_file == nullptr || *own_file == '\0') return;
  if (const auto bytes = OwnErrorFile(node_id, exit, absl::Now()); bytes.has_value()) {
    WriteOrWarn("TORCHELASTIC_ERROR_FILE", own_file, *bytes);
  }
}

EndedJob EndedJobOf(const LaunchPlan& plan, const std::string& node_id, const Exit& exit,
                    absl::Duration lasted, absl::Time now) {
  const Verdict verdict = exit.verdict.value_or(Verdict());
  const std::string why =
      !exit.why.empty() || exit.signal == 0 ? exit.why : SignalName(exit.signal);
  const bool others_may_go_on = !exit.verdict.has_value() && exit.signal != 0 &&
                                exit.status != kExitPreempted && plan.job.nodes_max > 1;
  const std::string left = why.empty() ? "" : absl::StrCat("this node left the job: ", why);
  return {.run_id = plan.job.run_id,
          .description = plan.job.description,
          .outcome = others_may_go_on ? "left" : OutcomeName(exit),
          .status = exit.status,
          .reason = exit.verdict.has_value() ? verdict.reason : left,
          .rule = verdict.rule,
          .generation = static_cast<int64_t>(verdict.generation.value()),
          .restart_count = verdict.restart_count,
          .max_restarts = plan.job.max_restarts,
          .node = node_id,
          .host = Hostname(),
          .began_ms = absl::ToUnixMillis(now - lasted),
          .ended_ms = absl::ToUnixMillis(now)};
}

std::shared_ptr<absl::Notification> KeepEndedJob(EndedJob job, uint64_t term) {
  const std::string folder = EndedJobsFolder();
  if (folder.empty()) return nullptr;
  auto kept = std::make_shared<absl::Notification>();
  absl::StatusOr<std::thread> thread =
      StartThread("the record of an ended job", [folder, job = std::move(job), term, kept] {
        RecordEndedJob(folder, job, term).IgnoreError();
        kept->Notify();
      });
  if (!thread.ok()) return nullptr;
  thread->detach();
  return kept;
}

}  // namespace ddprun::launcher
