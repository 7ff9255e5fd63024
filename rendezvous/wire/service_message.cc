#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/progress_page.h"
#include "base/version.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/wire/convert.h"
#include "rendezvous/wire/convert_parts.h"
#include "rendezvous/wire/field_checker.h"
#include "rendezvous/wire/fields.h"

namespace ddprun::rendezvous {
namespace {

absl::Status CheckMajor(const v1::Welcome& welcome) {
  if (welcome.protocol_major() == kProtocolMajor) return absl::OkStatus();
  const bool service_is_older = welcome.protocol_major() < kProtocolMajor;
  return absl::FailedPreconditionError(absl::StrCat(
      "the rendezvous service (release '", CutText(welcome.release(), kReleaseQuotedMax),
      "') speaks protocol ", welcome.protocol_major(), ", this agent (release '", kVersion,
      "') speaks protocol ", kProtocolMajor, ": upgrade ddprun ",
      service_is_older ? "where the rendezvous service runs" : "on this node"));
}

}  // namespace

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, Welcome>& core, ProtoOf<Wire, v1::Welcome>& proto) {
  wire.NonZero(DDPRUN_FIELD(term));
  wire.CutName(DDPRUN_FIELD(release));
  wire.Milliseconds(DDPRUN_FIELD_AS(lease, lease_ms), JobSpec().lease, kLeaseMin);
  wire.Any(DDPRUN_FIELD(processed_sequence));
  wire.Any(DDPRUN_FIELD(heartbeat_key));
  wire.Microseconds(DDPRUN_FIELD_AS(job_age, job_age_us));
  if constexpr (!Wire::kReads) {
    proto.set_protocol_major(kProtocolMajor);
    if (core.release.empty()) proto.set_release(kVersion);
  }
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, Probe>& core, ProtoOf<Wire, v1::Probe>& proto) {
  wire.Any(DDPRUN_FIELD(nonce));
  wire.Any(DDPRUN_FIELD(processed_sequence));
  wire.MillisecondsOrZero(DDPRUN_FIELD_AS(lease, lease_ms));
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, Standby>& core, ProtoOf<Wire, v1::Standby>& proto) {
  wire.Text(DDPRUN_FIELD(reason));
  wire.Any(DDPRUN_FIELD(spare));
  wire.Number(DDPRUN_FIELD(nodes_present), 0, kNodesMax);
  wire.Number(DDPRUN_FIELD(nodes_wanted), 0, kNodesMax);
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, Assignment>& core, ProtoOf<Wire, v1::Assignment>& proto) {
  wire.NonZero(DDPRUN_FIELD(generation));
  wire.Any(DDPRUN_FIELD(restart_count));
  wire.Number(DDPRUN_FIELD(world_size), 1, kWorkersMax);
  wire.Number(DDPRUN_FIELD(group_world_size), 1, kNodesMax);
  wire.Any(DDPRUN_FIELD(group_rank));
  wire.Require(core.group_rank < core.group_world_size, "group_rank",
               "is not below group_world_size");
  wire.Any(DDPRUN_FIELD(base_rank));
  wire.Require(core.base_rank < core.world_size, "base_rank", "is not below world_size");
  wire.Number(DDPRUN_FIELD(role_world_size), 1, core.world_size);
  wire.Any(DDPRUN_FIELD(base_role_rank));
  wire.Require(core.base_role_rank < core.role_world_size, "base_role_rank",
               "is not below role_world_size");
  wire.Name(DDPRUN_FIELD(master_addr));
  wire.Port(DDPRUN_FIELD(master_port));
  wire.OptionalName(DDPRUN_FIELD(store_address));
  wire.Text(DDPRUN_FIELD(reason));
  wire.CutName(DDPRUN_FIELD(rule));
  wire.Any(DDPRUN_FIELD(restarts_charged));
  wire.Require(core.restarts_charged <= core.restart_count, "restarts_charged",
               "is more than restart_count");
  wire.Any(DDPRUN_FIELD(redone_to));
  wire.Require(core.redone_to <= kProgressStepMax, "redone_to", "is above 2^56 - 1");
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, StopWorkers>& core, ProtoOf<Wire, v1::StopWorkers>& proto) {
  wire.NonZero(DDPRUN_FIELD(generation));
  wire.Text(DDPRUN_FIELD(reason));
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, ReportProgress>& core,
            ProtoOf<Wire, v1::ReportProgress>& proto) {
  wire.NonZero(DDPRUN_FIELD(generation));
  wire.Milliseconds(DDPRUN_FIELD_AS(sample, sample_ms), kHangSample);
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, HungWorkers>& core, ProtoOf<Wire, v1::HungWorkers>& proto) {
  wire.NonZero(DDPRUN_FIELD(generation));
  wire.Text(DDPRUN_FIELD(reason));
  wire.Any(DDPRUN_FIELD(end));
  if constexpr (Wire::kReads) {
    wire.Require(proto.local_ranks_size() > 0, "local_ranks", "is empty");
    wire.checker()->Count(wire.Path("local_ranks"), proto.local_ranks_size(), kWorkersPerNodeMax);
    if (!wire.checker()->status().ok()) return;
    for (const uint32_t local_rank : proto.local_ranks()) {
      core.local_ranks.push_back(
          wire.checker()->Number(wire.Path("local_ranks"), local_rank, 0, kWorkersPerNodeMax - 1));
    }
  } else {
    proto.mutable_local_ranks()->Assign(core.local_ranks.begin(), core.local_ranks.end());
  }
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, PrepareStop>& core, ProtoOf<Wire, v1::PrepareStop>& proto) {
  wire.NonZero(DDPRUN_FIELD(round));
  wire.NonZero(DDPRUN_FIELD(generation));
  wire.Step(DDPRUN_FIELD(step));
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, CommitStop>& core, ProtoOf<Wire, v1::CommitStop>& proto) {
  wire.NonZero(DDPRUN_FIELD(generation));
  wire.NonZero(DDPRUN_FIELD(step));
  wire.Step(DDPRUN_FIELD(step));
  wire.Milliseconds(DDPRUN_FIELD_AS(within, within_ms), JobSpec().stop_grace);
  wire.Text(DDPRUN_FIELD(reason));
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, Drain>& core, ProtoOf<Wire, v1::Drain>& proto) {
  wire.Text(DDPRUN_FIELD(reason));
}

namespace {

ServiceMessage ReadBody(FieldChecker* checker, const v1::ServiceMessage& proto) {
  switch (proto.body_case()) {
    case v1::ServiceMessage::kWelcome:
      return Read<Welcome>(checker, "welcome", proto.welcome());
    case v1::ServiceMessage::kProbe:
      return Read<Probe>(checker, "probe", proto.probe());
    case v1::ServiceMessage::kStandby:
      return Read<Standby>(checker, "standby", proto.standby());
    case v1::ServiceMessage::kAssignment:
      return Read<Assignment>(checker, "assignment", proto.assignment());
    case v1::ServiceMessage::kStopWorkers:
      return Read<StopWorkers>(checker, "stop_workers", proto.stop_workers());
    case v1::ServiceMessage::kVerdict:
      return ReadVerdict(checker, "verdict", proto.verdict());
    case v1::ServiceMessage::kReportProgress:
      return Read<ReportProgress>(checker, "report_progress", proto.report_progress());
    case v1::ServiceMessage::kHungWorkers:
      return Read<HungWorkers>(checker, "hung_workers", proto.hung_workers());
    case v1::ServiceMessage::kPrepareStop:
      return Read<PrepareStop>(checker, "prepare_stop", proto.prepare_stop());
    case v1::ServiceMessage::kCommitStop:
      return Read<CommitStop>(checker, "commit_stop", proto.commit_stop());
    case v1::ServiceMessage::kDrain:
      return Read<Drain>(checker, "drain", proto.drain());
    case v1::ServiceMessage::BODY_NOT_SET:
      break;
  }
  checker->Require(proto.ByteSizeLong() > 0, "body", "is missing");
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

v1::ServiceMessage ToProto(const ServiceMessage& message) {
  v1::ServiceMessage proto;
  std::visit(Overloaded{
                 [&](const Welcome& body) { Write(body, proto.mutable_welcome()); },
                 [&](const Probe& body) { Write(body, proto.mutable_probe()); },
                 [&](const Standby& body) { Write(body, proto.mutable_standby()); },
                 [&](const Assignment& body) { Write(body, proto.mutable_assignment()); },
                 [&](const StopWorkers& body) { Write(body, proto.mutable_stop_workers()); },
                 [&](const Verdict& body) { WriteVerdict(body, proto.mutable_verdict()); },
                 [&](const ReportProgress& body) { Write(body, proto.mutable_report_progress()); },
                 [&](const HungWorkers& body) { Write(body, proto.mutable_hung_workers()); },
                 [&](const PrepareStop& body) { Write(body, proto.mutable_prepare_stop()); },
                 [&](const CommitStop& body) { Write(body, proto.mutable_commit_stop()); },
                 [&](const Drain& body) { Write(body, proto.mutable_drain()); },
                 [](const UnknownKind&) {},  // only received
             },
             message);
  return proto;
}

}  // namespace ddprun::rendezvous
