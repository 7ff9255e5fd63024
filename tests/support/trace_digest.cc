#include "tests/support/trace_digest.h"

#include <cstdlib>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/support/trace_text.h"

namespace ddprun::testing {
namespace {

using rendezvous::Assignment;
using rendezvous::Effect;
using rendezvous::JobView;

// The parts of an effect that its line leaves out.
std::string Rest(const Effect& effect) {
  const auto* send = std::get_if<rendezvous::Send>(&effect);
  const auto* assignment = send == nullptr ? nullptr : std::get_if<Assignment>(send->message.get());
  if (assignment == nullptr) return "";
  return absl::StrCat(" charged=", assignment->restarts_charged,
                      " redone_to=", assignment->redone_to);
}

std::string Rest(const JobView& view) {
  std::string text = absl::StrCat(" charged=", view.restarts_charged,
                                  " age=", absl::ToInt64Milliseconds(view.age));
  for (const absl::Duration spent : view.spent.by) {
    absl::StrAppend(&text, " ", absl::ToInt64Nanoseconds(spent));
  }
  for (const rendezvous::NodeView& node : view.nodes) {
    absl::StrAppend(&text, "\n", node.base_rank, " ", absl::StrJoin(node.progress, ","), " ",
                    absl::FormatDuration(node.step_time), " ",
                    absl::FormatDuration(node.progress_age), " ", node.gpus.size(), " ",
                    node.info.master_port);
  }
  return text;
}

}  // namespace

void TraceDigest::Add(Instant now, const rendezvous::Event& event,
                      const std::vector<Effect>& effects, const rendezvous::StateMachine& machine) {
  Add(absl::StrCat(ToString(now), " ", rendezvous::TraceText(event)));
  for (const Effect& effect : effects) {
    Add(absl::StrCat(rendezvous::TraceText(effect), Rest(effect)));
  }
  const JobView view = machine.View(now);
  Add(absl::StrCat(rendezvous::TraceText(view), Rest(view)));
  Add(ToString(machine.NextDeadline()));
  for (const rendezvous::GenerationView& each : machine.generations()) {
    Add(absl::StrCat(each.generation.value(), " ", each.world_size, " ", each.reason, " ",
                     each.rule, " ", ToString(each.began), " ", ToString(each.ended), " ",
                     each.end_reason, " ", each.first_step.value_or(0), " ",
                     each.last_step.value_or(0)));
  }
}

void TraceDigest::Add(const std::string& line) {
  constexpr uint64_t kPrime = 1099511628211ULL;
  for (const char byte : line) value_ = (value_ ^ static_cast<unsigned char>(byte)) * kPrime;
  value_ = (value_ ^ '\n') * kPrime;
  ++lines_;
}

bool DigestWanted() { return std::getenv("DDPRUN_TRACE_DIGEST") != nullptr; }

}  // namespace ddprun::testing
