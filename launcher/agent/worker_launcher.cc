#include "launcher/agent/worker_launcher.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/status_macros.h"
#include "launcher/core/environment.h"
#include "launcher/os/error_file.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {
namespace {

std::optional<std::string> FromEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

absl::Status MakeDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("create directory '", path, "'"));
  return absl::OkStatus();
}

StreamSink SinkOf(const std::map<uint32_t, StreamSink>& sinks, uint32_t local_rank) {
  const auto found = sinks.find(local_rank);
  return found == sinks.end() ? StreamSink::kInherit : found->second;
}

// The end of a file, at most `bytes`; "" when there is none.
std::string FileTail(const std::string& path, size_t bytes) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts {};
  if (!file.valid() || fstat(file.get(), &facts) != 0) return "";
  const off_t start = std::max<off_t>(0, facts.st_size - static_cast<off_t>(bytes));
  std::string tail(static_cast<size_t>(facts.st_size - start), '\0');
  const ssize_t n = pread(file.get(), tail.data(), tail.size(), start);
  tail.resize(n > 0 ? static_cast<size_t>(n) : 0);
  // Begin with a whole line.
  if (start > 0) tail.erase(0, tail.find('\n') + 1);
  return tail;
}

// An absolute path, so that a worker that changes its directory still finds its error file.
std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.string();
}

}  // namespace

WorkerLauncher::WorkerLauncher(EventLoop* loop, const LaunchPlan* plan, std::string runtime_dir,
                               std::string agent_socket)
    : loop_(loop),
      plan_(plan),
      runtime_dir_(std::move(runtime_dir)),
      agent_socket_(std::move(agent_socket)) {}

WorkerLauncher::~WorkerLauncher() = default;

absl::Status WorkerLauncher::Start(KeeperClient* keeper, const rendezvous::Assignment& assignment) {
  DDPRUN_ASSIGN_OR_RETURN(attempt_directory_, MakeAttemptDirectory(assignment));
  workers_.assign(plan_->worker_count, Worker());
  for (uint32_t local_rank = 0; local_rank < plan_->worker_count; ++local_rank) {
    DDPRUN_RETURN_IF_ERROR(SpawnWorker(keeper, assignment, local_rank));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> WorkerLauncher::MakeAttemptDirectory(
    const rendezvous::Assignment& assignment) {
  if (run_directory_.empty()) {
    const std::string base =
        plan_->output.log_dir.empty() ? runtime_dir_ : Absolute(plan_->output.log_dir);
    // A run id may hold any character.
    std::string name = plan_->job.run_id;
    std::replace(name.begin(), name.end(), '/', '_');
    run_directory_ = absl::StrCat(base, "/", name, "_", RandomName(8));
  }
  std::string attempt = absl::StrCat(run_directory_, "/attempt_", assignment.restart_count);
  if (std::filesystem::exists(attempt)) {
    absl::StrAppend(&attempt, ".generation_", assignment.generation.value());
  }
  DDPRUN_RETURN_IF_ERROR(MakeDirectories(attempt));
  return attempt;
}

absl::Status WorkerLauncher::SpawnWorker(KeeperClient* keeper,
                                         const rendezvous::Assignment& assignment,
                                         uint32_t local_rank) {
  Worker& worker = workers_[local_rank];
  worker.directory = absl::StrCat(attempt_directory_, "/", local_rank);
  worker.error_file = absl::StrCat(worker.directory, "/error.json");
  DDPRUN_RETURN_IF_ERROR(MakeDirectories(worker.directory));

  const std::string prefix = ConsolePrefix(*plan_, assignment, local_rank);
  const StreamSink out = SinkOf(plan_->output.stdout_sinks, local_rank);
  const StreamSink err = SinkOf(plan_->output.stderr_sinks, local_rank);
  const std::string stdout_path = absl::StrCat(worker.directory, "/stdout.log");
  const std::string stderr_path = absl::StrCat(worker.directory, "/stderr.log");
  DDPRUN_ASSIGN_OR_RETURN(auto stdout_sink, OpenSink(out, stdout_path, STDOUT_FILENO, prefix));
  DDPRUN_ASSIGN_OR_RETURN(auto stderr_sink, OpenSink(err, stderr_path, STDERR_FILENO, prefix));
  if (err == StreamSink::kFile) worker.stderr_path = stderr_path;
  worker.stderr_stream = stderr_sink.second;

  SpawnRequest request;
  request.generation = assignment.generation.value();
  request.local_rank = local_rank;
  request.argv = WorkerArguments(*plan_, local_rank);
  request.environment =
      WorkerEnvironment(*plan_, assignment, local_rank, FromEnvironment,
                        {.agent_socket = agent_socket_, .error_file = worker.error_file});
  request.stdout_fd = std::move(stdout_sink.first);
  request.stderr_fd = std::move(stderr_sink.first);
  return keeper->Spawn(std::move(request));
}

// The descriptor for the worker, and the key of the stream that reads its other end (0 = none).
absl::StatusOr<std::pair<Fd, int>> WorkerLauncher::OpenSink(StreamSink sink,
                                                            const std::string& path, int console_fd,
                                                            const std::string& prefix) {
  LogStreamOptions options;
  options.prefix = prefix;
  switch (sink) {
    case StreamSink::kInherit:
      return std::make_pair(Fd(), 0);
    case StreamSink::kFile: {
      Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
      if (!file.valid()) return ErrnoStatus(errno, absl::StrCat("open '", path, "'"));
      return std::make_pair(std::move(file), 0);
    }
    case StreamSink::kTee:
      options.file_path = path;
      options.console_fd = console_fd;
      break;
    case StreamSink::kPrefixed:
      options.console_fd = console_fd;
      break;
  }
  const int key = next_stream_++;
  DDPRUN_ASSIGN_OR_RETURN(LogStream::Made made, LogStream::Create(loop_, options, [this, key] {
                            // Not from inside the stream that ends.
                            loop_->Post([this, key] {
                              streams_.erase(key);
                              if (streams_.empty() && on_drained_) on_drained_();
                            });
                          }));
  streams_[key] = std::move(made.stream);
  return std::make_pair(std::move(made.worker_end), key);
}

std::string WorkerLauncher::StderrTail(const Worker& worker) {
  if (!worker.stderr_path.empty()) return FileTail(worker.stderr_path, rendezvous::kTextBytesMax);
  const auto stream = streams_.find(worker.stderr_stream);
  if (stream == streams_.end()) return "";
  stream->second->Drain();
  return stream->second->Tail();
}

WorkerEnd WorkerLauncher::Describe(const WorkerExit& exit) {
  WorkerEnd end;
  end.local_rank = exit.local_rank;
  end.pid = static_cast<uint32_t>(exit.pid);
  end.exit_code = exit.exit_code;
  end.signal = exit.signal;
  end.core_dumped = exit.core_dumped;
  end.seen = exit.seen;
  if (end.ok() || exit.local_rank >= workers_.size()) return end;
  const Worker& worker = workers_[exit.local_rank];
  end.wall_time_ms = static_cast<uint64_t>(absl::ToUnixMillis(absl::Now()));
  end.stderr_tail = StderrTail(worker);
  if (const absl::StatusOr<ErrorFile> file = ReadErrorFile(worker.error_file); file.ok()) {
    end.error_file = worker.error_file;
    end.message = file->message;
    end.traceback = file->traceback;
  } else if (!absl::IsNotFound(file.status())) {
    end.message = std::string(file.status().message());
  }
  return end;
}

WorkerEnd WorkerLauncher::DescribeStartFailure(uint32_t local_rank, const absl::Status& error) {
  WorkerEnd end;
  end.local_rank = local_rank;
  end.start_error = std::string(error.message());
  end.seen = loop_->Now();
  end.wall_time_ms = static_cast<uint64_t>(absl::ToUnixMillis(absl::Now()));
  return end;
}

}  // namespace ddprun::launcher
