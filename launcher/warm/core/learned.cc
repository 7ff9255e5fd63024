#include "launcher/warm/core/learned.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kNameBytesMax = 512;

// Python's names may hold any letters of Unicode, so only what would break a line is refused.
bool IsName(absl::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax &&
         std::none_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_iscntrl(static_cast<unsigned char>(c)) || c == ' ';
         });
}

const char* WordOf(Learned::Step::Kind kind) {
  switch (kind) {
    case Learned::Step::Kind::kModule:
      return "module ";
    case Learned::Step::Kind::kSeen:
      return "seen ";
    case Learned::Step::Kind::kSet:
      return "set ";
  }
  return "";
}

absl::Status TakeLine(absl::string_view line, Learned* learned) {
  using Kind = Learned::Step::Kind;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(line, absl::MaxSplits(' ', 1));
  const auto& [word, rest] = parts;
  const bool is_module = word == "module";
  if (is_module || word == "seen") {
    if (!IsName(rest)) return absl::InvalidArgumentError("is no name of a module");
    learned->steps.push_back({is_module ? Kind::kModule : Kind::kSeen, std::string(rest)});
  } else if (word == "set") {
    const size_t name_end = rest.find('=');
    if (name_end == absl::string_view::npos || !IsName(rest.substr(0, name_end))) {
      return absl::InvalidArgumentError("sets no variable");
    }
    learned->steps.push_back({Kind::kSet, std::string(rest)});
  } else if (word == "varies") {
    if (!IsName(rest)) return absl::InvalidArgumentError("is no name of a variable");
    learned->varying.emplace_back(rest);
  } else if (word == "refused") {
    const std::pair<absl::string_view, absl::string_view> refusal =
        absl::StrSplit(rest, absl::MaxSplits(' ', 1));
    if (!IsName(refusal.first)) return absl::InvalidArgumentError("refuses no module");
    learned->refused.push_back({std::string(refusal.first), std::string(refusal.second)});
  } else if (word == "took") {
    const std::pair<absl::string_view, absl::string_view> slow =
        absl::StrSplit(rest, absl::MaxSplits(' ', 1));
    uint32_t milliseconds = 0;
    if (!IsName(slow.first) || !absl::SimpleAtoi(slow.second, &milliseconds)) {
      return absl::InvalidArgumentError("is no time of an import");
    }
    learned->SetSlow(slow.first, milliseconds);
  } else if (word == "imports") {
    if (!absl::SimpleAtoi(rest, &learned->imports_milliseconds)) {
      return absl::InvalidArgumentError("is no time of all imports");
    }
  } else if (word == "unfit") {
    learned->unfit = std::string(rest);
  } else if (word == "signature") {
    learned->signature = std::string(rest);
  } else {
    return absl::InvalidArgumentError("is of no known kind");
  }
  return absl::OkStatus();
}

}  // namespace

size_t Learned::module_count() const {
  return static_cast<size_t>(std::count_if(steps.begin(), steps.end(), [this](const Step& step) {
    return step.kind == Step::Kind::kModule && !IsRefused(step.text);
  }));
}

bool Learned::IsRefused(absl::string_view module) const {
  return std::any_of(refused.begin(), refused.end(), [module](const Refusal& refusal) {
    absl::string_view rest = module;
    return absl::ConsumePrefix(&rest, refusal.module) && (rest.empty() || rest[0] == '.');
  });
}

void Learned::SetSlow(absl::string_view module, uint32_t milliseconds) {
  const auto found = std::find_if(slow.begin(), slow.end(),
                                  [module](const Slow& one) { return one.module == module; });
  if (found != slow.end()) {
    found->milliseconds = milliseconds;
  } else {
    slow.push_back({std::string(module), milliseconds});
  }
}

absl::StatusOr<Learned> ParseLearned(absl::string_view text) {
  if (text.size() > kLearnedBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", text.size(), " bytes, more than ", kLearnedBytesMax));
  }
  Learned learned;
  size_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    if (const absl::Status status = TakeLine(line, &learned); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, " ", status.message()));
    }
    if (number > kLearnedStepsMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("it has more than ", kLearnedStepsMax, " lines"));
    }
  }
  return learned;
}

Learned MergeLearned(Learned one, const Learned& other) {
  using Kind = Learned::Step::Kind;
  std::set<std::string> settings;
  for (const Learned::Step& step : other.steps) {
    if (step.kind == Kind::kSet) settings.insert(step.text);
  }
  std::erase_if(one.steps, [&](const Learned::Step& step) {
    if (step.kind != Kind::kSet || settings.contains(step.text)) return false;
    one.varying.push_back(step.text.substr(0, step.text.find('=')));
    return true;
  });
  return one;
}

std::string LearnedText(const Learned& learned) {
  std::string text = absl::StrCat("signature ", learned.signature, "\n");
  for (const Learned::Step& step : learned.steps) {
    absl::StrAppend(&text, WordOf(step.kind), step.text, "\n");
  }
  for (const std::string& name : learned.varying) absl::StrAppend(&text, "varies ", name, "\n");
  for (const Learned::Slow& slow : learned.slow) {
    absl::StrAppend(&text, "took ", slow.module, " ", slow.milliseconds, "\n");
  }
  for (const Learned::Refusal& refusal : learned.refused) {
    absl::StrAppend(&text, "refused ", refusal.module, " ", refusal.why, "\n");
  }
  if (learned.imports_milliseconds != 0) {
    absl::StrAppend(&text, "imports ", learned.imports_milliseconds, "\n");
  }
  if (!learned.unfit.empty()) absl::StrAppend(&text, "unfit ", learned.unfit, "\n");
  return text;
}

std::string ParkedText(const Learned& learned, const std::vector<std::string>& preload,
                       const std::vector<std::string>& varying) {
  std::string text;
  if (!learned.signature.empty()) absl::StrAppend(&text, "signature ", learned.signature, "\n");
  for (const std::vector<std::string>* names : {&varying, &learned.varying}) {
    for (const std::string& name : *names) absl::StrAppend(&text, "varies ", name, "\n");
  }
  for (const Learned::Step& step : learned.steps) {
    // A refused module may still be loaded by another one. It is written as `seen`.
    const bool refused = step.kind == Learned::Step::Kind::kModule && learned.IsRefused(step.text);
    absl::StrAppend(&text, refused ? "seen " : WordOf(step.kind), step.text, "\n");
  }
  for (const std::string& module : preload) {
    if (!learned.IsRefused(module)) absl::StrAppend(&text, "preload ", module, "\n");
  }
  return text;
}

}  // namespace ddprun::launcher
