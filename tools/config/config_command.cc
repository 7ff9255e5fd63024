#include "tools/config/config_command.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/yaml_document.h"
#include "launcher/options/argument.h"
#include "launcher/options/host.h"
#include "launcher/options/option_set.h"
#include "launcher/plan/launch_arguments.h"
#include "launcher/plan/launch_planner.h"
#include "tools/config/accelerate_config.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kFileBytesMax = 65536;  // less than Host::ReadFile() gives
constexpr size_t kPathBytesShown = 80;

absl::Status Wrong(absl::string_view where, absl::string_view what) {
  return UsageError(absl::StrCat(where, ": ", what));
}

absl::StatusOr<std::vector<std::string>> ReadCommand(const std::string& file,
                                                     const YamlNode* script, const YamlNode* args) {
  std::vector<std::string> command;
  if (script != nullptr && script->kind != YamlNode::Kind::kNull) {
    DDPRUN_ASSIGN_OR_RETURN(command.emplace_back(),
                            ScalarText(absl::StrCat(file, ":", script->line, ": script"), *script));
  }
  if (args == nullptr || args->kind == YamlNode::Kind::kNull) return command;
  const std::string where = absl::StrCat(file, ":", args->line, ": args");
  if (command.empty()) return Wrong(where, "there is no script that they belong to");
  if (args->kind != YamlNode::Kind::kList) {
    return Wrong(where, "must be a list, as in [--lr, 0.1]");
  }
  for (const YamlNode& item : args->items) {
    DDPRUN_ASSIGN_OR_RETURN(command.emplace_back(), ScalarText(where, item));
  }
  return command;
}

absl::StatusOr<ConfigFile> ReadOurs(const std::string& file, const YamlNode& document) {
  ConfigFile config;
  for (size_t i = 0; i < document.items.size(); ++i) {
    const std::string& key = document.keys[i];
    const YamlNode& value = document.items[i];
    const std::string where =
        absl::StrCat(file, ":", value.line, ": ", Shown(key, kPathBytesShown));
    if (key == "script" || key == "args") continue;
    if (key == "config" || key == "version" || key == "help") {
      return Wrong(where, "belongs on the command line");
    }
    if (value.kind == YamlNode::Kind::kNull) continue;  // "nnodes:" says nothing
    config.settings.push_back({.name = key, .where = where, .value = value});
  }
  DDPRUN_ASSIGN_OR_RETURN(config.command,
                          ReadCommand(file, document.Find("script"), document.Find("args")));
  return config;
}

}  // namespace

absl::StatusOr<ConfigFile> ReadConfigFile(const Argument& path, const Host& host) {
  const std::string file = Shown(path.text, kPathBytesShown);
  const absl::StatusOr<std::string> text = host.ReadFile(path.text);
  if (!text.ok()) {
    return PlanError(absl::StrCat(path.source, ": can't read ", text.status().message()));
  }
  if (text->size() >= kFileBytesMax) {
    return PlanError(absl::StrCat(path.source, " ", Quoted(path.text), ": is larger than 64 KiB"));
  }
  absl::StatusOr<YamlNode> document = ReadYaml(*text);
  if (!document.ok()) return Wrong(file, document.status().message());
  if (document->kind == YamlNode::Kind::kNull) return ConfigFile();
  if (document->kind != YamlNode::Kind::kMap) {
    return Wrong(file, "must be lines of 'option: value', as ddprun config writes them");
  }
  if (IsAccelerateConfig(*document)) return ConvertAccelerateConfig(file, *document);
  return ReadOurs(file, *document);
}

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

namespace {

std::optional<std::string> AskOnTerminal(const std::string& question) {
  std::fputs(question.c_str(), stderr);
  char* buffer = nullptr;
  size_t size = 0;
  const ssize_t length = getline(&buffer, &size, stdin);
  const std::unique_ptr<char, void (*)(void*)> owned(buffer, std::free);
  if (length < 0) return std::nullopt;
  return std::string(buffer, static_cast<size_t>(length));
}

absl::Status WriteAll(const Fd& file, const std::string& path, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(file.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("write '", path, "'"));
    text.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

// Beside the file first, so that one that is there stays whole until the new one is. link(2) and
// rename(2) differ in what they do to a file of that name.
absl::Status WriteFile(const ConfigOptions& options) {
  const std::string& path = options.path;
  const std::string fresh = absl::StrCat(path, ".", getpid(), ".new");
  const Fd file(
      open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, options.secret ? 0600 : 0644));
  if (!file.valid()) return ErrnoStatus(errno, absl::StrCat("create '", fresh, "'"));
  absl::Status written = WriteAll(file, fresh, options.text);
  if (written.ok() && options.force) {
    if (rename(fresh.c_str(), path.c_str()) == 0) return absl::OkStatus();
    written = ErrnoStatus(errno, absl::StrCat("replace '", path, "'"));
  } else if (written.ok() && link(fresh.c_str(), path.c_str()) != 0) {
    written = errno == EEXIST ? absl::AlreadyExistsError(absl::StrCat(
                                    "'", path, "' is there already; --force replaces it"))
                              : ErrnoStatus(errno, absl::StrCat("create '", path, "'"));
  }
  unlink(fresh.c_str());
  return written;
}

absl::Status Write(ConfigOptions options, const Host& host) {
  if (options.text.empty()) {
    if (isatty(STDIN_FILENO) == 0) {
      return absl::InvalidArgumentError(
          "there is nothing to write; give options as for a run, or answer the questions in a "
          "terminal");
    }
    absl::StatusOr<std::string> text = AskForConfig(options.path, AskOnTerminal, host);
    if (!text.ok()) return text.status();
    options.text = *std::move(text);
  }
  if (options.path != "-") {
    if (absl::Status written = WriteFile(options); !written.ok()) return written;
    Notify(absl::StrCat("wrote ", options.path, "; run it with: ddprun --config ", options.path));
    return absl::OkStatus();
  }
  const bool shown = std::fputs(options.text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return shown ? absl::OkStatus() : ErrnoStatus(errno, "write to standard output");
}

}  // namespace

int WriteConfig(ConfigOptions options, const Host& host) {
  const absl::Status written = Write(std::move(options), host);
  if (written.ok()) return 0;
  Notify(absl::StrCat("error: ", written.message()));
  return written.code() == absl::StatusCode::kInvalidArgument ? 2 : 1;
}

}  // namespace ddprun::launcher
