#include "launcher/keeper/keeper_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/text.h"
#include "ddprun/keeper/v1/keeper.pb.h"
#include "launcher/keeper/channel.h"
#include "launcher/os/cgroup.h"
#include "launcher/os/processes.h"

namespace ddprun::launcher {
namespace {

namespace v1 = keeper::v1;

// How long what a lost keeper left may take to die.
constexpr absl::Duration kOrphanLimit = absl::Seconds(2);
// How long the destructor waits for the keeper.
constexpr absl::Duration kEndLimit = absl::Milliseconds(500);

// Advice for a failed exec(2).
absl::string_view ExecAdvice(int error, const std::string& program) {
  const bool is_path = absl::StrContains(program, '/');
  switch (error) {
    case ENOENT:
      if (!is_path) return "; it is in no directory of PATH";
      return access(program.c_str(), F_OK) == 0
                 ? "; the file is there, but the interpreter in its first line is not"
                 : "; check the path, relative ones start at the launcher's directory";
    case EACCES:
      return "; make it executable (chmod +x) or run it by its interpreter";
    case ENOEXEC:
      return "; it is neither a program of this machine nor a script that begins with #!";
    case E2BIG:
      return "; its arguments and environment are too long together";
    default:
      return "";
  }
}

std::string DescribeEnd(const siginfo_t& info) {
  if (info.si_code != CLD_EXITED) return absl::StrCat("was killed by ", SignalName(info.si_status));
  if (info.si_status != 0) return absl::StrCat("exited with status ", info.si_status);
  return "ended by itself, because this process was silent for longer than the isolation timeout";
}

LeftProcess FromMessage(const v1::Leftover& message) {
  return {.pid = static_cast<pid_t>(message.pid()),
          .command = message.command(),
          .local_rank = message.local_rank()};
}

class ChannelKeeperClient : public KeeperClient {
 public:
  ChannelKeeperClient(EventLoop* loop, KeeperProcess keeper, Callbacks callbacks)
      : loop_(loop),
        pid_(keeper.pid),
        beat_interval_(keeper.isolation_timeout / 4),
        cgroup_(std::move(keeper.cgroup)),
        channel_(std::move(keeper.channel)),
        write_channel_(fcntl(channel_.get(), F_DUPFD_CLOEXEC, 0)),
        pidfd_(std::move(keeper.pidfd)),
        warden_pidfd_(std::move(keeper.warden_pidfd)),
        warden_(std::move(keeper.warden)),
        callbacks_(std::make_shared<const Callbacks>(std::move(callbacks))),
        sends_(write_channel_.get()),
        beat_(loop, [this] { Beat(); }) {
    readable_ = std::make_unique<FdWatch>(loop_, channel_.get(), [this] { ReadEvents(); });
    Beat();
  }
  ~ChannelKeeperClient() override;

  absl::Status Spawn(SpawnRequest request) override;
  void Signal(uint64_t generation, int signal_number, const std::vector<uint32_t>& spared) override;
  void SignalWorker(uint64_t generation, pid_t pid, int signal_number) override;
  void Sweep(uint64_t generation, const SweepOptions& options) override;
  void LimitLeftovers(absl::Duration time) override;
  absl::Status Keep(uint64_t generation, uint32_t local_rank) override;
  absl::Status Park(const ParkRequest& request) override;
  void Unpark() override;
  KeeperProcess Release() override;

 private:
  using WorkerKey = std::pair<uint64_t, uint32_t>;  // generation, local rank

  absl::Status Send(const v1::Command& command, std::vector<Fd> fds = {});
  void Flush();
  void Beat();

  void ReadEvents();
  void OnEvent(const v1::Event& event);
  void OnStartFailed(const v1::StartFailed& failed);
  void OnParkedEnded(const v1::ParkedEnded& ended);
  void OnEmpty(const v1::Empty& empty);

  bool IsOwnChild() const { return !warden_pidfd_.valid(); }
  void LoseKeeper();
  void ClearOrphans();
  void FinishLoss(absl::string_view leftovers);

  EventLoop* loop_;
  const pid_t pid_;
  const absl::Duration beat_interval_;
  const WorkerCgroup cgroup_;
  Fd channel_;
  Fd write_channel_;  // a duplicate: libuv watches a descriptor number only once
  // As in KeeperProcess; invalid = the keeper is our child.
  Fd pidfd_;
  Fd warden_pidfd_;
  Fd warden_;
  std::shared_ptr<const Callbacks> callbacks_;  // outlives us in a callback that destroys us
  SendQueue sends_;
  bool leftovers_stay_ = false;  // as the last sweep said
  uint32_t left_ = 0;            // processes of ended workers that may still be there
  Timer beat_;
  std::unique_ptr<FdWatch> readable_;          // null when the keeper is lost
  std::unique_ptr<FdWatch> writable_;          // while sends_ waits
  std::map<WorkerKey, std::string> starting_;  // programs, for error messages
  // Destroyed with this object. Code that has called a callback checks by it whether the callback
  // destroyed the object.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

  // After the keeper was lost.
  bool lost_ = false;
  std::optional<siginfo_t> keeper_end_;  // set when it is reaped
  std::unique_ptr<FdWatch> warden_end_;  // in place of that of a child
  std::unique_ptr<SignalWatch> child_signal_;
  std::unique_ptr<Timer> orphan_limit_;
};

ChannelKeeperClient::~ChannelKeeperClient() {
  *alive_ = false;
  if (keeper_end_.has_value() || !channel_.valid()) return;
  // Closing the channel makes the keeper empty its tree and end, even if a signal has stopped it.
  Fd pidfd;
  if (IsOwnChild()) {
    kill(pid_, SIGCONT);
    pidfd = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  } else {
    syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGCONT, nullptr, 0);
    pidfd = std::move(warden_pidfd_);
    warden_end_.reset();
  }
  readable_.reset();
  writable_.reset();
  channel_.Reset();
  write_channel_.Reset();
  if (leftovers_stay_ && left_ > 0) return;  // it stays as long as they do
  if (pidfd.valid()) {
    pollfd poll_fd{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
    poll(&poll_fd, 1, static_cast<int>(absl::ToInt64Milliseconds(kEndLimit)));
  }
  if (!pidfd_.valid()) waitpid(pid_, nullptr, WNOHANG);
}

KeeperProcess ChannelKeeperClient::Release() {
  DDPRUN_CHECK(!IsOwnChild(), "a keeper can only be released by an agent that isn't its parent");
  readable_.reset();
  writable_.reset();
  beat_.Disarm();
  write_channel_.Reset();
  return {.pid = pid_,
          .channel = std::move(channel_),
          .isolation_timeout = beat_interval_ * 4,
          .pidfd = std::move(pidfd_),
          .warden_pidfd = std::move(warden_pidfd_),
          .warden = std::move(warden_)};
}

absl::Status ChannelKeeperClient::Spawn(SpawnRequest request) {
  if (request.argv.empty() || request.argv[0].empty()) {
    return absl::InvalidArgumentError("a worker needs a program to run; the command is empty");
  }
  v1::Command command;
  v1::Spawn* spawn = command.mutable_spawn();
  spawn->set_generation(request.generation);
  spawn->set_local_rank(request.local_rank);
  for (const std::string& argument : request.argv) spawn->add_argv(argument);
  for (const std::string& variable : request.environment) spawn->add_environment(variable);
  for (const std::string& name : request.unset) spawn->add_unset(name);
  spawn->mutable_cpus()->Assign(request.cpus.begin(), request.cpus.end());
  spawn->set_parked_patience_ms(
      static_cast<uint32_t>(absl::ToInt64Milliseconds(request.parked_patience)));
  spawn->set_has_stdout(request.stdout_fd.valid());
  spawn->set_has_stderr(request.stderr_fd.valid());
  std::vector<Fd> fds;
  if (request.stdout_fd.valid()) fds.push_back(std::move(request.stdout_fd));
  if (request.stderr_fd.valid()) fds.push_back(std::move(request.stderr_fd));
  spawn->set_rests(static_cast<uint32_t>(request.rests.size()));
  std::move(request.rests.begin(), request.rests.end(), std::back_inserter(fds));
  absl::Status sent = Send(command, std::move(fds));
  if (sent.ok()) starting_[{request.generation, request.local_rank}] = request.argv[0];
  return sent;
}

void ChannelKeeperClient::Signal(uint64_t generation, int signal_number,
                                 const std::vector<uint32_t>& spared) {
  v1::Command command;
  command.mutable_signal()->set_generation(generation);
  command.mutable_signal()->set_signal(signal_number);
  command.mutable_signal()->mutable_spared()->Assign(spared.begin(), spared.end());
  // A lost keeper has no workers any more, and on_keeper_lost reports the loss.
  Send(command).IgnoreError();
}

void ChannelKeeperClient::SignalWorker(uint64_t generation, pid_t pid, int signal_number) {
  v1::Command command;
  command.mutable_signal()->set_generation(generation);
  command.mutable_signal()->set_signal(signal_number);
  command.mutable_signal()->set_pid(static_cast<uint32_t>(pid));
  Send(command).IgnoreError();  // as above
}

void ChannelKeeperClient::Sweep(uint64_t generation, const SweepOptions& options) {
  leftovers_stay_ = options.leftovers_stay;
  v1::Command command;
  v1::Sweep* sweep = command.mutable_sweep();
  sweep->set_generation(generation);
  sweep->mutable_spared()->Assign(options.spared.begin(), options.spared.end());
  sweep->set_leftovers_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(options.leftovers_time)));
  sweep->set_leftovers_stay(options.leftovers_stay);
  sweep->set_strict(options.strict);
  Send(command).IgnoreError();  // as above
}

void ChannelKeeperClient::LimitLeftovers(absl::Duration time) {
  leftovers_stay_ = false;
  v1::Command command;
  command.mutable_limit_leftovers()->set_time_ms(
      static_cast<uint64_t>(absl::ToInt64Milliseconds(time)));
  Send(command).IgnoreError();  // as above
}

absl::Status ChannelKeeperClient::Keep(uint64_t generation, uint32_t local_rank) {
  v1::Command command;
  command.mutable_keep()->set_generation(generation);
  command.mutable_keep()->set_local_rank(local_rank);
  return Send(command);
}

absl::Status ChannelKeeperClient::Park(const ParkRequest& request) {
  v1::Command command;
  v1::Park* park = command.mutable_park();
  for (const std::string& argument : request.argv) park->add_argv(argument);
  for (const std::string& variable : request.environment) park->add_environment(variable);
  for (const std::string& name : request.unset) park->add_unset(name);
  for (const std::string& variable : request.tail) park->add_tail(variable);
  return Send(command);
}

void ChannelKeeperClient::Unpark() {
  v1::Command command;
  command.mutable_unpark();
  Send(command).IgnoreError();  // as above
}

absl::Status ChannelKeeperClient::Send(const v1::Command& command, std::vector<Fd> fds) {
  DDPRUN_CHECK(loop_->OnLoop(), "the keeper client belongs to the loop");
  if (lost_) return absl::FailedPreconditionError("the keeper process is gone");
  absl::Status status = sends_.Send(command.SerializeAsString(), std::move(fds));
  // Only RESOURCE_EXHAUSTED is passed on. A dead keeper is handled at the channel's end of file.
  if (!status.ok() && !absl::IsResourceExhausted(status)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the keeper process is gone: ", status.message()));
  }
  if (!sends_.empty() && writable_ == nullptr) {
    writable_ = std::make_unique<FdWatch>(loop_, write_channel_.get(), FdWatch::Writable{},
                                          [this] { Flush(); });
  }
  return status;
}

void ChannelKeeperClient::Flush() {
  // A dead keeper is met at the end of file.
  if (!sends_.Flush().ok() || sends_.empty()) writable_.reset();
}

void ChannelKeeperClient::Beat() {
  v1::Command command;
  command.mutable_beat();
  // Whatever waits to be sent is a sign of life as good.
  if (sends_.empty()) Send(command).IgnoreError();
  beat_.Arm(loop_->Now() + beat_interval_);
}

void ChannelKeeperClient::ReadEvents() {
  const std::shared_ptr<bool> alive = alive_;
  const std::shared_ptr<const Callbacks> callbacks = callbacks_;
  while (*alive && !lost_) {
    absl::StatusOr<std::optional<Message>> message = ReceiveMessage(channel_.get());
    if (absl::IsOutOfRange(message.status())) return LoseKeeper();
    if (message.ok() && !message->has_value()) return;
    v1::Event event;
    if (!message.ok() || !event.ParseFromString((*message)->bytes)) {
      Log(LogLevel::kError, "the keeper sent an event that can't be read; it was dropped");
      continue;
    }
    OnEvent(event);
  }
}

void ChannelKeeperClient::OnEvent(const v1::Event& event) {
  switch (event.body_case()) {
    case v1::Event::kStarted: {
      const v1::Started& started = event.started();
      starting_.erase({started.generation(), started.local_rank()});
      return callbacks_->on_started(started.generation(), started.local_rank(),
                                    static_cast<pid_t>(started.pid()), started.parked());
    }
    case v1::Event::kStartFailed:
      return OnStartFailed(event.start_failed());
    case v1::Event::kExited: {
      const v1::Exited& exited = event.exited();
      return callbacks_->on_exited(exited.generation(),
                                   {{.local_rank = exited.local_rank(),
                                     .pid = exited.pid(),
                                     .exit_code = exited.exit_code(),
                                     .signal = exited.signal(),
                                     .core_dumped = exited.core_dumped()},
                                    Instant::FromNanoseconds(exited.seen_ns())},
                                   exited.swept());
    }
    case v1::Event::kStopped: {
      const v1::Stopped& stopped = event.stopped();
      return callbacks_->on_stopped(stopped.generation(), stopped.local_rank(),
                                    static_cast<pid_t>(stopped.pid()), stopped.signal());
    }
    case v1::Event::kEmpty:
      return OnEmpty(event.empty());
    case v1::Event::kLeftoverKilled: {
      const v1::LeftoverKilled& killed = event.leftover_killed();
      if (!callbacks_->on_leftover_killed) return;
      return callbacks_->on_leftover_killed(
          FromMessage(killed.process()),
          absl::Milliseconds(static_cast<int64_t>(killed.after_ms())), killed.why());
    }
    case v1::Event::kLeftoversGone:
      left_ = 0;
      if (callbacks_->on_leftovers_gone) callbacks_->on_leftovers_gone();
      return;
    case v1::Event::kParkedSaid:
      if (callbacks_->on_parked_said) callbacks_->on_parked_said(event.parked_said().text());
      return;
    case v1::Event::kParkedEnded:
      return OnParkedEnded(event.parked_ended());
    case v1::Event::kAdopted:  // AdoptKeeper() waits for it
    case v1::Event::BODY_NOT_SET:
      return;
  }
}

void ChannelKeeperClient::OnEmpty(const v1::Empty& empty) {
  left_ = std::max(left_, empty.left_count());
  const std::shared_ptr<const Callbacks> callbacks = callbacks_;
  const std::shared_ptr<bool> alive = alive_;
  if (empty.left_count() > 0 && callbacks->on_left) {
    std::vector<LeftProcess> named;
    for (const v1::Leftover& left : empty.left()) named.push_back(FromMessage(left));
    callbacks->on_left(named, empty.left_count());
  }
  if (*alive) callbacks->on_empty(empty.generation(), empty.swept());
}

void ChannelKeeperClient::OnParkedEnded(const v1::ParkedEnded& ended) {
  if (!callbacks_->on_parked_ended) return;
  std::string how = absl::StrCat("exited with status ", ended.exit_code());
  if (ended.signal() != 0) how = absl::StrCat("was killed by ", SignalName(ended.signal()));
  if (!ended.stage().empty()) {
    how = absl::StrCat("could not be started: ",
                       ErrnoStatus(ended.error_number(), ended.stage()).message());
  }
  callbacks_->on_parked_ended(how);
}

void ChannelKeeperClient::OnStartFailed(const v1::StartFailed& failed) {
  if (failed.stage() == "keep") {
    return callbacks_->on_start_failed(
        failed.generation(), failed.local_rank(),
        absl::NotFoundError("it ended while it waited for this generation; it is started anew with "
                            "the next"));
  }
  const auto entry = starting_.extract({failed.generation(), failed.local_rank()});
  const std::string program = entry.empty() ? "" : entry.mapped();
  const absl::Status error =
      ErrnoStatus(failed.error_number(), absl::StrCat(failed.stage(), " '", program, "'"));
  absl::string_view advice;
  if (failed.stage() == "exec") advice = ExecAdvice(failed.error_number(), program);
  if (failed.stage() == "sched_setaffinity") {
    advice =
        "; none of the CPUs that it should be bound to can be used any more: were they switched "
        "off, or taken from this cgroup's cpuset? start ddprun anew";
  }
  callbacks_->on_start_failed(failed.generation(), failed.local_rank(),
                              absl::Status(error.code(), absl::StrCat(error.message(), advice)));
}

// The channel's end comes before the keeper's children are ours, so what follows waits for the
// keeper to be reaped.
void ChannelKeeperClient::LoseKeeper() {
  lost_ = true;
  readable_.reset();
  writable_.reset();
  beat_.Disarm();
  orphan_limit_ = std::make_unique<Timer>(
      loop_, [this] { FinishLoss("; some of what it left could not be killed within 2 s"); });
  orphan_limit_->Arm(loop_->Now() + kOrphanLimit);
  if (!IsOwnChild()) {
    cgroup_.Kill();
    warden_end_ = std::make_unique<FdWatch>(loop_, warden_pidfd_.get(), [this] { FinishLoss(""); });
    return;
  }
  child_signal_ = std::make_unique<SignalWatch>(loop_, SIGCHLD, [this] { ClearOrphans(); });
  ClearOrphans();
}

// Kills and reaps what was reparented to us, each time that SIGCHLD says that something changed.
void ChannelKeeperClient::ClearOrphans() {
  if (!keeper_end_.has_value()) {
    siginfo_t info{};
    const int result = waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG);
    if (result == 0 && info.si_pid == 0) return;
    keeper_end_ = info;
  }
  cgroup_.Kill();
  bool left = false;
  // A process that dies after the list was read leaves its children to us, so the list is read
  // again after each death.
  for (bool reaped = true; reaped;) {
    left = reaped = false;
    for (const pid_t child : DirectChildren()) {
      if (callbacks_->is_own_child && callbacks_->is_own_child(child)) continue;
      KillChildAndGroup(child);
      const pid_t ended = waitpid(child, nullptr, WNOHANG | __WALL);
      left |= ended == 0;
      reaped |= ended > 0;
    }
  }
  if (!left) FinishLoss("");
}

void ChannelKeeperClient::FinishLoss(absl::string_view leftovers) {
  child_signal_.reset();
  warden_end_.reset();
  orphan_limit_.reset();
  cgroup_.Remove();
  const std::string how = keeper_end_.has_value() ? DescribeEnd(*keeper_end_)
                          : IsOwnChild()          ? "is hanging"
                                                  : "is gone";
  const std::shared_ptr<const Callbacks> callbacks = callbacks_;
  callbacks->on_keeper_lost(absl::InternalError(absl::StrCat(
      "the keeper process (pid ", pid_, ") ", how, ", and the workers with it", leftovers)));
}

}  // namespace

std::unique_ptr<KeeperClient> KeeperClient::Create(EventLoop* loop, KeeperProcess keeper,
                                                   Callbacks callbacks) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  return std::make_unique<ChannelKeeperClient>(loop, std::move(keeper), std::move(callbacks));
}

}  // namespace ddprun::launcher
