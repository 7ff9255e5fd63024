#include "tools/chaos/network_fault.h"

#include <linux/capability.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/status_macros.h"

namespace ddprun::launcher {
namespace {

// The places of nft in Debian, which an ordinary user's PATH doesn't have.
constexpr const char* kNftPlaces[] = {"/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft",
                                      "/usr/local/sbin/nft"};

std::string FindNft() {
  for (const char* place : kNftPlaces) {
    if (access(place, X_OK) == 0) return place;
  }
  return "";
}

bool MayChangeNetwork() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  return (data[0].effective & (uint32_t{1} << CAP_NET_ADMIN)) != 0;
}

std::string ReadAll(int fd) {
  std::string text;
  char bytes[1024];
  for (;;) {
    const ssize_t n = read(fd, bytes, sizeof(bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(bytes, static_cast<size_t>(n));
  }
}

// Runs nft with `rules` on its standard input, and waits for its end: some milliseconds.
absl::Status RunNft(const std::vector<const char*>& options, const std::string& rules) {
  const std::string nft = FindNft();
  DDPRUN_ASSIGN_OR_RETURN(FdPair input, MakePipe());
  DDPRUN_ASSIGN_OR_RETURN(FdPair output, MakePipe());
  std::vector<const char*> argv = {"nft"};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.insert(argv.end(), {"-f", "-", nullptr});
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus(errno, "fork of nft");
  if (pid == 0) {
    dup2(input.first.get(), STDIN_FILENO);
    dup2(output.second.get(), STDOUT_FILENO);
    dup2(output.second.get(), STDERR_FILENO);
    execv(nft.c_str(), const_cast<char* const*>(argv.data()));
    _exit(127);
  }
  input.first.Reset();
  output.second.Reset();
  const absl::Status written = WriteAll(input.second.get(), rules);  // fits into the pipe
  input.second.Reset();
  const std::string said = ReadAll(output.first.get());
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  DDPRUN_RETURN_IF_ERROR(written);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("nft refused the rules: ", absl::StripAsciiWhitespace(said.substr(0, 300))));
}

// The healer: waits for the time or the end of ddprun, then becomes the nft that takes the table
// away. Only calls of signal-safety(7).
[[noreturn]] void RunHealer(int life_fd, int milliseconds, const char* nft, const char* table) {
  setsid();  // away from a terminal's and a scheduler's group
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_IGN);
  prctl(PR_SET_NAME, "ddprun-healer");
  const int64_t limit = milliseconds;
  timespec began{};
  clock_gettime(CLOCK_MONOTONIC, &began);
  for (;;) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t passed =
        (now.tv_sec - began.tv_sec) * 1000 + (now.tv_nsec - began.tv_nsec) / 1'000'000;
    if (passed >= limit) break;
    pollfd end{.fd = life_fd, .events = POLLIN, .revents = 0};
    if (poll(&end, 1, static_cast<int>(limit - passed)) > 0) break;
  }
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  const char* argv[] = {"nft", "delete", "table", "inet", table, nullptr};
  execv(nft, const_cast<char* const*>(argv));
  _exit(127);
}

}  // namespace

std::string NetworkRules(const std::string& table, const FaultPlan& fault) {
  std::string drop = "drop";
  if (fault.kind == FaultKind::kPacketLoss && fault.loss_percent < 100) {
    drop = absl::StrFormat("numgen random mod 1000 < %d drop",
                           std::max(1, static_cast<int>(fault.loss_percent * 10)));
  }
  std::string rules = absl::StrCat("table inet ", table, " {\n");
  if (fault.direction != Direction::kOut) {
    absl::StrAppend(&rules, "  chain in { type filter hook input priority -300; iifname != \"lo\" ",
                    drop, "; }\n");
  }
  if (fault.direction != Direction::kIn) {
    absl::StrAppend(&rules,
                    "  chain out { type filter hook output priority -300; oifname != \"lo\" ", drop,
                    "; }\n");
  }
  return absl::StrCat(rules, "}\n");
}

absl::Status CheckNetworkFaults() {
  if (FindNft().empty()) {
    return absl::FailedPreconditionError(
        "nft is not installed, which network faults need (package nftables)");
  }
  if (!MayChangeNetwork()) {
    return absl::FailedPreconditionError(
        "network faults need root, or the capability CAP_NET_ADMIN");
  }
  return RunNft({"--check"}, NetworkRules("ddprun_chaos_check",
                                          {.kind = FaultKind::kPacketLoss, .loss_percent = 1}));
}

absl::StatusOr<std::unique_ptr<NetworkFault>> NetworkFault::Begin(EventLoop* loop,
                                                                  const FaultPlan& fault,
                                                                  std::function<void()> on_over) {
  static int count = 0;
  const std::string table = absl::StrCat("ddprun_chaos_", getpid(), "_", ++count);
  const std::string nft = FindNft();
  const int milliseconds = static_cast<int>(absl::ToInt64Milliseconds(fault.lasts));
  DDPRUN_ASSIGN_OR_RETURN(FdPair life, MakePipe());
  const std::string rules = NetworkRules(table, fault);
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus(errno, "fork of the process that heals the network");
  if (pid == 0) {
    // Whatever we hold of pipes, this one's other end first of all, would keep them from ending.
    const auto kept = static_cast<unsigned>(life.first.get());
    if (kept > 3) close_range(3, kept - 1, 0);
    close_range(kept + 1, ~0U, 0);
    RunHealer(life.first.get(), milliseconds, nft.c_str(), table.c_str());
  }
  std::unique_ptr<NetworkFault> network(new NetworkFault());
  network->healer_ = pid;
  network->life_ = std::move(life.second);
  DDPRUN_ASSIGN_OR_RETURN(network->pidfd_, OpenPidfd(pid, "the healer"));
  DDPRUN_RETURN_IF_ERROR(RunNft({}, rules));
  network->on_over_ = std::move(on_over);
  NetworkFault* self = network.get();
  network->watch_ =
      std::make_unique<FdWatch>(loop, network->pidfd_.get(), [self] { self->OnHealed(); });
  return network;
}

NetworkFault::~NetworkFault() {
  watch_.reset();
  life_.Reset();
  while (healer_ != 0 && waitpid(healer_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void NetworkFault::OnHealed() {
  if (waitpid(healer_, nullptr, WNOHANG) != healer_) return;
  healer_ = 0;
  watch_.reset();
  const auto on_over = std::move(on_over_);  // may destroy this
  on_over();
}

}  // namespace ddprun::launcher
