#ifndef DDPRUN_TOOLS_DOCTOR_MACHINE_COMMANDS_H_
#define DDPRUN_TOOLS_DOCTOR_MACHINE_COMMANDS_H_

#include "tools/doctor/env_command.h"

namespace ddprun::launcher {

// `ddprun env`. Returns the exit status: 0.
int ShowEnv(const EnvOptions& options);

// `ddprun doctor`. Returns the exit status: 1 for errors, and with --strict for warnings; else 0.
int ShowDoctor(const DoctorOptions& options);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_DOCTOR_MACHINE_COMMANDS_H_
