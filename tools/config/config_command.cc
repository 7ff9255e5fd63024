#include "tools/config/config_command.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/yaml_document.h"
#include "launcher/options/any_gpus.h"
#include "launcher/options/errors.h"
#include "launcher/options/option_set.h"
#include "launcher/plan/launch_arguments.h"
#include "launcher/plan/launch_planner.h"

namespace ddprun::launcher {
namespace {

constexpr int kMeetingPort = 29400;  // torchrun's for c10d

constexpr char kIntroduction[] =
    R"(usage: ddprun config [options] [script [arguments of the script]]

Checks the options of a run, and writes them into a YAML file for ddprun
--config FILE. Without options it asks for the usual ones, in a terminal. Beside
its own options it takes all of a run (ddprun --help-all).

Example:
  ddprun config --output job.yaml --nnodes 2:4 --rdzv_endpoint host0 train.py)";

std::optional<std::string> NoEnvironment(const std::string&) { return std::nullopt; }

absl::Status Check(LaunchArguments launch, const Host& host) {
  if (launch.command.empty()) {
    // The script comes later; "-" is Python's standard input.
    launch.command = {"-"};
    launch.no_python = false;
  }
  std::vector<std::string> warnings;
  return MakeLaunchPlan(launch, NoEnvironment, AnyGpus(host), &warnings).status();
}

absl::StatusOr<std::string> Yaml(const std::string& path,
                                 const std::vector<std::pair<std::string, std::string>>& options,
                                 const std::vector<std::string>& command) {
  std::string text =
      absl::StrCat("# Options of ddprun; run it with: ddprun --config ",
                   path == "-" ? "FILE, once it is in one" : Shown(path, 200),
                   "\n# Every key is explained in docs/CONFIG.md and by ddprun --help-all.\n");
  for (const auto& [name, value] : options) {
    if (!IsUtf8(value)) {
      return PlanError(absl::StrCat("--", name, " ", Quoted(value), ": is not UTF-8 text"));
    }
    absl::StrAppend(&text, absl::StrReplaceAll(name, {{"-", "_"}}), ": ", YamlText(value), "\n");
  }
  for (size_t i = 0; i < command.size(); ++i) {
    if (!IsUtf8(command[i])) {
      return PlanError(absl::StrCat("the word ", Quoted(command[i]), " is not UTF-8 text"));
    }
    if (i == 1) absl::StrAppend(&text, "args:\n");
    absl::StrAppend(&text, i == 0 ? "script: " : "  - ", YamlText(command[i]), "\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<OptionsOrHelp<ConfigOptions>> ParseConfigOptions(
    const std::vector<std::string>& arguments, const Host& host) {
  OptionsOrHelp<ConfigOptions> result;
  OptionSet options(kIntroduction);
  Argument output{.text = result.options.path};
  options.Group("The file");
  options.AddValue(&output, {.names = "--output",
                             .placeholder = "FILE",
                             .help = "Where to write; - is standard output.",
                             .default_text = "ddprun.yaml",
                             .environment = ""});
  options.AddFlag(
      &result.options.force,
      {.names = "--force", .help = "Replace FILE when it is there.", .environment = ""});
  LaunchArguments launch;
  options.LeaveToHelpAll("");
  DefineLaunchOptions(&launch, &options);
  DDPRUN_ASSIGN_OR_RETURN(ParsedArguments parsed, options.Parse(arguments, NoEnvironment));
  if (parsed.help) {
    result.help = options.Help();
    return result;
  }
  if (output.text.empty()) return UsageError("--output '': give the name of a file, or -");
  result.options.path = output.text;
  launch.command = parsed.positionals;
  auto given = options.GivenOnCommandLine();
  given.erase(std::remove_if(given.begin(), given.end(),
                             [](const auto& option) {
                               return option.first == "output" || option.first == "force" ||
                                      option.first == "version";
                             }),
              given.end());
  if (given.empty() && launch.command.empty()) return result;
  DDPRUN_RETURN_IF_ERROR(Check(launch, host));
  result.options.secret = !launch.token.text.empty();
  DDPRUN_ASSIGN_OR_RETURN(result.options.text, Yaml(output.text, given, launch.command));
  return result;
}

namespace {

struct Question {
  std::string text;
  std::string fallback;  // the answer when the line is empty
  std::string option;    // that the answer's words belong to
  bool optional = false;
};

// Collects a command line from answers, and accepts only an answer that fits those before it.
class Dialogue {
 public:
  Dialogue(const std::string& path, const AskUser& ask, const Host& host)
      : ask_(ask), host_(host), words_({"--output", path}) {}

  // Returns the answer. Errors: plan — the user left.
  absl::StatusOr<std::string> Put(const Question& question) {
    std::string complaint;
    while (true) {
      const std::string hint =
          question.fallback.empty() ? "" : absl::StrCat(" [", question.fallback, "]");
      const std::optional<std::string> line =
          ask_(absl::StrCat(complaint, question.text, hint, ": "));
      if (!line.has_value()) return PlanError("there was no answer; nothing was written");
      std::string answer(absl::StripAsciiWhitespace(*line));
      if (answer.empty()) answer = question.fallback;
      if (answer.empty() && question.optional) return answer;
      const absl::Status good = Try(question.option, answer);
      if (good.ok()) return answer;
      complaint = absl::StrCat("  ", good.message(), "\n");
    }
  }

  std::string TakeText() { return std::move(text_); }

 private:
  absl::Status Try(const std::string& option, const std::string& answer) {
    std::vector<std::string> words = words_;
    words.push_back(option);
    for (absl::string_view word : absl::StrSplit(answer, ' ', absl::SkipEmpty())) {
      words.emplace_back(word);
    }
    DDPRUN_ASSIGN_OR_RETURN(const auto parsed, ParseConfigOptions(words, host_));
    if (parsed.options.text.empty())
      return UsageError(absl::StrCat(Quoted(answer), " is no answer"));
    words_ = std::move(words);
    text_ = parsed.options.text;
    return absl::OkStatus();
  }

  const AskUser& ask_;
  const Host& host_;
  std::vector<std::string> words_;
  std::string text_;
};

}  // namespace

absl::StatusOr<std::string> AskForConfig(const std::string& path, const AskUser& ask,
                                         const Host& host) {
  Dialogue dialogue(path, ask, host);
  DDPRUN_ASSIGN_OR_RETURN(
      const std::string nodes,
      dialogue.Put(
          {.text = "Machines, a number or MIN:MAX", .fallback = "1", .option = "--nnodes"}));
  if (nodes != "1") {
    const std::string here = host.HostName();
    DDPRUN_RETURN_IF_ERROR(
        dialogue
            .Put({.text = "Where they meet, HOST:PORT of one of them",
                  .fallback = here.empty() ? "" : absl::StrCat(here, ":", kMeetingPort),
                  .option = "--rdzv_endpoint"})
            .status());
  }
  DDPRUN_RETURN_IF_ERROR(dialogue
                             .Put({.text = "Workers on each machine, a number, gpu or cpu",
                                   .fallback = host.CudaCount() > 0 ? "gpu" : "1",
                                   .option = "--nproc_per_node"})
                             .status());
  DDPRUN_RETURN_IF_ERROR(dialogue
                             .Put({.text = "Restarts of the job after failures",
                                   .fallback = "3",
                                   .option = "--max_restarts"})
                             .status());
  DDPRUN_RETURN_IF_ERROR(dialogue
                             .Put({.text = "Folder for logs, or nothing",
                                   .fallback = "",
                                   .option = "--log_dir",
                                   .optional = true})
                             .status());
  // Last, because options end at the script.
  DDPRUN_RETURN_IF_ERROR(dialogue
                             .Put({.text = "Script and its arguments, or nothing",
                                   .fallback = "",
                                   .option = "--",
                                   .optional = true})
                             .status());
  return dialogue.TakeText();
}

}  // namespace ddprun::launcher
