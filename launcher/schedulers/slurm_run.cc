#include "launcher/schedulers/slurm_run.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/errno_status.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "launcher/core/exit_status.h"
#include "launcher/os/files.h"
#include "launcher/os/tool_output.h"
#include "launcher/schedulers/slurm_defaults.h"
#include "rendezvous/core/timing.h"

namespace ddprun::launcher {
namespace {

constexpr absl::string_view kMark = "ddprun:no_progress=";
constexpr absl::string_view kStep = ",step=";

}  // namespace

RequeueRecord ReadRequeueRecord(absl::string_view shown) {
  RequeueRecord record;
  for (absl::string_view line : absl::StrSplit(shown, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (!absl::ConsumePrefix(&line, "Comment=")) continue;
    const size_t mark = line.rfind(kMark);
    record.comment = std::string(absl::StripAsciiWhitespace(line.substr(0, mark)));
    if (mark == absl::string_view::npos) return record;
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line.substr(mark + kMark.size()), absl::MaxSplits(kStep, 1));
    uint64_t step = 0;
    if (!absl::SimpleAtoi(parts.first, &record.no_progress)) record.no_progress = 0;
    if (absl::SimpleAtoi(parts.second, &step)) record.step = step;
    return record;
  }
  return record;
}

std::string CommentText(const RequeueRecord& record) {
  return absl::StrCat(record.comment, record.comment.empty() ? "" : " ", kMark, record.no_progress,
                      record.step.has_value() ? absl::StrCat(kStep, *record.step) : "");
}

RequeueRecord CountRun(RequeueRecord record, const RunResult& run) {
  const bool new_step = run.step.has_value() && (!record.step || *run.step > *record.step);
  const bool unmarked = !run.step.has_value() && !record.step.has_value();
  if (new_step) record.step = run.step;
  const bool advanced = new_step || (unmarked && run.uptime >= rendezvous::kProgressUptime);
  record.no_progress = advanced ? 0 : record.no_progress + 1;
  return record;
}

namespace {

constexpr int kBacklog = 4096;  // tasks of a node; the kernel takes less where it must
// An abstract socket has no file that could be watched, so its appearance is polled.
constexpr absl::Duration kRetryEvery = absl::Milliseconds(20);

struct AbstractAddress {
  sockaddr_un address{};
  socklen_t size = 0;
};

AbstractAddress AddressOf(const std::string& name) {
  AbstractAddress result;
  result.address.sun_family = AF_UNIX;
  // The first byte stays 0: a name without a file.
  const size_t length = std::min(name.size(), sizeof(result.address.sun_path) - 1);
  std::copy_n(name.begin(), length, result.address.sun_path + 1);
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return result;
}

absl::StatusOr<Fd> NewSocket() {
  Fd socket_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket_fd.valid()) return ErrnoStatus(errno, "make a unix socket");
  return socket_fd;
}

const sockaddr* Generic(const AbstractAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.address);
}

// Connects, and waits for the end of the connection.
class NodeSocketWaiter {
 public:
  NodeSocketWaiter(EventLoop* loop, const std::string& name, absl::Duration patience)
      : loop_(loop),
        address_(AddressOf(name)),
        name_(name),
        give_up_at_(loop->Now() + patience),
        retry_(loop, [this] { Try(); }) {
    Try();
  }

  absl::StatusOr<bool> Result() const {
    if (!error_.ok()) return error_;
    return held_;
  }

 private:
  void Try() {
    absl::StatusOr<Fd> fresh = NewSocket();
    if (!fresh.ok()) return End(fresh.status());
    if (connect(fresh->get(), Generic(address_), address_.size) == 0) {
      socket_ = *std::move(fresh);
      held_ = true;
      // Nothing is ever written, so the first event is the end.
      watch_.emplace(loop_, socket_.get(), [this] { End(absl::OkStatus()); });
      return;
    }
    const int error = errno;
    if (error != ECONNREFUSED && error != EINTR) {
      return End(ErrnoStatus(error, absl::StrCat("reach the first task of this node at ", name_)));
    }
    if (loop_->Now() >= give_up_at_) return End(absl::OkStatus());
    retry_.Arm(loop_->Now() + kRetryEvery);
  }

  void End(absl::Status error) {
    error_ = std::move(error);
    watch_.reset();
    loop_->Stop();
  }

  EventLoop* loop_;
  const AbstractAddress address_;
  const std::string name_;
  const Instant give_up_at_;
  Timer retry_;
  Fd socket_;
  std::optional<FdWatch> watch_;
  bool held_ = false;
  absl::Status error_;
};

}  // namespace

absl::StatusOr<Fd> HoldNodeSocket(const std::string& name) {
  DDPRUN_ASSIGN_OR_RETURN(Fd socket_fd, NewSocket());
  const AbstractAddress address = AddressOf(name);
  if (bind(socket_fd.get(), Generic(address), address.size) != 0) {
    const int error = errno;
    if (error == EADDRINUSE) {
      return absl::AlreadyExistsError(absl::StrCat(
          "another task of this Slurm step launches on this node already (socket ", name, ")"));
    }
    return ErrnoStatus(error, absl::StrCat("bind the socket ", name));
  }
  if (listen(socket_fd.get(), kBacklog) != 0) {
    return ErrnoStatus(errno, absl::StrCat("listen on the socket ", name));
  }
  return socket_fd;
}

absl::StatusOr<bool> AwaitNodeSocket(const std::string& name, absl::Duration patience) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    std::signal(number, SIG_IGN);
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<EventLoop> loop, EventLoop::Create());
  const NodeSocketWaiter waiter(loop.get(), name, patience);
  loop->Run();
  return waiter.Result();
}

namespace {

// How much later than this one the first task of a node may start.
constexpr absl::Duration kFirstTaskPatience = absl::Seconds(10);
constexpr absl::Duration kSlurmPatience = absl::Seconds(5);

// Counts the run in the job's comment.
absl::StatusOr<RequeueRecord> KeepCount(const std::string& job, const RunResult& run) {
  DDPRUN_ASSIGN_OR_RETURN(const std::string shown,
                          ToolOutput({"scontrol", "show", "job", job}, kSlurmPatience));
  RequeueRecord record = CountRun(ReadRequeueRecord(shown), run);
  DDPRUN_RETURN_IF_ERROR(ToolOutput({"scontrol", "update", absl::StrCat("JobId=", job),
                                     absl::StrCat("Comment=", CommentText(record))},
                                    kSlurmPatience)
                             .status());
  return record;
}

}  // namespace

int GiveScript(const SlurmJob& job) {
  if (!job.submit) {
    std::fputs(job.script.c_str(), stdout);
    return 0;
  }
  absl::StatusOr<FdPair> pipe = MakePipe();
  absl::Status status = pipe.status();
  if (status.ok() && (write(pipe->second.get(), job.script.data(), job.script.size()) !=
                          static_cast<ssize_t>(job.script.size()) ||
                      dup2(pipe->first.get(), STDIN_FILENO) < 0)) {
    status = ErrnoStatus(errno, "give the script to sbatch");
  }
  if (status.ok()) {
    execlp("sbatch", "sbatch", static_cast<char*>(nullptr));
    status = ErrnoStatus(errno, "run sbatch");
  }
  Notify(absl::StrCat("error: ", status.message(),
                      "; without --submit the script is printed, for a machine that has Slurm"));
  return 1;
}

int AwaitFirstTask(const std::string& node_socket) {
  const absl::StatusOr<bool> held = AwaitNodeSocket(node_socket, kFirstTaskPatience);
  if (held.ok()) return 0;
  Notify(absl::StrCat("error: ", held.status().message()));
  return 1;
}

int StatusBeforeRequeue(const RequeuePlan& plan, const RunResult& run) {
  const absl::StatusOr<RequeueRecord> record = KeepCount(plan.job, run);
  if (!record.ok()) {
    Notify(absl::StrCat(
        "warning: can't count the runs of job ", plan.job,
        ", so nothing ends it if they bring no progress: ", record.status().message()));
    return kExitPreempted;
  }
  if (record->no_progress == 0) return kExitPreempted;
  const std::string what =
      record->step.has_value()
          ? absl::StrCat("none reached a step beyond ", *record->step)
          : absl::StrCat("none lasted ", absl::FormatDuration(rendezvous::kProgressUptime));
  if (record->no_progress < plan.give_up_after) {
    Notify(
        absl::StrCat("warning: runs of this job in a row without progress: ", record->no_progress,
                     " (", what, "); it isn't requeued after ", plan.give_up_after));
    return kExitPreempted;
  }
  Notify(absl::StrCat("error: job ", plan.job, " isn't requeued any more: of ", record->no_progress,
                      " runs in a row ", what,
                      ". Does the program save, does it load what it saved, and is the time limit "
                      "long enough for that? ",
                      kGiveUpVariable, " in the batch script is that number"));
  return kExitFailedForGood;
}

void WriteStatusFile(const RequeuePlan& plan, int status) {
  if (plan.status_file.empty()) return;
  const absl::Status written = WriteFile(plan.status_file, absl::StrCat(status, "\n"));
  if (written.ok()) return;
  Notify(absl::StrCat("warning: ", kStatusFileVariable, ": ", written.message(),
                      "; after the loss of a node the batch script will see srun's status alone"));
}

void RequeueJob(const std::string& job) {
  Notify(absl::StrCat(
      "the node of the service is lost, and the batch script with it: requeueing job ", job));
  execlp("scontrol", "scontrol", "requeue", job.c_str(), static_cast<char*>(nullptr));
  Notify(absl::StrCat("warning: ", ErrnoStatus(errno, "run scontrol").message()));
}

}  // namespace ddprun::launcher
