#include "tools/doctor/machine_commands.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/version.h"
#include "launcher/os/error_file.h"
#include "launcher/stores/tcp_store_client.h"
#include "tools/doctor/core/machine_differences.h"
#include "tools/doctor/core/machine_findings.h"
#include "tools/doctor/core/machine_text.h"
#include "tools/doctor/machine_json.h"
#include "tools/doctor/machine_probe.h"
#include "tools/doctor/machine_reports.h"

namespace ddprun::launcher {
namespace {

std::string WarmFolder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache != nullptr && cache[0] == '/') return absl::StrCat(cache, "/ddprun/warm");
  return home == nullptr || *home == '\0' ? "" : absl::StrCat(home, "/.cache/ddprun/warm");
}

MachineFacts ProbeFor(const MachineOptions& options) {
  MachineFacts facts = ProbeMachine(
      {.root = "", .python = options.python, .warm = WarmFolder(), .limit = options.limit});
  facts.versions.ddprun = kVersion;
  facts.environment = options.environment;
  return facts;
}

int PrintAll(const std::string& text, int status) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return status;
  Notify(absl::StrCat("error: ", ErrnoStatus(errno, "write to standard output").message()));
  return 1;
}

// How long all nodes may take: on each node three probes have the limit one after the other.
absl::Duration ExchangeLimit(const MachineOptions& options) {
  return options.limit * 3 + absl::Seconds(10);
}

// A node's message to the first one: the JSON of `ddprun env`, and of `ddprun doctor`.
struct NodeReport {
  std::string env;
  std::string doctor;  // "" = not asked for
};

// What the first node shows.
struct NodesText {
  std::string text;
  std::string failure;  // why the job is to fail; "" = it is not
};

// A worker of `ddprun env|doctor --nnodes`. Rank 0 gets the reports of all nodes, by rank; it ends
// last, because the others' are in the store when they end. Others get none.
absl::StatusOr<std::vector<NodeReport>> Exchange(const MachineOptions& options,
                                                 const NodeReport& mine) {
  const auto number = [&options](const char* name) {
    uint32_t value = 0;
    return absl::SimpleAtoi(options.worker.at(name), &value) ? value : 0;
  };
  const uint32_t rank = number("RANK");
  const uint32_t world = number("WORLD_SIZE");
  const auto port = static_cast<uint16_t>(number("MASTER_PORT"));
  if (world == 0 || port == 0) {
    return absl::FailedPreconditionError(
        "--exchange is for the workers of ddprun env --nnodes and ddprun doctor --nnodes, which "
        "set MASTER_PORT and others");
  }
  DDPRUN_ASSIGN_OR_RETURN(TcpStoreClient store,
                          TcpStoreClient::Connect(options.worker.at("MASTER_ADDR"), port,
                                                  MonotonicNow() + ExchangeLimit(options)));
  const auto env_key = [](uint32_t of) { return absl::StrCat("ddprun_env/", of); };
  const auto doctor_key = [](uint32_t of) { return absl::StrCat("ddprun_doctor/", of); };
  DDPRUN_RETURN_IF_ERROR(store.Set(env_key(rank), mine.env));
  DDPRUN_RETURN_IF_ERROR(store.Set(doctor_key(rank), mine.doctor));
  std::vector<NodeReport> reports;
  if (rank != 0) {
    // Wait until rank 0's store has the report.
    DDPRUN_RETURN_IF_ERROR(store.WaitAndGet(doctor_key(rank)).status());
    return reports;
  }
  for (uint32_t of = 0; of < world; ++of) {
    NodeReport other;
    DDPRUN_ASSIGN_OR_RETURN(other.env, store.WaitAndGet(env_key(of)));
    DDPRUN_ASSIGN_OR_RETURN(other.doctor, store.WaitAndGet(doctor_key(of)));
    reports.push_back(std::move(other));
  }
  return reports;
}

absl::StatusOr<std::vector<MachineSummary>> Summarize(const std::vector<NodeReport>& reports) {
  std::vector<MachineSummary> machines;
  for (const NodeReport& report : reports) {
    DDPRUN_ASSIGN_OR_RETURN(MachineSummary machine, SummarizeReport(report.env));
    machines.push_back(std::move(machine));
  }
  return machines;
}

absl::StatusOr<NodesText> CompareEnv(const EnvOptions& options,
                                     const std::vector<NodeReport>& reports) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<MachineSummary> machines, Summarize(reports));
  if (!options.json) return NodesText{.text = ComparisonText(machines)};
  std::vector<std::string> texts;
  texts.reserve(reports.size());
  for (const NodeReport& report : reports) texts.push_back(report.env);
  return NodesText{.text = ComparisonJson(texts, machines)};
}

// How many findings make the exit status 1.
size_t CountBad(const DoctorOptions& options, const std::vector<Finding>& findings) {
  const Severity worst_allowed = options.strict ? Severity::kNote : Severity::kWarning;
  return static_cast<size_t>(
      std::count_if(findings.begin(), findings.end(),
                    [&](const Finding& finding) { return finding.severity < worst_allowed; }));
}

absl::StatusOr<NodesText> CompareDoctor(const DoctorOptions& options,
                                        const std::vector<NodeReport>& reports) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<MachineSummary> machines, Summarize(reports));
  std::vector<std::string> texts;
  std::vector<MachineFindings> findings;
  size_t bad = 0;
  for (const NodeReport& report : reports) {
    DDPRUN_ASSIGN_OR_RETURN(MachineFindings found, ReadFindings(report.doctor));
    bad += CountBad(options, found.findings);
    findings.push_back(std::move(found));
    texts.push_back(report.doctor);
  }
  NodesText shown{.text = options.json ? ComparisonJson(texts, machines)
                                       : NodesDoctorText(findings, ComparisonText(machines))};
  if (bad > 0) {
    shown.failure = absl::StrCat("the nodes have ", CountText(bad, "error"),
                                 options.strict ? " or warnings" : "",
                                 "; the report of ddprun doctor is in the output of rank 0's node");
  }
  return shown;
}

// Writes why this worker ends with 1 to its error file, for the agent.
void LeaveError(const MachineOptions& options, const std::string& message) {
  const std::string& path = options.worker.at("TORCHELASTIC_ERROR_FILE");
  if (path.empty()) return;
  const absl::Status status = WriteFileAtomically(
      path, FormatErrorFile({.message = message, .timestamp = absl::ToUnixSeconds(absl::Now())}));
  if (!status.ok()) Notify(absl::StrCat("warning: ", status.message()));
}

// Params: `compare`: absl::StatusOr<NodesText>(const std::vector<NodeReport>&).
template <typename Compare>
int ShowExchange(const MachineOptions& options, const NodeReport& mine, Compare compare) {
  const absl::StatusOr<std::vector<NodeReport>> reports = Exchange(options, mine);
  if (reports.ok() && reports->empty()) {
    Notify(absl::StrCat("the report of all nodes is shown on rank 0's node, ",
                        options.worker.at("MASTER_ADDR")));
    return 0;
  }
  const absl::StatusOr<NodesText> shown =
      reports.ok() ? compare(*reports) : absl::StatusOr<NodesText>(reports.status());
  if (shown.ok() && !shown->failure.empty()) LeaveError(options, shown->failure);
  if (shown.ok()) return PrintAll(shown->text, shown->failure.empty() ? 0 : 1);
  Notify(absl::StrCat("error: can't compare the nodes: ", shown.status().message()));
  return 1;
}

}  // namespace

int ShowEnv(const EnvOptions& options) {
  const MachineFacts facts = ProbeFor(options);
  const auto advice = AdviseForHardware(facts, options.question);
  if (options.exchange) {
    return ShowExchange(options, {.env = EnvJson(facts, advice), .doctor = {}},
                        [&](const auto& reports) { return CompareEnv(options, reports); });
  }
  return PrintAll(options.json ? EnvJson(facts, advice) : EnvText(facts, advice, options.question),
                  0);
}

int ShowDoctor(const DoctorOptions& options) {
  const MachineFacts facts = ProbeFor(options);
  const std::vector<Finding> findings = FindTroubles(facts);
  if (options.exchange) {
    return ShowExchange(
        options, {.env = EnvJson(facts, std::nullopt), .doctor = DoctorJson(facts, findings)},
        [&](const auto& reports) { return CompareDoctor(options, reports); });
  }
  return PrintAll(options.json ? DoctorJson(facts, findings) : DoctorText(facts, findings),
                  CountBad(options, findings) > 0 ? 1 : 0);
}

}  // namespace ddprun::launcher
