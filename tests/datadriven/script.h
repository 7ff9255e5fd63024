#ifndef DDPRUN_TESTS_DATADRIVEN_SCRIPT_H_
#define DDPRUN_TESTS_DATADRIVEN_SCRIPT_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace ddprun::testing {

// One command of a script: "join a workers=2 endpoint" has the verb "join", the subject "a", and
// the options workers → "2" and endpoint → "". Values with spaces are quoted.
struct Command {
  std::string verb;
  std::string subject;
  std::map<std::string, std::string> options;

  bool Has(const std::string& name) const { return Read(name) != options.end(); }
  std::string Text(const std::string& name, const std::string& otherwise) const;
  uint32_t Number(const std::string& name, uint32_t otherwise) const;
  absl::Duration Duration(const std::string& name, absl::Duration otherwise) const;

  // Options that no command has read: most likely they are misspelled.
  std::vector<std::string> Unread() const;

 private:
  std::map<std::string, std::string>::const_iterator Read(const std::string& name) const;

  mutable std::set<std::string> read_;
};

Command ParseCommand(const std::string& line);

// A script: blocks of commands, "----", the golden output, and an empty line. Lines that begin with
// '#' before a block's first command are comments and stay.
struct Block {
  std::vector<std::string> comments;  // and empty lines, as they are
  std::vector<std::string> commands;
  std::vector<std::string> golden;
};

std::vector<Block> ParseScript(const std::string& text);
std::string FormatScript(const std::vector<Block>& blocks);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_DATADRIVEN_SCRIPT_H_
