#include "launcher/keeper/agent_seat.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/status_macros.h"
#include "ddprun/keeper/v1/keeper.pb.h"
#include "launcher/keeper/channel.h"
#include "launcher/os/cgroup.h"

namespace ddprun::launcher {
namespace {

constexpr char kName[] = "ddprun-keeper";

// Shows `title` instead of the agent's command line in ps(1), by overwriting the area of the
// arguments, which this process never reads again. Source: proc(5), fields 48 and 49 of stat.
void SetTitle(const std::string& title) {
  prctl(PR_SET_NAME, kName);
  std::ifstream file("/proc/self/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return;
  const std::vector<std::string> fields =
      absl::StrSplit(stat.substr(name_end + 1), ' ', absl::SkipWhitespace());
  constexpr size_t kArgStart = 48 - 3;  // the first field behind the name is number 3
  uintptr_t begin = 0;
  uintptr_t end = 0;
  if (fields.size() <= kArgStart + 1 || !absl::SimpleAtoi(fields[kArgStart], &begin) ||
      !absl::SimpleAtoi(fields[kArgStart + 1], &end) || begin == 0 || end <= begin) {
    return;
  }
  char* area = reinterpret_cast<char*>(begin);
  const size_t size = end - begin;
  std::memset(area, 0, size);
  title.copy(area, size - 1);
}

absl::Status TakeStreams(const std::vector<Fd>& fds) {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (dup2(fds[static_cast<size_t>(stream)].get(), stream) < 0) return ErrnoStatus(errno, "dup2");
  }
  return absl::OkStatus();
}

absl::Status EnterCgroups(const AgentSeat& seat, const std::string& own_cgroup, pid_t parked) {
  if (!own_cgroup.empty() && own_cgroup != OwnCgroupFolder()) {
    DDPRUN_RETURN_IF_ERROR(EnterCgroup(own_cgroup, getpid()));
    if (parked != 0) DDPRUN_RETURN_IF_ERROR(EnterCgroup(own_cgroup, parked));
  }
  if (seat.options.cgroup.empty() || parked == 0) return absl::OkStatus();
  return EnterCgroup(seat.options.cgroup, parked);
}

}  // namespace

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> variables;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    variables.emplace_back(*variable);
  }
  return variables;
}

void ShowAgent(pid_t agent) { SetTitle(absl::StrCat(kName, " of ", agent)); }

absl::Status Adopt(const keeper::v1::Adopt& message, std::vector<Fd> fds, pid_t parked,
                   AgentSeat* seat) {
  constexpr size_t kStreams = 3;
  if (fds.size() != kStreams + 1 || seat->adopted) {
    return absl::InvalidArgumentError("read the command");
  }
  DDPRUN_RETURN_IF_ERROR(TakeStreams(fds));
  seat->adopted = true;
  seat->pidfd = std::move(fds.back());
  seat->environment = {message.environment().begin(), message.environment().end()};
  seat->options.isolation_timeout =
      message.isolation_timeout_ms() == 0
          ? absl::InfiniteDuration()
          : absl::Milliseconds(static_cast<int64_t>(message.isolation_timeout_ms()));
  seat->options.remove_folder = message.remove_folder();
  seat->options.remove_empty_folders = message.remove_empty_folders();
  seat->options.cgroup = message.cgroup();
  seat->options.kills_leftovers = message.kills_leftovers();
  seat->cgroup = WorkerCgroup(message.cgroup());
  ShowAgent(static_cast<pid_t>(message.agent_pid()));
  return EnterCgroups(*seat, message.own_cgroup(), parked);
}

namespace {

absl::StatusOr<std::vector<Fd>> FdsOfAgent() {
  std::vector<Fd> fds;
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    fds.emplace_back(fcntl(stream, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (!fds.back().valid()) return ErrnoStatus(errno, "duplicate a standard stream");
  }
  DDPRUN_ASSIGN_OR_RETURN(Fd own, OpenPidfd(getpid(), "the agent"));
  fds.push_back(std::move(own));
  return fds;
}

keeper::v1::Command Command(const KeeperOptions& options) {
  keeper::v1::Command command;
  keeper::v1::Adopt* adopt = command.mutable_adopt();
  if (options.isolation_timeout != absl::InfiniteDuration()) {
    adopt->set_isolation_timeout_ms(
        static_cast<uint64_t>(absl::ToInt64Milliseconds(options.isolation_timeout)));
  }
  adopt->set_remove_folder(options.remove_folder);
  adopt->set_remove_empty_folders(options.remove_empty_folders);
  adopt->set_cgroup(options.cgroup);
  adopt->set_kills_leftovers(options.kills_leftovers);
  adopt->set_own_cgroup(OwnCgroupFolder());
  for (const std::string& variable : OwnEnvironment()) adopt->add_environment(variable);
  adopt->set_agent_pid(static_cast<uint32_t>(getpid()));
  return command;
}

}  // namespace

absl::Status AdoptKeeper(const KeeperOptions& options, absl::Duration limit,
                         KeeperProcess* keeper) {
  DDPRUN_ASSIGN_OR_RETURN(std::vector<Fd> fds, FdsOfAgent());
  const int channel = keeper->channel.get();
  SendQueue sends(channel);
  DDPRUN_RETURN_IF_ERROR(sends.Send(Command(options).SerializeAsString(), std::move(fds)));
  const Instant deadline = MonotonicNow() + limit;
  for (;;) {
    const absl::StatusOr<std::optional<Message>> message = ReceiveMessage(channel);
    if (!message.ok()) return absl::UnavailableError("the keeper that was forked ahead is gone");
    if (!message->has_value()) {
      const absl::Duration left = deadline - MonotonicNow();
      pollfd wait{.fd = channel, .events = POLLIN, .revents = 0};
      const int64_t ms = std::max<int64_t>(absl::ToInt64Milliseconds(left), 0);
      if (poll(&wait, 1, static_cast<int>(ms)) == 0) {
        return absl::DeadlineExceededError("the keeper that was forked ahead doesn't answer");
      }
      continue;
    }
    keeper::v1::Event event;
    if (!event.ParseFromString((*message)->bytes)) continue;
    if (event.has_parked_ended()) return absl::UnavailableError("its interpreter has just ended");
    if (!event.has_adopted()) continue;
    if (!event.adopted().why_not().empty()) {
      return absl::FailedPreconditionError(event.adopted().why_not());
    }
    keeper->cgroup = options.cgroup;
    keeper->isolation_timeout = options.isolation_timeout;
    return absl::OkStatus();
  }
}

}  // namespace ddprun::launcher
