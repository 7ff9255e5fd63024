#include "rendezvous/core/generation/standby.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/text.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/verdict.h"

namespace ddprun::rendezvous {
namespace {

std::string FormingText(const JobSpec& spec, const Waiting& waiting) {
  if (!waiting.recovering.empty()) return waiting.recovering;
  if (waiting.pausing) return waiting.reason;
  const uint32_t here = waiting.candidates;
  if (here >= spec.nodes_min) {
    return absl::StrCat(here, " of at most ", CountText(spec.nodes_max, "node"),
                        " have joined, enough to start; waiting up to ",
                        DurationText(spec.last_call_timeout), " for more");
  }
  return absl::StrCat(here, " of ", CountText(spec.nodes_min, "node"), " have joined; waiting for ",
                      spec.nodes_min - here, " more",
                      waiting.missing.empty() ? "" : absl::StrCat(" (", waiting.missing, ")"),
                      waiting.after.empty() ? "" : absl::StrCat(" after ", waiting.after));
}

std::string RunsOn(const Waiting& waiting) {
  return absl::StrCat("the job runs on ", CountText(waiting.members, "node"));
}

std::string QuarantineText(const JobSpec& spec, const Waiting& waiting, uint32_t failures) {
  return absl::StrCat(RunsOn(waiting), "; this one is left out (rule ", RuleName(Rule::kQuarantine),
                      "): ", CountText(failures, "failure"), " began here within ",
                      DurationText(spec.restart.quarantine_time),
                      "; it steps in when the others don't suffice");
}

std::string RunningText(const JobSpec& spec, const Waiting& waiting) {
  if (!waiting.grows) {
    return absl::StrCat(RunsOn(waiting), "; this one is a spare and steps in when one is lost");
  }
  std::string text =
      absl::StrCat(RunsOn(waiting), " and takes this one in at most ",
                   DurationText(spec.last_call_timeout), " after the first newcomer");
  if (waiting.fruitless > 0) {
    absl::StrAppend(&text, ", and not before the generation has run for ",
                    DurationText(waiting.least_uptime),
                    ": nodes that joined before were soon gone");
  }
  return text;
}

std::string Reason(const JobSpec& spec, const Waiting& waiting, const Hindrance& hindrance) {
  if (hindrance.cleaning != Generation()) {
    return absl::StrCat("this node's workers of generation ", hindrance.cleaning.value(),
                        " must end first");
  }
  if (hindrance.claim) {
    return absl::StrCat("node rank ", *hindrance.claim, " is held by ", hindrance.holder,
                        ", which is silent; waiting until it is back or lost");
  }
  switch (waiting.phase) {
    case JobPhase::kRunning:
      return hindrance.failures ? QuarantineText(spec, waiting, *hindrance.failures)
                                : RunningText(spec, waiting);
    case JobPhase::kClosing:
      return absl::StrCat("generation ", waiting.generation.value(),
                          " is ending: ", waiting.reason);
    case JobPhase::kForming:
    case JobPhase::kEnded:
      break;
  }
  return FormingText(spec, waiting);
}

}  // namespace

std::string PhaseName(JobPhase phase) {
  static constexpr const char* kNames[] = {"forming", "running", "closing", "ended"};
  return kNames[static_cast<size_t>(phase)];
}

Standby StandbyFor(const JobSpec& spec, const Waiting& waiting, const Hindrance& hindrance) {
  DDPRUN_CHECK(waiting.phase != JobPhase::kEnded, "nobody waits after the end");
  const bool hindered = hindrance.cleaning != Generation() || hindrance.claim.has_value();
  const bool spare = !hindered && waiting.phase == JobPhase::kRunning &&
                     (hindrance.failures.has_value() || !waiting.grows);
  const uint32_t present = waiting.members > 0 ? waiting.members : waiting.candidates;
  return {.reason = Reason(spec, waiting, hindrance),
          .spare = spare,
          .nodes_present = present,
          .nodes_wanted = present < spec.nodes_min ? spec.nodes_min : spec.nodes_max};
}

void StandbyDue::Mark(uint64_t node_order) {
  DDPRUN_CHECK(node_order != 0, "join orders begin with 1");
  nodes_.push_back(node_order);
}

void StandbyDue::Clear() {
  nodes_.clear();
  all_ = false;
}

}  // namespace ddprun::rendezvous
