#include "launcher/plan/plan_parts.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/values.h"

namespace ddprun::launcher {
namespace {

constexpr int kStandardSignalsMax = 31;  // signal(7); real-time ones come after it
// Signals that users can't choose: the kernel handles the first two; the others report ddprun's own
// children, pipes and faults.
constexpr int kNotForUsers[] = {SIGKILL, SIGSTOP, SIGCHLD, SIGPIPE, SIGSEGV, SIGBUS,
                                SIGFPE,  SIGILL,  SIGABRT, SIGTRAP, SIGSYS};

// Below, not even a look at the workers fits in.
constexpr absl::Duration kPreemptDeadlineLeast = absl::Milliseconds(100);
constexpr absl::Duration kPreemptAfterMost = absl::Hours(365 * 24);

// The error of one word of a list; "" = none, and `number` is set.
std::string WhyNot(absl::string_view word, int* number) {
  const std::optional<int> read = ReadSignal(word);
  if (!read.has_value()) {
    return absl::StrCat(Quoted(word), " is no signal; give names like SIGTERM,SIGUSR1");
  }
  *number = *read;
  if (std::find(std::begin(kNotForUsers), std::end(kNotForUsers), *read) !=
      std::end(kNotForUsers)) {
    return absl::StrCat(Quoted(word), " can't be handled: the kernel or ddprun needs it");
  }
  return "";
}

}  // namespace

std::optional<int> ReadSignal(absl::string_view text) {
  if (const std::optional<int64_t> number = ReadInteger(text); number.has_value()) {
    if (*number < 1 || *number > kStandardSignalsMax) return std::nullopt;
    return static_cast<int>(*number);
  }
  const std::string upper = absl::AsciiStrToUpper(absl::StripAsciiWhitespace(text));
  const absl::string_view name = absl::StripPrefix(upper, "SIG");
  for (int number = 1; number <= kStandardSignalsMax; ++number) {
    const char* known = sigabbrev_np(number);
    if (known != nullptr && name == known) return number;
  }
  return std::nullopt;
}

namespace {

// --preempt_signals.
absl::Status PlanPreemptSignals(const Argument& argument, SignalPlan* plan) {
  plan->policy.term_preempts_who_asks = argument.text.empty();
  if (argument.text.empty()) return absl::OkStatus();
  if (absl::EqualsIgnoreCase(argument.text, "none")) return absl::OkStatus();
  for (absl::string_view word : absl::StrSplit(argument.text, ',')) {
    int number = 0;
    const std::string wrong = WhyNot(word, &number);
    if (!wrong.empty()) return BadValue(argument, wrong);
    plan->policy.preempting.insert(number);
  }
  return absl::OkStatus();
}

// --preempt_deadline and --preempt_after.
absl::Status PlanPreemptTimes(const LaunchArguments& arguments, SignalPlan* plan,
                              std::vector<std::string>* warnings) {
  if (arguments.preempt_deadline.filled()) {
    DDPRUN_ASSIGN_OR_RETURN(plan->preemption.deadline,
                            ParseDuration(arguments.preempt_deadline, kPreemptDeadlineLeast));
  }
  if (!arguments.preempt_after.filled()) return absl::OkStatus();
  DDPRUN_ASSIGN_OR_RETURN(
      plan->preemption.after,
      ParseDuration(arguments.preempt_after, kPreemptDeadlineLeast, kPreemptAfterMost));
  if (plan->preemption.after > plan->preemption.deadline) return absl::OkStatus();
  if (absl::StartsWith(arguments.preempt_after.source, "SLURM_")) {
    warnings->push_back(absl::StrCat("Slurm ends this job in ",
                                     absl::FormatDuration(plan->preemption.after),
                                     ", which is too short to stop and save before"));
    plan->preemption.after = absl::InfiniteDuration();
    return absl::OkStatus();
  }
  return BadValue(arguments.preempt_after,
                  absl::StrCat("is not longer than --preempt_deadline (",
                               absl::FormatDuration(plan->preemption.deadline),
                               "), which is what it takes to stop and save: nothing would be left "
                               "to train"));
}

}  // namespace

absl::StatusOr<SignalPlan> PlanSignals(const LaunchArguments& arguments, absl::Duration grace,
                                       std::vector<std::string>* warnings) {
  SignalPlan plan;
  plan.preemption.deadline = grace;
  DDPRUN_RETURN_IF_ERROR(PlanPreemptTimes(arguments, &plan, warnings));
  DDPRUN_RETURN_IF_ERROR(PlanPreemptSignals(arguments.preempt_signals, &plan));
  plan.text = arguments.signals_to_handle.text;
  plan.policy.ending.clear();
  for (absl::string_view word : absl::StrSplit(plan.text, ',')) {
    int number = 0;
    const std::string wrong = WhyNot(word, &number);
    if (!wrong.empty()) {
      warnings->push_back(
          absl::StrCat(arguments.signals_to_handle.source, ": ", wrong, "; it is left out"));
      continue;
    }
    if (plan.policy.Preempts(number)) {
      if (!arguments.signals_to_handle.given()) continue;
      return BadValue(arguments.preempt_signals,
                      absl::StrCat(absl::StripAsciiWhitespace(word), " is one of ",
                                   arguments.signals_to_handle.source,
                                   " too; a signal means either the end of the run or "
                                   "preemption"));
    }
    plan.policy.ending.insert(number);
  }
  return plan;
}

}  // namespace ddprun::launcher
