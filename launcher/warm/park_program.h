#ifndef DDPRUN_LAUNCHER_WARM_PARK_PROGRAM_H_
#define DDPRUN_LAUNCHER_WARM_PARK_PROGRAM_H_

#include <sys/types.h>

#include <string>

#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/keeper/keeper_client.h"

namespace ddprun::launcher {

// A program with the C++ runtime becomes a fork server by itself (worker/env/parked_program.h).
// These functions are about the program that a plan's workers run.

// The program's file, as exec(2) would find it; "" = there is none.
std::string ProgramFile(const LaunchPlan& plan, const EnvironmentLookup& environment);

// The version of the file, equal on all nodes that share the file; "" = not known.
std::string ProgramSignature(const std::string& file);

// Whether the process runs this very file, not a program that a script or a wrapper has executed.
bool Runs(pid_t pid, const std::string& file);

// The keeper's request to start the program as a fork server.
ParkRequest PrepareParkedProgram(const LaunchPlan& plan, const EnvironmentLookup& environment);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WARM_PARK_PROGRAM_H_
