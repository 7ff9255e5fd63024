#ifndef DDPRUN_LAUNCHER_CLI_OPTIONS_H_
#define DDPRUN_LAUNCHER_CLI_OPTIONS_H_

#include <string>
#include <variant>
#include <vector>

#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/daemon/daemon_command.h"
#include "launcher/options/host.h"
#include "launcher/schedulers/slurm_command.h"
#include "tools/certs/certs_command.h"
#include "tools/chaos/chaos_command.h"
#include "tools/config/config_command.h"
#include "tools/config/convert_command.h"
#include "tools/doctor/env_command.h"
#include "tools/preflight/test_command.h"
#include "tools/watch/operate_options.h"
#include "tools/watch/service_options.h"

namespace ddprun::launcher {

// Print the text and exit without a run. Help and version go to stdout with status 0; an error is
// one line, "ddprun: error: …", on stderr with status 2 (usage) or 1 (not possible).
struct ExitNow {
  int status = 0;
  std::string text;  // ends with a newline
  bool to_stderr = false;
};

// --version.
struct ShowVersion {};

// This task of a Slurm step leaves the launch to its node's first task, and waits for that task's
// end.
struct WaitForNode {
  std::string node_socket;  // abstract unix socket that the first task holds
};

// Be the rendezvous service of the agent that started this process (ServiceProcess).
struct ServeForAgent {};

// Be the parent of a keeper that a daemon keeps (launcher/daemon/warden.h).
struct BeWarden {};

// A parsed command line.
struct CommandLine {
  std::variant<LaunchPlan, ServiceOptions, StatusOptions, StopOptions, DrainOptions, EventsOptions,
               TopOptions, LogsOptions, ConfigOptions, CertsOptions, ChaosOptions, EnvOptions,
               DoctorOptions, WaitForNode, SlurmJob, Conversion, PreflightWorker, ServeForAgent,
               DaemonOptions, BeWarden, ShowVersion, ExitNow>
      command;
  std::vector<std::string> warnings;  // for the user, one line each, without "ddprun: warning"
  std::vector<std::string> notes;     // the same for facts that were found
};

// Reads the command line of ddprun: torchrun's options and ours (--help-all), or as the first word
// one of the commands that --help lists. Params: arguments — without the program's name.
// environment — PET_*, DDPRUN_TOKEN, DDPRUN_TLS_DIR, PYTHON_EXEC,
// TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE are read. Never throws; any bytes are fine. Bound: linear
// in the size of the arguments. Threads: any.
CommandLine ParseCommandLine(const std::vector<std::string>& arguments,
                             const EnvironmentLookup& environment, const Host& host);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_OPTIONS_H_
