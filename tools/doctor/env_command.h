#ifndef DDPRUN_TOOLS_DOCTOR_ENV_COMMAND_H_
#define DDPRUN_TOOLS_DOCTOR_ENV_COMMAND_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "launcher/core/environment.h"
#include "launcher/options/argument.h"
#include "launcher/options/host.h"
#include "tools/doctor/core/hardware_advice.h"

namespace ddprun::launcher {

// The common options of `ddprun env` and `ddprun doctor`.
struct MachineOptions {
  bool json = false;
  absl::Duration limit = absl::Seconds(20);        // for probes that may never answer
  std::string python;                              // path of the interpreter; "" = none
  std::map<std::string, std::string> environment;  // the set variables of kEnvironmentOfInterest
  // Options of ddprun for a job that runs this command as its worker, one on each node; empty =
  // only this machine.
  std::vector<std::string> job;
  // This process is such a worker: it sends its facts to rank 0, which compares.
  bool exchange = false;
  // The worker's RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_ERROR_FILE.
  std::map<std::string, std::string> worker;
};

struct EnvOptions : MachineOptions {
  AdviceQuestion question;
};

struct DoctorOptions : MachineOptions {
  bool strict = false;  // warnings count as errors
};

// Errors: usage and plan errors (argument.h).
absl::StatusOr<OptionsOrHelp<EnvOptions>> ParseEnvOptions(const std::vector<std::string>& arguments,
                                                          const EnvironmentLookup& environment,
                                                          const Host& host);
absl::StatusOr<OptionsOrHelp<DoctorOptions>> ParseDoctorOptions(
    const std::vector<std::string>& arguments, const EnvironmentLookup& environment,
    const Host& host);

// `ddprun env`. Returns the exit status: 0.
int ShowEnv(const EnvOptions& options);

// `ddprun doctor`. Returns the exit status: 1 for errors, and with --strict for warnings; else 0.
int ShowDoctor(const DoctorOptions& options);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_DOCTOR_ENV_COMMAND_H_
