#include "launcher/agent/worker_launcher.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "launcher/core/environment.h"
#include "launcher/core/output_layout.h"
#include "launcher/os/death_probe.h"
#include "launcher/os/error_file.h"
#include "launcher/os/files.h"
#include "launcher/os/processes.h"
#include "launcher/os/python_module.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {
namespace {

// The last `bytes` of a file at most; "" if there is none.
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

std::vector<Fd> Rests(Fd of_stdout, Fd of_stderr) {
  std::vector<Fd> rests;
  if (of_stdout.valid()) rests.push_back(std::move(of_stdout));
  if (of_stderr.valid()) rests.push_back(std::move(of_stderr));
  return rests;
}

bool IsSameFile(int one, int other) {
  struct stat a {};
  struct stat b {};
  return fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

}  // namespace

WorkerLauncher::WorkerLauncher(EventLoop* loop, const LaunchPlan* plan, LogFolders* folders,
                               std::string hostname, std::string agent_socket)
    : loop_(loop),
      plan_(plan),
      folders_(folders),
      hostname_(std::move(hostname)),
      agent_socket_(std::move(agent_socket)),
      one_console_(IsSameFile(STDOUT_FILENO, STDERR_FILENO)),
      terminal_(isatty(STDERR_FILENO) == 1 ? STDERR_FILENO : -1) {}

WorkerLauncher::~WorkerLauncher() = default;

absl::Status WorkerLauncher::Start(KeeperClient* keeper, const rendezvous::Assignment& assignment,
                                   const std::set<uint32_t>& kept) {
  workers_.resize(plan_->worker_count);
  for (uint32_t local_rank = 0; local_rank < plan_->worker_count; ++local_rank) {
    if (!kept.contains(local_rank)) workers_[local_rank] = Worker();
  }
  base_rank_ = assignment.base_rank;
  unstarted_ = 0;
  began_ = absl::Now();
  probe_.Begin();
  DDPRUN_RETURN_IF_ERROR(BeginAttempt(assignment));
  BeginCollapsing(assignment);
  for (uint32_t local_rank = 0; local_rank < plan_->worker_count; ++local_rank) {
    unstarted_ = local_rank;
    DDPRUN_RETURN_IF_ERROR(kept.contains(local_rank)
                               ? keeper->Keep(assignment.generation.value(), local_rank)
                               : SpawnWorker(keeper, assignment, local_rank));
  }
  NotifyFiles(assignment);
  return absl::OkStatus();
}

// Adds the files with the output of these workers to the catalog.
void WorkerLauncher::NotifyFiles(const rendezvous::Assignment& assignment) {
  if (catalog_ == nullptr) return;
  std::vector<LogFile> files;
  for (uint32_t local_rank = 0; local_rank < plan_->worker_count; ++local_rank) {
    Worker& worker = workers_[local_rank];
    if (worker.log_files.empty()) worker.log_files = LogFilesOf(local_rank);
    for (LogFile& file : worker.log_files) {
      file.generation = assignment.generation.value();
      file.restart_count = assignment.restart_count;
      file.rank = assignment.base_rank + local_rank;
      files.push_back(file);
    }
  }
  catalog_->Add(files);
}

std::vector<LogFile> WorkerLauncher::LogFilesOf(uint32_t local_rank) const {
  std::vector<LogFile> files;
  for (const OutputStream stream : {OutputStream::kStdout, OutputStream::kStderr}) {
    const StreamSink sink = SinkOf(plan_->output, stream, local_rank);
    if (sink != StreamSink::kFile && sink != StreamSink::kTee) continue;
    const bool is_stderr = stream == OutputStream::kStderr;
    files.push_back({.local_rank = local_rank,
                     .is_stderr = is_stderr,
                     .path = absl::StrCat(attempt_folder_, "/", local_rank,
                                          is_stderr ? "/stderr.log" : "/stdout.log")});
  }
  return files;
}

// Whether a stream of a worker goes to a file alone.
bool WorkerLauncher::HidesOutput() const {
  for (uint32_t local_rank = 0; local_rank < plan_->worker_count; ++local_rank) {
    for (const OutputStream stream : {OutputStream::kStdout, OutputStream::kStderr}) {
      if (SinkOf(plan_->output, stream, local_rank) == StreamSink::kFile) return true;
    }
  }
  return false;
}

absl::Status WorkerLauncher::BeginAttempt(const rendezvous::Assignment& assignment) {
  if (!KeepsFiles(plan_->output)) return absl::OkStatus();
  DDPRUN_ASSIGN_OR_RETURN(attempt_folder_, folders_->MakeAttempt(assignment.restart_count,
                                                                 assignment.generation.value()));
  Log(LogLevel::kInfo, absl::StrCat("logs and error files are in ", attempt_folder_));
  if (folders_->temporary() && !std::exchange(told_folder_, true) && HidesOutput()) {
    Notify(absl::StrCat("what workers write is kept in ", folders_->folder(),
                        " (--log_dir names another folder)"));
  }
  if (!plan_->output.duplicate_stdout_filters.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(filtered_stdout_,
                            FileAppender::Open(loop_, attempt_folder_ + "/filtered_stdout.log"));
  }
  if (!plan_->output.duplicate_stderr_filters.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(filtered_stderr_,
                            FileAppender::Open(loop_, attempt_folder_ + "/filtered_stderr.log"));
  }
  return absl::OkStatus();
}

void WorkerLauncher::BeginCollapsing(const rendezvous::Assignment& assignment) {
  if (!plan_->output.collapse) return;
  const auto prefix = [plan = plan_, host = hostname_,
                       assignment](const std::vector<uint32_t>& local_ranks) {
    return ConsolePrefix(*plan, host, assignment, local_ranks);
  };
  // The last generation's lines are shown when its last stream ends.
  collapsed_stdout_ = std::make_shared<CollapsingConsole>(loop_, STDOUT_FILENO, prefix);
  collapsed_stderr_ = std::make_shared<CollapsingConsole>(loop_, STDERR_FILENO, prefix);
}

absl::Status WorkerLauncher::SpawnWorker(KeeperClient* keeper,
                                         const rendezvous::Assignment& assignment,
                                         uint32_t local_rank) {
  Worker& worker = workers_[local_rank];
  std::string folder;
  if (KeepsFiles(plan_->output)) {
    folder = absl::StrCat(attempt_folder_, "/", local_rank);
    worker.error_file = folder + "/error.json";
    DDPRUN_RETURN_IF_ERROR(MakeFolders(folder));
  }
  const StreamSink out = SinkOf(plan_->output, OutputStream::kStdout, local_rank);
  const StreamSink err = SinkOf(plan_->output, OutputStream::kStderr, local_rank);
  LogStreamOptions out_options{.file_path = folder + "/stdout.log",
                               .console_fd = STDOUT_FILENO,
                               .prefix = ConsolePrefix(*plan_, hostname_, assignment, {local_rank}),
                               .collapse = collapsed_stdout_,
                               .local_rank = local_rank,
                               .copy_filters = plan_->output.duplicate_stdout_filters,
                               .copy_file = filtered_stdout_};
  LogStreamOptions err_options{.file_path = folder + "/stderr.log",
                               .console_fd = STDERR_FILENO,
                               .prefix = out_options.prefix,
                               .collapse = collapsed_stderr_,
                               .local_rank = local_rank,
                               .copy_filters = plan_->output.duplicate_stderr_filters,
                               .copy_file = filtered_stderr_,
                               .tail = worker.tail};
  if (err == StreamSink::kFile) worker.stderr_path = err_options.file_path;
  Sink stdout_sink;
  if (out != StreamSink::kInherit || (one_console_ && err == StreamSink::kInherit)) {
    DDPRUN_ASSIGN_OR_RETURN(stdout_sink, OpenSink(out, std::move(out_options)));
  }
  DDPRUN_ASSIGN_OR_RETURN(Sink stderr_sink, OpenSink(err, std::move(err_options)));
  worker.stdout_stream = stdout_sink.stream;
  worker.stderr_stream = stderr_sink.stream;
  worker.why_no_tail = std::move(stderr_sink.why_ours);

  SpawnRequest request;
  request.generation = assignment.generation.value();
  request.local_rank = local_rank;
  request.argv = WorkerArguments(*plan_, local_rank);
  request.environment =
      WorkerEnvironment(*plan_, assignment, local_rank, ProcessEnvironment,
                        {.agent_socket = agent_socket_,
                         .error_file = worker.error_file,
                         .timer_file = timer_file_,
                         .progress_page = progress_page_ ? progress_page_(local_rank) : "",
                         .finish_barrier = finish_barrier_});
  request.stdout_fd = std::move(stdout_sink.worker_end);
  request.stderr_fd = std::move(stderr_sink.worker_end);
  request.rests = Rests(std::move(stdout_sink.rest), std::move(stderr_sink.rest));
  if (local_rank < plan_->worker_cpus.size()) {
    const CpuSet& cpus = plan_->worker_cpus[local_rank];
    request.cpus.assign(cpus.begin(), cpus.end());
  }
  if (prepare_) prepare_(&request);
  return keeper->Spawn(std::move(request));
}

// `options` are those of a teed stream.
absl::StatusOr<WorkerLauncher::Sink> WorkerLauncher::OpenSink(StreamSink sink,
                                                              LogStreamOptions options) {
  switch (sink) {
    case StreamSink::kInherit:
      return OpenRelay(std::move(options));
    case StreamSink::kFile: {
      Fd file(open(options.file_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
      if (!file.valid()) return ErrnoStatus(errno, absl::StrCat("open '", options.file_path, "'"));
      return Sink{.worker_end = std::move(file)};
    }
    case StreamSink::kTee:
      break;
    case StreamSink::kPrefixed:
      options.file_path.clear();
      options.copy_file.reset();
      break;
    case StreamSink::kDiscard:  // read, because the report shows its last lines
      options = LogStreamOptions{.tail = std::move(options.tail)};
      break;
  }
  return OpenStream(std::move(options));
}

// A stream that is shown unchanged. If it can't be read by us, the worker inherits our descriptor.
WorkerLauncher::Sink WorkerLauncher::OpenRelay(LogStreamOptions options) {
  absl::StatusOr<Sink> sink =
      OpenStream({.console_fd = one_console_ ? STDERR_FILENO : options.console_fd,
                  .raw = true,
                  .shared = plan_->worker_count > 1,
                  .terminal = terminal_,
                  .tail = std::move(options.tail)});
  absl::StatusOr<Fd> rest = sink.ok() ? streams_[sink->stream]->Share() : sink.status();
  if (!rest.ok()) {
    if (sink.ok()) streams_.erase(sink->stream);
    Log(LogLevel::kInfo, absl::StrCat("stderr isn't kept: ", rest.status().message()));
    return {.why_ours = std::string(rest.status().message())};
  }
  sink->rest = *std::move(rest);
  return *std::move(sink);
}

absl::StatusOr<WorkerLauncher::Sink> WorkerLauncher::OpenStream(LogStreamOptions options) {
  const int key = next_stream_++;
  DDPRUN_ASSIGN_OR_RETURN(LogStream::Made made,
                          LogStream::Create(loop_, std::move(options), [this, key] {
                            // Posted, because it destroys the stream that calls.
                            loop_->Post([this, key] {
                              streams_.erase(key);
                              if (streams_.empty() && on_drained_) on_drained_();
                            });
                          }));
  streams_[key] = std::move(made.stream);
  return Sink{.worker_end = std::move(made.worker_end), .stream = key};
}

void WorkerLauncher::OnConsoleResized() {
  for (const auto& [key, stream] : streams_) stream->Resize();
}

void WorkerLauncher::Drain() {
  for (const auto& [key, stream] : streams_) stream->Drain();
}

std::string WorkerLauncher::StderrTail(const Worker& worker) {
  if (!worker.stderr_path.empty()) return FileTail(worker.stderr_path, rendezvous::kTextBytesMax);
  // Drains both streams, or earlier lines of stdout would be shown after the last words on
  // stderr. The streams may have ended before their worker.
  for (const int key : {worker.stdout_stream, worker.stderr_stream}) {
    if (const auto stream = streams_.find(key); stream != streams_.end()) stream->second->Drain();
  }
  return worker.tail->Lines();
}

void WorkerLauncher::AddWhy(WorkerEnd* end) {
  if (end->ok() || end->local_rank >= workers_.size()) return;
  const Worker& worker = workers_[end->local_rank];
  end->wall_time_ms = static_cast<uint64_t>(absl::ToUnixMillis(absl::Now()));
  end->stderr_tail = StderrTail(worker);
  ReadErrorFileOf(worker, end);
  ReadPreflight(end);
  AddFacts(end);
}

void WorkerLauncher::ReadPreflight(WorkerEnd* end) {
  if (plan_->preflight_result.empty()) return;
  // We made the file, so one that can't be read has no result.
  std::string why = ReadErrorFileBytes(plan_->preflight_result).value_or("");
  if (why.empty()) return;
  end->preflight = true;
  end->message = std::move(why);
}

void WorkerLauncher::ReadErrorFileOf(const Worker& worker, WorkerEnd* end) {
  if (worker.error_file.empty()) return;
  if (const absl::StatusOr<ErrorFile> file = ReadErrorFile(worker.error_file); file.ok()) {
    end->error_file = worker.error_file;
    end->message = file->message;
    end->traceback = file->traceback;
  } else if (!absl::IsNotFound(file.status())) {
    end->message = std::string(file.status().message());
  }
}

// Adds what the machine knows about the end, and the files with more.
void WorkerLauncher::AddFacts(WorkerEnd* end) {
  end->facts = probe_.Facts(*end, attempt_folder_);
  if (plan_->runs_python) {
    std::error_code ignored;
    std::string module =
        MissingModuleFact(WordsOf(*end), {.python = plan_->argv.front(),
                                          .entry_point = plan_->entry_point,
                                          .is_module = plan_->is_module,
                                          .folder = std::filesystem::current_path(ignored).string(),
                                          .environment = ProcessEnvironment});
    if (!module.empty()) end->facts.push_back(std::move(module));
  }
  AddFiles(end);
  const std::string& why_no_tail = workers_[end->local_rank].why_no_tail;
  if (!why_no_tail.empty()) end->facts.push_back(absl::StrCat("stderr: not kept: ", why_no_tail));
}

// Adds the files that a person reads next: the NCCL flight recorder's, and those with the output.
void WorkerLauncher::AddFiles(WorkerEnd* end) {
  const std::string dump =
      CollectFlightRecorderDump(FlightRecorderPrefixes(ProcessEnvironment),
                                base_rank_ + end->local_rank, began_, attempt_folder_);
  if (!dump.empty()) end->facts.push_back(absl::StrCat("nccl: flight recorder's dump in ", dump));
  std::vector<std::string> paths;
  for (LogFile& file : LogFilesOf(end->local_rank)) paths.push_back(std::move(file.path));
  if (!paths.empty()) end->facts.push_back(absl::StrCat("logs: ", absl::StrJoin(paths, " ")));
}

WorkerEnd WorkerLauncher::DescribeHung(WorkerEnd end) {
  end.seen = loop_->Now();
  end.wall_time_ms = static_cast<uint64_t>(absl::ToUnixMillis(absl::Now()));
  if (end.local_rank < workers_.size()) end.stderr_tail = StderrTail(workers_[end.local_rank]);
  AddFiles(&end);
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
