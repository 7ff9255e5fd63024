#include "tests/support/trace_text.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "rendezvous/core/describe.h"

namespace ddprun::rendezvous {
namespace {

// " key=value"; values with spaces are quoted.
std::string Field(const std::string& key, const std::string& value) {
  const bool quoted = value.empty() || value.find_first_of(" =\"") != std::string::npos;
  return quoted ? absl::StrCat(" ", key, "=\"", value, "\"") : absl::StrCat(" ", key, "=", value);
}

std::string FailuresText(const std::vector<WorkerFailure>& failures) {
  return absl::StrJoin(failures, "; ", [](std::string* out, const WorkerFailure& failure) {
    absl::StrAppend(out, FailureText(failure));
  });
}

std::string StateName(GroupState state) {
  switch (state) {
    case GroupState::kIdle:
      return "idle";
    case GroupState::kRunning:
      return "running";
    case GroupState::kStopping:
      return "stopping";
    case GroupState::kSucceeded:
      return "succeeded";
  }
  return "unknown";
}

std::string ActivityName(Activity activity) {
  static constexpr const char* kNames[] = {"unknown", "active", "still", "stopped"};
  return kNames[static_cast<size_t>(activity)];
}

std::string Describe(const Welcome& m) {
  return absl::StrCat("welcome term=", m.term.value(), " processed=", m.processed_sequence);
}

std::string Describe(const Probe& m) {
  return absl::StrCat(
      "probe nonce=", m.nonce, " processed=", m.processed_sequence,
      m.lease > absl::ZeroDuration() ? absl::StrCat(" lease=", absl::FormatDuration(m.lease)) : "");
}

std::string Describe(const Standby& m) {
  return absl::StrCat(m.spare ? "spare" : "standby", " ", m.nodes_present, "/", m.nodes_wanted,
                      Field("reason", m.reason));
}

std::string Describe(const Assignment& m) {
  return absl::StrCat("assignment gen=", m.generation.value(), " restarts=", m.restart_count,
                      " group=", m.group_rank, "/", m.group_world_size, " base=", m.base_rank,
                      " world=", m.world_size, " role=", m.base_role_rank, "/", m.role_world_size,
                      " master=", m.master_addr, ":", m.master_port,
                      m.store_address.empty() ? "" : Field("store", m.store_address),
                      Field("reason", m.reason), " rule=", m.rule);
}

std::string Describe(const StopWorkers& m) {
  return absl::StrCat("stop gen=", m.generation.value(), Field("reason", m.reason));
}

std::string Describe(const Verdict& m) {
  return absl::StrCat(
      "verdict ", OutcomeText(m.outcome), " gen=", m.generation.value(),
      " restarts=", m.restart_count, Field("reason", m.reason), " rule=", m.rule,
      m.failures.empty()
          ? ""
          : absl::StrCat(" causes=", m.first_causes, Field("failures", FailuresText(m.failures))),
      m.failures_left_out == 0
          ? ""
          : absl::StrCat(" left_out=", m.failures_left_out, Field("whole_on", m.whole_on)));
}

std::string Describe(const Join& m) {
  return absl::StrCat("join host=", m.node.hostname, " workers=", m.node.worker_count,
                      " state=", StateName(m.group_state));
}

std::string Describe(const Heartbeat& m) { return absl::StrCat("heartbeat key=", m.key); }
std::string Describe(const Renewal& m) { return absl::StrCat("renewal nonce=", m.nonce); }

std::string Describe(const WorkersStarted& /*m*/) { return "started"; }

std::string Describe(const WorkerFailed& m) {
  return absl::StrCat("failed", Field("failure", FailureText(m.failure)));
}

std::string Describe(const GroupSucceeded& /*m*/) { return "succeeded"; }

std::string Describe(const GroupStopped& m) {
  return absl::StrCat("stopped clean=", m.clean ? 1 : 0, " port=", m.master_port,
                      m.step ? absl::StrCat(" step=", *m.step) : "",
                      m.kept > 0 ? absl::StrCat(" kept=", m.kept) : "",
                      m.failures.empty() ? "" : Field("failures", FailuresText(m.failures)));
}

std::string Describe(const Leave& m) {
  return absl::StrCat("leave end=", m.end_job ? 1 : 0, m.preempted ? " preempted" : "",
                      Field("reason", m.reason));
}

std::string Describe(const HangReport& m) {
  return absl::StrCat("hang report",
                      Field("workers", absl::StrJoin(m.workers, " ", [](auto* out, const auto& w) {
                              absl::StrAppend(out, w.local_rank, ":", ProgressPhaseName(w.phase),
                                              ":", w.step, w.suspect ? ":suspect" : "",
                                              w.overdue ? ":overdue" : "", ":",
                                              ActivityName(w.activity));
                            })));
}

std::string Describe(const ReportProgress& m) {
  return absl::StrCat("report_progress gen=", m.generation.value(),
                      " sample=", absl::ToInt64Milliseconds(m.sample), "ms");
}

std::string Describe(const HungWorkers& m) {
  return absl::StrCat(m.end ? "end_hung gen=" : "name_hung gen=", m.generation.value(),
                      " local=", absl::StrJoin(m.local_ranks, ","), Field("reason", m.reason));
}

std::string Describe(const Preempt& m) {
  return absl::StrCat("preempt", m.ends_job ? " ends_job" : "", m.drained ? " drained" : "",
                      " deadline=", absl::FormatDuration(m.deadline), Field("reason", m.reason));
}

std::string Describe(const StopPrepared& m) {
  return absl::StrCat("stop_prepared round=", m.round, " heeds=", m.look.heeds ? 1 : 0,
                      " below=", m.look.below ? 1 : 0, " highest=", m.look.highest);
}

std::string Describe(const PrepareStop& m) {
  return absl::StrCat("prepare_stop gen=", m.generation.value(), " round=", m.round,
                      " step=", m.step);
}

std::string Describe(const CommitStop& m) {
  return absl::StrCat("commit_stop gen=", m.generation.value(), " step=", m.step,
                      " within=", absl::FormatDuration(m.within), Field("reason", m.reason));
}

std::string Describe(const Drain& m) { return absl::StrCat("drain", Field("reason", m.reason)); }

std::string Describe(const UnknownKind& /*m*/) { return "unknown"; }

// The status without its payloads: "ABORTED: text".
std::string StatusText(const absl::Status& status) {
  if (status.ok()) return "OK";
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ",
                      absl::string_view(status.message()));
}

struct EffectText {
  const StreamNamer& name;

  std::string operator()(const Send& e) const {
    return absl::StrCat("-> ", name(e.stream), " ", TraceText(*e.message));
  }
  std::string operator()(const CloseStream& e) const {
    return absl::StrCat("close ", name(e.stream), " ", StatusText(e.status));
  }
  std::string operator()(const Persist& /*e*/) const { return "persist"; }
  std::string operator()(const Note& e) const {
    std::string text = absl::StrCat("note ", e.event);
    for (const auto& [key, value] : e.fields) absl::StrAppend(&text, Field(key, value));
    return text;
  }
  std::string operator()(const Ended& e) const {
    return absl::StrCat("ended ", OutcomeText(e.outcome));
  }
};

struct EventText {
  const StreamNamer& name;

  std::string operator()(const MessageReceived& e) const {
    return absl::StrCat("<- ", name(e.stream), " ", TraceText(e.message));
  }
  std::string operator()(const StreamClosed& e) const {
    return absl::StrCat("closed ", name(e.stream));
  }
  std::string operator()(const StopRequested& e) const {
    return absl::StrCat("stop requested", Field("reason", e.reason));
  }
  std::string operator()(const DrainRequested& e) const {
    return absl::StrCat(e.undo ? "undrain" : "drain", " requested node=", e.node.value(),
                        Field("reason", e.reason));
  }
  std::string operator()(const TimerDue& /*e*/) const { return "timer"; }
  std::string operator()(const PersistDone& e) const {
    return absl::StrCat("persisted ", StatusText(e.status));
  }
};

}  // namespace

std::string DefaultStreamName(StreamKey stream) { return absl::StrCat("s", stream.value()); }

std::string TraceText(const ServiceMessage& message) {
  return std::visit([](const auto& m) { return Describe(m); }, message);
}

std::string TraceText(const AgentMessage& message) {
  return absl::StrCat(std::visit([](const auto& m) { return Describe(m); }, message.body),
                      " node=", message.node_id.value(), " gen=", message.generation.value(),
                      " seq=", message.sequence);
}

std::string TraceText(const Effect& effect, const StreamNamer& name) {
  return std::visit(EffectText{name}, effect);
}

std::string TraceText(const Event& event, const StreamNamer& name) {
  return std::visit(EventText{name}, event);
}

std::string TraceText(const JobView& view) {
  std::string text = absl::StrCat(view.phase, " gen=", view.generation.value(),
                                  " restarts=", view.restart_count, Field("reason", view.reason));
  for (const NodeView& node : view.nodes) {
    absl::StrAppend(&text, "\n  ", node.node_id.value(), " ", node.state,
                    " rank=", node.group_rank ? absl::StrCat(*node.group_rank) : "-",
                    " silent=", absl::ToInt64Milliseconds(node.silent), "ms");
  }
  for (const DrainedNode& drained : view.drained) {
    absl::StrAppend(&text, "\n  drained ", drained.node_id.value(), " on ", drained.hostname,
                    Field("reason", drained.reason));
  }
  return text;
}

}  // namespace ddprun::rendezvous
