#include "tests/worker/parked_probe.h"

#include <sched.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/fd.h"
#include "base/null_terminated.h"

// The keeper's side of launcher/keeper/parked_process.h, for one start at a time and without a time
// limit: a test has its own.
namespace ddprun::testing {
namespace {

FdPair Sockets() {
  absl::StatusOr<FdPair> pair = MakeMessagePair();
  DDPRUN_CHECK(pair.ok(), pair.status().ToString());
  return *std::move(pair);
}

// A text, and descriptors with it. False: the other end is gone.
bool SendText(const Fd& socket, const std::string& text, const std::vector<int>& fds) {
  std::string packet = absl::StrCat("p", text);
  iovec io{.iov_base = packet.data(), .iov_len = packet.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> space{};
  msghdr header{};
  header.msg_iov = &io;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = space.data();
    header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* const control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(control), fds.data(), fds.size() * sizeof(int));
  }
  return sendmsg(socket.get(), &header, MSG_NOSIGNAL) >= 0;
}

// Returns nothing when the other end is gone.
std::optional<std::string> ReceiveText(const Fd& socket) {
  std::array<char, 4096> packet{};
  ssize_t n = 0;
  do {
    n = recv(socket.get(), packet.data(), packet.size(), 0);
    // What it said before it went comes after the news that it went.
  } while (n < 0 && (errno == EINTR || errno == ECONNRESET));
  if (n < 1) return std::nullopt;
  return std::string(packet.data() + 1, static_cast<size_t>(n) - 1);
}

// Starts the process that waits: the leader of a session, with the other end of the channel that
// this returns.
Fd Park(std::string program, std::vector<std::string> variables) {
  auto [ours, its] = Sockets();
  constexpr int kChannel = 3;
  variables.push_back(absl::StrCat("DDPRUN_WARM=", kChannel));
  std::vector<std::string> argv = {std::move(program)};
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, its.get(), kChannel);
  posix_spawn_file_actions_addclosefrom_np(&actions, kChannel + 1);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, argv[0].c_str(), &actions, &attributes,
                                NullTerminated(argv).data(), NullTerminated(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  DDPRUN_CHECK(error == 0, argv[0]);
  // The program's forks orphan themselves, and become ours.
  DDPRUN_CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0, "prctl");
  return std::move(ours);
}

// Returns the CPUs that this process may use, one after the other.
int NextCpu() {
  static int last = -1;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  DDPRUN_CHECK(sched_getaffinity(0, sizeof(cpus), &cpus) == 0, "sched_getaffinity");
  do {
    last = (last + 1) % CPU_SETSIZE;
  } while (!CPU_ISSET(last, &cpus));
  return last;
}

// The process that is asked for, once all that can fail is behind it; 0 = there is none.
// `cpu`: "" = any.
pid_t Ask(const Fd& channel, const std::string& cpu, const std::vector<std::string>& variables,
          int output) {
  auto [answers, its] = Sockets();
  const std::string nul(1, '\0');
  std::string text = absl::StrCat(getpid(), nul, cpu, nul, "oe", nul);
  for (const std::string& variable : variables) absl::StrAppend(&text, variable, nul);
  if (!SendText(channel, text, {its.get(), output, output})) return 0;
  its.Reset();
  pid_t pid = 0;
  while (const std::optional<std::string> answer = ReceiveText(answers)) {
    if (*answer == "set") return SendText(answers, "go", {}) ? pid : 0;
    absl::string_view word = *answer;
    if (absl::ConsumePrefix(&word, "pid ")) DDPRUN_CHECK(absl::SimpleAtoi(word, &pid), *answer);
  }
  return 0;
}

}  // namespace

pid_t ForkParked(const std::vector<std::string>& command, std::vector<std::string> variables,
                 int output, bool on_one_cpu) {
  static auto& channels = *new std::map<std::string, Fd>;
  const auto [channel, is_new] = channels.try_emplace(command[0]);
  if (is_new) channel->second = Park(command[0], variables);
  variables.push_back(absl::StrCat(kProbeArguments, "=",
                                   absl::StrJoin(command, std::string(1, kBetweenArguments))));
  const std::string cpu = on_one_cpu ? absl::StrCat(NextCpu()) : "";
  const pid_t pid = Ask(channel->second, cpu, variables, output);
  if (pid == 0) {
    const std::optional<std::string> why = ReceiveText(channel->second);
    CheckFailed(__FILE__, __LINE__, "pid != 0", absl::StrCat(command[0], ": ", why.value_or("")));
  }
  return pid;
}

}  // namespace ddprun::testing
