#include "launcher/cli/machine_commands.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/version.h"
#include "launcher/cli/machine_json.h"
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

}  // namespace

int ShowEnv(const EnvOptions& options) {
  const MachineFacts facts = ProbeFor(options);
  const auto advice = AdviseForHardware(facts, options.question);
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
