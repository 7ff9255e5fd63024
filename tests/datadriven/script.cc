#include "tests/datadriven/script.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace ddprun::testing {
namespace {

// Words separated by blanks; blanks inside double quotes don't separate.
std::vector<std::string> Words(const std::string& line) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      if (!words.back().empty()) words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

}  // namespace

std::string Command::Text(const std::string& name, const std::string& otherwise) const {
  const auto found = Read(name);
  return found == options.end() ? otherwise : found->second;
}

uint32_t Command::Number(const std::string& name, uint32_t otherwise) const {
  const auto found = Read(name);
  if (found == options.end()) return otherwise;
  uint32_t number = 0;
  DDPRUN_CHECK(absl::SimpleAtoi(found->second, &number), absl::StrCat(name, "=", found->second));
  return number;
}

absl::Duration Command::Duration(const std::string& name, absl::Duration otherwise) const {
  const auto found = Read(name);
  if (found == options.end()) return otherwise;
  absl::Duration duration;
  DDPRUN_CHECK(absl::ParseDuration(found->second, &duration),
               absl::StrCat(name, "=", found->second));
  return duration;
}

std::map<std::string, std::string>::const_iterator Command::Read(const std::string& name) const {
  read_.insert(name);
  return options.find(name);
}

std::vector<std::string> Command::Unread() const {
  std::vector<std::string> unread;
  for (const auto& [name, value] : options) {
    if (!read_.contains(name)) unread.push_back(name);
  }
  return unread;
}

Command ParseCommand(const std::string& line) {
  Command command;
  for (const std::string& word : Words(line)) {
    const size_t equals = word.find('=');
    if (command.verb.empty()) {
      command.verb = word;
    } else if (equals != std::string::npos) {
      command.options[word.substr(0, equals)] = word.substr(equals + 1);
    } else if (command.subject.empty()) {
      command.subject = word;
    } else {
      command.options[word] = "";
    }
  }
  return command;
}

std::vector<Block> ParseScript(const std::string& text) {
  enum class Part { kComments, kCommands, kGolden };
  std::vector<Block> blocks;
  Block block;
  Part part = Part::kComments;
  const auto finish = [&] {
    if (part == Part::kComments && block.comments.empty()) return;
    blocks.push_back(std::move(block));
    block = Block();
    part = Part::kComments;
  };
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  for (const std::string& line : lines) {
    if (part == Part::kGolden) {
      line.empty() ? finish() : block.golden.push_back(line);
    } else if (line == "----") {
      part = Part::kGolden;
    } else if (part == Part::kComments && (line.empty() || line.front() == '#')) {
      block.comments.push_back(line);
    } else if (line.empty()) {
      finish();  // a new block, without an output yet
    } else {
      part = Part::kCommands;
      block.commands.push_back(line);
    }
  }
  finish();
  return blocks;
}

std::string FormatScript(const std::vector<Block>& blocks) {
  std::string text;
  for (const Block& block : blocks) {
    if (!text.empty()) text += "\n";
    for (const std::string& line : block.comments) absl::StrAppend(&text, line, "\n");
    for (const std::string& line : block.commands) absl::StrAppend(&text, line, "\n");
    if (block.commands.empty()) continue;
    text += "----\n";
    for (const std::string& line : block.golden) absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace ddprun::testing
