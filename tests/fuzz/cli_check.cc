#include "tests/fuzz/cli_check.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/text.h"
#include "launcher/cli/options.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {
namespace {

// A machine where every file and program is.
class GenerousHost : public Host {
 public:
  uint32_t CpuCount() const override { return 4; }
  uint32_t CudaCount() const override { return 0; }
  absl::StatusOr<CpuTopology> Topology() const override { return CpuTopology(); }
  absl::StatusOr<std::vector<GpuPlace>> Gpus(
      const std::optional<std::vector<std::string>>&) const override {
    return std::vector<GpuPlace>();
  }
  PathKind KindOf(const std::string&) const override { return PathKind::kDirectory; }
  absl::Status CheckReadable(const std::string&) const override { return absl::OkStatus(); }
  absl::StatusOr<std::string> FindProgram(const std::string& name) const override { return name; }
  absl::StatusOr<std::string> ReadFile(const std::string& path) const override { return path; }
  std::string RandomId() const override { return "random"; }
};

bool IsName(absl::string_view text) {
  return text.size() <= rendezvous::kNameBytesMax && IsUtf8(text) &&
         std::none_of(text.begin(), text.end(),
                      [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
}

void Check(const ExitNow& exit) {
  DDPRUN_CHECK(absl::EndsWith(exit.text, "\n"), "text without a newline");
  if (exit.status == 0) return;
  DDPRUN_CHECK(exit.status == 1 || exit.status == 2, "strange status");
  DDPRUN_CHECK(exit.to_stderr && absl::StartsWith(exit.text, "ddprun: error: "), exit.text);
  DDPRUN_CHECK(std::count(exit.text.begin(), exit.text.end(), '\n') == 1, exit.text);
  DDPRUN_CHECK(Printable(exit.text) == exit.text, "error that steers the terminal");
  DDPRUN_CHECK(exit.text.size() < 2000, "error without a bound");
}

void Check(const LaunchPlan& plan, const std::vector<std::string>& arguments) {
  const rendezvous::JobSpec& job = plan.job;
  DDPRUN_CHECK(IsName(job.run_id) && !job.run_id.empty(), "run id");
  DDPRUN_CHECK(IsName(plan.role), "role");
  DDPRUN_CHECK(IsName(plan.master_addr) && IsName(plan.local_addr), "address");
  DDPRUN_CHECK(job.nodes_min >= 1 && job.nodes_min <= job.nodes_max, "nodes");
  DDPRUN_CHECK(job.nodes_max <= rendezvous::kNodesMax, "nodes");
  DDPRUN_CHECK(plan.worker_count >= 1 && plan.worker_count <= rendezvous::kWorkersPerNodeMax,
               "workers");
  DDPRUN_CHECK(!plan.node_rank.has_value() || *plan.node_rank < job.nodes_max, "node rank");
  for (absl::Duration time :
       {job.join_timeout, job.last_call_timeout, job.lease, job.reconnect_grace, job.stop_grace,
        plan.service.loss, plan.isolation_timeout}) {
    DDPRUN_CHECK(time >= absl::ZeroDuration() && time <= rendezvous::kTimeoutMax, "time");
  }
  DDPRUN_CHECK(job.lease >= rendezvous::kLeaseMin && job.lease < plan.isolation_timeout, "lease");
  DDPRUN_CHECK(job.reconnect_grace <= job.lease, "reconnect grace");
  DDPRUN_CHECK(IsUtf8(job.description) && job.description.size() < 1000, "description");
  if (plan.endpoint.kind == EndpointPlan::Kind::kTcp) {
    DDPRUN_CHECK(IsName(plan.endpoint.host) && !plan.endpoint.host.empty(), "endpoint");
    DDPRUN_CHECK(plan.endpoint.port != 0 || job.nodes_max == 1, "endpoint's port");
    // Otherwise workers couldn't listen at it.
    DDPRUN_CHECK(plan.endpoint.has_store == (plan.master_port == plan.endpoint.port),
                 "the master's port and the service's");
  }
  DDPRUN_CHECK(!plan.devices.virtual_local_rank || plan.devices.visible.empty() ||
                   plan.devices.visible.size() >= plan.worker_count,
               "devices");
  for (const int signal : plan.signals.policy.preempting) {
    DDPRUN_CHECK(!plan.signals.policy.ending.contains(signal), "a signal with two meanings");
  }
  // What follows the script reaches the worker untouched.
  const bool with_python = plan.argv.size() > 1 && plan.argv[1] == "-u";
  size_t own = with_python ? 2 : 0;
  if (plan.run_path) {
    own = 4;  // -c and the program that runs the script
  } else if (with_python && plan.argv.size() > 3 && plan.argv[2] == "-m") {
    own = 3;
  }
  DDPRUN_CHECK(plan.argv.size() > own, "no command");
  size_t tail = plan.argv.size() - own - 1;
  if (tail > 0 && plan.argv[own + 1] == "--local-rank=${local_rank}") --tail;  // --use_env=false
  DDPRUN_CHECK(tail < arguments.size(), "more arguments than were given");
  DDPRUN_CHECK(std::equal(plan.argv.end() - static_cast<ptrdiff_t>(tail), plan.argv.end(),
                          arguments.end() - static_cast<ptrdiff_t>(tail)),
               "changed arguments");
}

}  // namespace

CliOutcome ParseAnything(const std::vector<std::string>& arguments,
                         const std::map<std::string, std::string>& variables) {
  const auto lookup = [&variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  const CommandLine parsed = ParseCommandLine(arguments, lookup, GenerousHost());
  if (const auto* exit = std::get_if<ExitNow>(&parsed.command); exit != nullptr) {
    Check(*exit);
    return exit->status == 0 ? CliOutcome::kText : CliOutcome::kError;
  }
  if (std::holds_alternative<ShowVersion>(parsed.command)) return CliOutcome::kText;
  if (const auto* plan = std::get_if<LaunchPlan>(&parsed.command); plan != nullptr) {
    Check(*plan, arguments);
    return CliOutcome::kPlan;
  }
  if (const auto* config = std::get_if<ConfigOptions>(&parsed.command); config != nullptr) {
    DDPRUN_CHECK(config->text.empty() || IsUtf8(config->text), "a file that is no text");
  }
  return CliOutcome::kService;
}

CliOutcome ParseBytes(absl::string_view bytes) {
  std::vector<std::string> arguments;
  std::map<std::string, std::string> variables;
  for (absl::string_view word : absl::StrSplit(bytes, '\0')) {
    const size_t equals = word.find('=');
    if (arguments.empty() && equals != absl::string_view::npos && !absl::StartsWith(word, "-")) {
      variables[std::string(word.substr(0, equals))] = std::string(word.substr(equals + 1));
    } else {
      arguments.emplace_back(word);
    }
  }
  return ParseAnything(arguments, variables);
}

}  // namespace ddprun::launcher
