#ifndef DDPRUN_LAUNCHER_CORE_EXIT_STATUS_H_
#define DDPRUN_LAUNCHER_CORE_EXIT_STATUS_H_

namespace ddprun::launcher {

// What an agent's exit status tells a scheduler; docs/SIGNALS.md is the whole table, and
// docs/decisions/0016 has why these numbers.

// Torchrun's: the job failed and may be started again.
inline constexpr int kExitFailed = 1;
// To start the job again won't help. Source: NVRx's ft_launcher.
inline constexpr int kExitFailedForGood = 93;
// The machines were taken away: start the job again. Source: EX_TEMPFAIL of sysexits.h.
inline constexpr int kExitPreempted = 75;
// Of `ddprun chaos` alone: the job ended well, but an expectation of the plan was missed.
inline constexpr int kExitExpectationMissed = 94;

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_EXIT_STATUS_H_
