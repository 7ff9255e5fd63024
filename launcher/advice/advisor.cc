#include "launcher/advice/advisor.h"

#include <re2/re2.h>
#include <re2/set.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/yaml_document.h"

namespace ddprun::launcher {
// Not anonymous: Advisor::Rules is made of these, and a joined file (a release build) is no main
// file.
namespace advice {

constexpr int64_t kPatternMemoryMax = 32 << 20;

struct Rule {
  std::string name;
  std::string advice;
  std::string next;
  std::string cpp_advice;  // "" = the same
  std::string cpp_next;
};

struct Pattern {
  size_t rule = 0;  // index
  std::unique_ptr<RE2> regex;
};

inline RE2::Options PatternOptions() {
  RE2::Options options(RE2::Latin1);  // a worker's words may be any bytes
  options.set_log_errors(false);
  options.set_max_mem(kPatternMemoryMax);
  return options;
}

inline absl::Status RuleError(int line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", what));
}

// Patterns that are looked for together, in one pass over a line.
class PatternSet {
 public:
  PatternSet() : set_(PatternOptions(), RE2::UNANCHORED) {}

  absl::Status Add(const YamlNode& node, size_t rule) {
    auto regex = std::make_unique<RE2>(node.text, PatternOptions());
    if (!regex->ok()) {
      return RuleError(node.line,
                       absl::StrCat("pattern ", Quoted(node.text), ": ", regex->error()));
    }
    if (set_.Add(node.text, nullptr) < 0) return RuleError(node.line, "too many patterns");
    patterns_.push_back({.rule = rule, .regex = std::move(regex)});
    return absl::OkStatus();
  }

  // Requires: all are added.
  bool Compile() { return set_.Compile(); }

  // The pattern in `line` whose rule comes first, if that comes before the rule number `rule`.
  const Pattern* FirstIn(absl::string_view line, size_t rule) const {
    std::vector<int> hits;
    if (patterns_.empty() || !set_.Match({line.data(), line.size()}, &hits)) return nullptr;
    const Pattern* first = nullptr;
    for (const int hit : hits) {
      const Pattern& pattern = patterns_[static_cast<size_t>(hit)];
      if (pattern.rule < (first == nullptr ? rule : first->rule)) first = &pattern;
    }
    return first;
  }

  const std::vector<Pattern>& patterns() const { return patterns_; }

 private:
  RE2::Set set_;
  std::vector<Pattern> patterns_;
};

}  // namespace advice

namespace {

using advice::Pattern;
using advice::PatternSet;
using advice::Rule;
using advice::RuleError;
using rendezvous::WorkerFailure;

constexpr size_t kTextBytesMax = 20 << 10;
constexpr size_t kLineBytesMax = 2000;
constexpr size_t kTakenBytesMax = 200;

// Values that every rule may use besides the groups of its patterns.
constexpr const char* kOfTheWorker[] = {"rank", "host", "pid"};

using Values = std::map<std::string, std::string>;

// Whether the text is safe to put into a command: only characters without a meaning for a shell or
// a terminal, and no leading dash.
bool IsHarmless(absl::string_view text) {
  return !text.empty() && text.size() <= kTakenBytesMax && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  absl::StrContains("_.,:/+-@%[] ", c);
         });
}

// The named groups' texts; nullopt when one is no harmless word.
std::optional<Values> TakenFrom(absl::string_view line, const RE2& regex) {
  const auto count = static_cast<size_t>(regex.NumberOfCapturingGroups()) + 1;
  std::vector<re2::StringPiece> groups(count);
  const re2::StringPiece text(line.data(), line.size());
  if (!regex.Match(text, 0, text.size(), RE2::UNANCHORED, groups.data(), static_cast<int>(count))) {
    return std::nullopt;
  }
  Values values;
  for (const auto& [name, index] : regex.NamedCapturingGroups()) {
    const re2::StringPiece taken = groups[static_cast<size_t>(index)];
    if (!IsHarmless({taken.data(), taken.size()})) return std::nullopt;
    values[name] = std::string(taken.data(), taken.size());
  }
  return values;
}

std::vector<std::string> NamesIn(absl::string_view text) {
  std::vector<std::string> names;
  for (size_t at = text.find("${"); at != absl::string_view::npos; at = text.find("${", at + 1)) {
    names.emplace_back(text.substr(at + 2, text.find('}', at) - at - 2));
  }
  return names;
}

absl::Status CheckNames(const Rule& rule, const RE2& regex, int line) {
  for (const std::string& name :
       NamesIn(absl::StrCat(rule.advice, rule.next, rule.cpp_advice, rule.cpp_next))) {
    const bool of_worker =
        std::find(std::begin(kOfTheWorker), std::end(kOfTheWorker), name) != std::end(kOfTheWorker);
    if (!of_worker && regex.NamedCapturingGroups().count(name) == 0) {
      return RuleError(
          line, absl::StrCat("${", name, "} is no group of pattern ", Quoted(regex.pattern())));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Rule> ReadTexts(const YamlNode& node) {
  Rule rule;
  if (node.kind != YamlNode::Kind::kMap) return RuleError(node.line, "a rule is a map");
  for (size_t i = 0; i < node.keys.size(); ++i) {
    const std::string& key = node.keys[i];
    const YamlNode& value = node.items[i];
    if (key == "match" || key == "fact") continue;
    std::string* target = key == "name"         ? &rule.name
                          : key == "advice"     ? &rule.advice
                          : key == "next"       ? &rule.next
                          : key == "cpp_advice" ? &rule.cpp_advice
                          : key == "cpp_next"   ? &rule.cpp_next
                                                : nullptr;
    if (target == nullptr) return RuleError(value.line, absl::StrCat("unknown key ", Quoted(key)));
    *target = std::string(absl::StripAsciiWhitespace(value.text));
  }
  if (rule.name.empty() || rule.advice.empty() || rule.next.empty()) {
    return RuleError(node.line, "a rule has a name, advice and next");
  }
  return rule;
}

// Whether the error is that of a worker with ddprun's C++ runtime: its message begins with a status
// code or the name of a C++ exception ("INTERNAL: ", "c10::Error: "). Names of Python exceptions
// have dots.
bool IsOfCpp(const WorkerFailure& failure) {
  static const RE2* const beginning =
      new RE2(R"(^(PeerError: )?(rank \d+ |[A-Z]+(_[A-Z]+)*: |\w+(::\w+)+: ))");
  return RE2::PartialMatch({failure.message.data(), failure.message.size()}, *beginning);
}

// The end of a text, its lines last first.
std::vector<absl::string_view> LinesFromTheEnd(absl::string_view text) {
  if (text.size() > kTextBytesMax) text.remove_prefix(text.size() - kTextBytesMax);
  std::vector<absl::string_view> lines = absl::StrSplit(text, absl::ByAnyChar("\r\n"));
  for (absl::string_view& line : lines) line = line.substr(0, kLineBytesMax);
  std::reverse(lines.begin(), lines.end());
  return lines;
}

}  // namespace

struct Advisor::Rules {
  std::vector<Rule> rules;
  PatternSet words;  // of the worker
  PatternSet facts;  // ours

  absl::Status Add(const YamlNode& node);
};

absl::Status Advisor::Rules::Add(const YamlNode& node) {
  DDPRUN_ASSIGN_OR_RETURN(Rule rule, ReadTexts(node));
  size_t count = 0;
  for (const char* key : {"match", "fact"}) {
    const YamlNode* patterns = node.Find(key);
    if (patterns == nullptr) continue;
    PatternSet& set = key == absl::string_view("match") ? words : facts;
    for (const YamlNode& pattern : patterns->items) {
      DDPRUN_RETURN_IF_ERROR(set.Add(pattern, rules.size()));
      DDPRUN_RETURN_IF_ERROR(CheckNames(rule, *set.patterns().back().regex, pattern.line));
      ++count;
    }
  }
  if (count == 0) return RuleError(node.line, "a rule has a list of patterns: match or fact");
  rules.push_back(std::move(rule));
  return absl::OkStatus();
}

Advisor::Advisor(std::unique_ptr<const Rules> rules) : rules_(std::move(rules)) {}
Advisor::Advisor(Advisor&& other) noexcept = default;
Advisor& Advisor::operator=(Advisor&& other) noexcept = default;
Advisor::~Advisor() = default;

absl::StatusOr<Advisor> Advisor::Read(const std::string& yaml) {
  DDPRUN_ASSIGN_OR_RETURN(const YamlNode document, ReadYaml(yaml));
  if (document.kind != YamlNode::Kind::kList)
    return RuleError(document.line, "not a list of rules");
  auto rules = std::make_unique<Rules>();
  for (const YamlNode& node : document.items) DDPRUN_RETURN_IF_ERROR(rules->Add(node));
  if (!rules->words.Compile() || !rules->facts.Compile()) {
    return RuleError(document.line, "the patterns together need too much memory");
  }
  return Advisor(std::move(rules));
}

const Advisor& Advisor::Known() {
  static const Advisor* const known = [] {
    absl::StatusOr<Advisor> read = Read(kAdviceRules);
    DDPRUN_CHECK(read.ok(), read.status().message());
    return new Advisor(*std::move(read));  // never destroyed: threads may still end a job
  }();
  return *known;
}

std::optional<Advice> Advisor::Advise(const WorkerFailure& failure) const {
  const Pattern* found = nullptr;
  absl::string_view found_in;
  const auto look = [&](const PatternSet& set, absl::string_view text) {
    for (const absl::string_view line : LinesFromTheEnd(text)) {
      const Pattern* pattern =
          set.FirstIn(line, found == nullptr ? rules_->rules.size() : found->rule);
      if (pattern == nullptr || !TakenFrom(line, *pattern->regex).has_value()) continue;
      found = pattern;
      found_in = line;
    }
  };
  const std::string cause = DescribeFailure(failure);
  look(rules_->facts, cause);
  for (const std::string& fact : failure.facts) look(rules_->facts, fact);
  // At a terminal Python 3.13 writes an error's name in colours.
  const std::string words[] = {Printable(failure.message), Printable(failure.traceback),
                               Printable(failure.stderr_tail)};
  for (const std::string& text : words) look(rules_->words, text);
  if (found == nullptr) return std::nullopt;

  Values values = *TakenFrom(found_in, *found->regex);
  values["rank"] = absl::StrCat(failure.rank);
  values["pid"] = absl::StrCat(failure.pid);
  values["host"] = IsHarmless(failure.hostname) ? failure.hostname : "HOST";
  const Rule& rule = rules_->rules[found->rule];
  const bool cpp = IsOfCpp(failure);
  const auto chosen = [cpp](const std::string& of_cpp, const std::string& text) {
    return cpp && !of_cpp.empty() ? of_cpp : text;
  };
  return Advice{.rule = rule.name,
                .line = std::string(absl::StripAsciiWhitespace(found_in)),
                .text = Substitute(chosen(rule.cpp_advice, rule.advice), values),
                .next = Substitute(chosen(rule.cpp_next, rule.next), values)};
}

std::vector<std::string> Advisor::RuleNames() const {
  std::vector<std::string> names;
  for (const Rule& rule : rules_->rules) names.push_back(rule.name);
  return names;
}

}  // namespace ddprun::launcher
