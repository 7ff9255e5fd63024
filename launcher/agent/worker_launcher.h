#ifndef DDPRUN_LAUNCHER_AGENT_WORKER_LAUNCHER_H_
#define DDPRUN_LAUNCHER_AGENT_WORKER_LAUNCHER_H_

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "launcher/core/launch_plan.h"
#include "launcher/core/supervisor/worker_group.h"
#include "launcher/keeper/keeper_client.h"
#include "launcher/logs/log_catalog.h"
#include "launcher/os/death_probe.h"
#include "launcher/output/file_appender.h"
#include "launcher/output/log_pump.h"
#include "rendezvous/core/service_message.h"

namespace ddprun::launcher {

// Starts the workers of a generation with their environment and their output streams, and collects
// their error files and last lines of stderr when they end.
//
// To have those lines, stderr passes through us even if it is shown unchanged: byte by byte, over a
// raw pseudo-terminal of the same size if ours is a terminal, because programs decide by isatty(3)
// on colors and progress bars; otherwise over a pipe. If stdout and stderr are the same file,
// stdout passes through us, too, so that a worker's writes to them stay in order; else stdout is
// inherited and costs nothing. The keeper holds a duplicate of each reading end, so a worker gets
// no SIGPIPE when the agent dies, and what is left is shown.
//
// Why not inherit stderr, as torchrun does: the failure report would lack its last lines, the
// advice that needs them, and the words that separate first causes from consequences (R12). One
// pipe for both streams would keep their order, but not which words are stderr's. If the keeper
// read, a slow disk could hold up the process that must kill.
//
// Files are where docs/LOGS.md says; with --log_dir /dev/null there are none.
// Threads: the loop's.
class WorkerLauncher {
 public:
  // `folders` stays the caller's. `hostname`: of this node, as the service knows it.
  WorkerLauncher(EventLoop* loop, const LaunchPlan* plan, LogFolders* folders, std::string hostname,
                 std::string agent_socket);
  ~WorkerLauncher();

  // Spawns the workers through the keeper, except the local ranks `kept`, which go on with their
  // streams, log files and error files. Errors: a directory, file or pipe can't be made, or the
  // keeper is gone; the text names it. Workers that were spawned before the error must be swept.
  absl::Status Start(KeeperClient* keeper, const rendezvous::Assignment& assignment,
                     const std::set<uint32_t>& kept);
  // The local rank at which the last Start() failed; 0 = before the first one.
  uint32_t unstarted() const { return unstarted_; }

  // Adds a failed worker's files and facts.
  void AddWhy(WorkerEnd* end);
  // The same for a hung worker that still runs.
  WorkerEnd DescribeHung(WorkerEnd end);
  WorkerEnd DescribeStartFailure(uint32_t local_rank, const absl::Status& error);

  // Gets the names of the files with the workers' output; set before the first start. May be null.
  void set_log_catalog(std::shared_ptr<LogCatalog> catalog) { catalog_ = std::move(catalog); }

  // For workers that start from now on: the watchdog's FIFO, and the socket at which they wait for
  // each other at their end; "" = none.
  void set_side_channels(std::string timer_file, std::string finish_barrier) {
    timer_file_ = std::move(timer_file);
    finish_barrier_ = std::move(finish_barrier);
  }

  // Returns the path of a worker's progress page; "" = none.
  void set_progress_page(std::function<std::string(uint32_t local_rank)> page) {
    progress_page_ = std::move(page);
  }

  // Completes the request of each worker; may be null.
  void set_prepare(std::function<void(SpawnRequest*)> prepare) { prepare_ = std::move(prepare); }

  // Reads and shows the output that is available now.
  void Drain();
  // All output of all generations has reached its files and the console.
  bool Drained() const { return streams_.empty(); }
  // Called on the loop each time Drained() becomes true.
  void set_on_drained(std::function<void()> on_drained) { on_drained_ = std::move(on_drained); }
  // The console may have another size.
  void OnConsoleResized();

 private:
  struct Worker {
    std::string error_file;   // "" = none is wanted
    std::string stderr_path;  // "" = not in a file
    int stdout_stream = 0;    // key of streams_; 0 = none
    int stderr_stream = 0;
    std::shared_ptr<LineTail> tail =
        std::make_shared<LineTail>();  // of stderr, as far as it passes through us
    std::string why_no_tail;           // "" = stderr is kept
    std::vector<LogFile> log_files;    // as the catalog has them
  };
  // The destination of one output stream of a worker.
  struct Sink {
    Fd worker_end;         // invalid = the worker inherits ours
    int stream = 0;        // key of the stream that reads the other end; 0 = none
    Fd rest;               // for SpawnRequest::rests
    std::string why_ours;  // why the stream can't pass through us
  };

  absl::Status BeginAttempt(const rendezvous::Assignment& assignment);
  void BeginCollapsing(const rendezvous::Assignment& assignment);
  absl::Status SpawnWorker(KeeperClient* keeper, const rendezvous::Assignment& assignment,
                           uint32_t local_rank);
  absl::StatusOr<Sink> OpenSink(StreamSink sink, LogStreamOptions options);
  absl::StatusOr<Sink> OpenStream(LogStreamOptions options);
  Sink OpenRelay(LogStreamOptions options);
  std::string StderrTail(const Worker& worker);
  void ReadErrorFileOf(const Worker& worker, WorkerEnd* end);
  void ReadPreflight(WorkerEnd* end);
  void AddFacts(WorkerEnd* end);
  void AddFiles(WorkerEnd* end);
  bool HidesOutput() const;
  void NotifyFiles(const rendezvous::Assignment& assignment);
  std::vector<LogFile> LogFilesOf(uint32_t local_rank) const;

  EventLoop* loop_;
  const LaunchPlan* plan_;
  LogFolders* folders_;
  const std::string hostname_;
  std::string agent_socket_;
  const bool one_console_;  // stdout and stderr are the same file
  const int terminal_;      // stderr if it is a terminal; else -1
  std::shared_ptr<LogCatalog> catalog_;
  std::string timer_file_;
  std::string finish_barrier_;
  std::function<std::string(uint32_t local_rank)> progress_page_;
  std::function<void(SpawnRequest*)> prepare_;
  bool told_folder_ = false;    // the user was notified of the temporary log folder
  std::string attempt_folder_;  // of the newest generation
  std::shared_ptr<FileAppender> filtered_stdout_;  // null = no --duplicate_stdout_filters
  std::shared_ptr<FileAppender> filtered_stderr_;
  std::shared_ptr<CollapsingConsole> collapsed_stdout_;  // of the newest generation; null = none
  std::shared_ptr<CollapsingConsole> collapsed_stderr_;
  std::vector<Worker> workers_;  // of the newest generation, by local rank
  uint32_t base_rank_ = 0;       // of that generation
  uint32_t unstarted_ = 0;
  absl::Time began_;  // when the newest generation's workers were started
  DeathProbe probe_;
  int next_stream_ = 1;
  std::map<int, std::unique_ptr<LogStream>> streams_;  // until their end of file
  std::function<void()> on_drained_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_WORKER_LAUNCHER_H_
