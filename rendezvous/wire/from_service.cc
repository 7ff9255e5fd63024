#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/progress_page.h"
#include "base/version.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/wire/convert.h"
#include "rendezvous/wire/convert_parts.h"
#include "rendezvous/wire/field_checker.h"
#include "rendezvous/wire/text.h"

namespace ddprun::rendezvous {
namespace {

constexpr uint32_t kWorkersMax = kNodesMax * kWorkersPerNodeMax;

absl::Status CheckMajor(const v1::Welcome& welcome) {
  if (welcome.protocol_major() == kProtocolMajor) return absl::OkStatus();
  const bool service_is_older = welcome.protocol_major() < kProtocolMajor;
  return absl::FailedPreconditionError(absl::StrCat(
      "the rendezvous service (release '", CutText(welcome.release(), kReleaseQuotedMax),
      "') speaks protocol ", welcome.protocol_major(), ", this agent (release '", kVersion,
      "') speaks protocol ", kProtocolMajor, ": upgrade ddprun ",
      service_is_older ? "where the rendezvous service runs" : "on this node"));
}

Welcome ReadWelcome(FieldChecker* checker, const v1::Welcome& proto) {
  Welcome welcome;
  welcome.term = Term(checker->NonZero("welcome.term", proto.term()));
  welcome.release = checker->OptionalName("welcome.release", proto.release());
  welcome.lease =
      checker->Milliseconds("welcome.lease_ms", proto.lease_ms(), JobSpec{}.lease, kLeaseMin);
  welcome.processed_sequence = proto.processed_sequence();
  welcome.heartbeat_key = proto.heartbeat_key();
  welcome.job_age = checker->Microseconds("welcome.job_age_us", proto.job_age_us());
  return welcome;
}

Standby ReadStandby(FieldChecker* checker, const v1::Standby& proto) {
  Standby standby;
  standby.reason = checker->Text("standby.reason", proto.reason());
  standby.spare = proto.spare();
  standby.nodes_present =
      checker->Number("standby.nodes_present", proto.nodes_present(), 0, kNodesMax);
  standby.nodes_wanted =
      checker->Number("standby.nodes_wanted", proto.nodes_wanted(), 0, kNodesMax);
  return standby;
}

Assignment ReadAssignment(FieldChecker* checker, const v1::Assignment& proto) {
  Assignment assignment;
  assignment.generation = Generation(checker->NonZero("assignment.generation", proto.generation()));
  assignment.restart_count = proto.restart_count();
  assignment.world_size =
      checker->Number("assignment.world_size", proto.world_size(), 1, kWorkersMax);
  assignment.group_world_size =
      checker->Number("assignment.group_world_size", proto.group_world_size(), 1, kNodesMax);
  assignment.group_rank = proto.group_rank();
  checker->Require(proto.group_rank() < proto.group_world_size(), "assignment.group_rank",
                   "is not below group_world_size");
  assignment.base_rank = proto.base_rank();
  checker->Require(proto.base_rank() < proto.world_size(), "assignment.base_rank",
                   "is not below world_size");
  assignment.role_world_size =
      checker->Number("assignment.role_world_size", proto.role_world_size(), 1, proto.world_size());
  assignment.base_role_rank = proto.base_role_rank();
  checker->Require(proto.base_role_rank() < proto.role_world_size(), "assignment.base_role_rank",
                   "is not below role_world_size");
  assignment.master_addr = checker->Name("assignment.master_addr", proto.master_addr());
  assignment.master_port = checker->Port("assignment.master_port", proto.master_port());
  assignment.store_address =
      checker->OptionalName("assignment.store_address", proto.store_address());
  assignment.reason = checker->Text("assignment.reason", proto.reason());
  assignment.rule = checker->OptionalName("assignment.rule", proto.rule());
  assignment.restarts_charged = proto.restarts_charged();
  checker->Require(proto.restarts_charged() <= proto.restart_count(), "assignment.restarts_charged",
                   "is more than restart_count");
  checker->Require(proto.redone_to() <= kProgressStepMax, "assignment.redone_to",
                   "is above 2^56 - 1");
  assignment.redone_to = proto.redone_to();
  return assignment;
}

StopWorkers ReadStopWorkers(FieldChecker* checker, const v1::StopWorkers& proto) {
  return {.generation = Generation(checker->NonZero("stop_workers.generation", proto.generation())),
          .reason = checker->Text("stop_workers.reason", proto.reason())};
}

ReportProgress ReadReportProgress(FieldChecker* checker, const v1::ReportProgress& proto) {
  return {
      .generation = Generation(checker->NonZero("report_progress.generation", proto.generation())),
      .sample = checker->Milliseconds("report_progress.sample_ms", proto.sample_ms(), kHangSample)};
}

HungWorkers ReadHungWorkers(FieldChecker* checker, const v1::HungWorkers& proto) {
  HungWorkers order;
  order.generation = Generation(checker->NonZero("hung_workers.generation", proto.generation()));
  order.reason = checker->Text("hung_workers.reason", proto.reason());
  order.end = proto.end();
  checker->Require(proto.local_ranks_size() > 0, "hung_workers.local_ranks", "is empty");
  checker->Count("hung_workers.local_ranks", proto.local_ranks_size(), kWorkersPerNodeMax);
  if (!checker->status().ok()) return order;
  for (const uint32_t local_rank : proto.local_ranks()) {
    order.local_ranks.push_back(
        checker->Number("hung_workers.local_ranks", local_rank, 0, kWorkersPerNodeMax - 1));
  }
  return order;
}

uint64_t ReadStep(FieldChecker* checker, absl::string_view field, uint64_t step) {
  checker->Require(step <= kProgressStepMax, field, absl::StrCat(step, " is not below 2^56"));
  return step;
}

PrepareStop ReadPrepareStop(FieldChecker* checker, const v1::PrepareStop& proto) {
  checker->Require(proto.round() != 0, "prepare_stop.round", "is 0");
  return {.generation = Generation(checker->NonZero("prepare_stop.generation", proto.generation())),
          .round = proto.round(),
          .step = ReadStep(checker, "prepare_stop.step", proto.step())};
}

CommitStop ReadCommitStop(FieldChecker* checker, const v1::CommitStop& proto) {
  return {.generation = Generation(checker->NonZero("commit_stop.generation", proto.generation())),
          .step = ReadStep(checker, "commit_stop.step",
                           checker->NonZero("commit_stop.step", proto.step())),
          .within = checker->Milliseconds("commit_stop.within_ms", proto.within_ms(),
                                          JobSpec().stop_grace),
          .reason = checker->Text("commit_stop.reason", proto.reason())};
}

ServiceMessage ReadBody(FieldChecker* checker, const v1::ServiceMessage& proto) {
  switch (proto.body_case()) {
    case v1::ServiceMessage::kWelcome:
      return ReadWelcome(checker, proto.welcome());
    case v1::ServiceMessage::kProbe:
      return Probe{.nonce = proto.probe().nonce(),
                   .processed_sequence = proto.probe().processed_sequence(),
                   .lease = checker->Milliseconds("probe.lease_ms", proto.probe().lease_ms(),
                                                  absl::ZeroDuration())};
    case v1::ServiceMessage::kStandby:
      return ReadStandby(checker, proto.standby());
    case v1::ServiceMessage::kAssignment:
      return ReadAssignment(checker, proto.assignment());
    case v1::ServiceMessage::kStopWorkers:
      return ReadStopWorkers(checker, proto.stop_workers());
    case v1::ServiceMessage::kVerdict:
      return ReadVerdict(checker, "verdict", proto.verdict());
    case v1::ServiceMessage::kReportProgress:
      return ReadReportProgress(checker, proto.report_progress());
    case v1::ServiceMessage::kHungWorkers:
      return ReadHungWorkers(checker, proto.hung_workers());
    case v1::ServiceMessage::kPrepareStop:
      return ReadPrepareStop(checker, proto.prepare_stop());
    case v1::ServiceMessage::kCommitStop:
      return ReadCommitStop(checker, proto.commit_stop());
    case v1::ServiceMessage::kDrain:
      return Drain{.reason = checker->Text("drain.reason", proto.drain().reason())};
    case v1::ServiceMessage::BODY_NOT_SET:
      break;
  }
  checker->Require(!proto.GetReflection()->GetUnknownFields(proto).empty(), "body", "is missing");
  return UnknownKind{};
}

}  // namespace

absl::StatusOr<ServiceMessage> FromProto(const v1::ServiceMessage& proto) {
  if (proto.has_welcome()) {
    if (absl::Status status = CheckMajor(proto.welcome()); !status.ok()) return status;
  }
  FieldChecker checker;
  ServiceMessage message = ReadBody(&checker, proto);
  if (!checker.status().ok()) return checker.status();
  return message;
}

}  // namespace ddprun::rendezvous
