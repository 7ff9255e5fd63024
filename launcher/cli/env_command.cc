#include "launcher/cli/env_command.h"

#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/cli/errors.h"
#include "launcher/cli/option_set.h"
#include "launcher/cli/values.h"
#include "launcher/cli/worker_command.h"

namespace ddprun::launcher {
namespace {

constexpr char kEnvIntroduction[] =
    R"(usage: ddprun env [options]

Shows what this machine has for training: GPUs, CPUs, memory, limits, network,
clock, versions; and settings to begin with on its GPUs: batch, accumulation,
precision, method, workers, and the steps of an epoch. Changes nothing.
Only the GPUs of CUDA_VISIBLE_DEVICES count for the advice.

Examples:
  ddprun env
  ddprun env --samples 29500               # how many steps is an epoch?
  ddprun env --samples 29500 --batch 4     # ... with 4 samples per GPU
  CUDA_VISIBLE_DEVICES=0,1 ddprun env      # ... on two of the GPUs
  ddprun env --json > host0.json           # to compare machines, or for programs

ddprun doctor says what is wrong with a machine. docs/ENV.md explains all lines.)";

constexpr char kDoctorIntroduction[] =
    R"(usage: ddprun doctor [options]

Looks for what makes training fail or slow on this machine, and says for each
finding what it does to a run, and the command that mends it. Changes nothing.

  error    runs fail, or their numbers are wrong
  warning  some runs fail, or are slow
  note     worth knowing

Exit status: 0 without errors, 1 with errors (--strict: or warnings), 2 for a
wrong command line.

Examples:
  ddprun doctor
  srun ddprun doctor                       # on each node of a Slurm job
  ddprun doctor --strict && ddprun --nproc_per_node gpu train.py
  ddprun doctor --json | jq -r '.findings[].id'

ddprun env shows the machine. docs/ENV.md lists all findings.)";

struct MachineArguments {
  Argument timeout{.text = "20", .source = ""};
};

void DefineMachine(MachineArguments* arguments, MachineOptions* target, OptionSet* options) {
  options->Group("Report");
  options->AddFlag(&target->json,
                   {.names = "--json", .help = "One JSON object on stdout.", .environment = ""});
  options->AddValue(&arguments->timeout,
                    {.names = "--timeout",
                     .placeholder = "SECONDS",
                     .help = "How long to wait for each of those that may never answer: the GPU "
                             "driver, the resolver of names, Python. Default: 20.",
                     .environment = ""});
}

// True when the help is wanted.
absl::StatusOr<bool> ParseMachine(const std::vector<std::string>& words,
                                  const EnvironmentLookup& environment, const Host& host,
                                  const MachineArguments& arguments, OptionSet* options,
                                  MachineOptions* target) {
  DDPRUN_ASSIGN_OR_RETURN(const ParsedArguments parsed, options->Parse(words, environment));
  if (parsed.help) return true;
  if (!parsed.positionals.empty()) {
    return UsageError(absl::StrCat("unexpected word ", Quoted(parsed.positionals.front()),
                                   "; this command takes options only (see --help)"));
  }
  DDPRUN_ASSIGN_OR_RETURN(target->limit, ParseDuration(arguments.timeout, absl::Milliseconds(10)));
  // A machine without Python can still be shown.
  const absl::StatusOr<std::string> python = FindPython(environment, host);
  if (python.ok()) target->python = host.FindProgram(*python).value_or(*python);
  for (const char* name : kEnvironmentOfInterest) {
    if (auto value = environment(name)) target->environment[name] = *std::move(value);
  }
  return false;
}

}  // namespace

absl::StatusOr<OptionsOrHelp<EnvOptions>> ParseEnvOptions(const std::vector<std::string>& arguments,
                                                          const EnvironmentLookup& environment,
                                                          const Host& host) {
  constexpr int64_t kSamplesMax = int64_t{1} << 50;
  constexpr int64_t kBatchMax = 1 << 20;
  OptionsOrHelp<EnvOptions> result;
  OptionSet options(kEnvIntroduction);
  Argument samples;
  Argument batch;
  options.Group("Advice");
  options.AddValue(&samples, {.names = "--samples",
                              .placeholder = "N",
                              .help = "Samples of an epoch: shows how many steps that is, a "
                                      "number that falls to 1/N on N GPUs when all of them work. "
                                      "Default: none.",
                              .environment = ""});
  options.AddValue(&batch, {.names = "--batch",
                            .placeholder = "N",
                            .help = "Your batch per GPU, in place of the one advised.",
                            .environment = ""});
  MachineArguments machine;
  DefineMachine(&machine, &result.options, &options);
  DDPRUN_ASSIGN_OR_RETURN(const bool help, ParseMachine(arguments, environment, host, machine,
                                                        &options, &result.options));
  if (help) {
    result.help = options.Help();
    return result;
  }
  if (samples.given()) {
    DDPRUN_ASSIGN_OR_RETURN(result.options.question.samples, ParseInteger(samples, 1, kSamplesMax));
  }
  if (batch.given()) {
    DDPRUN_ASSIGN_OR_RETURN(const int64_t number, ParseInteger(batch, 1, kBatchMax));
    result.options.question.batch = static_cast<uint32_t>(number);
  }
  return result;
}

absl::StatusOr<OptionsOrHelp<DoctorOptions>> ParseDoctorOptions(
    const std::vector<std::string>& arguments, const EnvironmentLookup& environment,
    const Host& host) {
  OptionsOrHelp<DoctorOptions> result;
  OptionSet options(kDoctorIntroduction);
  MachineArguments machine;
  DefineMachine(&machine, &result.options, &options);
  options.AddFlag(
      &result.options.strict,
      {.names = "--strict", .help = "End with status 1 for warnings too.", .environment = ""});
  DDPRUN_ASSIGN_OR_RETURN(const bool help, ParseMachine(arguments, environment, host, machine,
                                                        &options, &result.options));
  if (help) result.help = options.Help();
  return result;
}

}  // namespace ddprun::launcher
