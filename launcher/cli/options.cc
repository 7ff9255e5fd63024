#include "launcher/cli/options.h"

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/version.h"
#include "launcher/agent/service_process.h"
#include "launcher/chaos/chaos_command.h"
#include "launcher/config/config_file.h"
#include "launcher/daemon/warden.h"
#include "launcher/options/any_gpus.h"
#include "launcher/options/errors.h"
#include "launcher/options/option_set.h"
#include "launcher/plan/binding.h"
#include "launcher/plan/launch_arguments.h"
#include "launcher/plan/launch_planner.h"
#include "launcher/preflight/test_command.h"
#include "launcher/schedulers/kubernetes_defaults.h"
#include "launcher/schedulers/slurm_defaults.h"

namespace ddprun::launcher {
namespace {

ExitNow Fail(const absl::Status& error) {
  // One line, whatever bytes the user's words had.
  const std::string text =
      absl::StrReplaceAll(Printable(error.message()), {{"\n", " "}, {"\t", " "}});
  return {.status = ExitStatusOf(error),
          .text = absl::StrCat("ddprun: error: ", text, "\n"),
          .to_stderr = true};
}

template <typename Options>
CommandLine Finish(absl::StatusOr<OptionsOrHelp<Options>> parsed) {
  if (!parsed.ok()) return {.command = Fail(parsed.status())};
  if (!parsed->help.empty()) return {.command = ExitNow{.text = std::move(parsed->help)}};
  return {.command = std::move(parsed->options)};
}

// What Slurm says of a launch, else what Kubernetes does.
absl::StatusOr<SlurmShare> ApplySchedulers(const EnvironmentLookup& environment, const Host& host,
                                           LaunchArguments* launch,
                                           std::vector<std::string>* warnings) {
  DDPRUN_ASSIGN_OR_RETURN(SlurmShare share, ApplySlurm(environment, host, launch, warnings));
  if (share.found) return share;
  DDPRUN_ASSIGN_OR_RETURN(share.told, ApplyKubernetes(environment, host, launch, warnings));
  return share;
}

// The words of a run: its options, a file of them, and the script.
struct LaunchWords {
  explicit LaunchWords(const std::string& introduction) : options(introduction) {}

  LaunchArguments launch;
  OptionSet options;
  ConfigFile file;
};

// Defines all options. Errors of what is returned: usage.
absl::StatusOr<ParsedArguments> ReadLaunchWords(const std::vector<std::string>& arguments,
                                                const EnvironmentLookup& environment,
                                                const Host& host, LaunchWords* words) {
  DefineLaunchOptions(&words->launch, &words->options);
  words->options.AddFile(
      &words->launch.config,
      {.names = "--config",
       .placeholder = "FILE",
       .help = "Take what neither the command line nor a variable says from "
               "FILE: YAML with a line 'option: value' for each option, and "
               "script and args, or a file of accelerate config. ddprun "
               "config writes one."},
      [words, &host](const Argument& path) -> absl::StatusOr<std::vector<Setting>> {
        DDPRUN_ASSIGN_OR_RETURN(words->file, ReadConfigFile(path, host));
        return words->file.settings;
      });
  return words->options.Parse(arguments, environment);
}

// The plan, after `finish` has had it, or what is wrong.
CommandLine PlanRun(LaunchWords* words, const EnvironmentLookup& environment, const Host& host,
                    const std::function<void(LaunchPlan*)>& finish) {
  LaunchArguments& launch = words->launch;
  CommandLine result;
  result.warnings = std::move(words->file.warnings);
  const absl::StatusOr<SlurmShare> slurm =
      ApplySchedulers(environment, host, &launch, &result.warnings);
  if (!slurm.ok()) return {.command = Fail(slurm.status())};
  absl::StatusOr<LaunchPlan> plan = MakeLaunchPlan(launch, environment, host, &result.warnings);
  absl::Status status = plan.status();
  if (status.ok()) status = BindWorkers(launch, environment, host, &*plan, &result.warnings);
  if (status.ok()) {
    plan->node_socket = slurm->node_socket;
    plan->requeue_job = slurm->requeue_job;
    finish(&*plan);
    if (!slurm->told.empty()) result.notes.push_back(slurm->told);
    result.command = *std::move(plan);
    if (slurm->waits) return {.command = WaitForNode{.node_socket = slurm->node_socket}};
  } else {
    result.command = Fail(status);
  }
  return result;
}

CommandLine ParseLaunch(const std::vector<std::string>& arguments,
                        const EnvironmentLookup& environment, const Host& host) {
  LaunchWords words(LaunchIntroduction());
  absl::StatusOr<ParsedArguments> parsed = ReadLaunchWords(arguments, environment, host, &words);
  if (!parsed.ok()) return {.command = Fail(parsed.status())};
  if (parsed->help) return {.command = ExitNow{.text = words.options.Help()}};
  LaunchArguments& launch = words.launch;
  if (launch.version) {
    return {.command = ExitNow{.text = absl::StrCat("ddprun ", kVersion, "\n")}};
  }
  launch.command = std::move(parsed->positionals);
  if (launch.command.empty()) launch.command = std::move(words.file.command);
  launch.worker_environment = std::move(words.file.worker_environment);

  return PlanRun(&words, environment, host, [&launch](LaunchPlan* plan) {
    // One node has no network to test.
    if (launch.preflight && plan->job.nodes_max > 1) AddPreflight(plan);
  });
}

CommandLine ParseTest(const std::vector<std::string>& arguments,
                      const EnvironmentLookup& environment, const Host& host) {
  LaunchWords words(TestIntroduction());
  TestArguments test;
  DefineTestOptions(&test, &words.options);
  absl::StatusOr<ParsedArguments> parsed = ReadLaunchWords(arguments, environment, host, &words);
  if (!parsed.ok()) return {.command = Fail(parsed.status())};
  if (parsed->help) return {.command = ExitNow{.text = words.options.Help()}};
  words.launch.worker_environment = std::move(words.file.worker_environment);
  const bool own_times = words.launch.rdzv_conf.given();
  MakeTestJob(test, environment, host, &words.launch);
  return PlanRun(&words, environment, host,
                 [own_times](LaunchPlan* plan) { FinishTestPlan(own_times, plan); });
}

// Of `ddprun env` or `ddprun doctor`, on this machine or as the workers of a job.
template <typename Options>
CommandLine FinishMachine(absl::StatusOr<OptionsOrHelp<Options>> parsed,
                          const EnvironmentLookup& environment, const Host& host) {
  if (!parsed.ok() || parsed->options.job.empty()) return Finish(std::move(parsed));
  return ParseLaunch(parsed->options.job, environment, host);
}

CommandLine ParseChaos(const std::vector<std::string>& arguments,
                       const EnvironmentLookup& environment, const Host& host) {
  absl::StatusOr<OptionsOrHelp<ChaosOptions>> parsed = ParseChaosOptions(arguments, host);
  if (!parsed.ok() || !parsed->help.empty() || !parsed->options.from_logs.empty()) {
    return Finish(std::move(parsed));
  }
  // The agents that are started say the job's warnings themselves.
  CommandLine job = ParseLaunch(parsed->options.job, environment, host);
  auto* launch = std::get_if<LaunchPlan>(&job.command);
  if (launch == nullptr) return {.command = std::move(job.command)};
  parsed->options.launch = std::move(*launch);
  return {.command = std::move(parsed->options)};
}

// The environment of the machine where the script is written is not the job's.
std::optional<std::string> NoJobEnvironment(const std::string&) { return std::nullopt; }

CommandLine ParseSlurm(const std::vector<std::string>& arguments, const Host& host) {
  absl::StatusOr<OptionsOrHelp<SlurmJob>> parsed = ParseSlurmOptions(arguments);
  if (!parsed.ok() || !parsed->help.empty()) return Finish(std::move(parsed));
  CommandLine job = ParseLaunch(parsed->options.launch, NoJobEnvironment, AnyGpus(host));
  const auto* launch = std::get_if<LaunchPlan>(&job.command);
  if (launch == nullptr) return {.command = std::move(job.command)};
  absl::StatusOr<std::string> script =
      BatchScript(parsed->options, launch->job.nodes_min < launch->job.nodes_max);
  if (!script.ok()) return {.command = Fail(script.status())};
  parsed->options.script = *std::move(script);
  return {.command = std::move(parsed->options)};
}

// A job that runs elsewhere: its script, folders and programs need not be here.
class AnyFiles : public AnyGpus {
 public:
  using AnyGpus::AnyGpus;
  PathKind KindOf(const std::string&) const override { return PathKind::kFile; }
  absl::Status CheckReadable(const std::string&) const override { return absl::OkStatus(); }
  absl::StatusOr<std::string> FindProgram(const std::string& name) const override { return name; }
};

CommandLine ParseConvert(const std::vector<std::string>& arguments, const Host& host) {
  const CheckLaunch check = [&host](const std::vector<std::string>& words) -> absl::Status {
    LaunchArguments launch;
    OptionSet options("");
    DefineLaunchOptions(&launch, &options);
    DDPRUN_ASSIGN_OR_RETURN(ParsedArguments parsed, options.Parse(words, NoJobEnvironment));
    if (parsed.help || launch.version) return absl::OkStatus();
    launch.command = std::move(parsed.positionals);
    launch.log_dir = Argument();  // a file here, for AnyFiles
    std::vector<std::string> warnings;
    return MakeLaunchPlan(launch, NoJobEnvironment, AnyFiles(host), &warnings).status();
  };
  return Finish(Convert(arguments, host, check));
}

using Words = std::vector<std::string>;

// The commands. What begins with another word is a run.
struct Command {
  absl::string_view name;
  // Params: what follows the name.
  CommandLine (*parse)(const Words& words, const EnvironmentLookup& environment, const Host& host);
};
constexpr Command kCommands[] = {
    {"rendezvous",
     [](const Words& words, const EnvironmentLookup& environment, const Host& host) {
       return Finish(ParseServiceOptions(words, environment, host));
     }},
    {"daemon", [](const Words& words, const EnvironmentLookup& environment,
                  const Host&) { return Finish(ParseDaemonOptions(words, environment)); }},
    {kWardenCommand,  // for ddprun itself
     [](const Words&, const EnvironmentLookup&, const Host&) {
       return CommandLine{.command = BeWarden()};
     }},
    {"status",
     [](const Words& words, const EnvironmentLookup& environment, const Host& host) {
       return Finish(ParseStatusOptions(words, environment, host));
     }},
    {"stop", [](const Words& words, const EnvironmentLookup& environment,
                const Host& host) { return Finish(ParseStopOptions(words, environment, host)); }},
    {"drain", [](const Words& words, const EnvironmentLookup& environment,
                 const Host& host) { return Finish(ParseDrainOptions(words, environment, host)); }},
    {"events",
     [](const Words& words, const EnvironmentLookup& environment, const Host& host) {
       return Finish(ParseEventsOptions(words, environment, host));
     }},
    {"top", [](const Words& words, const EnvironmentLookup& environment,
               const Host& host) { return Finish(ParseTopOptions(words, environment, host)); }},
    {"logs", [](const Words& words, const EnvironmentLookup& environment,
                const Host& host) { return Finish(ParseLogsOptions(words, environment, host)); }},
    {"certs", [](const Words& words, const EnvironmentLookup&,
                 const Host&) { return Finish(ParseCertsOptions(words)); }},
    {"config", [](const Words& words, const EnvironmentLookup&,
                  const Host& host) { return Finish(ParseConfigOptions(words, host)); }},
    {"convert", [](const Words& words, const EnvironmentLookup&,
                   const Host& host) { return ParseConvert(words, host); }},
    {"slurm", [](const Words& words, const EnvironmentLookup&,
                 const Host& host) { return ParseSlurm(words, host); }},
    {"chaos", ParseChaos},
    {"env",
     [](const Words& words, const EnvironmentLookup& environment, const Host& host) {
       return FinishMachine(ParseEnvOptions(words, environment, host), environment, host);
     }},
    {"doctor",
     [](const Words& words, const EnvironmentLookup& environment, const Host& host) {
       return FinishMachine(ParseDoctorOptions(words, environment, host), environment, host);
     }},
    {"test", ParseTest},
    {"preflight-worker",  // for ddprun itself
     [](const Words& words, const EnvironmentLookup& environment, const Host&) {
       return Finish(ParsePreflightWorker(words, environment));
     }},
    {kServiceCommand,  // the same
     [](const Words&, const EnvironmentLookup&, const Host&) {
       return CommandLine{.command = ServeForAgent()};
     }},
};

}  // namespace

CommandLine ParseCommandLine(const std::vector<std::string>& arguments,
                             const EnvironmentLookup& environment, const Host& host) {
  for (const Command& command : kCommands) {
    if (arguments.empty() || arguments.front() != command.name) continue;
    return command.parse({arguments.begin() + 1, arguments.end()}, environment, host);
  }
  return ParseLaunch(arguments, environment, host);
}

}  // namespace ddprun::launcher
