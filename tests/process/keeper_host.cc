// Plays the agent: forks a keeper, has it start workers, and lives until it is killed or until its
// stdin ends.
//
//   keeper_host <isolation timeout, ms> [--hold-channel] WORKER…
//
// A WORKER is a `misbehave` command line in one argument. Workers, keeper and host share stdout, so
// its end of file proves that all of them are gone. Prints "keeper <pid>" first.
// --hold-channel: a forked child without exec keeps the host's descriptors but 0-2 until its
// descriptor 3 ends, as a service child of an agent might.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/event_loop.h"
#include "launcher/keeper/keeper.h"
#include "launcher/keeper/keeper_client.h"
#include "launcher/os/cgroup.h"

namespace ddprun {
namespace {

void HoldDescriptors() {
  if (fork() != 0) return;
  close(STDIN_FILENO);
  close(STDOUT_FILENO);
  char byte = 0;
  while (read(3, &byte, 1) > 0) {
  }
  _exit(0);
}

int Fail(const absl::Status& error) {
  std::fprintf(stderr, "keeper_host: %s\n", error.ToString().c_str());
  return 1;
}

int Run(absl::Duration isolation_timeout, bool hold_channel,
        const std::vector<std::string>& workers, const std::string& misbehave) {
  std::string cgroup;
  if (std::getenv("KEEPER_HOST_CGROUP") != nullptr) {
    auto made = launcher::MakeWorkerCgroup();
    if (!made.ok()) return Fail(made.status());
    cgroup = *std::move(made);
  }
  auto keeper = launcher::ForkKeeper({.isolation_timeout = isolation_timeout,
                                      .cgroup = std::move(cgroup),
                                      .kills_leftovers = false});  // as of an agent without options
  if (!keeper.ok()) return Fail(keeper.status());
  std::printf("keeper %d\n", keeper->pid);
  std::fflush(stdout);
  if (hold_channel) HoldDescriptors();

  auto loop = EventLoop::Create();
  if (!loop.ok()) return Fail(loop.status());
  launcher::KeeperClient::Callbacks callbacks;
  callbacks.on_started = [](uint64_t, uint32_t, pid_t, bool) {};
  callbacks.on_start_failed = [](uint64_t, uint32_t, absl::Status error) { _exit(Fail(error)); };
  callbacks.on_exited = [](uint64_t, const launcher::WorkerEnd&, uint32_t) {};
  callbacks.on_stopped = [](uint64_t, uint32_t, pid_t, int) {};
  callbacks.on_empty = [](uint64_t, uint32_t) {};
  callbacks.on_keeper_lost = [&](absl::Status why) {
    Fail(why);
    (*loop)->Stop();
  };
  auto client =
      launcher::KeeperClient::Create(loop->get(), *std::move(keeper), std::move(callbacks));
  for (size_t i = 0; i < workers.size(); ++i) {
    launcher::SpawnRequest request{.generation = 1, .local_rank = static_cast<uint32_t>(i)};
    request.argv = absl::StrSplit(absl::StrCat(misbehave, " ", workers[i]), ' ');
    const absl::Status sent = client->Spawn(std::move(request));
    if (!sent.ok()) return Fail(sent);
  }
  FdWatch stdin_watch(loop->get(), STDIN_FILENO, [&] { (*loop)->Stop(); });
  (*loop)->Run();
  return 0;
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  int isolation_ms = 0;
  if (arguments.empty() || !absl::SimpleAtoi(arguments[0], &isolation_ms)) return 2;
  arguments.erase(arguments.begin());
  const bool hold_channel = !arguments.empty() && arguments[0] == "--hold-channel";
  if (hold_channel) arguments.erase(arguments.begin());
  const std::string self = argv[0];
  const std::string misbehave = self.substr(0, self.rfind('/') + 1) + "misbehave";
  return ddprun::Run(absl::Milliseconds(isolation_ms), hold_channel, arguments, misbehave);
}
