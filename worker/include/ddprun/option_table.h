#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_OPTION_TABLE_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_OPTION_TABLE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// The smallest and the largest value that an option takes.
template <typename Number>
struct OptionRange {
  Number min = 0;
  Number max = std::numeric_limits<Number>::max();
};

// A program's options, from the command line or a file of YAML or JSON. Each option is a row with
// its name, its meaning and the variable that gets its value. What that variable holds when the row
// is added is the default.
//
// Options are written --batch_size 32, --batch_size=32 or --batch-size 32, and switches --name,
// --no_name or --name=false. The last one counts. A file has the same names as keys:
// "batch_size: 32". The command line overrides the file.
//
// All errors are INVALID_ARGUMENT and one line that names the option, the value, the values
// allowed, and for a file also the file and the line: "job.yaml:3: batch_size 'many': give a whole
// number, at least 1". Threads: one.
class OptionTable {
 public:
  // `introduction`: the beginning of --help.
  explicit OptionTable(std::string introduction) : introduction_(std::move(introduction)) {}
  OptionTable(const OptionTable&) = delete;
  OptionTable& operator=(const OptionTable&) = delete;

  // Begins a titled group of the help.
  void Group(std::string title) { group_ = std::move(title); }

  // The targets must outlive the table. `name` has underscores. Explain a default that can't just
  // be shown, such as "", in the help.
  void Text(const std::string& name, const std::string& placeholder, std::string* target,
            const std::string& help);
  void Choice(const std::string& name, const std::vector<std::string>& choices, std::string* target,
              const std::string& help);
  void Integer(const std::string& name, OptionRange<int64_t> range, int64_t* target,
               const std::string& help);
  // A number with a fraction: table.Real("dropout", {0, 1}, &dropout, "Share that is left out.").
  void Real(const std::string& name, OptionRange<double> range, double* target,
            const std::string& help);
  void Switch(const std::string& name, bool* target, const std::string& help);
  // A switch that may be unset, so that its default depends on other options; say which in the
  // help.
  void Switch(const std::string& name, std::optional<bool>* target, const std::string& help);

  // Fills the targets. `arguments` are without the program's name.
  // Returns: true = --help was asked for, and nothing else was looked at.
  absl::StatusOr<bool> Parse(const std::vector<std::string>& arguments);

  // Checks that the values which the targets held when they were added are allowed:
  // INVALID_ARGUMENT, as for the command line. Afterwards the targets hold the rounded values that
  // --help shows.
  absl::Status CheckDefaults();

  std::string Help() const;
  // Each option's name and default, rounded as --help shows it.
  std::vector<std::pair<std::string, std::string>> Values() const;

 private:
  struct Row {
    std::string name;
    std::string group;
    std::string placeholder;  // "" = a switch
    std::string help;
    std::string default_text;  // "" = not shown
    // Stores a value. Returns what is wrong with it, "" = nothing.
    std::function<std::string(const std::string& text)> store;

    bool is_switch() const { return placeholder.empty(); }
  };

  // One option as it was given.
  struct Given {
    const Row* row = nullptr;
    std::string where;  // for messages: "--batch_size", "job.yaml:3: batch_size"
    std::string text;
  };

  void Add(const std::string& name, const std::string& placeholder, const std::string& help,
           const std::string& default_text,
           std::function<std::string(const std::string& text)> store);
  const Row* Find(absl::string_view name) const;
  // "; did you mean <prefix>batch_size?", or where to look.
  std::string Advice(const std::string& name, absl::string_view prefix) const;
  // Reads the option at `*next` and its value, and moves `*next` behind them.
  absl::StatusOr<Given> TakeArgument(const std::vector<std::string>& arguments, size_t* next);
  absl::Status ReadFile(const std::string& path);
  static absl::Status Store(const Given& given);

  const std::string introduction_;
  std::string group_ = "Options";
  std::vector<Row> rows_;
  std::string config_;  // --config
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_OPTION_TABLE_H_
