#include "launcher/cli/control_commands.h"
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/cli/status_text.h"
#include "rendezvous/client/control_client.h"
#include "rendezvous/web/status_json.h"

namespace ddprun::launcher {
namespace {

std::string Target(const QueryOptions& options) { return HostPort(options.host, options.port); }

int Fail(const absl::Status& status) {
  Tell(absl::StrCat("error: ", status.message()));
  return 1;
}

// False when nobody reads any more.
bool WaitForNextLook(absl::Duration time) {
  pollfd output{.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  timespec timeout = absl::ToTimespec(time);
  return ppoll(&output, 1, &timeout, nullptr) == 0;
}

// Looks once, and prints it; on a terminal that watches, in the place of what was there.
absl::Status Look(const StatusOptions& options) {
  DDPRUN_ASSIGN_OR_RETURN(
      const rendezvous::v1::GetStatusReply reply,
      rendezvous::FetchStatus(Target(options), options.run_id, options.timeout));
  std::string text;
  if (options.json) {
    DDPRUN_ASSIGN_OR_RETURN(text, rendezvous::StatusJson(reply));
    text += "\n";
  } else {
    text = Printable(StatusText(reply, Target(options)));
  }
  const bool redraws = options.watch > absl::ZeroDuration() && isatty(STDOUT_FILENO) != 0;
  if (redraws && !options.json) std::fputs("\x1b[H\x1b[2J", stdout);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  return absl::OkStatus();
}

}  // namespace

int ShowStatus(const StatusOptions& options) {
  while (true) {
    if (const absl::Status status = Look(options); !status.ok()) return Fail(status);
    if (options.watch == absl::ZeroDuration()) return 0;
    if (!WaitForNextLook(options.watch)) return 0;
  }
}

int StopJob(const StopOptions& options) {
  const absl::Status status = rendezvous::RequestStop(
      Target(options), options.run_id, options.token, options.reason, options.timeout);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace ddprun::launcher
