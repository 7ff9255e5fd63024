#include "tools/preflight/preflight_worker.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/null_terminated.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/machine/host_probe.h"
#include "launcher/os/tool_output.h"
#include "tools/preflight/core/link_check.h"
#include "tools/preflight/network_check.h"

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kPython = absl::Seconds(10);
constexpr absl::Duration kOthers = absl::Seconds(20);
constexpr char kHasTorch[] =
    "import importlib.util; print('yes' if importlib.util.find_spec('torch') else 'no')";

std::string TorchKey(uint32_t node) { return absl::StrCat("ddprun_preflight/torch/", node); }
constexpr char kAgreed[] = "ddprun_preflight/torch_agreed";

// "" = it has.
std::string WhyNoTorch(const std::string& python) {
  if (python.empty()) return absl::StrCat(Hostname(), " has no Python");
  const absl::StatusOr<std::string> answer = ToolOutput({python, "-c", kHasTorch}, kPython);
  if (!answer.ok()) return absl::StrCat(Hostname(), ": ", answer.status().message());
  if (absl::StripAsciiWhitespace(*answer) == "yes") return "";
  return absl::StrCat(python, " of ", Hostname(), " has no torch");
}

}  // namespace

absl::StatusOr<std::string> AgreeOnTorch(const CheckMember& place, bool first_worker,
                                         const std::string& python, Meeting* meeting) {
  const auto deadline = [] { return MonotonicNow() + kOthers; };
  if (first_worker) {
    const std::string own = WhyNoTorch(python);
    DDPRUN_RETURN_IF_ERROR(meeting->Set(TorchKey(place.node), own, deadline()));
  }
  if (first_worker && place.node == 0) {
    std::string why;
    for (uint32_t node = 0; node < place.nodes && why.empty(); ++node) {
      DDPRUN_ASSIGN_OR_RETURN(why, meeting->Get(TorchKey(node), deadline()));
    }
    DDPRUN_RETURN_IF_ERROR(meeting->Set(kAgreed, why, deadline()));
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::string agreed, meeting->Get(kAgreed, deadline()));
  return Printable(agreed);
}

namespace {

constexpr size_t kResultMax = 4096;

// Replaces this process. Returns only with why not.
absl::Status Become(const std::vector<std::string>& command) {
  unsetenv(kPreflightResult);
  const std::vector<char*> words = NullTerminated(command);
  std::fflush(nullptr);
  execvp(words[0], words.data());
  return ErrnoStatus(errno, absl::StrCat("can't start ", command.front()));
}

int FailWith(const absl::Status& why) {
  Notify(absl::StrCat("error: ", why.message()));
  return 1;
}

// Writes the result for this node's agent (RunPreflightWorker()). All workers of a node write the
// same.
absl::Status LeaveResult(const PreflightWorker& worker, absl::string_view text) {
  if (worker.result_file.empty()) return absl::OkStatus();
  const Fd file(open(worker.result_file.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return ErrnoStatus(errno, worker.result_file);
  return ddprun::WriteAll(file.get(), text.substr(0, kResultMax));
}

void ShowNetwork(const PreflightWorker& worker, const NetworkVerdict& verdict) {
  if (worker.local_rank != 0) return;
  if (worker.node != 0) {
    std::fputs(verdict.brief.c_str(), stderr);
    if (worker.test)
      Notify(absl::StrCat("the report is shown on rank 0's node, ", worker.master_addr));
  } else if (!worker.json) {
    std::fputs(verdict.text.c_str(), worker.test ? stdout : stderr);
  }
  std::fflush(nullptr);
}

absl::string_view FirstError(absl::string_view brief) {
  for (absl::string_view line : absl::StrSplit(brief, '\n')) {
    if (absl::ConsumePrefix(&line, "error: ")) return line;
  }
  return "";
}

// Ends the job because of the findings. The agents end the other workers when the first one has
// failed, so SIGTERM is ignored, or it would cut their messages short.
int PreventRun(const PreflightWorker& worker, const NetworkVerdict& verdict) {
  std::signal(SIGTERM, SIG_IGN);
  // All nodes show the findings in their report of the failure.
  if (worker.node == 0) ShowNetwork(worker, verdict);
  const absl::Status left = LeaveResult(
      worker, absl::StrCat("no worker was started, for the network can't carry this job: ",
                           FirstError(verdict.brief), "\n", verdict.brief));
  return left.ok() ? 1 : FailWith(left);
}

// The report without torch's part.
void ShowEnd(const PreflightWorker& worker, const NetworkVerdict& verdict, const std::string& why) {
  if (worker.local_rank != 0 || worker.node != 0) return;
  if (worker.json) {
    std::printf("{\"network\": %s, \"torch\": null}\n", verdict.json.c_str());
  } else if (!why.empty()) {
    std::printf("torch: not tested: %s\n", why.c_str());
  }
  std::fflush(nullptr);
}

// Passes the report to torch_test.py, which prints it at its end. The descriptor survives exec.
absl::Status HandOver(const NetworkVerdict& verdict) {
  const int file = memfd_create("ddprun-test", 0);
  if (file < 0) return ErrnoStatus(errno, "memfd_create");
  DDPRUN_RETURN_IF_ERROR(ddprun::WriteAll(file, verdict.json));
  const std::string path = absl::StrCat("/proc/self/fd/", file);
  setenv("DDPRUN_TEST_NETWORK", path.c_str(), 1);
  return absl::OkStatus();
}

int TestTorch(const PreflightWorker& worker, const CheckMember& place,
              const NetworkVerdict& verdict, Meeting* meeting) {
  std::string why = verdict.prevents ? "the network can't carry it" : "";
  if (!verdict.prevents && !worker.network_only) {
    absl::StatusOr<std::string> agreed =
        AgreeOnTorch(place, worker.local_rank == 0, worker.python, meeting);
    if (!agreed.ok()) return FailWith(agreed.status());
    why = *std::move(agreed);
  }
  if (worker.network_only || !why.empty()) {
    ShowEnd(worker, verdict, why);
    return 0;
  }
  if (worker.json) {
    if (const absl::Status handed = HandOver(verdict); !handed.ok()) return FailWith(handed);
  }
  return FailWith(Become({worker.python, "-u", "-c", kTorchTest}));
}

}  // namespace

int RunPreflightWorker(const PreflightWorker& worker) {
  if (!worker.test && !worker.first_start) return FailWith(Become(worker.command));
  if (!worker.test && worker.nodes > kCheckNodesMax) {
    if (worker.node == 0 && worker.local_rank == 0) {
      Notify(absl::StrCat("--preflight: nothing is tested: ", worker.nodes, " nodes are more than ",
                          kCheckNodesMax));
    }
    return FailWith(Become(worker.command));
  }
  Meeting meeting(worker.master_addr, worker.master_port);
  const CheckMember place{.node = worker.node,
                          .nodes = worker.nodes,
                          .expected = worker.expected,
                          .claim = worker.claim,
                          .master_addr = worker.master_addr,
                          .master_port = worker.master_port};
  const absl::StatusOr<NetworkVerdict> verdict =
      worker.local_rank == 0 ? CheckNetwork(place, &meeting) : AwaitVerdict(&meeting);
  if (!verdict.ok()) return FailWith(verdict.status());
  if (!worker.test && verdict->prevents) return PreventRun(worker, *verdict);
  ShowNetwork(worker, *verdict);
  if (!worker.test) return FailWith(Become(worker.command));
  if (verdict->found) {
    const absl::Status left = LeaveResult(worker, "the test has found something");
    if (!left.ok()) return FailWith(left);
  }
  return TestTorch(worker, place, *verdict, &meeting);
}

absl::StatusOr<PreflightResult> PreflightResult::Prepare(LaunchPlan* plan) {
  PreflightResult result;
  if (plan->preflight == Preflight::kNone) return result;
  result.file_.Reset(memfd_create("ddprun-preflight", MFD_CLOEXEC));
  if (!result.file_.valid()) return ErrnoStatus(errno, "memfd_create");
  const std::string path = absl::StrCat("/proc/", getpid(), "/fd/", result.file_.get());
  plan->extra_environment.emplace_back(kPreflightResult, path);
  result.test_ = plan->preflight == Preflight::kTest;
  if (!result.test_) plan->preflight_result = path;
  return result;
}

int PreflightResult::StatusAfter(int agent_status) const {
  if (!file_.valid() || !test_) return agent_status;
  std::string text(kResultMax, '\0');
  const ssize_t size = pread(file_.get(), text.data(), text.size(), 0);
  if (size <= 0) return agent_status;
  text.resize(static_cast<size_t>(size));
  Notify(absl::StrCat("error: ", text));
  return agent_status == 0 ? 1 : agent_status;
}

}  // namespace ddprun::launcher
