#include "launcher/schedulers/kubernetes_pod.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/errors.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {
namespace {

constexpr char kHostsFile[] = "/etc/hosts";
constexpr size_t kDomainBytesMax = 253;  // RFC 1035

// The variables of a pod; those without a value are as good as missing.
class PodVariables {
 public:
  explicit PodVariables(const EnvironmentLookup& environment) : environment_(environment) {}

  std::string Text(const std::string& name) const { return environment_(name).value_or(""); }
  bool Has(const std::string& name) const { return !Text(name).empty(); }

  // Errors: plan — no number, or one above `most`.
  absl::StatusOr<uint32_t> NumberOr(const std::string& name, uint32_t most,
                                    uint32_t fallback) const {
    const std::string text = Text(name);
    if (text.empty()) return fallback;
    uint32_t value = 0;
    if (absl::SimpleAtoi(text, &value) && value <= most) return value;
    return PlanError(absl::StrCat(name, " ", Quoted(text), ": is no number up to ", most,
                                  "; --no_kubernetes makes ddprun ignore such variables"));
  }

 private:
  const EnvironmentLookup& environment_;
};

// Every container of a cluster has it, whatever its pod allows itself else.
bool InKubernetes(const PodVariables& variables) {
  return variables.Has("KUBERNETES_SERVICE_HOST");
}

bool IsDomain(absl::string_view text) {
  return !text.empty() && text.size() <= kDomainBytesMax &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.';
         });
}

}  // namespace

std::string DomainOfHost(absl::string_view hosts_file, absl::string_view hostname) {
  if (hostname.empty()) return "";
  for (absl::string_view line : absl::StrSplit(hosts_file, '\n')) {
    line = line.substr(0, line.find('#'));
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    for (size_t i = 1; i < words.size(); ++i) {
      absl::string_view rest = words[i];
      if (absl::ConsumePrefix(&rest, hostname) && absl::ConsumePrefix(&rest, ".") &&
          IsDomain(rest)) {
        return std::string(rest);
      }
    }
  }
  return "";
}

std::string KubernetesPod::RunId() const {
  if (!jobset.empty()) return restart == 0 ? jobset : absl::StrCat(jobset, "-restart", restart);
  absl::string_view name = hostname;
  // A pod with a name of its own still needs one that all have in common: the plan's default.
  if (!absl::ConsumeSuffix(&name, absl::StrCat("-", index)) || name.empty()) return "none";
  return std::string(name);
}

absl::StatusOr<std::string> KubernetesPod::FirstHost() const {
  absl::string_view stem = hostname;
  bool good = absl::ConsumeSuffix(&stem, absl::StrCat("-", index));
  if (jobs > 1) good = good && absl::ConsumeSuffix(&stem, absl::StrCat("-", job));
  if (!good || stem.empty()) {
    return PlanError(
        absl::StrCat("JOB_COMPLETION_INDEX ", index, ": the pod's name ", Quoted(hostname),
                     " doesn't end with its number, so nobody can tell where pod 0 is; give "
                     "--rdzv_endpoint HOST, or --no_kubernetes"));
  }
  if (domain.empty()) {
    return PlanError(absl::StrCat(
        "JOB_COMPLETION_INDEX ", index, ": other pods can't be found by name, because ", kHostsFile,
        " has no domain for ", Quoted(hostname),
        "; give the pod template a subdomain and make a headless Service of that name "
        "(docs/KUBERNETES.md), or give --rdzv_endpoint HOST, or --no_kubernetes"));
  }
  return absl::StrCat(stem, jobs > 1 ? "-0" : "", "-0.", domain);
}

absl::StatusOr<std::optional<KubernetesPod>> ReadKubernetesPod(const EnvironmentLookup& environment,
                                                               const Host& host) {
  constexpr uint32_t kMost = std::numeric_limits<int32_t>::max();
  const PodVariables variables(environment);
  if (!InKubernetes(variables) || !variables.Has("JOB_COMPLETION_INDEX")) return std::nullopt;
  KubernetesPod pod;
  DDPRUN_ASSIGN_OR_RETURN(pod.index, variables.NumberOr("JOB_COMPLETION_INDEX", kMost, 0));
  pod.hostname = host.HostName();
  // An unreadable file counts as one without the domain.
  pod.domain = DomainOfHost(host.ReadFile(kHostsFile).value_or(""), pod.hostname);
  pod.jobset = variables.Text("JOBSET_NAME");
  if (!pod.jobset.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(pod.restart, variables.NumberOr("JOBSET_RESTART_ATTEMPT", kMost, 0));
    DDPRUN_ASSIGN_OR_RETURN(
        pod.jobs, variables.NumberOr("REPLICATED_JOB_REPLICAS", rendezvous::kNodesMax, 1));
    pod.jobs = std::max(1U, pod.jobs);
    DDPRUN_ASSIGN_OR_RETURN(pod.job, variables.NumberOr("JOB_INDEX", pod.jobs - 1, 0));
  }
  return std::optional<KubernetesPod>(std::move(pod));
}

absl::StatusOr<std::optional<PyTorchJobPod>> ReadPyTorchJobPod(const EnvironmentLookup& environment,
                                                               const Host& host) {
  const PodVariables variables(environment);
  if (!InKubernetes(variables)) return std::nullopt;
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"}) {
    if (!variables.Has(name)) return std::nullopt;
  }
  // In a worker of another launcher these variables count workers, not pods.
  if (variables.Has("LOCAL_RANK") || variables.Has("TORCHELASTIC_RUN_ID")) return std::nullopt;
  PyTorchJobPod pod;
  pod.master_addr = variables.Text("MASTER_ADDR");
  DDPRUN_ASSIGN_OR_RETURN(pod.nodes, variables.NumberOr("WORLD_SIZE", rendezvous::kNodesMax, 1));
  DDPRUN_ASSIGN_OR_RETURN(pod.node, variables.NumberOr("RANK", rendezvous::kNodesMax - 1, 0));
  DDPRUN_ASSIGN_OR_RETURN(
      const uint32_t port,
      variables.NumberOr("MASTER_PORT", std::numeric_limits<uint16_t>::max(), 0));
  pod.master_port = static_cast<uint16_t>(port);
  // Old operators set the master's MASTER_ADDR to localhost, which other pods can't use.
  if (pod.node == 0 && pod.master_addr == "localhost" && !host.HostName().empty()) {
    pod.master_addr = host.HostName();
  }
  return std::optional<PyTorchJobPod>(std::move(pod));
}

}  // namespace ddprun::launcher
