#include "launcher/cli/machine_commands.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "launcher/agent/tcp_store_client.h"
#include "launcher/cli/machine_json.h"
#include "launcher/cli/machine_reports.h"
#include "launcher/core/machine_differences.h"
#include "launcher/core/machine_findings.h"
#include "launcher/core/machine_text.h"
#include "launcher/os/machine_probe.h"

namespace ddprun::launcher {
namespace {

MachineFacts ProbeFor(const MachineOptions& options) {
  MachineFacts facts = ProbeMachine({.root = "", .python = options.python, .limit = options.limit});
  facts.versions.ddprun = kVersion;
  facts.environment = options.environment;
  return facts;
}

int PrintAll(const std::string& text, int status) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return status;
  Tell(absl::StrCat("error: ", ErrnoStatus(errno, "write to standard output").message()));
  return 1;
}

// How long all nodes may take: each of three questions has its own limit on each of them.
absl::Duration ExchangeLimit(const EnvOptions& options) {
  return options.limit * 3 + absl::Seconds(10);
}

// A worker of `ddprun env --nnodes`. Rank 0 shows all nodes; it ends last, since the others'
// reports are in the store when they end.
absl::StatusOr<std::string> Exchange(const EnvOptions& options, const std::string& report) {
  const auto number = [&options](const char* name) {
    uint32_t value = 0;
    return absl::SimpleAtoi(options.worker.at(name), &value) ? value : 0;
  };
  const uint32_t rank = number("RANK");
  const uint32_t world = number("WORLD_SIZE");
  const auto port = static_cast<uint16_t>(number("MASTER_PORT"));
  if (world == 0 || port == 0) {
    return absl::FailedPreconditionError(
        "--exchange is for the workers of ddprun env --nnodes, which set MASTER_PORT and others");
  }
  DDPRUN_ASSIGN_OR_RETURN(TcpStoreClient store,
                          TcpStoreClient::Connect(options.worker.at("MASTER_ADDR"), port,
                                                  MonotonicNow() + ExchangeLimit(options)));
  const auto key = [](uint32_t of) { return absl::StrCat("ddprun_env/", of); };
  DDPRUN_RETURN_IF_ERROR(store.Set(key(rank), report));
  if (rank != 0) {
    // It comes back only after it was stored.
    DDPRUN_RETURN_IF_ERROR(store.WaitAndGet(key(rank)).status());
    return std::string();
  }
  std::vector<std::string> reports;
  std::vector<MachineSummary> machines;
  for (uint32_t of = 0; of < world; ++of) {
    DDPRUN_ASSIGN_OR_RETURN(std::string other, store.WaitAndGet(key(of)));
    DDPRUN_ASSIGN_OR_RETURN(MachineSummary machine, SummarizeReport(other));
    reports.push_back(std::move(other));
    machines.push_back(std::move(machine));
  }
  return options.json ? ComparisonJson(reports, machines) : ComparisonText(machines);
}

int ShowExchange(const EnvOptions& options, const std::string& report) {
  const absl::StatusOr<std::string> text = Exchange(options, report);
  if (text.ok() && text->empty()) Tell("the first node shows in what the nodes differ");
  if (text.ok()) return PrintAll(*text, 0);
  Tell(absl::StrCat("error: can't compare the nodes: ", text.status().message()));
  return 1;
}

}  // namespace

int ShowEnv(const EnvOptions& options) {
  const MachineFacts facts = ProbeFor(options);
  const auto advice = AdviseForHardware(facts, options.question);
  if (options.exchange) return ShowExchange(options, EnvJson(facts, advice));
  return PrintAll(options.json ? EnvJson(facts, advice) : EnvText(facts, advice, options.question),
                  0);
}

int ShowDoctor(const DoctorOptions& options) {
  const MachineFacts facts = ProbeFor(options);
  const std::vector<Finding> findings = FindTroubles(facts);
  const Severity worst_allowed = options.strict ? Severity::kNote : Severity::kWarning;
  const bool bad = std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
    return finding.severity < worst_allowed;
  });
  return PrintAll(options.json ? DoctorJson(facts, findings) : DoctorText(facts, findings),
                  bad ? 1 : 0);
}

}  // namespace ddprun::launcher
