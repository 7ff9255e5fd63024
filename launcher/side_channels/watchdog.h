#ifndef DDPRUN_LAUNCHER_SIDE_CHANNELS_WATCHDOG_H_
#define DDPRUN_LAUNCHER_SIDE_CHANNELS_WATCHDOG_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "launcher/side_channels/core/timer_table.h"

namespace ddprun::launcher {

// One line of the watchdog's FIFO, as torch's FileTimerClient writes it.
struct TimerRequest {
  uint32_t pid = 0;
  std::string scope;
  double expiration = 0;  // seconds since the epoch; negative = release the timer
  int signal = 9;         // 0 = none

  bool is_release() const { return expiration < 0; }
};

// The longest line: what a pipe takes in one piece (PIPE_BUF).
inline constexpr size_t kTimerLineBytesMax = 4096;

// Reads {"version":1,"pid":…,"scope_id":…,"expiration_time":…,"signal":…}; version and signal may
// be missing, a negative signal is none. Errors: INVALID_ARGUMENT, with what is wrong. Any bytes
// are fine. Threads: any.
absl::StatusOr<TimerRequest> ParseTimerRequest(absl::string_view line);

// torchrun's file timer (TORCHELASTIC_ENABLE_FILE_TIMER=1): a FIFO over which worker processes set
// and release timers; a worker whose timer expires gets the timer's signal, and nothing else does.
//
// Workers write deadlines in wall-clock time. The watchdog converts a deadline to the loop's clock
// when it reads it, so setting the wall clock later changes nothing. Threads: the loop's.
class Watchdog {
 public:
  struct Callbacks {
    // The local rank of the worker that the process is or descends from; nullopt = another process.
    // Its request is ignored with a warning.
    std::function<std::optional<uint32_t>(pid_t pid)> worker_of;
    std::function<void(const TimerTable::Expired&)> on_expired;
  };

  // Makes the FIFO at `path` (mode 0600); one that an agent left there is replaced.
  // Errors: of mkfifo(3) and open(2), with the path; ALREADY_EXISTS: something else is there.
  static absl::StatusOr<std::unique_ptr<Watchdog>> Create(EventLoop* loop, std::string path,
                                                          Callbacks callbacks);
  // Removes the FIFO.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  const std::string& path() const { return path_; }
  void Forget(uint32_t local_rank);
  void Clear();

 private:
  Watchdog(EventLoop* loop, std::string path, Fd fifo, Callbacks callbacks);
  void Read();
  void TakeLine(absl::string_view line);
  void CheckDeadlines();

  EventLoop* loop_;
  std::string path_;
  Fd fifo_;  // read and write: without a writer it would always be at its end
  Callbacks callbacks_;
  TimerTable timers_;
  std::string rest_;          // of a line that is not complete
  bool skip_to_end_ = false;  // of a line that is too long
  Timer timer_;
  std::unique_ptr<FdWatch> readable_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SIDE_CHANNELS_WATCHDOG_H_
