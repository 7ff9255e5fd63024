#include "tools/watch/commands.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/thread.h"
#include "rendezvous/client/control_client.h"
#include "tools/watch/job_service.h"
#include "tools/watch/log_lines.h"
#include "tools/watch/own_machine.h"

namespace ddprun::launcher {
namespace {

using agent::v1::LogPiece;
using rendezvous::ServiceAddress;
using rendezvous::v1::JobStatus;
using rendezvous::v1::NodeStatus;

// Prints whole lines of many readers: stdout's on stdout, stderr's on stderr; as JSON, which names
// the stream, all on stdout. Threads: any.
class Printer {
 public:
  explicit Printer(const LogsOptions& options)
      : raw_(options.raw),
        stderr_(options.form == OutputForm::kJson ? stdout : stderr),
        lines_(options.form) {}

  void Print(const std::string& node, const LogPiece& piece) {
    const std::lock_guard lock(mutex_);
    FILE* const to = piece.is_stderr() ? stderr_ : stdout;
    const std::string text = raw_ ? piece.data()
                                  : lines_.Add({.generation = piece.generation(),
                                                .rank = piece.rank(),
                                                .is_stderr = piece.is_stderr(),
                                                .node = node,
                                                .local_rank = piece.local_rank(),
                                                .restart_count = piece.restart_count()},
                                               piece.data());
    std::fwrite(text.data(), 1, text.size(), to);
    std::fflush(to);
  }
  void End() {
    const std::lock_guard lock(mutex_);
    std::fputs(lines_.EndAll(/*is_stderr=*/false).c_str(), stdout);
    std::fputs(lines_.EndAll(/*is_stderr=*/true).c_str(), stderr_);
    std::fflush(nullptr);
  }

 private:
  const bool raw_;
  FILE* const stderr_;
  std::mutex mutex_;
  LogLines lines_;
};

// The node that has a rank in the current generation; nullopt = none has, as far as the service
// says. Ranks follow each other in the order of the nodes' group ranks (R7).
std::optional<NodeStatus> NodeOfRank(const JobStatus& job, uint32_t rank) {
  std::map<uint32_t, NodeStatus> members;
  for (const NodeStatus& node : job.nodes()) {
    if (node.has_group_rank()) members.emplace(node.group_rank(), node);
  }
  uint32_t first = 0;
  uint32_t group_rank = 0;
  for (const auto& [number, node] : members) {
    if (number != group_rank++) return std::nullopt;  // one has left: where ranks begin isn't known
    if (rank - first < node.worker_count()) return node;
    first += node.worker_count();
  }
  return std::nullopt;
}

// The readers of a job's nodes, a thread each.
class Readers {
 public:
  explicit Readers(const LogsOptions& options) : options_(options), printer_(options) {}

  // Begins to read those nodes that are new: of one rank that which has it, while one does.
  void Begin(const JobStatus& job) {
    const std::optional<NodeStatus> only =
        options_.rank.has_value() ? NodeOfRank(job, *options_.rank) : std::nullopt;
    if (only.has_value()) return Begin(job.run_id(), *only);
    for (const NodeStatus& node : job.nodes()) Begin(job.run_id(), node);
  }
  void Begin(const std::string& run_id, const NodeStatus& node) {
    if (!begun_.insert(node.node_id()).second) return;
    absl::StatusOr<std::thread> thread =
        StartThread("a node's logs", [this, run_id, node] { Read(run_id, node); });
    if (thread.ok()) {
      threads_.push_back(*std::move(thread));
    } else {
      Fail(node, thread.status());
    }
  }
  bool begun() const { return !begun_.empty(); }
  // Waits for all of them. True: nothing was wrong.
  bool Finish() {
    for (std::thread& thread : threads_) thread.join();
    printer_.End();
    return !failed_;
  }

 private:
  void Read(const std::string& run_id, const NodeStatus& node) {
    const absl::Status status = ReadNode(run_id, node);
    // When following, the end of the node or the job breaks the stream, which isn't an error.
    const bool is_end = options_.follow && absl::IsUnavailable(status);
    if (status.ok() || is_end) return;
    Fail(node, status);
  }

  void Fail(const NodeStatus& node, const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    Notify(Printable(absl::StrCat("error: node ", node.node_id(), ": ", status.message())));
  }

  absl::Status ReadNode(const std::string& run_id, const NodeStatus& node) {
    agent::v1::ReadLogsRequest request;
    request.set_run_id(run_id);
    request.set_token(options_.token);
    request.set_follow(options_.follow);
    if (options_.rank.has_value()) request.set_rank(*options_.rank);
    if (options_.tail.has_value()) request.set_tail_lines(*options_.tail);
    if (options_.since != absl::InfiniteDuration()) {
      request.set_since_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(options_.since)));
    }
    const auto print = [&](const LogPiece& piece) { printer_.Print(node.node_id(), piece); };
    // A node of this machine is asked here, whatever its address is elsewhere.
    for (const OwnNode& own : FindOwnNodes(run_id, options_.timeout)) {
      if (own.state.node_id() != node.node_id()) continue;
      return ReadLogs({own.socket, node.node_id()}, request, print, {});
    }
    if (!node.agent_address().empty()) {
      return ReadLogs(node.agent_address(), request, print, options_.tls);
    }
    return absl::UnavailableError(absl::StrCat("its agent is reached on its own machine only, ",
                                               node.hostname(),
                                               ", and by its owner: run the command there"));
  }

  const LogsOptions& options_;
  Printer printer_;
  std::set<std::string> begun_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  bool failed_ = false;
};

absl::StatusOr<JobStatus> FetchTheJob(JobService& service, const LogsOptions& options) {
  const auto fetch = [&](const ServiceAddress& address) {
    return rendezvous::FetchStatus(address, options.run_id, options.timeout, options.token,
                                   options.tls);
  };
  DDPRUN_ASSIGN_OR_RETURN(const rendezvous::v1::GetStatusReply reply, service.Ask(fetch));
  if (reply.jobs_size() == 1) return reply.jobs(0);
  return absl::NotFoundError(absl::StrCat(
      "the rendezvous service at ", service.address().name, " holds ", reply.jobs_size(),
      reply.jobs_size() == 0 ? " jobs" : " jobs; name one of them with --rdzv_id"));
}

// A rank that no generation of the job had, as far as the service remembers.
absl::Status CheckRank(const JobStatus& job, const LogsOptions& options) {
  if (!options.rank.has_value() || options.follow || job.history().empty()) return absl::OkStatus();
  uint32_t world_size = 0;
  for (const auto& generation : job.history()) {
    world_size = std::max(world_size, generation.world_size());
  }
  if (*options.rank < world_size) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("--rank ", *options.rank, ": job ", Quoted(job.run_id()),
                                          " has ranks 0 to ", world_size - 1));
}

// Begins to read each node that joins, or gets the rank, until the job has ended.
absl::Status FollowNodes(JobService& service, const LogsOptions& options, Readers* readers) {
  rendezvous::v1::WatchEventsRequest request;
  request.set_run_id(options.run_id);
  request.set_token(options.token);
  request.set_follow(true);
  return service.WatchEvents(
      request, options, [&](const std::string& /*run_id*/, const rendezvous::v1::JobEvent& event) {
        const absl::string_view changes = options.rank.has_value() ? "generation" : "node_joined";
        if (event.event() != changes) return true;
        const absl::StatusOr<JobStatus> job = FetchTheJob(service, options);
        if (job.ok()) readers->Begin(*job);
        return true;
      });
}

absl::Status ReadJob(LogsOptions options, Readers* readers) {
  DDPRUN_ASSIGN_OR_RETURN(JobService service, JobService::Find("logs", &options));
  DDPRUN_ASSIGN_OR_RETURN(const JobStatus job, FetchTheJob(service, options));
  DDPRUN_RETURN_IF_ERROR(CheckRank(job, options));
  readers->Begin(job);
  return options.follow ? FollowNodes(service, options, readers) : absl::OkStatus();
}

// The node of this machine that has the rank, if it is one alone: asked where the service doesn't
// answer, or not without a token.
std::optional<OwnNode> OwnNodeOfRank(const LogsOptions& options) {
  if (!options.rank.has_value()) return std::nullopt;
  std::vector<OwnNode> nodes = FindOwnNodes(options.run_id, options.timeout);
  std::erase_if(nodes, [rank = *options.rank](const OwnNode& node) {
    const uint32_t first = node.state.first_rank();
    const bool has_it = rank >= first && rank - first < node.state.worker_count();
    return !node.state.has_first_rank() || !has_it;
  });
  if (nodes.size() != 1) return std::nullopt;
  return std::move(nodes.front());
}

absl::Status ReadAll(const LogsOptions& options, Readers* readers) {
  absl::Status status = ReadJob(options, readers);
  if (status.ok() || readers->begun()) return status;
  const std::optional<OwnNode> own = OwnNodeOfRank(options);
  if (!own.has_value()) return status;
  NodeStatus node;
  node.set_node_id(own->state.node_id());
  readers->Begin(own->state.run_id(), node);
  return absl::OkStatus();
}

}  // namespace

int ShowLogs(const LogsOptions& options) {
  Readers readers(options);
  const absl::Status status = ReadAll(options, &readers);
  const bool ok = readers.Finish();
  if (status.ok()) return ok ? 0 : 1;
  Notify(absl::StrCat("error: ", Printable(status.message())));
  return 1;
}

}  // namespace ddprun::launcher
