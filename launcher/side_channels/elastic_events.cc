#include "launcher/side_channels/elastic_events.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

using Json = nlohmann::ordered_json;

std::string DumpScalar(const Json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

// As Python's json.dumps spells it: blanks after ',' and ':'. There are scripts that grep it.
std::string PythonJson(const Json& value) {
  std::vector<std::string> parts;
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      parts.push_back(absl::StrCat(DumpScalar(key), ": ", PythonJson(member)));
    }
    return absl::StrCat("{", absl::StrJoin(parts, ", "), "}");
  }
  if (value.is_array()) {
    for (const Json& member : value) parts.push_back(PythonJson(member));
    return absl::StrCat("[", absl::StrJoin(parts, ", "), "]");
  }
  return DumpScalar(value);
}

// The error field as in torchrun: from the worker's error file, or torchrun's placeholder.
std::string RawError(const WorkerEnd& end) {
  if (end.message.empty() && end.traceback.empty()) {
    return PythonJson(
        {{"message", "<NONE>"},
         {"errorTraits", {{"category", "system_terminated_error"}, {"retryability", "False"}}}});
  }
  return PythonJson(
      {{"message", {{"message", end.message}, {"extraInfo", {{"py_callstack", end.traceback}}}}}});
}

}  // namespace

// The subject of an event: the agent, or one of its workers.
struct ElasticEvents::Subject {
  std::optional<uint32_t> local_rank;
  const WorkerEnd* failure = nullptr;
  std::optional<double> duration_ms;
  std::string raw_error;
};

ElasticEvents::ElasticEvents(const LaunchPlan* plan, std::string hostname, Instant now,
                             std::function<void(const std::string&)> write)
    : plan_(plan),
      hostname_(std::move(hostname)),
      began_(now),
      rendezvous_began_(now),
      write_(std::move(write)) {}

void ElasticEvents::OnAssignment(Instant now, const rendezvous::Assignment& assignment) {
  // Without the new rank, as in torchrun: its agent knows the rank only after this event.
  Write("RENDEZVOUS", {.duration_ms = absl::ToDoubleMilliseconds(now - rendezvous_began_)});
  Write("ASSIGN_WORKER_RANKS", {.duration_ms = 0.0});
  assignment_ = assignment;
  workers_.assign(plan_->worker_count, Worker());
}

void ElasticEvents::OnStarted(uint32_t local_rank, uint32_t pid) {
  if (local_rank >= workers_.size()) return;
  workers_[local_rank].pid = pid;
  Write("START", {.local_rank = local_rank});
}

void ElasticEvents::OnEnded(const WorkerEnd& end) {
  if (end.local_rank >= workers_.size()) return;
  workers_[end.local_rank].end = end;
}

void ElasticEvents::OnExit(Instant now, bool failed) {
  run_seconds_ = absl::ToInt64Seconds(now - began_);
  const bool all_ok = std::all_of(workers_.begin(), workers_.end(), [](const Worker& worker) {
    return worker.end.has_value() && worker.end->ok();
  });
  for (uint32_t local_rank = 0; local_rank < workers_.size(); ++local_rank) {
    const std::optional<WorkerEnd>& end = workers_[local_rank].end;
    if (end.has_value() && !end->ok()) {
      Write("FAILED", {.local_rank = local_rank, .failure = &*end, .raw_error = RawError(*end)});
    } else {
      // A worker that ended well while another one failed counts as terminated.
      Write(all_ok ? "SUCCEEDED" : "TERMINATED", {.local_rank = local_rank});
    }
  }
  Write(failed ? "FAILED" : "SUCCEEDED", {});
}

void ElasticEvents::Write(const std::string& state, const Subject& subject) {
  const auto or_null = [](const auto& value) { return value.has_value() ? Json(*value) : Json(); };
  Json more = {{"group_world_size", nullptr}, {"entry_point", BaseName(plan_->argv.front())}};
  Json group_rank;
  Json global_rank;
  Json worker_id;
  if (assignment_.has_value()) {
    more["group_world_size"] = assignment_->group_world_size;
    group_rank = assignment_->group_rank;
  }
  if (subject.local_rank.has_value() && assignment_.has_value()) {
    const uint32_t local_rank = *subject.local_rank;
    const WorkerEnd* failure = subject.failure;
    more["local_rank"] = {local_rank};
    more["role_rank"] = {assignment_->base_role_rank + local_rank};
    more["role_world_size"] = {assignment_->role_world_size};
    const Json code = failure == nullptr     ? Json()
                      : failure->signal != 0 ? Json(-failure->signal)
                                             : Json(failure->exit_code);
    more["exit_code"] = Json::array({code});
    more["worker_pid"] = Json::array({failure == nullptr ? Json() : Json(failure->pid)});
    global_rank = assignment_->base_rank + local_rank;
    worker_id = absl::StrCat(workers_[local_rank].pid);
  }
  const Json event = {
      {"name", absl::StrCat("torchelastic.worker.status.", state)},
      {"source", subject.local_rank.has_value() ? "WORKER" : "AGENT"},
      {"timestamp", 0},
      {"metadata",
       {{"run_id", plan_->job.run_id},
        {"global_rank", global_rank},
        {"group_rank", group_rank},
        {"worker_id", worker_id},
        {"role", plan_->role},
        {"hostname", hostname_},
        {"state", state},
        {"total_run_time", run_seconds_},
        {"rdzv_backend", plan_->rdzv_backend},
        {"raw_error", subject.raw_error.empty() ? Json() : Json(subject.raw_error)},
        {"metadata", PythonJson(more)},
        {"agent_restarts", assignment_.has_value() ? assignment_->restart_count : 0},
        {"duration_ms", or_null(subject.duration_ms)}}}};
  write_(absl::StrCat(PythonJson(event), "\n"));
}

}  // namespace ddprun::launcher
