#ifndef DDPRUN_LAUNCHER_WARM_PARK_PROGRAM_H_
#define DDPRUN_LAUNCHER_WARM_PARK_PROGRAM_H_

#include <sys/types.h>

#include <string>

#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/keeper/keeper_client.h"

namespace ddprun::launcher {

// A program with the C++ runtime parks by itself (worker/env/parked_program.h). What follows is of
// the program that a plan's workers are started with.

// Its file, as exec(2) would find it; "" = there is none.
std::string ProgramFile(const LaunchPlan& plan, const EnvironmentLookup& environment);

// Which version of the file it is; "" = it can't be told. The same on all nodes that share it.
std::string ProgramSignature(const std::string& file);

// Whether the process runs this very file, and not what a script or a wrapper has executed.
bool Runs(pid_t pid, const std::string& file);

// What the keeper is asked for, to have it parked.
ParkRequest PrepareParkedProgram(const LaunchPlan& plan, const EnvironmentLookup& environment);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WARM_PARK_PROGRAM_H_
