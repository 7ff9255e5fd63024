#include "launcher/cli/options.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/cli/suggestions.h"
#include "launcher/daemon/warden.h"
#include "launcher/options/argument.h"
#include "launcher/options/host.h"
#include "launcher/options/option_set.h"
#include "launcher/plan/launch_arguments.h"
#include "launcher/plan/launch_planner.h"
#include "launcher/plan/plan_parts.h"
#include "launcher/plan/worker_command.h"
#include "launcher/schedulers/kubernetes.h"
#include "launcher/schedulers/slurm_defaults.h"
#include "launcher/schedulers/slurm_step.h"
#include "launcher/service/service_process.h"
#include "tools/chaos/chaos_command.h"
#include "tools/config/config_command.h"
#include "tools/preflight/test_command.h"

namespace ddprun::launcher {
namespace {

// Before the options of --help-all.
constexpr char kOptionRules[] =
    R"(Options end at the script; what follows is for the script. Each option may be
written with dashes or underscores, or come from the variable in brackets, or
from a file (--config). The command line wins over the variable, and that over
the file.
)";

using Words = std::vector<std::string>;

std::string LaunchIntroduction();
std::vector<std::string> CommandNames();

ExitNow Fail(const absl::Status& error) {
  // One line, even if an argument has newlines.
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

// Fills in options from Slurm, or else from Kubernetes.
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
  words->options.LeaveToHelpAll(kOptionRules);
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
  if (!launch.nproc_per_node.given()) status.Update(words->file.no_workers);
  if (status.ok()) status = BindWorkers(launch, environment, host, &*plan, &result.warnings);
  if (status.ok()) {
    FinishSlurm(*slurm, &*plan);
    finish(&*plan);
    if (!slurm->told.empty()) result.notes.push_back(slurm->told);
    result.command = *std::move(plan);
    if (slurm->waits) return {.command = WaitForNode{.node_socket = slurm->node_socket}};
  } else {
    result.command = Fail(status);
  }
  return result;
}

// A word that is no script may be meant as one, or as a command.
void AddSuggestion(const std::vector<std::string>& words, const Host& host, ExitNow* exit) {
  if (words.empty() || host.KindOf(words.front()) != Host::PathKind::kMissing) return;
  if (!absl::StrContains(exit->text, "can't read the script")) return;  // an option is wrong
  const std::string script = SuggestScript(words.front(), host);
  const std::string suggestion = script.empty() ? SuggestCommand(words.front(), CommandNames())
                                                : absl::StrCat("did you mean ", script, "?");
  if (suggestion.empty()) return;
  const std::string text(absl::StripSuffix(absl::StripSuffix(exit->text, "\n"), kPathAdvice));
  exit->text = absl::StrCat(text, "; ", suggestion, "\n");
}

// An option may have taken it for its value.
void NoteTakenScript(const std::vector<std::string>& words, ExitNow* exit) {
  if (!absl::StrContains(exit->text, "script to run is missing")) return;
  const std::string taken = TakenScript(words);
  if (taken.empty()) return;
  exit->text = absl::StrCat("ddprun: error: the script to run is missing: ", taken, "\n");
}

// Warns of launcher options after the script's name, because the script gets them.
void WarnOfLateOptions(const std::vector<std::string>& words, std::vector<std::string>* warnings) {
  constexpr absl::string_view kLaunchers[] = {
      "--master-addr",    "--master-port",  "--max-restarts",  "--nnodes",  "--node-rank",
      "--nproc-per-node", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--standalone"};
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string spelled = words[i].substr(0, words[i].find('='));
    const std::string name = absl::StrReplaceAll(spelled, {{"_", "-"}});
    if (std::find(std::begin(kLaunchers), std::end(kLaunchers), name) == std::end(kLaunchers)) {
      continue;
    }
    return warnings->push_back(absl::StrCat(spelled, " stands behind ", Quoted(words.front()),
                                            ", which gets it; ddprun's options go before it"));
  }
}

CommandLine ParseLaunch(const std::vector<std::string>& arguments,
                        const EnvironmentLookup& environment, const Host& host) {
  LaunchWords words(LaunchIntroduction());
  absl::StatusOr<ParsedArguments> parsed = ReadLaunchWords(arguments, environment, host, &words);
  if (!parsed.ok()) return {.command = Fail(parsed.status())};
  if (parsed->help) return {.command = ExitNow{.text = words.options.Help()}};
  LaunchArguments& launch = words.launch;
  if (launch.version) return {.command = ShowVersion()};
  if (launch.print_completion.given()) {
    absl::StatusOr<std::string> script = CompletionScript(launch.print_completion, host);
    if (!script.ok()) return {.command = Fail(script.status())};
    return {.command = ExitNow{.text = *std::move(script)}};
  }
  launch.command = std::move(parsed->positionals);
  if (launch.command.empty()) launch.command = std::move(words.file.command);
  launch.worker_environment = std::move(words.file.worker_environment);

  CommandLine line = PlanRun(&words, environment, host, [&launch](LaunchPlan* plan) {
    // One node has no network to test.
    if (launch.preflight && plan->job.nodes_max > 1) AddPreflight(plan);
  });
  WarnOfLateOptions(launch.command, &line.warnings);
  for (std::string& warning : words.options.MistypedVariables(host.VariableNames())) {
    line.warnings.push_back(std::move(warning));
  }
  auto* exit = std::get_if<ExitNow>(&line.command);
  if (exit != nullptr && !launch.module && !launch.no_python) {
    AddSuggestion(launch.command, host, exit);
  }
  if (exit != nullptr) NoteTakenScript(arguments, exit);
  return line;
}

CommandLine ParseTest(const std::vector<std::string>& arguments,
                      const EnvironmentLookup& environment, const Host& host) {
  LaunchWords words(TestIntroduction());
  TestArguments test;
  DefineTestOptions(&test, &words.options);
  absl::StatusOr<ParsedArguments> parsed = ReadLaunchWords(arguments, environment, host, &words);
  if (!parsed.ok()) return {.command = Fail(parsed.status())};
  if (parsed->help) return {.command = ExitNow{.text = words.options.Help()}};
  // The real run's arguments are accepted, its script included, but a number isn't a script.
  uint64_t number = 0;
  if (!parsed->positionals.empty() && absl::SimpleAtoi(parsed->positionals.front(), &number)) {
    return {.command = Fail(UsageError(absl::StrCat(
                "unexpected word ", Quoted(parsed->positionals.front()),
                "; the test has a script of its own, and --nnodes N nodes (see --help)")))};
  }
  words.launch.worker_environment = std::move(words.file.worker_environment);
  const bool own_times = GivesJoinTimeout(words.launch.rdzv_conf.text);
  MakeTestJob(test, environment, host, &words.launch);
  return PlanRun(&words, environment, host,
                 [own_times](LaunchPlan* plan) { FinishTestPlan(own_times, plan); });
}

// The words of `ddprun env` or `ddprun doctor`, with --nnodes of a Slurm step: reports that each
// node prints for itself would come out of srun line by line, mixed. What the user says wins.
std::vector<std::string> ForStep(std::vector<std::string> words,
                                 const EnvironmentLookup& environment) {
  const uint32_t nodes = NodesOfStep(environment);
  if (nodes > 1) words.insert(words.begin(), absl::StrCat("--nnodes=", nodes));
  return words;
}

// `ddprun env` or `ddprun doctor`, on this machine or as the workers of a job.
template <auto kParse>
CommandLine ParseMachine(const Words& words, const EnvironmentLookup& environment,
                         const Host& host) {
  auto parsed = kParse(ForStep(words, environment), environment, host);
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
  const uint32_t nodes_max = parsed->options.launch.job.nodes_max;
  const absl::Status victims = CheckVictims(parsed->options.plan, nodes_max);
  if (!victims.ok()) return {.command = Fail(victims)};
  return {.command = std::move(parsed->options)};
}

// The environment of the machine where the script is written is not the job's.
std::optional<std::string> NoJobEnvironment(const std::string&) { return std::nullopt; }

CommandLine ParseSlurm(const Words& arguments, const EnvironmentLookup&, const Host& host) {
  absl::StatusOr<OptionsOrHelp<SlurmJob>> parsed = ParseSlurmOptions(arguments);
  if (!parsed.ok() || !parsed->help.empty()) return Finish(std::move(parsed));
  CommandLine job = ParseLaunch(parsed->options.launch, NoJobEnvironment, AnyGpus(host));
  const auto* launch = std::get_if<LaunchPlan>(&job.command);
  if (launch == nullptr) return {.command = std::move(job.command)};
  absl::StatusOr<std::string> script = BatchScript(parsed->options, launch->entry_point,
                                                   launch->job.nodes_min < launch->job.nodes_max);
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

CommandLine ParseConvert(const Words& arguments, const EnvironmentLookup&, const Host& host) {
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

// A command. A command line with another first word is a run.
struct Command {
  absl::string_view name;
  // Params: what follows the name.
  CommandLine (*parse)(const Words& words, const EnvironmentLookup& environment, const Host& host);
  absl::string_view group = "";  // of the help; only with the first of a group
  absl::string_view help = "";   // "" = for ddprun itself
};
CommandLine ParseHelp(const Words& words, const EnvironmentLookup& environment, const Host& host);

// A command's options, by a function of what it needs of the three.
template <auto kParse>
CommandLine Parse(const Words& words, const EnvironmentLookup& environment, const Host& host) {
  using Function = decltype(kParse);
  if constexpr (std::is_invocable_v<Function, Words, EnvironmentLookup, const Host&>) {
    return Finish(kParse(words, environment, host));
  } else if constexpr (std::is_invocable_v<Function, Words, const Host&>) {
    return Finish(kParse(words, host));
  } else if constexpr (std::is_invocable_v<Function, Words, EnvironmentLookup>) {
    return Finish(kParse(words, environment));
  } else {
    return Finish(kParse(words));
  }
}

// A process of ddprun itself.
template <typename Process>
CommandLine Be(const Words&, const EnvironmentLookup&, const Host&) {
  return {.command = Process()};
}

constexpr Command kCommands[] = {
    {"slurm", ParseSlurm, "run", "write or submit a batch script for Slurm"},
    {"config", Parse<ParseConfigOptions>, "", "write a file of options for --config"},
    {"convert", ParseConvert, "", "translate accelerate's file, or torchrun's line or script"},
    {"rendezvous", Parse<ParseServiceOptions>, "", "run the rendezvous service on its own"},
    {"daemon", Parse<ParseDaemonOptions>, "",
     "keep interpreters warm between the jobs of this machine"},
    {kWardenCommand, Be<BeWarden>},
    {"status", Parse<ParseStatusOptions>, "watch", "show the jobs that run"},
    {"top", Parse<ParseTopOptions>, "", "follow a job on the terminal"},
    {"logs", Parse<ParseLogsOptions>, "", "show what a job's workers write"},
    {"events", Parse<ParseEventsOptions>, "", "show what happened to a job"},
    {"drain", Parse<ParseDrainOptions>, "steer", "take a node out of a job"},
    {"stop", Parse<ParseStopOptions>, "", "end a job"},
    {"chaos", ParseChaos, "", "inject faults into a job, and report what they cost"},
    {"doctor", ParseMachine<ParseDoctorOptions>, "check",
     "find what makes training fail or slow here, and the fix"},
    {"env", ParseMachine<ParseEnvOptions>, "", "show this machine, and settings for its GPUs"},
    {"test", ParseTest, "", "test the network between the nodes, and torch on them"},
    {"certs", Parse<ParseCertsOptions>, "set up", "make the certificates for --tls_dir"},
    {"help", ParseHelp, "learn", "explain a command, an option or a group of options"},
    {"preflight-worker", Parse<ParsePreflightWorker>},
    {kServiceCommand, Be<ServeForAgent>},
};

const Command* FindCommand(absl::string_view name) {
  const auto* found = std::find_if(std::begin(kCommands), std::end(kCommands),
                                   [name](const Command& each) { return each.name == name; });
  return found == std::end(kCommands) ? nullptr : found;
}

std::vector<std::string> CommandNames() {
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (!command.help.empty()) names.emplace_back(command.name);
  }
  return names;
}

// The commands of the help, a line each; cmake/manual.py finds their names by the columns.
std::string CommandsText() {
  std::string text;
  for (const Command& command : kCommands) {
    if (command.help.empty()) continue;
    absl::StrAppend(
        &text, absl::StrFormat("  %-7s %-11s %s\n", command.group, command.name, command.help));
  }
  return text;
}

std::string LaunchIntroduction() {
  return absl::StrCat(R"(usage: ddprun [options] script [arguments of the script]
       ddprun COMMAND [options]

Starts a distributed training job on one or many machines, and keeps it training
through failures. Takes torchrun's options, and gives workers its environment.

One machine, four workers:
  ddprun --standalone --nproc_per_node 4 train.py --lr 0.1
Two machines; on the second one the same with --node_rank 1:
  ddprun --nnodes 2 --node_rank 0 --master_addr host0 train.py
Two to four machines that may come and go; the same line on each:
  ddprun --nnodes 2:4 --rdzv_endpoint host0:29400 --rdzv_id job7 train.py
Under Slurm, which says which nodes and how many workers:
  srun --ntasks-per-node 1 ddprun train.py
In the pods of an indexed Job of Kubernetes:
  ddprun --nnodes 2 train.py
Up to three restarts; output goes to files as well as to the console:
  ddprun --nproc_per_node 2 --max_restarts 3 --tee 3 --log_dir logs train.py
A program instead of a Python script:
  ddprun --nproc_per_node 2 --no_python ./train --epochs 3

Commands; each has its own --help:
)",
                      CommandsText(), R"(
All options: ddprun --help-all. One option or a group: ddprun help max_restarts,
ddprun help restarts. A script that is called like a command: ddprun ./status.)");
}

// The help on one command, option or group of options; without a topic, the introduction.
CommandLine ParseHelp(const Words& words, const EnvironmentLookup& environment, const Host& host) {
  const std::string topic = words.empty() ? "--help" : words.front();
  if (words.size() > 1) {
    return {.command = Fail(UsageError(
                absl::StrCat("help ", Quoted(topic), " ", Quoted(words[1]), ": give one topic")))};
  }
  if (topic == "--help" || topic == "-h") return ParseLaunch({"--help"}, environment, host);
  if (topic == "all") return ParseLaunch({"--help-all"}, environment, host);
  if (const Command* command = FindCommand(topic); command != nullptr && !command->help.empty()) {
    return command->parse({"--help"}, environment, host);
  }
  LaunchWords run("");
  const absl::StatusOr<ParsedArguments> read = ReadLaunchWords({"--help"}, environment, host, &run);
  if (!read.ok()) return {.command = Fail(read.status())};
  std::string text = run.options.HelpOn(topic);
  if (!text.empty()) return {.command = ExitNow{.text = std::move(text)}};
  const std::vector<std::string> groups = run.options.GroupNames();
  std::vector<std::string> topics = CommandNames();
  topics.insert(topics.end(), groups.begin(), groups.end());
  std::string near = NearestWord(topic, topics);
  if (near.empty()) near = run.options.Nearest(topic);
  return {.command = Fail(UsageError(
              absl::StrCat("help ", Quoted(topic), ": ",
                           near.empty() ? "" : absl::StrCat("did you mean ", near, "? "),
                           "Topics are the commands, the options, and these groups of options: ",
                           absl::StrJoin(groups, ", "))))};
}

}  // namespace

CommandLine ParseCommandLine(const std::vector<std::string>& arguments,
                             const EnvironmentLookup& environment, const Host& host) {
  const Command* command = arguments.empty() ? nullptr : FindCommand(arguments.front());
  if (command != nullptr) {
    return command->parse({arguments.begin() + 1, arguments.end()}, environment, host);
  }
  if (arguments.size() == 2 && (arguments.front() == "--help" || arguments.front() == "-h")) {
    CommandLine topic = ParseHelp({arguments.back()}, environment, host);
    const auto* exit = std::get_if<ExitNow>(&topic.command);
    if (exit != nullptr && exit->status == 0) return topic;  // else it is a script's name
  }
  return ParseLaunch(arguments, environment, host);
}

}  // namespace ddprun::launcher
