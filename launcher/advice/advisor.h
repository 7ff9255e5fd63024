#ifndef DDPRUN_LAUNCHER_ADVICE_ADVISOR_H_
#define DDPRUN_LAUNCHER_ADVICE_ADVISOR_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/core/failure_report.h"
#include "rendezvous/core/worker_failure.h"

namespace ddprun::launcher {

// The text of advice_rules.yaml.
extern const char kAdviceRules[];

// Recognises failures that people know by the worker's words and by what ddprun itself knows of the
// end, and says what to do (docs/LOGS.md). Pure. Threads: any, once it is made.
//
// RE2's sets look for all patterns in one pass, in linear time whatever a worker has written;
// std::regex backtracks. Patterns match within a line, because lines of several threads mix. The
// first rule that matches counts, so causes stand before consequences, without weights.
class Advisor {
 public:
  // The rules of advice_rules.yaml, compiled in. Made at the first call, which takes milliseconds:
  // for when a job has failed.
  static const Advisor& Known();

  // Rules in the form of advice_rules.yaml, which explains itself.
  // Errors: INVALID_ARGUMENT "line N: …": no such YAML, a key or pattern that is wrong, a ${name}
  // that no group of all its patterns gives. Never throws; any bytes are fine.
  static absl::StatusOr<Advisor> Read(const std::string& yaml);

  Advisor(Advisor&& other) noexcept;
  Advisor& operator=(Advisor&& other) noexcept;
  ~Advisor();

  // Looks through message, traceback and the end of stderr of a failure, from the end, line by
  // line, and through its cause and facts. Of several rules the first of the file counts. Bound:
  // linear in the text; of each text its last 20 KiB, of each line its first 2,000 bytes. Returns:
  // nullopt when no rule knows it. What it took from the worker's words is harmless in a shell's
  // command line.
  std::optional<Advice> Advise(const rendezvous::WorkerFailure& failure) const;

  // The names, in the order of the file.
  std::vector<std::string> RuleNames() const;

 private:
  struct Rules;
  explicit Advisor(std::unique_ptr<const Rules> rules);

  std::unique_ptr<const Rules> rules_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_ADVICE_ADVISOR_H_
