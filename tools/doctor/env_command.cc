#include "tools/doctor/env_command.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/version.h"
#include "launcher/options/argument.h"
#include "launcher/options/option_set.h"
#include "launcher/options/query_options.h"
#include "launcher/options/values.h"
#include "launcher/os/error_file.h"
#include "launcher/os/files.h"
#include "launcher/plan/worker_command.h"
#include "launcher/stores/tcp_store_client.h"
#include "tools/doctor/core/machine_findings.h"
#include "tools/doctor/core/machine_text.h"
#include "tools/doctor/machine_probe.h"
#include "tools/doctor/machine_reports.h"

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
  ddprun env --json                        # for programs
  ddprun env --nnodes 2 --rdzv_endpoint host0   # on both: where do they differ?

ddprun doctor says what is wrong with a machine. docs/ENV.md explains all lines.)";

constexpr char kDoctorIntroduction[] =
    R"(usage: ddprun doctor [options]

Looks for what makes training fail or slow on this machine, and says for each
finding what it does to a run, and the command that fixes it. Changes nothing.

  error    runs fail, or their numbers are wrong
  warning  some runs fail, or are slow
  note     worth knowing

Exit status: 0 without errors, 1 with errors (--strict: or warnings), on any
node; 2 for a wrong command line.

Examples:
  ddprun doctor
  srun --ntasks-per-node=1 ddprun doctor   # one report of all nodes
  ddprun doctor --strict && ddprun --nproc_per_node gpu train.py
  ddprun doctor --json | jq -r '.findings[].id'
  ddprun doctor --nnodes 2 --rdzv_endpoint host0   # on both, in one report

ddprun env shows the machine. docs/ENV.md lists all findings.

)";

struct MachineArguments {
  OutputArguments output;
  Argument timeout{.text = DurationText(MachineOptions().limit)};
};

void DefineMachine(MachineArguments* arguments, OptionSet* options) {
  options->Group("Report");
  DefineOutput(&arguments->output, "", "one object on stdout", options);
  options->AddValue(&arguments->timeout,
                    {.names = "--timeout",
                     .placeholder = "SECONDS",
                     .help = "How long to wait for each of those that may never answer: the "
                             "GPU driver, the resolver of names, Python.",
                     .environment = ""});
}

// The options that say where the nodes meet are those of a run, and are handed on to it.
struct JobArguments {
  Argument nnodes;
  Argument node_rank;
  Argument rdzv_endpoint;
  Argument rdzv_id;
  Argument master_addr;
  Argument master_port;
  bool exchange = false;
};

void DefineJob(JobArguments* target, OptionSet* options) {
  options->Group("Several nodes (the same on each, as for a run)");
  options->AddValue(&target->nnodes,
                    {.names = "--nnodes",
                     .placeholder = "N",
                     .help = "Run on N nodes at once, and show on the first what they have "
                             "and in what they differ.",
                     .default_text = "this machine alone",
                     .environment = ""});
  options->AddValue(&target->rdzv_endpoint, {.names = "--rdzv-endpoint",
                                             .placeholder = "HOST[:PORT]",
                                             .help = "Where they meet.",
                                             .default_text = "see ddprun --help-all",
                                             .environment = ""});
  options->AddValue(&target->rdzv_id, {.names = "--rdzv-id",
                                       .placeholder = "NAME",
                                       .help = "Of this job, where others meet there too.",
                                       .environment = ""});
  options->AddValue(&target->node_rank, {.names = "--node-rank",
                                         .placeholder = "N",
                                         .help = "With --master_addr: this node's number.",
                                         .default_text = "0",
                                         .environment = ""});
  options->AddValue(&target->master_addr, {.names = "--master-addr",
                                           .placeholder = "HOST",
                                           .help = "Node 0, in place of --rdzv_endpoint.",
                                           .environment = ""});
  options->AddValue(&target->master_port, {.names = "--master-port",
                                           .placeholder = "PORT",
                                           .help = "",
                                           .default_text = "see ddprun --help-all",
                                           .environment = ""});
  options->Group("");
  options->AddFlag(&target->exchange,
                   {.names = "--exchange", .help = "For ddprun itself.", .environment = ""});
}

// Params: `command`: of a worker, "doctor" and its options.
std::vector<std::string> JobWords(const JobArguments& arguments,
                                  const std::vector<std::string>& command) {
  std::vector<std::string> words;
  using Option = std::pair<const char*, const Argument*>;
  for (const auto& [name, argument] :
       {Option{"--nnodes=", &arguments.nnodes}, Option{"--node_rank=", &arguments.node_rank},
        Option{"--rdzv_endpoint=", &arguments.rdzv_endpoint},
        Option{"--rdzv_id=", &arguments.rdzv_id}, Option{"--master_addr=", &arguments.master_addr},
        Option{"--master_port=", &arguments.master_port}}) {
    if (argument->given()) words.push_back(absl::StrCat(name, argument->text));
  }
  // The program that is running, wherever it is.
  for (const char* word :
       {"--nproc_per_node=1", "--max_restarts=0", "--no_python", "/proc/self/exe"}) {
    words.emplace_back(word);
  }
  words.insert(words.end(), command.begin(), command.end());
  words.emplace_back("--exchange");
  return words;
}

absl::Status PlanJob(const JobArguments& arguments, std::vector<std::string> command,
                     const MachineArguments& machine, const EnvironmentLookup& environment,
                     MachineOptions* options) {
  options->exchange = arguments.exchange;
  if (arguments.exchange) {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_ERROR_FILE"}) {
      options->worker[name] = environment(name).value_or("");
    }
    return absl::OkStatus();
  }
  if (!arguments.nnodes.given()) {
    for (const Argument* other :
         {&arguments.node_rank, &arguments.rdzv_endpoint, &arguments.rdzv_id,
          &arguments.master_addr, &arguments.master_port}) {
      if (!other->given()) continue;
      return UsageError(absl::StrCat(other->source,
                                     " says where several nodes meet; give "
                                     "--nnodes too"));
    }
    return absl::OkStatus();
  }
  command.push_back(absl::StrCat("--timeout=", machine.timeout.text));
  if (options->json) command.emplace_back("--json");
  options->job = JobWords(arguments, command);
  return absl::OkStatus();
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
  DDPRUN_ASSIGN_OR_RETURN(const OutputForm form, ReadOutput(arguments.output, /*has_wide=*/false));
  target->json = form == OutputForm::kJson;
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
                              .help = "Samples of an epoch: shows how many steps that is, a number "
                                      "that falls to 1/N on N GPUs when all of them work.",
                              .environment = ""});
  options.AddValue(&batch, {.names = "--batch",
                            .placeholder = "N",
                            .help = "Your batch per GPU.",
                            .default_text = "the one advised",
                            .environment = ""});
  MachineArguments machine;
  DefineMachine(&machine, &options);
  JobArguments job;
  DefineJob(&job, &options);
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
  DDPRUN_RETURN_IF_ERROR(PlanJob(job, {"env"}, machine, environment, &result.options));
  return result;
}

absl::StatusOr<OptionsOrHelp<DoctorOptions>> ParseDoctorOptions(
    const std::vector<std::string>& arguments, const EnvironmentLookup& environment,
    const Host& host) {
  OptionsOrHelp<DoctorOptions> result;
  OptionSet options(absl::StrCat(kDoctorIntroduction, DebuggingHintsText()));
  MachineArguments machine;
  DefineMachine(&machine, &options);
  options.AddFlag(
      &result.options.strict,
      {.names = "--strict", .help = "End with status 1 for warnings too.", .environment = ""});
  JobArguments job;
  DefineJob(&job, &options);
  DDPRUN_ASSIGN_OR_RETURN(const bool help, ParseMachine(arguments, environment, host, machine,
                                                        &options, &result.options));
  if (help) {
    result.help = options.Help();
    return result;
  }
  std::vector<std::string> command = {"doctor"};
  if (result.options.strict) command.emplace_back("--strict");
  DDPRUN_RETURN_IF_ERROR(PlanJob(job, std::move(command), machine, environment, &result.options));
  return result;
}

namespace {

std::string WarmFolder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache != nullptr && cache[0] == '/') return absl::StrCat(cache, "/ddprun/warm");
  return home == nullptr || *home == '\0' ? "" : absl::StrCat(home, "/.cache/ddprun/warm");
}

MachineFacts ProbeFor(const MachineOptions& options) {
  MachineFacts facts = ProbeMachine(
      {.root = "", .python = options.python, .warm = WarmFolder(), .limit = options.limit});
  facts.versions.ddprun = kVersion;
  facts.environment = options.environment;
  return facts;
}

int PrintAll(const std::string& text, int status) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return status;
  Notify(absl::StrCat("error: ", ErrnoStatus(errno, "write to standard output").message()));
  return 1;
}

// How long all nodes may take: on each node three probes have the limit one after the other.
absl::Duration ExchangeLimit(const MachineOptions& options) {
  return options.limit * 3 + absl::Seconds(10);
}

// A node's message to the first one: the JSON of `ddprun env`, and of `ddprun doctor`.
struct NodeReport {
  std::string env;
  std::string doctor;  // "" = not asked for
};

// What the first node shows.
struct NodesText {
  std::string text;
  std::string failure;  // why the job is to fail; "" = it is not
};

// A worker of `ddprun env|doctor --nnodes`. Rank 0 gets the reports of all nodes, by rank; it ends
// last, because the others' are in the store when they end. Others get none.
absl::StatusOr<std::vector<NodeReport>> Exchange(const MachineOptions& options,
                                                 const NodeReport& mine) {
  const auto number = [&options](const char* name) {
    uint32_t value = 0;
    return absl::SimpleAtoi(options.worker.at(name), &value) ? value : 0;
  };
  const uint32_t rank = number("RANK");
  const uint32_t world = number("WORLD_SIZE");
  const auto port = static_cast<uint16_t>(number("MASTER_PORT"));
  if (world == 0 || port == 0) {
    return absl::FailedPreconditionError(
        "--exchange is for the workers of ddprun env --nnodes and ddprun doctor --nnodes, which "
        "set MASTER_PORT and others");
  }
  DDPRUN_ASSIGN_OR_RETURN(TcpStoreClient store,
                          TcpStoreClient::Connect(options.worker.at("MASTER_ADDR"), port,
                                                  MonotonicNow() + ExchangeLimit(options)));
  const auto env_key = [](uint32_t of) { return absl::StrCat("ddprun_env/", of); };
  const auto doctor_key = [](uint32_t of) { return absl::StrCat("ddprun_doctor/", of); };
  DDPRUN_RETURN_IF_ERROR(store.Set(env_key(rank), mine.env));
  DDPRUN_RETURN_IF_ERROR(store.Set(doctor_key(rank), mine.doctor));
  std::vector<NodeReport> reports;
  if (rank != 0) {
    // Wait until rank 0's store has the report.
    DDPRUN_RETURN_IF_ERROR(store.WaitAndGet(doctor_key(rank)).status());
    return reports;
  }
  for (uint32_t of = 0; of < world; ++of) {
    NodeReport other;
    DDPRUN_ASSIGN_OR_RETURN(other.env, store.WaitAndGet(env_key(of)));
    DDPRUN_ASSIGN_OR_RETURN(other.doctor, store.WaitAndGet(doctor_key(of)));
    reports.push_back(std::move(other));
  }
  return reports;
}

absl::StatusOr<std::vector<MachineSummary>> Summarize(const std::vector<NodeReport>& reports) {
  std::vector<MachineSummary> machines;
  for (const NodeReport& report : reports) {
    DDPRUN_ASSIGN_OR_RETURN(MachineSummary machine, SummarizeReport(report.env));
    machines.push_back(std::move(machine));
  }
  return machines;
}

absl::StatusOr<NodesText> CompareEnv(const EnvOptions& options,
                                     const std::vector<NodeReport>& reports) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<MachineSummary> machines, Summarize(reports));
  if (!options.json) return NodesText{.text = ComparisonText(machines)};
  std::vector<std::string> texts;
  texts.reserve(reports.size());
  for (const NodeReport& report : reports) texts.push_back(report.env);
  return NodesText{.text = ComparisonJson(texts, machines)};
}

// How many findings make the exit status 1.
size_t CountBad(const DoctorOptions& options, const std::vector<Finding>& findings) {
  const Severity worst_allowed = options.strict ? Severity::kNote : Severity::kWarning;
  return static_cast<size_t>(
      std::count_if(findings.begin(), findings.end(),
                    [&](const Finding& finding) { return finding.severity < worst_allowed; }));
}

absl::StatusOr<NodesText> CompareDoctor(const DoctorOptions& options,
                                        const std::vector<NodeReport>& reports) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<MachineSummary> machines, Summarize(reports));
  std::vector<std::string> texts;
  std::vector<MachineFindings> findings;
  size_t bad = 0;
  for (const NodeReport& report : reports) {
    DDPRUN_ASSIGN_OR_RETURN(MachineFindings found, ReadFindings(report.doctor));
    bad += CountBad(options, found.findings);
    findings.push_back(std::move(found));
    texts.push_back(report.doctor);
  }
  NodesText shown{.text = options.json ? ComparisonJson(texts, machines)
                                       : NodesDoctorText(findings, ComparisonText(machines))};
  if (bad > 0) {
    shown.failure = absl::StrCat("the nodes have ", CountText(bad, "error"),
                                 options.strict ? " or warnings" : "",
                                 "; the report of ddprun doctor is in the output of rank 0's node");
  }
  return shown;
}

// Writes why this worker ends with 1 to its error file, for the agent.
void LeaveError(const MachineOptions& options, const std::string& message) {
  const std::string& path = options.worker.at("TORCHELASTIC_ERROR_FILE");
  if (path.empty()) return;
  const absl::Status status = WriteFile(
      path, FormatErrorFile({.message = message, .timestamp = absl::ToUnixSeconds(absl::Now())}),
      0666);
  if (!status.ok()) Notify(absl::StrCat("warning: ", status.message()));
}

// Params: `compare`: absl::StatusOr<NodesText>(const std::vector<NodeReport>&).
template <typename Compare>
int ShowExchange(const MachineOptions& options, const NodeReport& mine, Compare compare) {
  const absl::StatusOr<std::vector<NodeReport>> reports = Exchange(options, mine);
  if (reports.ok() && reports->empty()) {
    Notify(absl::StrCat("the report of all nodes is shown on rank 0's node, ",
                        options.worker.at("MASTER_ADDR")));
    return 0;
  }
  const absl::StatusOr<NodesText> shown =
      reports.ok() ? compare(*reports) : absl::StatusOr<NodesText>(reports.status());
  if (shown.ok() && !shown->failure.empty()) LeaveError(options, shown->failure);
  if (shown.ok()) return PrintAll(shown->text, shown->failure.empty() ? 0 : 1);
  Notify(absl::StrCat("error: can't compare the nodes: ", shown.status().message()));
  return 1;
}

}  // namespace

int ShowEnv(const EnvOptions& options) {
  const MachineFacts facts = ProbeFor(options);
  const auto advice = AdviseForHardware(facts, options.question);
  if (options.exchange) {
    return ShowExchange(options, {.env = EnvJson(facts, advice), .doctor = {}},
                        [&](const auto& reports) { return CompareEnv(options, reports); });
  }
  return PrintAll(options.json ? EnvJson(facts, advice) : EnvText(facts, advice, options.question),
                  0);
}

int ShowDoctor(const DoctorOptions& options) {
  const MachineFacts facts = ProbeFor(options);
  const std::vector<Finding> findings = FindTroubles(facts);
  if (options.exchange) {
    return ShowExchange(
        options, {.env = EnvJson(facts, std::nullopt), .doctor = DoctorJson(facts, findings)},
        [&](const auto& reports) { return CompareDoctor(options, reports); });
  }
  return PrintAll(options.json ? DoctorJson(facts, findings) : DoctorText(facts, findings),
                  CountBad(options, findings) > 0 ? 1 : 0);
}

}  // namespace ddprun::launcher
