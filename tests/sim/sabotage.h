#ifndef DDPRUN_TESTS_SIM_SABOTAGE_H_
#define DDPRUN_TESTS_SIM_SABOTAGE_H_

// How a simulated cluster may differ from a sound service with a usual program.
namespace ddprun::sim {

// A bug between the service's core and its streams, for negative controls: the checkers must catch
// it.
enum class Sabotage {
  kNone,
  kDuplicateRank,   // the second node gets the first one's ranks
  kEarlyStopped,    // a node that is asked to stop counts as stopped
  kForgetVerdict,   // no verdict is sent, and no stream ended with one
  kSkipGeneration,  // generation numbers are given twice
  kForgetHung,      // no message names the workers that hang
  kOtherStopStep,   // the second node gets another stop step than the others
  kNoQuarantine,    // the service leaves no node out
  kNoBudgets,       // the service's budgets are larger than the job's
  kForgetDrained,   // a drained machine is let in again at once
  kLongPauses,      // the service pauses for longer than the job allows
  kNotifyBefore,    // decisions are sent before they are recorded
  kForgetRecord,    // a service that was started again has no record
  kOldRecord,       // or the one before the last
  kConfirmAll,      // agents hear of events as confirmed that are in no record
  kBelieveDamaged,  // a service starts from a record that is damaged
  kNoFence,         // a service that was replaced writes all the same
  kFormerNotices,   // or sends what it can't write
  kGoBack,          // agents go back to it
};

// What the workers do when nothing disturbs them.
enum class Program {
  kTrains,
  kCrashesAtStart,   // and nothing else goes wrong
  kOutlivesService,  // the same; and nothing goes wrong but that the service dies
  kLosesAll,         // all machines lose their power, and nobody comes back
  kLosesRecord,      // the service dies, and its record is damaged, or gone, for good
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_SABOTAGE_H_
