// ddprun: starts and keeps distributed training jobs. See --help and docs/ARCHITECTURE.md.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/address.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/end_report.h"
#include "launcher/cli/options.h"
#include "launcher/cli/system_host.h"
#include "launcher/cli/version_text.h"
#include "launcher/core/exit_status.h"
#include "launcher/core/plan_text.h"
#include "launcher/daemon/daemon_command.h"
#include "launcher/daemon/warden.h"
#include "launcher/os/files.h"
#include "launcher/os/processes.h"
#include "launcher/os/runtime_dir.h"
#include "launcher/schedulers/slurm_run.h"
#include "launcher/service/service_process.h"
#include "rendezvous/server/serve.h"
#include "tools/chaos/chaos_command.h"
#include "tools/config/config_command.h"
#include "tools/doctor/env_command.h"
#include "tools/preflight/preflight_worker.h"
#include "tools/watch/commands.h"

namespace ddprun::launcher {
namespace {

int Run(const ExitNow& exit) {
  std::fputs(exit.text.c_str(), exit.to_stderr ? stderr : stdout);
  return exit.status;
}

int Run(const ShowVersion& /*command*/) {
  std::fputs(VersionText(kBuildFacts, NeededGlibc()).c_str(), stdout);
  return 0;
}

int Run(const WaitForNode& wait) { return AwaitFirstTask(wait.node_socket); }

int Run(LaunchPlan plan) {
  // Held until this process and its keeper have ended.
  absl::StatusOr<Fd> node_socket;
  if (!plan.node_socket.empty()) node_socket = HoldNodeSocket(plan.node_socket);
  if (!plan.node_socket.empty() && !node_socket.ok()) {
    Notify(absl::StrCat("error: ", node_socket.status().message()));
    return 1;
  }
  const absl::StatusOr<PreflightResult> preflight = PreflightResult::Prepare(&plan);
  if (!preflight.ok()) {
    Notify(absl::StrCat("error: ", preflight.status().message()));
    return 1;
  }
  if (const absl::Status can = CheckReportFile(plan); !can.ok()) {
    Notify(absl::StrCat("error: --report_file: ", can.message()));
    return 1;
  }
  if (LogEnabled(LogLevel::kInfo)) Log(LogLevel::kInfo, PlanText(plan));
  // Forks; nothing before this may make a thread or touch gRPC.
  absl::StatusOr<std::unique_ptr<Agent>> agent =
      Agent::Prepare(plan, plan.node_socket.empty() ? -1 : node_socket->get());
  if (!agent.ok()) {
    Notify(absl::StrCat("error: ", agent.status().message()));
    WriteEndFiles(plan, "", Exit{.status = 1, .why = std::string(agent.status().message())});
    return 1;
  }
  const Instant begin = MonotonicNow();
  int status = (*agent)->Run();
  if (status == kExitPreempted && !plan.requeues.job.empty()) {
    status = StatusBeforeRequeue(plan.requeues,
                                 {.step = (*agent)->LastStep(), .uptime = MonotonicNow() - begin});
  }
  if (!plan.requeue_job.empty() && (*agent)->LostService()) RequeueJob(plan.requeue_job);
  status = preflight->StatusAfter(status);
  WriteStatusFile(plan.requeues, status);
  return status;
}

int Run(const ServiceOptions& options) {
  rendezvous::ServeConfig config;
  config.listen = HostPort(options.listen_host, options.listen_port);
  config.token = options.token;
  config.tls = options.tls;
  config.event_log = options.event_log;
  config.status_page = options.status_page;
  config.status_page_token = options.status_page_token;
  config.state_dir = options.state_dir;
  config.state_outlives_machine = !options.state_dir.empty();
  if (const absl::Status made =
          config.state_dir.empty() ? absl::OkStatus() : MakeWritableFolder(config.state_dir);
      !made.ok()) {
    Notify(absl::StrCat("error: --state_dir: ", made.message()));
    return 1;
  }
  // Commands of the same user on this machine find it there, as they find an agent's service. It
  // serves without such a folder, too.
  const absl::StatusOr<RuntimeDir> runtime_dir = RuntimeDir::Create();
  if (runtime_dir.ok()) config.socket = absl::StrCat("unix:", runtime_dir->File(kServiceSocket));
  if (runtime_dir.ok() && options.listen_port != 0) {
    runtime_dir->PublishServicePort(config.listen).IgnoreError();
  }
  return rendezvous::ServeMain(config);
}

int Run(const DaemonOptions& options) { return RunDaemonCommand(options); }
int Run(const BeWarden& /*command*/) { return RunWarden(); }
int Run(const ServeForAgent& /*command*/) { RunServiceCommand(); }

int Run(ChaosOptions options) {
  const ChaosRun run{.plan_name = options.plan_file,
                     .plan = std::move(options.plan),
                     .report_file = options.report_file,
                     .job = std::move(options.job),
                     .launch = std::move(options.launch)};
  if (!options.from_logs.empty()) return ReportFromLogs(run, options.from_logs);
  if (!options.check) return RunChaos(run);
  const absl::Status can = CheckChaos(run.plan);
  Notify(can.ok() ? absl::StrCat("chaos: ", run.plan_name, ": ", run.plan.faults.size(),
                                 " faults, nothing is wrong")
                  : absl::StrCat("error: ", can.message()));
  return can.ok() ? 0 : 1;
}

int Run(const CertsOptions& options) {
  const absl::StatusOr<std::string> made = MakeCerts(options);
  Notify(made.ok() ? *made : absl::StrCat("error: ", made.status().message()));
  return made.ok() ? 0 : 1;
}

int Run(ConfigOptions options) { return WriteConfig(std::move(options), SystemHost()); }

int Run(const Conversion& conversion) {
  for (const std::string& line : conversion.told) Notify(line);
  std::fputs(conversion.text.c_str(), stdout);
  return 0;
}

int Run(const SlurmJob& job) { return GiveScript(job); }
int Run(const StatusOptions& options) { return ShowStatus(options); }
int Run(StopOptions options) { return StopJob(std::move(options)); }
int Run(DrainOptions options) { return DrainNode(std::move(options)); }
int Run(EventsOptions options) { return ShowEvents(std::move(options)); }
int Run(const LogsOptions& options) { return ShowLogs(options); }
int Run(const TopOptions& options) { return ShowTop(options); }
int Run(const EnvOptions& options) { return ShowEnv(options); }
int Run(const DoctorOptions& options) { return ShowDoctor(options); }
int Run(const PreflightWorker& worker) { return RunPreflightWorker(worker); }

int Main(int argc, char** argv) {
  const char* level = std::getenv("LOGLEVEL");
  SetLogLevel(level == nullptr ? "" : level);
  CommandLine line =
      ParseCommandLine(std::vector<std::string>(argv + std::min(argc, 1), argv + argc),
                       ProcessEnvironment, SystemHost());
  for (const std::string& warning : line.warnings) Notify(absl::StrCat("warning: ", warning));
  for (const std::string& note : line.notes) Notify(note);
  return std::visit([](auto& command) { return Run(std::move(command)); }, line.command);
}

// gRPC's threads go on until the process is gone, so what they use must not be destroyed before.
[[noreturn]] void ExitNoDestructors(int status) {
  std::fflush(nullptr);
  std::_Exit(status);
}

}  // namespace
}  // namespace ddprun::launcher

// Before the constructors of libraries, which open descriptors (gRPC has one).
[[gnu::section(".preinit_array"),
  gnu::used]] static void (*fill_standard_streams)() = &ddprun::FillStandardStreams;

int main(int argc, char** argv) {
  // A file that may not grow (ulimit -f) is to us what a full disk is: an error of write(2), which
  // costs the file and not the job. Keeper and service inherit this; workers don't (exec_child.cc).
  std::signal(SIGXFSZ, SIG_IGN);
  ddprun::launcher::ExitNoDestructors(ddprun::launcher::Main(argc, argv));
}
