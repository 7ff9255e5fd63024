#include "tools/config/convert_command.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/yaml_document.h"
#include "launcher/options/argument.h"
#include "launcher/options/option_set.h"
#include "launcher/options/shell_line.h"
#include "tools/config/config_command.h"

namespace ddprun::launcher {
namespace {

constexpr char kConvertIntroduction[] =
    R"(usage: ddprun convert FILE
       ddprun convert torchrun [options of torchrun] script [arguments]

Prints what another launcher was given, as ddprun takes it:
  a file of accelerate config    as a file for ddprun --config
  a line with torchrun or python3 -m torch.distributed.run
                                 as a line with ddprun; a line with variables or
                                 quotes is given as one word, in quotes
  a batch script for Slurm with such a line
                                 as the same script; options that Slurm answers
                                 are left out

What has no counterpart is told on standard error, or refused.

Examples:
  ddprun convert ~/.cache/huggingface/accelerate/default_config.yaml > job.yaml
  ddprun convert train.sbatch > train.ddprun.sbatch
  ddprun convert 'torchrun --nproc_per_node=4 train.py --name "$NAME"')";

constexpr size_t kSourceBytesMax = 65536;  // less than Host::ReadFile() gives
constexpr size_t kShownMax = 80;

// torchrun's flags; all its other options take a value.
const char* const kFlags[] = {
    "standalone", "module", "m", "no-python", "run-path", "use-env", "virtual-local-rank"};
// Options whose values ddprun has from Slurm (docs/SLURM.md).
const char* const kAnswered[] = {"node-rank",    "master-addr",   "master-port",
                                 "rdzv-backend", "rdzv-endpoint", "rdzv-id"};
// Accepted by ddprun without effect.
const char* const kIdle[] = {"monitor-interval", "start-method"};

template <size_t size>
bool IsIn(const char* const (&names)[size], absl::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

absl::string_view Basename(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? path : path.substr(slash + 1);
}

// Where the words of another launcher begin and end.
struct FoundLauncher {
  size_t begin = 0;
  size_t end = 0;
};

std::optional<FoundLauncher> FindTorchrun(const std::vector<ShellToken>& tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const absl::string_view name = Basename(tokens[i].plain);
    if (name == "torchrun") return FoundLauncher{.begin = i, .end = i + 1};
    if (!absl::StartsWith(name, "python")) continue;
    // python [-u …] -m torch.distributed.run
    for (size_t j = i + 1; j + 1 < tokens.size() && absl::StartsWith(tokens[j].plain, "-"); ++j) {
      const std::string& module = tokens[j + 1].plain;
      if (tokens[j].plain == "-m" &&
          (module == "torch.distributed.run" || module == "torch.distributed.launch")) {
        return FoundLauncher{.begin = i, .end = j + 2};
      }
    }
  }
  return std::nullopt;
}

// One option with its value, as written.
struct WrittenOption {
  std::string name;  // with dashes, without those at its beginning
  std::string raw;   // "--nnodes=$N", "--nnodes 2"
  std::vector<std::string> plain;
  bool expands = false;
};

// Rewrites one command.
class LineConverter {
 public:
  LineConverter(bool in_slurm, const CheckLaunch& check, std::vector<std::string>* told)
      : in_slurm_(in_slurm), check_(check), told_(*told) {}

  // The line with ddprun in torchrun's place. nullopt: there is no torchrun in it.
  absl::StatusOr<std::optional<std::string>> Convert(absl::string_view line) {
    absl::StatusOr<std::vector<ShellToken>> tokens = SplitShellLine(line);
    if (!tokens.ok()) {
      // Only a line that we must understand has to be readable.
      if (!absl::StrContains(line, "torchrun")) return std::nullopt;
      return UsageError(absl::StrCat(Quoted(line), ": ", tokens.status().message()));
    }
    const std::optional<FoundLauncher> found = FindTorchrun(*tokens);
    if (!found.has_value()) return std::nullopt;
    ReadOptions(*tokens, found->end);
    DDPRUN_RETURN_IF_ERROR(Check());
    std::vector<std::string> words;
    for (size_t i = 0; i < found->begin; ++i) words.push_back((*tokens)[i].raw);
    AddStep(&words);
    words.emplace_back("ddprun");
    for (const WrittenOption& option : options_) {
      if (Keeps(option)) words.push_back(option.raw);
    }
    for (size_t i = script_at_; i < tokens->size(); ++i) words.push_back((*tokens)[i].raw);
    // Blanks before the command are the script's indentation.
    const size_t indent = std::min(line.find_first_not_of(" \t"), line.size());
    return absl::StrCat(line.substr(0, indent), absl::StrJoin(words, " "));
  }

 private:
  void ReadOptions(const std::vector<ShellToken>& tokens, size_t at) {
    while (at < tokens.size() && tokens[at].plain.size() > 1 && tokens[at].plain[0] == '-' &&
           tokens[at].plain != "--") {
      const ShellToken& token = tokens[at++];
      WrittenOption option{
          .name = "", .raw = token.raw, .plain = {token.plain}, .expands = token.expands};
      const size_t equals = token.plain.find('=');
      const absl::string_view spelled = absl::string_view(token.plain).substr(0, equals);
      option.name = absl::StrReplaceAll(
          spelled.substr(std::min(spelled.find_first_not_of('-'), spelled.size())), {{"_", "-"}});
      const bool is_short = !absl::StartsWith(spelled, "--");
      const bool has_value = equals != std::string::npos || (is_short && spelled.size() > 2);
      if (!has_value && !IsIn(kFlags, option.name) && at < tokens.size()) {
        absl::StrAppend(&option.raw, " ", tokens[at].raw);
        option.plain.push_back(tokens[at].plain);
        option.expands = option.expands || tokens[at].expands;
        ++at;
      }
      options_.push_back(std::move(option));
    }
    script_at_ = at;
    for (size_t i = at; i < tokens.size() && !tokens[i].is_operator; ++i) {
      command_.push_back(tokens[i].plain);
    }
  }

  // Leaves out values that bash expands, because they can't be checked here.
  absl::Status Check() const {
    std::vector<std::string> words;
    for (const WrittenOption& option : options_) {
      if (!option.expands) words.insert(words.end(), option.plain.begin(), option.plain.end());
    }
    words.insert(words.end(), command_.begin(), command_.end());
    return check_(words);
  }

  // A step of several tasks would be one agent all the same; one task a node is clearer.
  void AddStep(std::vector<std::string>* words) {
    if (!in_slurm_ || std::find(words->begin(), words->end(), "srun") != words->end()) return;
    words->emplace_back("srun --ntasks-per-node=1");
    told_.emplace_back("srun is put before ddprun, so that it starts on every node");
  }

  bool Keeps(const WrittenOption& option) {
    if (IsIn(kIdle, option.name)) {
      told_.push_back(
          absl::StrCat(Printable(option.raw), " is left out: it has no effect in ddprun"));
      return false;
    }
    // A literal size stays. One with a shell variable has its value from Slurm and is left out.
    const bool sizes =
        (option.name == "nnodes" || option.name == "nproc-per-node") && option.expands;
    if (!in_slurm_ || !(sizes || IsIn(kAnswered, option.name))) return true;
    told_.push_back(absl::StrCat(Printable(option.raw), " is left out: ddprun has it from Slurm"));
    return false;
  }

  const bool in_slurm_;
  const CheckLaunch& check_;
  std::vector<std::string>& told_;
  std::vector<WrittenOption> options_;
  std::vector<std::string> command_;  // script and arguments, without quotes
  size_t script_at_ = 0;
};

// Joins lines that end with a backslash, as bash does.
std::vector<std::string> JoinedLines(absl::string_view text) {
  std::vector<std::string> lines;
  bool goes_on = false;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripSuffix(line, "\r");
    const bool next_goes_on = absl::EndsWith(line, "\\") && !absl::StartsWith(line, "#");
    if (next_goes_on) line.remove_suffix(1);
    if (goes_on) {
      absl::StrAppend(&lines.back(), " ", absl::StripLeadingAsciiWhitespace(line));
    } else {
      lines.emplace_back(line);
    }
    goes_on = next_goes_on;
  }
  return lines;
}

// Whether the argument is a file's path: one word that isn't a launcher.
bool IsPath(absl::string_view word) {
  return !absl::StrContains(word, ' ') && Basename(word) != "torchrun";
}

absl::string_view NothingFound(absl::string_view text) {
  if (absl::StrContains(text, "accelerate launch")) {
    return "a line of accelerate launch isn't translated; ddprun reads the file of accelerate "
           "config: ddprun --config FILE SCRIPT ARGUMENTS (the file is by default "
           "~/.cache/huggingface/accelerate/default_config.yaml), or without a file: "
           "ddprun --nproc_per_node N SCRIPT ARGUMENTS (docs/tutorials/from-accelerate.md)";
  }
  return "there is no line with torchrun or python3 -m torch.distributed.run in it";
}

// A script keeps what is no launcher's line; lines joined by backslashes stay joined.
absl::StatusOr<Conversion> ConvertScript(const std::string& name, const std::string& text,
                                         const CheckLaunch& check) {
  Conversion result;
  const bool in_slurm = absl::StrContains(text, "#SBATCH") || absl::StrContains(text, "srun ");
  bool found = false;
  std::vector<std::string> lines = JoinedLines(text);
  for (std::string& line : lines) {
    if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), "#")) continue;
    LineConverter converter(in_slurm, check, &result.told);
    DDPRUN_ASSIGN_OR_RETURN(std::optional<std::string> converted, converter.Convert(line));
    if (!converted.has_value()) continue;
    found = true;
    line = *std::move(converted);
  }
  if (!found) return PlanError(absl::StrCat(name, ": ", NothingFound(text)));
  if (in_slurm) {
    result.told.emplace_back(
        "lines that only worked out addresses or ports for torchrun can go; for requeues and lost "
        "nodes compare with: ddprun slurm --nodes=2 -- train.py (docs/SLURM.md)");
  }
  result.text = absl::StrJoin(lines, "\n");
  return result;
}

absl::StatusOr<Conversion> ConvertAccelerate(const Argument& path, const Host& host) {
  DDPRUN_ASSIGN_OR_RETURN(const ConfigFile file, ReadConfigFile(path, host));
  Conversion result;
  result.told = file.warnings;
  if (!file.no_workers.ok()) result.told.emplace_back(file.no_workers.message());
  result.text = absl::StrCat("# Options of ddprun, from ", Shown(path.text, kShownMax),
                             "; run it with: ddprun --config FILE train.py\n");
  for (const Setting& setting : file.settings) {
    DDPRUN_ASSIGN_OR_RETURN(const std::string value, SettingText(setting, ValueShape::kText));
    absl::StrAppend(&result.text, absl::StrReplaceAll(setting.name, {{"-", "_"}}), ": ",
                    YamlText(value), "\n");
  }
  for (const auto& [name, value] : file.worker_environment) {
    result.told.push_back(
        absl::StrCat("before ddprun: export ", name, "=", ShellWord(Printable(value))));
  }
  if (!file.worker_environment.empty()) {
    result.told.emplace_back(
        "ddprun --config takes accelerate's own file too, and sets these variables by itself");
  }
  return result;
}

absl::StatusOr<Conversion> ConvertFile(const std::string& path, const Host& host,
                                       const CheckLaunch& check) {
  const absl::StatusOr<std::string> text = host.ReadFile(path);
  if (!text.ok()) return PlanError(absl::StrCat("can't read ", text.status().message()));
  if (text->size() >= kSourceBytesMax) {
    return PlanError(absl::StrCat(Quoted(path), " is larger than 64 KiB"));
  }
  if (!IsUtf8(*text)) return PlanError(absl::StrCat(Quoted(path), " is not UTF-8 text"));
  if (!absl::StartsWith(*text, "#!")) {
    const absl::StatusOr<YamlNode> document = ReadYaml(*text);
    if (document.ok() && document->kind == YamlNode::Kind::kMap) {
      if (document->Find("apiVersion") != nullptr) {
        return PlanError(absl::StrCat(
            Shown(path, kShownMax),
            ": is a manifest of Kubernetes, in which only the word torchrun changes "
            "to ddprun; ddprun reads the variables of a Job, a JobSet or a PyTorchJob by itself "
            "(docs/tutorials/kubernetes.md)"));
      }
      return ConvertAccelerate({.text = path, .source = "convert"}, host);
    }
  }
  return ConvertScript(Shown(path, kShownMax), *text, check);
}

}  // namespace

absl::StatusOr<OptionsOrHelp<Conversion>> Convert(const std::vector<std::string>& arguments,
                                                  const Host& host, const CheckLaunch& check) {
  OptionsOrHelp<Conversion> result;
  const std::string first = arguments.empty() ? "" : arguments.front();
  if (first == "-h" || first == "--help" || absl::StartsWith(first, "--help=")) {
    OptionSet options(kConvertIntroduction);
    const auto nothing = [](const std::string&) -> std::optional<std::string> { return {}; };
    DDPRUN_RETURN_IF_ERROR(options.Parse({first}, nothing).status());
    result.help = options.Help();
    return result;
  }
  if (first.empty()) {
    return UsageError(
        "there is nothing to convert: ddprun convert FILE, or ddprun convert "
        "torchrun … (see --help)");
  }
  if (arguments.size() == 1 && host.KindOf(first) == Host::PathKind::kFile) {
    DDPRUN_ASSIGN_OR_RETURN(result.options, ConvertFile(first, host, check));
    return result;
  }
  if (arguments.size() == 1 && IsPath(first)) {
    return PlanError(absl::StrCat(Quoted(first),
                                  ": there is no such file; give one, or a line with torchrun or "
                                  "python3 -m torch.distributed.run in quotes"));
  }
  // Words that bash has read are written as it reads them; a single one is a whole line.
  std::vector<std::string> words;
  words.reserve(arguments.size());
  for (const std::string& word : arguments) words.push_back(ShellWord(word));
  const std::string line = arguments.size() == 1 ? first : absl::StrJoin(words, " ");
  if (!IsUtf8(line)) return UsageError("the line is not UTF-8 text");
  DDPRUN_ASSIGN_OR_RETURN(result.options, ConvertScript("the line", line, check));
  if (!absl::EndsWith(result.options.text, "\n")) result.options.text += "\n";
  return result;
}

}  // namespace ddprun::launcher
