#include "launcher/cli/signals.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/cli/values.h"
#include "launcher/core/text.h"

namespace ddprun::launcher {
namespace {

constexpr int kStandardSignalsMax = 31;  // signal(7); real-time ones come after it
// The kernel keeps the first two for itself; the others tell of ddprun's own children, pipes and
// faults.
constexpr int kNotForUsers[] = {SIGKILL, SIGSTOP, SIGCHLD, SIGPIPE, SIGSEGV, SIGBUS,
                                SIGFPE,  SIGILL,  SIGABRT, SIGTRAP, SIGSYS};

bool Contains(const std::vector<int>& signals, int number) {
  return std::find(signals.begin(), signals.end(), number) != signals.end();
}

// What is wrong with one word of a list; "" = nothing, and `number` is set.
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

absl::StatusOr<SignalPlan> PlanSignals(const LaunchArguments& arguments,
                                       std::vector<std::string>* warnings) {
  SignalPlan plan;
  if (!arguments.preempt_signals.text.empty()) {
    for (absl::string_view word : absl::StrSplit(arguments.preempt_signals.text, ',')) {
      int number = 0;
      const std::string wrong = WhyNot(word, &number);
      if (!wrong.empty()) return BadValue(arguments.preempt_signals, wrong);
      if (!Contains(plan.preempt, number)) plan.preempt.push_back(number);
    }
  }
  plan.text = arguments.signals_to_handle.text;
  plan.stop.clear();
  for (absl::string_view word : absl::StrSplit(plan.text, ',')) {
    int number = 0;
    const std::string wrong = WhyNot(word, &number);
    if (!wrong.empty()) {
      warnings->push_back(
          absl::StrCat(arguments.signals_to_handle.source, ": ", wrong, "; it is left out"));
      continue;
    }
    if (Contains(plan.stop, number)) continue;
    if (Contains(plan.preempt, number)) {
      if (!arguments.signals_to_handle.given()) continue;
      return BadValue(arguments.preempt_signals,
                      absl::StrCat(absl::StripAsciiWhitespace(word), " is one of ",
                                   arguments.signals_to_handle.source,
                                   " too; a signal means either the end of the run or "
                                   "preemption"));
    }
    plan.stop.push_back(number);
  }
  return plan;
}

}  // namespace ddprun::launcher
