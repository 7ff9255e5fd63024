#include "launcher/keeper/adoption.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/errno_status.h"
#include "base/pidfd.h"
#include "base/status_macros.h"
#include "ddprun/keeper/v1/keeper.pb.h"
#include "launcher/keeper/agent_seat.h"
#include "launcher/keeper/channel.h"
#include "launcher/os/cgroup.h"

namespace ddprun::launcher {
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
