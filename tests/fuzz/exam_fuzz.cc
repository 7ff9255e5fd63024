#include "tests/fuzz/exam_fuzz.h"

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "launcher/preflight/core/link_exam.h"
#include "launcher/preflight/core/link_text.h"
#include "launcher/preflight/exam_wire.h"
#include "launcher/preflight/probe_datagram.h"

namespace ddprun::launcher {
namespace {

constexpr uint32_t kExamFuzzNodes = 3;

// Whatever the others claim to have seen, there is a report of it.
void JudgeLooks(const NodeLooks& looks) {
  std::vector<NodeFacts> nodes(kExamFuzzNodes, {.name = "n", .told = true});
  LinkExam exam(nodes);
  while (!exam.Next({}, absl::Seconds(1)).over) {
    exam.Add({looks, looks, looks});
  }
  const std::string text = NetworkText(exam.facts(), DescribeTroubles(exam.facts()), {});
  DDPRUN_CHECK(Printable(text) == text, "what others wrote could steer the terminal");
  DDPRUN_CHECK(!ReportJson(exam.facts(), {}).empty(), "no JSON");
}

}  // namespace

bool ReadExamBytes(absl::string_view bytes) {
  bool understood = false;
  if (const auto seat = ReadSeat(bytes); seat.ok()) {
    understood = true;
    DDPRUN_CHECK(ReadSeat(SeatJson(*seat)).value() == *seat, "another seat");
  }
  if (const auto table = ReadTable(bytes); table.ok()) {
    understood = true;
    DDPRUN_CHECK(ReadTable(TableJson(*table)).value() == *table, "another table");
  }
  if (const auto plan = ReadPlan(bytes, kExamFuzzNodes); plan.ok()) {
    understood = true;
    DDPRUN_CHECK(ReadPlan(PlanJson(*plan), kExamFuzzNodes).value() == *plan, "another plan");
  }
  if (const auto looks = ReadLooks(bytes, kExamFuzzNodes); looks.ok()) {
    understood = true;
    DDPRUN_CHECK(ReadLooks(LooksJson(*looks), kExamFuzzNodes).ok(), "no looks");
    JudgeLooks(*looks);
  }
  if (const auto verdict = ReadVerdict(bytes); verdict.ok()) {
    understood = true;
    DDPRUN_CHECK(ReadVerdict(VerdictJson(*verdict)).value() == *verdict, "another verdict");
  }
  if (const auto probe = DecodeProbe(bytes); probe.has_value()) {
    understood = true;
    DDPRUN_CHECK(EncodeProbe(*probe) == bytes, "another datagram");
  }
  return understood;
}

}  // namespace ddprun::launcher
