#ifndef DDPRUN_LAUNCHER_DOCTOR_ENV_COMMAND_H_
#define DDPRUN_LAUNCHER_DOCTOR_ENV_COMMAND_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "launcher/core/environment.h"
#include "launcher/doctor/core/hardware_advice.h"
#include "launcher/options/host.h"
#include "launcher/options/options_or_help.h"

namespace ddprun::launcher {

// What `ddprun env` and `ddprun doctor` have in common.
struct MachineOptions {
  bool json = false;
  absl::Duration limit = absl::Seconds(20);        // for what may never answer
  std::string python;                              // path of the interpreter; "" = none
  std::map<std::string, std::string> environment;  // those of kEnvironmentOfInterest that are set
  // The job whose workers are this command, one on each node: options of ddprun; empty = this
  // machine alone.
  std::vector<std::string> job;
  // This process is such a worker: what it finds goes to rank 0, which compares.
  bool exchange = false;
  // Its RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_ERROR_FILE.
  std::map<std::string, std::string> worker;
};

struct EnvOptions : MachineOptions {
  AdviceQuestion question;
};

struct DoctorOptions : MachineOptions {
  bool strict = false;  // warnings count as errors
};

// Errors: usage and plan errors (errors.h).
absl::StatusOr<OptionsOrHelp<EnvOptions>> ParseEnvOptions(const std::vector<std::string>& arguments,
                                                          const EnvironmentLookup& environment,
                                                          const Host& host);
absl::StatusOr<OptionsOrHelp<DoctorOptions>> ParseDoctorOptions(
    const std::vector<std::string>& arguments, const EnvironmentLookup& environment,
    const Host& host);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_ENV_COMMAND_H_
