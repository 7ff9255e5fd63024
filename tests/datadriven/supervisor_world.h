#ifndef DDPRUN_TESTS_DATADRIVEN_SUPERVISOR_WORLD_H_
#define DDPRUN_TESTS_DATADRIVEN_SUPERVISOR_WORLD_H_

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "launcher/core/supervisor/supervisor.h"
#include "tests/datadriven/script.h"

namespace ddprun::testing {

// One agent's supervisor under a script, which plays its service, its keeper and its workers.
// Commands (times as Go writes them); without gen= a command is about the last generation assigned:
//
//   agent [workers=2 stop_grace=30s]        a new one, which is welcomed; time is 0
//   assign gen=1                            ranks from 4 on, of a job of two nodes
//   started 0 [pid=]                        worker 0 (its local rank) runs
//   can 0 [no]                              it can rejoin the next generation, or no longer
//   lets_go 0
//   ended 0 [code= | signal= | hung]
//   suspect                                 a look has found a worker that may hang
//   empty [stopped_at=7]                    nothing is left but those that are spared
//   stop "reason"                           StopWorkers
//   commit step=7                           CommitStop
//   standby, drain, verdict, keeper_lost    of the job: it failed
//   advance 5s                              on time, deadline by deadline
//   each: [gen=]
//
// Shown are the effects that say what becomes of workers.
class SupervisorWorld {
 public:
  // Runs one command line and returns its output lines.
  std::vector<std::string> Run(const std::string& line);

 private:
  void Start(const Command& command);
  // Returns false if the command isn't one of the service's.
  bool FromService(const Command& command);
  bool FromKeeper(const Command& command);
  bool FromWorker(const Command& command);
  rendezvous::Generation GenerationOf(const Command& command) const;
  void Advance(absl::Duration duration);
  void Message(rendezvous::ServiceMessage message);
  void Step(const launcher::SupervisorEvent& event);

  std::unique_ptr<launcher::Supervisor> supervisor_;
  Instant now_;
  uint32_t generation_ = 0;
  uint32_t next_pid_ = 10;
  std::vector<std::string> output_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_DATADRIVEN_SUPERVISOR_WORLD_H_
