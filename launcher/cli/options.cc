#include "launcher/cli/options.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/version.h"
#include "launcher/cli/binding.h"
#include "launcher/cli/chaos_command.h"
#include "launcher/cli/config_file.h"
#include "launcher/cli/errors.h"
#include "launcher/cli/launch_arguments.h"
#include "launcher/cli/launch_planner.h"
#include "launcher/cli/option_set.h"

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

CommandLine ParseLaunch(const std::vector<std::string>& arguments,
                        const EnvironmentLookup& environment, const Host& host) {
  LaunchArguments launch;
  OptionSet options(LaunchIntroduction());
  DefineLaunchOptions(&launch, &options);
  ConfigFile file;
  options.AddFile(&launch.config,
                  {.names = "--config",
                   .placeholder = "FILE",
                   .help = "Take what neither the command line nor a variable says from FILE: "
                           "YAML with a line 'option: value' for each option, and script and "
                           "args, or a file of accelerate config. ddprun config writes one. "
                           "Default: none."},
                  [&file, &host](const Argument& path) -> absl::StatusOr<std::vector<Setting>> {
                    DDPRUN_ASSIGN_OR_RETURN(file, ReadConfigFile(path, host));
                    return file.settings;
                  });
  absl::StatusOr<ParsedArguments> parsed = options.Parse(arguments, environment);
  if (!parsed.ok()) return {.command = Fail(parsed.status())};
  if (parsed->help) return {.command = ExitNow{.text = options.Help()}};
  if (launch.version) {
    return {.command = ExitNow{.text = absl::StrCat("ddprun ", kVersion, "\n")}};
  }
  launch.command = std::move(parsed->positionals);
  if (launch.command.empty()) launch.command = std::move(file.command);
  launch.worker_environment = std::move(file.worker_environment);

  CommandLine result;
  result.warnings = std::move(file.warnings);
  absl::StatusOr<LaunchPlan> plan = MakeLaunchPlan(launch, environment, host, &result.warnings);
  absl::Status status = plan.status();
  if (status.ok()) status = BindWorkers(launch, environment, host, &*plan, &result.warnings);
  if (status.ok()) {
    result.command = *std::move(plan);
  } else {
    result.command = Fail(status);
  }
  return result;
}

CommandLine ParseEnv(const std::vector<std::string>& arguments,
                     const EnvironmentLookup& environment, const Host& host) {
  absl::StatusOr<OptionsOrHelp<EnvOptions>> parsed = ParseEnvOptions(arguments, environment, host);
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

}  // namespace

CommandLine ParseCommandLine(const std::vector<std::string>& arguments,
                             const EnvironmentLookup& environment, const Host& host) {
  const std::string first = arguments.empty() ? "" : arguments.front();
  if (first == "chaos")
    return ParseChaos({arguments.begin() + 1, arguments.end()}, environment, host);
  if (first == "rendezvous" || first == "status" || first == "stop" || first == "config") {
    const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
    if (first == "rendezvous") return Finish(ParseServiceOptions(rest, environment, host));
    if (first == "config") return Finish(ParseConfigOptions(rest, host));
    if (first == "status") return Finish(ParseStatusOptions(rest, environment));
    return Finish(ParseStopOptions(rest, environment, host));
  }
  if (first == "env" || first == "doctor") {
    const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
    if (first == "env") return ParseEnv(rest, environment, host);
    return Finish(ParseDoctorOptions(rest, environment, host));
  }
  return ParseLaunch(arguments, environment, host);
}

}  // namespace ddprun::launcher
