#include "launcher/daemon/daemon_client.h"

#include <poll.h>
#include <unistd.h>

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "ddprun/daemon/v1/daemon.pb.h"
#include "launcher/daemon/meeting_place.h"
#include "launcher/daemon/process_facts.h"
#include "launcher/daemon/spare_recipe.h"
#include "launcher/keeper/adoption.h"
#include "launcher/keeper/channel.h"

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(1);
// The keeper's channel and pidfd, the warden's pidfd and socket.
constexpr size_t kLeasedFds = 4;

struct Reply {
  daemon::v1::Answer answer;
  std::vector<Fd> fds;
};

absl::Status Send(int socket, daemon::v1::Request request) {
  request.set_program(ProgramIdentity());
  return SendQueue(socket).Send(request.SerializeAsString());
}

absl::StatusOr<Reply> Ask(int socket, daemon::v1::Request request) {
  DDPRUN_RETURN_IF_ERROR(Send(socket, std::move(request)));
  pollfd wait{.fd = socket, .events = POLLIN, .revents = 0};
  if (poll(&wait, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))) != 1) {
    return absl::DeadlineExceededError("the daemon doesn't answer");
  }
  absl::StatusOr<std::optional<Message>> message = ReceiveMessage(socket);
  Reply reply;
  if (!message.ok() || !message->has_value() || !reply.answer.ParseFromString((*message)->bytes)) {
    return absl::UnavailableError("the daemon has closed the connection");
  }
  reply.fds = std::move((*message)->fds);
  return reply;
}

absl::Status TakeKeeper(Reply reply, const KeeperOptions& options, DaemonVisit* visit) {
  if (reply.fds.size() != kLeasedFds)
    return absl::UnavailableError("the daemon's answer is broken");
  KeeperProcess keeper{.pid = static_cast<pid_t>(reply.answer.leased().keeper_pid()),
                       .channel = std::move(reply.fds[0]),
                       .pidfd = std::move(reply.fds[1]),
                       .warden_pidfd = std::move(reply.fds[2]),
                       .warden = std::move(reply.fds[3])};
  DDPRUN_RETURN_IF_ERROR(AdoptKeeper(options, kPatience, &keeper));
  visit->ready = reply.answer.leased().ready();
  visit->keeper = std::move(keeper);
  return absl::OkStatus();
}

absl::Status Visit(const LaunchPlan& plan, const EnvironmentLookup& environment,
                   const KeeperOptions& options, DaemonVisit* visit) {
  DDPRUN_ASSIGN_OR_RETURN(Fd socket, ConnectToDaemon(DaemonFolder(environment)));
  daemon::v1::Request request;
  DDPRUN_ASSIGN_OR_RETURN(*request.mutable_lease()->mutable_recipe(),
                          MakeSpareRecipe(plan, environment));
  DDPRUN_ASSIGN_OR_RETURN(Reply reply, Ask(socket.get(), std::move(request)));
  visit->is_there = true;
  visit->connection = std::move(socket);
  if (reply.answer.has_leased()) return TakeKeeper(std::move(reply), options, visit);
  visit->why = reply.answer.cold().why();
  visit->tells = reply.answer.cold().differs();
  return absl::OkStatus();
}

}  // namespace

DaemonVisit VisitDaemon(const LaunchPlan& plan, const EnvironmentLookup& environment,
                        const KeeperOptions& options) {
  DaemonVisit visit;
  const absl::Status status = Visit(plan, environment, options, &visit);
  if (!status.ok() && !absl::IsNotFound(status)) {
    visit.why = std::string(status.message());
    visit.tells = true;
  }
  return visit;
}

void NotifySettled(const Fd& connection) {
  if (!connection.valid()) return;
  daemon::v1::Request request;
  request.mutable_settled();
  Send(connection.get(), std::move(request)).IgnoreError();  // a daemon that is gone needs nothing
}

absl::StatusOr<daemon::v1::Shelf> AskForShelf(const std::string& folder, bool stop) {
  absl::StatusOr<Fd> socket = ConnectToDaemon(folder);
  if (absl::IsNotFound(socket.status())) {
    return absl::NotFoundError("no daemon of yours runs on this machine; ddprun daemon starts one");
  }
  DDPRUN_RETURN_IF_ERROR(socket.status());
  daemon::v1::Request request;
  if (stop) {
    request.mutable_stop();
  } else {
    request.mutable_look();
  }
  DDPRUN_ASSIGN_OR_RETURN(Reply reply, Ask(socket->get(), std::move(request)));
  if (reply.answer.has_shelf()) return std::move(*reply.answer.mutable_shelf());
  return absl::FailedPreconditionError(reply.answer.cold().why());
}

}  // namespace ddprun::launcher
