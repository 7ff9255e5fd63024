#ifndef DDPRUN_LAUNCHER_CORE_EXIT_STATUS_H_
#define DDPRUN_LAUNCHER_CORE_EXIT_STATUS_H_

namespace ddprun::launcher {

// An agent's exit statuses, by which a scheduler decides whether to start the job again;
// docs/SIGNALS.md has the whole table, and docs/decisions/0016 the reasons for these numbers.

// The job failed and may be started again. Source: torchrun.
inline constexpr int kExitFailed = 1;
// The job failed, and starting it again won't help. Source: NVRx's ft_launcher.
inline constexpr int kExitFailedForGood = 93;
// The machines were taken away: start the job again. Source: EX_TEMPFAIL of sysexits.h.
inline constexpr int kExitPreempted = 75;
// Only `ddprun chaos`: the job ended well, but an expectation of the plan was missed.
inline constexpr int kExitExpectationMissed = 94;

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_EXIT_STATUS_H_
