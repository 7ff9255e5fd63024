#include "launcher/options/shell_line.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace ddprun::launcher {
namespace {

constexpr absl::string_view kOperators = ";&|<>()\n";
constexpr absl::string_view kExpanding = "$`*?[{~";

absl::Status NoEnd(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("the line can't be read: ", what, " has no end"));
}

// Reads one word after the other; each Read… begins at `at_` and leaves it after what it has read.
class ShellReader {
 public:
  explicit ShellReader(absl::string_view line) : line_(line) {}

  absl::StatusOr<std::vector<ShellToken>> ReadAll() {
    std::vector<ShellToken> tokens;
    while (true) {
      at_ = std::min(line_.find_first_not_of(" \t", at_), line_.size());
      if (at_ == line_.size()) return tokens;
      const size_t begin = at_;
      ShellToken token;
      if (line_[at_] == '#') {
        at_ = std::min(line_.find('\n', at_), line_.size());
        token.is_operator = true;
      } else if (IsOneOf(kOperators)) {
        at_ = std::min(line_.find_first_not_of(kOperators, at_), line_.size());
        token.is_operator = true;
      } else if (absl::Status read = ReadWord(&token); !read.ok()) {
        return read;
      }
      token.raw = std::string(line_.substr(begin, at_ - begin));
      if (token.is_operator) token.plain = token.raw;
      tokens.push_back(std::move(token));
    }
  }

 private:
  bool IsOneOf(absl::string_view set) const {
    return set.find(line_[at_]) != absl::string_view::npos;
  }

  absl::Status ReadWord(ShellToken* token) {
    while (at_ < line_.size() && !IsOneOf(" \t") && !IsOneOf(kOperators)) {
      absl::Status read = ReadPiece(token);
      if (!read.ok()) return read;
    }
    return absl::OkStatus();
  }

  absl::Status ReadPiece(ShellToken* token) {
    const char c = line_[at_];
    if (c == '\'') return ReadSingleQuotes(token);
    if (c == '"') return ReadDoubleQuotes(token);
    if (c == '`' || line_.substr(at_, 2) == "$(") return ReadOutput(token);
    if (c == '\\' && at_ + 1 < line_.size()) {
      ++at_;
    } else if (IsOneOf(kExpanding)) {
      token->expands = true;
    }
    token->plain += line_[at_++];
    return absl::OkStatus();
  }

  absl::Status ReadSingleQuotes(ShellToken* token) {
    const size_t end = line_.find('\'', at_ + 1);
    if (end == absl::string_view::npos) return NoEnd("a quote");
    token->plain += std::string(line_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return absl::OkStatus();
  }

  absl::Status ReadDoubleQuotes(ShellToken* token) {
    ++at_;
    while (at_ < line_.size() && line_[at_] != '"') {
      if (line_[at_] == '`' || line_.substr(at_, 2) == "$(") {
        absl::Status read = ReadOutput(token);
        if (!read.ok()) return read;
        continue;
      }
      if (line_[at_] == '\\' && at_ + 1 < line_.size()) {
        ++at_;
      } else if (line_[at_] == '$') {
        token->expands = true;
      }
      token->plain += line_[at_++];
    }
    if (at_ == line_.size()) return NoEnd("a quote");
    ++at_;
    return absl::OkStatus();
  }

  // `…`, or $(…) with whatever parentheses are in it.
  absl::Status ReadOutput(ShellToken* token) {
    token->expands = true;
    const size_t begin = at_;
    if (line_[at_] == '`') {
      at_ = line_.find('`', at_ + 1);
      if (at_ == absl::string_view::npos) return NoEnd("a command in backquotes");
      ++at_;
    } else {
      int depth = 0;
      do {
        if (at_ == line_.size()) return NoEnd("a command in parentheses");
        if (line_[at_] == '(') ++depth;
        if (line_[at_] == ')') --depth;
        ++at_;
      } while (depth > 0 || line_[at_ - 1] == '$');
    }
    token->plain += std::string(line_.substr(begin, at_ - begin));
    return absl::OkStatus();
  }

  const absl::string_view line_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<ShellToken>> SplitShellLine(absl::string_view line) {
  return ShellReader(line).ReadAll();
}

std::string ShellWord(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::string_view("_-./:=,+@%^").find(c) != absl::string_view::npos;
  });
  if (plain) return word;
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

}  // namespace ddprun::launcher
