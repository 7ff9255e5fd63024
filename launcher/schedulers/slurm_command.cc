#include "launcher/schedulers/slurm_command.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/argument.h"
#include "launcher/options/option_set.h"
#include "launcher/options/shell_line.h"
#include "launcher/plan/plan_parts.h"
#include "launcher/schedulers/slurm_defaults.h"

namespace ddprun::launcher {
namespace {

constexpr char kSlurmIntroduction[] =
    R"(usage: ddprun slurm [--submit] [options of sbatch] -- [options of ddprun] script [arguments]

Prints the batch script of a job for Slurm, or submits it. Nodes, addresses,
workers and time need no options of ddprun: they are Slurm's. A job that was
preempted, or whose time was over, is requeued and goes on from what it saved;
one whose number of nodes is a range survives the loss of a node.

Everything before the -- that is not below is sbatch's. Filled in unless given:
--job-name (train for train.py), --ntasks-per-node=1, --requeue,
--open-mode=append, and --no-kill for a job that may shrink. --signal=SIGNAL@SECONDS
is also passed on to ddprun: it stops at one step when the signal comes, and has
so many seconds to save.

Examples:
  ddprun slurm --nodes=2 --gpus-per-node=4 --time=2:00:00 -- train.py --lr 0.1
  ddprun slurm --submit --nodes=4 --output=train_%j.out -- --nnodes 2:4 train.py

docs/SLURM.md has the rest.)";

// A run that is preempted in its first minute brings no progress; more than a few in a row are no
// longer chance.
constexpr int kGiveUpAfter = 5;
constexpr size_t kScriptBytesMax = 60'000;  // what fits into a pipe, and any reader's mind

// The options of sbatch that the script looks at.
class SbatchOptions {
 public:
  explicit SbatchOptions(const std::vector<std::string>& lines) : lines_(lines) {}

  // Whether one of the option's names was given: "--ntasks", "-n".
  bool Has(absl::string_view long_name, absl::string_view short_name = "") const {
    return Value(long_name, short_name).has_value();
  }

  // The last value that was given; "" for an option without one.
  std::optional<std::string> Value(absl::string_view long_name,
                                   absl::string_view short_name = "") const {
    std::optional<std::string> value;
    for (absl::string_view line : lines_) {
      if (absl::ConsumePrefix(&line, long_name)) {
        // "--ntasks" isn't "--ntasks-per-node".
        if (line.empty() || line[0] == '=' || line[0] == ' ') {
          value = std::string(line.substr(line.empty() ? 0 : 1));
        }
      } else if (!short_name.empty() && !absl::StartsWith(line, "--") &&
                 absl::ConsumePrefix(&line, short_name)) {
        value = std::string(absl::StripLeadingAsciiWhitespace(line));
      }
    }
    return value;
  }

 private:
  const std::vector<std::string>& lines_;
};

// Options of ddprun for sbatch's --signal=[{R|B}:]SIGNAL[@SECONDS]. Slurm sends it to all processes
// of the steps, the agents among them; with B to the batch shell alone, which is the user's affair.
absl::StatusOr<std::vector<std::string>> SignalOptions(const std::string& value) {
  constexpr uint32_t kSecondsDefault = 60;
  constexpr uint32_t kSecondsMax = 65535;
  absl::string_view rest = value;
  if (const size_t colon = rest.find(':'); colon != absl::string_view::npos) {
    if (absl::StrContains(rest.substr(0, colon), 'B')) return std::vector<std::string>();
    rest.remove_prefix(colon + 1);
  }
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(rest, absl::MaxSplits('@', 1));
  const std::optional<int> number = ReadSignal(parts.first);
  uint32_t seconds = kSecondsDefault;
  const bool timed = absl::StrContains(rest, '@');
  if (!number.has_value() || (timed && (!absl::SimpleAtoi(parts.second, &seconds) || seconds == 0 ||
                                        seconds > kSecondsMax))) {
    return UsageError(
        absl::StrCat("--signal ", Quoted(value), ": sbatch takes SIGNAL@SECONDS, as in USR1@120"));
  }
  return std::vector<std::string>{"--preempt_signals", absl::StrCat("SIG", sigabbrev_np(*number)),
                                  "--preempt_deadline", absl::StrCat(seconds, "s")};
}

// As sbatch reads the words of a #SBATCH line: quotes of either kind, none within one another.
std::string DirectiveWord(const std::string& word) {
  const bool plain = std::none_of(word.begin(), word.end(), [](char c) {
    return absl::ascii_isspace(static_cast<unsigned char>(c)) || c == '"' || c == '\'' || c == '#';
  });
  if (plain && !word.empty()) return word;
  return absl::StrContains(word, '"') ? absl::StrCat("'", word, "'")
                                      : absl::StrCat("\"", word, "\"");
}

// The job's name in squeue: the script's name without its folder and .py. sbatch's default is the
// name of the batch script, or "sbatch" for one from a pipe.
std::string JobName(const std::string& entry_point) {
  const std::string file = BaseName(entry_point);
  const std::string name(absl::StripSuffix(file, ".py"));
  const bool both_quotes = absl::StrContains(name, '"') && absl::StrContains(name, '\'');
  return name.empty() || both_quotes ? "ddprun" : name;
}

bool BreaksLines(const std::string& word) {
  return std::any_of(word.begin(), word.end(),
                     [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
}

absl::Status CheckWord(const std::string& word, bool for_sbatch) {
  if (BreaksLines(word) || !IsUtf8(word)) {
    return UsageError(absl::StrCat("the word ", Quoted(word),
                                   ": control characters and other than UTF-8 don't fit into a "
                                   "batch script"));
  }
  if (for_sbatch && absl::StrContains(word, '"') && absl::StrContains(word, '\'')) {
    return UsageError(
        absl::StrCat("the word ", Quoted(word), ": sbatch can't read quotes of both kinds"));
  }
  return absl::OkStatus();
}

}  // namespace

namespace {

// Only the help is an OptionSet's: sbatch's options are not ours to read.
absl::StatusOr<std::string> SlurmHelp(const std::string& word) {
  bool submit = false;
  OptionSet options(kSlurmIntroduction);
  options.Group("Options");
  options.AddFlag(&submit, {.names = "--submit",
                            .help = "Give the script to sbatch instead of printing it.",
                            .environment = ""});
  const auto nothing = [](const std::string&) -> std::optional<std::string> { return {}; };
  DDPRUN_RETURN_IF_ERROR(options.Parse({word}, nothing).status());
  return options.Help();
}

}  // namespace

absl::StatusOr<OptionsOrHelp<SlurmJob>> ParseSlurmOptions(
    const std::vector<std::string>& arguments) {
  OptionsOrHelp<SlurmJob> result;
  SlurmJob& job = result.options;
  size_t i = 0;
  for (; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::string& word = arguments[i];
    if (word == "-h" || word == "--help" || absl::StartsWith(word, "--help=")) {
      DDPRUN_ASSIGN_OR_RETURN(result.help, SlurmHelp(word));
      return result;
    }
    if (word == "--submit") {
      job.submit = true;
      continue;
    }
    DDPRUN_RETURN_IF_ERROR(CheckWord(word, true));
    if (absl::StartsWith(word, "-")) {
      job.sbatch.push_back(DirectiveWord(word));
    } else if (!job.sbatch.empty() && !absl::StrContains(job.sbatch.back(), ' ')) {
      absl::StrAppend(&job.sbatch.back(), " ", DirectiveWord(word));
    } else {
      return UsageError(absl::StrCat("unexpected word ", Quoted(word),
                                     ": what ddprun is to run comes after --, as in ddprun slurm "
                                     "--nodes=2 -- train.py"));
    }
  }
  if (i + 1 >= arguments.size()) {
    return UsageError(
        "there is nothing to run: ddprun slurm [options of sbatch] -- [options of ddprun] script");
  }
  job.launch.assign(arguments.begin() + static_cast<ptrdiff_t>(i) + 1, arguments.end());
  for (const std::string& word : job.launch) DDPRUN_RETURN_IF_ERROR(CheckWord(word, false));
  return result;
}

absl::StatusOr<std::string> BatchScript(const SlurmJob& job, const std::string& entry_point,
                                        bool elastic) {
  const SbatchOptions given(job.sbatch);
  std::string text =
      "#!/bin/bash\n# Written by ddprun slurm; docs/SLURM.md says what the lines are for.\n";
  const auto directive = [&text](absl::string_view line) {
    absl::StrAppend(&text, "#SBATCH ", line, "\n");
  };
  for (const std::string& line : job.sbatch) directive(line);
  if (!given.Has("--job-name", "-J")) {
    directive(absl::StrCat("--job-name=", DirectiveWord(JobName(entry_point))));
  }
  if (!given.Has("--ntasks-per-node") && !given.Has("--ntasks", "-n")) {
    directive("--ntasks-per-node=1");
  }
  if (!given.Has("--requeue") && !given.Has("--no-requeue")) directive("--requeue");
  if (!given.Has("--open-mode")) directive("--open-mode=append");
  if (elastic && !given.Has("--no-kill", "-k")) directive("--no-kill");
  std::vector<std::string> words = {"srun"};
  if (elastic) words.emplace_back("--no-kill");
  words.emplace_back("ddprun");
  if (const std::optional<std::string> signal = given.Value("--signal"); signal.has_value()) {
    DDPRUN_ASSIGN_OR_RETURN(const std::vector<std::string> options, SignalOptions(*signal));
    words.insert(words.end(), options.begin(), options.end());
  }
  for (const std::string& word : job.launch) words.push_back(ShellWord(word));
  if (elastic) {
    absl::StrAppend(&text, R"(
# If the first node is lost, with this script on it, the others requeue the job.
export DDPRUN_SLURM_REQUEUE=1

# Once a node was lost, srun ends with 1 (Slurm 23.02 and later). The first node's ddprun writes
# the job's own status to this file.
)",
                    kStatusFileVariable, "=$(mktemp)\nexport ", kStatusFileVariable, "\n");
  }
  absl::StrAppend(&text, R"(
# After so many runs in a row without progress the job isn't requeued any more.
export )",
                  kGiveUpVariable, "=", kGiveUpAfter, R"(

# srun takes over no --cpus-per-task by itself.
if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then
  export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
fi

)",
                  absl::StrJoin(words, " "), "\nstatus=$?\n");
  if (elastic) {
    const std::string file = absl::StrCat("\"$", kStatusFileVariable, "\"");
    absl::StrAppend(&text, "if [ \"$status\" -eq 1 ] && [ \"$(cat ", file, ")\" = 0 ]; then\n",
                    "  status=0\nfi\nrm -f ", file, "\n");
  }
  absl::StrAppend(&text,
                  R"(# 75: preempted, or the time is over. The next run goes on from what was saved.
if [ "$status" -eq 75 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
)");
  if (text.size() > kScriptBytesMax) {
    return UsageError("the script would be longer than 60,000 bytes; put arguments into a file");
  }
  return text;
}

}  // namespace ddprun::launcher
