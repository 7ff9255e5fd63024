// What --help and --version print.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/version.h"
#include "launcher/cli/version_text.h"
#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;

// The spellings of each option of a run, as --help=json has them: the main one first.
std::vector<std::vector<std::string>> OptionNames() {
  std::vector<std::vector<std::string>> names;
  const auto help = nlohmann::json::parse(ExitOf(Parse({"--help=json"})).text);
  for (const auto& group : help["groups"]) {
    for (const auto& option : group["options"]) names.push_back(option["names"]);
  }
  return names;
}

// A short letter has no second spelling, and isn't the name in a file.
std::string MainName(const std::vector<std::string>& spellings) {
  const auto main = std::find_if(spellings.begin(), spellings.end(), [](const std::string& name) {
    return absl::StartsWith(name, "--");
  });
  return main == spellings.end() ? "" : main->substr(2);
}

TEST(HelpAll, NamesEveryOptionInBothSpellings) {  // 2
  const ExitNow help = ExitOf(Parse({"--help-all"}));
  EXPECT_EQ(help.status, 0);
  EXPECT_FALSE(help.to_stderr);
  for (const std::vector<std::string>& spellings : OptionNames()) {
    std::string name = MainName(spellings);
    EXPECT_THAT(name, testing::Not(HasSubstr("_")));
    EXPECT_THAT(help.text, HasSubstr(absl::StrCat("--", name))) << name;
    std::replace(name.begin(), name.end(), '-', '_');
    EXPECT_THAT(help.text, HasSubstr(absl::StrCat("--", name))) << name;
  }
  EXPECT_GE(OptionNames().size(), 85U);
}

TEST(ConfigFile, TakesEveryOptionInBothSpellings) {
  for (const std::vector<std::string>& spellings : OptionNames()) {
    std::string name = MainName(spellings);
    if (name == "help" || name == "help-all" || name == "config") continue;
    for (int spelling = 0; spelling < 2; ++spelling) {
      FakeHost host;
      host.files["job.yaml"] = absl::StrCat(name, ": 1\n");
      const CommandLine parsed = Parse(Words("--config job.yaml train.py"), {}, host);
      const ExitNow* exit = std::get_if<ExitNow>(&parsed.command);
      EXPECT_THAT(exit == nullptr ? "" : exit->text, testing::Not(HasSubstr("is no option")))
          << name;
      std::replace(name.begin(), name.end(), '-', '_');
    }
  }
}

TEST(HelpAll, EveryValueOptionSaysDefaultAndVariable) {
  const std::string help = ExitOf(Parse({"--help_all"})).text;
  // An option begins with two blanks and a dash; lines of its help have more blanks.
  const std::vector<std::string> paragraphs = absl::StrSplit(help, "\n  -");
  size_t values = 0;
  for (size_t i = 1; i < paragraphs.size(); ++i) {
    const std::string first_line =
        absl::StrCat("-", paragraphs[i].substr(0, paragraphs[i].find('\n')));
    const std::string last_name = first_line.substr(first_line.rfind("--"));
    if (last_name.find(' ') == std::string::npos) continue;  // a flag
    ++values;
    const std::vector<std::string> at_defaults = absl::StrSplit(paragraphs[i], "Default:");
    EXPECT_EQ(at_defaults.size(), 2U) << paragraphs[i];
    // torchrun has no variable for these.
    if (first_line.find("--numa") == 0 || first_line.find("--logs") == 0 ||
        first_line.find("--print") == 0) {
      continue;
    }
    EXPECT_THAT(paragraphs[i],
                testing::ContainsRegex("\\[(PET|DDPRUN|TORCH(ELASTIC)?)_[A-Z_]+[],]"))
        << first_line;
  }
  EXPECT_GE(values, 38U);
}

// The default is taken from the target's text, from the option's own text if that can't say it, or
// from neither.
TEST(Help, SaysTheDefaultOnce) {
  Argument lease{.text = "7"};
  Argument folder;
  Argument port;
  OptionSet options("usage: x");
  options.Group("All");
  options.AddValue(&lease, {.names = "--lease", .placeholder = "N", .help = "A time."});
  options.AddValue(&folder, {.names = "--folder", .placeholder = "F", .help = "A place."});
  options.AddValue(
      &port,
      {.names = "--port", .placeholder = "P", .help = "A door.", .default_text = "a free one"});
  ASSERT_TRUE(options.Parse({}, [](const std::string&) { return std::nullopt; }).ok());
  const std::string help = options.Help();
  for (const char* said :
       {"A time. Default: 7. [PET_LEASE]", "A place. Default: none. [PET_FOLDER]",
        "A door. Default: a free one. [PET_PORT]"}) {
    EXPECT_THAT(help, HasSubstr(said));
  }
}

size_t LinesOf(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

void ExpectNarrow(const ExitNow& help) {
  EXPECT_EQ(help.status, 0);
  for (absl::string_view line : absl::StrSplit(help.text, '\n')) {
    EXPECT_LE(line.size(), 82U) << line;  // "…" has three bytes
  }
}

TEST(Help, FitsOnAScreen) {
  const ExitNow help = ExitOf(Parse({"--help"}));
  ExpectNarrow(help);
  EXPECT_LE(LinesOf(help.text), 45U);
  EXPECT_THAT(help.text, HasSubstr("ddprun --help-all"));
  EXPECT_EQ(help.text, ExitOf(Parse({"-h"})).text);
  EXPECT_EQ(help.text, ExitOf(Parse({"help"})).text);
  EXPECT_EQ(help.text, ExitOf(Parse({"--hel"})).text) << "as argparse shortens it";
}

// Commands that take a run's options show their own.
TEST(Help, OfTestAndConfigIsTheirs) {
  for (const std::string command : {"test", "config"}) {
    const ExitNow help = ExitOf(Parse({command, "--help"}));
    ExpectNarrow(help);
    EXPECT_LE(LinesOf(help.text), 45U) << command;
    EXPECT_THAT(help.text, testing::Not(HasSubstr("--max-restarts"))) << command;
    EXPECT_THAT(ExitOf(Parse({command, "--help-all"})).text, HasSubstr("--max-restarts"));
  }
}

TEST(HelpCommand, ExplainsCommandsOptionsAndGroups) {
  EXPECT_EQ(ExitOf(Parse({"help", "status"})).text, ExitOf(Parse({"status", "--help"})).text);
  EXPECT_EQ(ExitOf(Parse({"help", "all"})).text, ExitOf(Parse({"--help-all"})).text);
  for (const char* topic : {"max_restarts", "max-restarts", "--max_restarts"}) {
    const ExitNow help = ExitOf(Parse({"help", topic}));
    EXPECT_EQ(help.status, 0) << topic;
    EXPECT_THAT(help.text, HasSubstr("--max-restarts, --max_restarts N\n")) << topic;
    EXPECT_THAT(help.text, testing::Not(HasSubstr("--restart-window"))) << topic;
  }
  EXPECT_THAT(ExitOf(Parse({"help", "-r"})).text, HasSubstr("--redirects"));
  const std::string group = ExitOf(Parse({"help", "restarts"})).text;
  EXPECT_THAT(group, HasSubstr("--restart-window"));
  EXPECT_THAT(group, testing::Not(HasSubstr("--nnodes")));
}

TEST(HelpCommand, SaysWhatTopicsThereAre) {
  const ExitNow typing_error = ExitOf(Parse({"help", "max_restart"}));
  EXPECT_EQ(typing_error.status, 2);
  EXPECT_TRUE(typing_error.to_stderr);
  EXPECT_THAT(typing_error.text, HasSubstr("did you mean max-restarts?"));
  EXPECT_THAT(ExitOf(Parse({"help", "restart"})).text, HasSubstr("did you mean restarts?"));
  EXPECT_THAT(ExitOf(Parse({"help", "quux"})).text,
              HasSubstr("groups of options: job, rendezvous, workers, output, restarts, recovery"));
  EXPECT_THAT(ExitOf(Parse({"help", "status", "top"})).text, HasSubstr("give one topic"));
  EXPECT_EQ(ExitOf(Parse({"--help", "restarts"})).text, ExitOf(Parse({"help", "restarts"})).text);
  EXPECT_EQ(ExitOf(Parse({"-h", "train.py"})).text, ExitOf(Parse({"--help"})).text);
  EXPECT_EQ(ExitOf(Parse({"help", "preflight-worker"})).status, 2) << "it isn't for people";
}

TEST(Suggestions, ForWordsThatAreNoScript) {
  for (const auto& [word, suggestion] : std::vector<std::pair<std::string, std::string>>{
           {"stats", "did you mean ddprun status?"},
           {"list", "did you mean ddprun status?"},
           {"kill", "did you mean ddprun stop?"},
           {"version", "did you mean ddprun --version?"},
           {"run", "a run has no command: leave run out"},
           {"evnets", "did you mean ddprun events?"}}) {
    const ExitNow exit = ExitOf(Parse({word, "train.py"}));
    EXPECT_EQ(exit.status, 1) << word;
    EXPECT_THAT(exit.text, HasSubstr(absl::StrCat("; ", suggestion, "\n"))) << word;
  }
  for (const char* near : {"trian.py", "trian", "tran.py", "train"}) {
    EXPECT_THAT(ExitOf(Parse({near})).text, HasSubstr("; did you mean train.py?\n")) << near;
  }
  EXPECT_THAT(ExitOf(Parse({"elsewhere/trian.py"})).text, testing::Not(HasSubstr("did you mean")));
  EXPECT_THAT(ExitOf(Parse({"evaluate.py"})).text, testing::Not(HasSubstr("did you mean")));
  EXPECT_THAT(ExitOf(Parse({"--no_python", "kill"})).text, testing::Not(HasSubstr("did you mean")));
}

TEST(Suggestions, ForOptionsOfOtherLaunchers) {
  for (const auto& [option, ours] :
       std::vector<std::pair<std::string, std::string>>{{"--num_processes", "--nproc_per_node N"},
                                                        {"--gpus", "--nproc_per_node N"},
                                                        {"--num_machines", "--nnodes N"},
                                                        {"--machine_rank", "--node_rank N"},
                                                        {"--main_process_ip", "--master_addr HOST"},
                                                        {"--hostfile", "start it on each one"},
                                                        {"-np", "--nproc_per_node N"}}) {
    const ExitNow exit = ExitOf(Parse({option, "2", "train.py"}));
    EXPECT_EQ(exit.status, 2) << option;
    EXPECT_THAT(exit.text, HasSubstr(ours)) << option;
  }
}

TEST(HelpAll, IsGroupedAndFitsInEightyColumns) {
  for (const char* command : {"", "certs", "config", "daemon", "doctor", "drain", "env", "events",
                              "logs", "rendezvous", "status", "stop", "test", "top"}) {
    std::vector<std::string> arguments = {"--help"};
    if (*command != '\0') arguments.insert(arguments.begin(), command);
    ExpectNarrow(ExitOf(Parse(arguments)));
  }
  const ExitNow all = ExitOf(Parse({"--help-all"}));
  ExpectNarrow(all);
  const std::string& help = all.text;
  size_t at = 0;
  for (const char* title : {"\nJob size:\n", "\nRendezvous:\n", "\nWorkers:\n", "\nOutput:\n",
                            "\nRestarts (times in seconds", "\nRecovery (times in seconds"}) {
    const size_t found = help.find(title, at);
    ASSERT_NE(found, std::string::npos) << title;
    at = found;
  }
}

TEST(Help, TeachesByExamples) {
  const std::string help = ExitOf(Parse({"--help"})).text;
  size_t examples = 0;
  for (absl::string_view line : absl::StrSplit(help, '\n')) {
    constexpr absl::string_view kPrefix = "  ddprun ";
    if (line.substr(0, kPrefix.size()) != kPrefix) continue;
    ++examples;
    // What the help shows must work.
    FakeHost host;
    host.programs["./train"] = "./train";
    const std::string words(line.substr(kPrefix.size()));
    PlanOf(words, {}, host);
  }
  EXPECT_EQ(examples, 6U);
}

TEST(Help, WinsOverWhatIsMissing) {
  EXPECT_EQ(ExitOf(Parse(Words("--nnodes 3:2 --help"))).status, 0);
  EXPECT_EQ(ExitOf(Parse({"--help"}, {{"PET_STANDALONE", "maybe"}})).status, 0);
}

TEST(Version, IsPrinted) {
  EXPECT_TRUE(std::holds_alternative<ShowVersion>(Parse({"--version"}).command));
  const BuildFacts facts{.commit = "5d41 and changes",
                         .torch = "2.11.0",
                         .torch_oldest = "1.13.0",
                         .torch_newest = "2.15.0"};
  EXPECT_EQ(VersionText(facts, "2.28"),
            absl::StrCat("ddprun ", kVersion,
                         "\ncommit 5d41 and changes\nneeds glibc 2.28\ntested with torch 2.11.0; "
                         "the workers' store with 1.13.0 to 2.15.0\n"));
}

}  // namespace
}  // namespace ddprun::launcher
