#ifndef DDPRUN_TESTS_PROCESS_PROCESS_TESTING_H_
#define DDPRUN_TESTS_PROCESS_PROCESS_TESTING_H_

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "base/instant.h"
#include "launcher/keeper/keeper.h"
#include "launcher/keeper/keeper_client.h"
#include "tests/support/slow.h"

namespace ddprun::testing {

// How long a test waits for what must come; not reached when it passes.
inline const absl::Duration kPatience = absl::Seconds(10) * Slow();

// The path of a helper program beside the tests.
std::string HelperPath(const std::string& name);
// The command line of `misbehave`.
std::vector<std::string> Misbehave(const std::vector<std::string>& arguments);

// What processes write into a pipe, read line by line with a limit. Its end of file proves that
// every process that held the write end is gone.
class PipeReader {
 public:
  explicit PipeReader(Fd fd) : fd_(std::move(fd)) {}
  // The next line without its newline; none at the end of file or after `limit`.
  std::optional<std::string> Line(absl::Duration limit = kPatience);
  // The process id of the next "ready <pid>".
  pid_t ReadyPid();
  // True when the end of file comes within `limit`. Drops what comes before it.
  bool EndsWithin(absl::Duration limit = kPatience);
  // All up to the end of file.
  std::string Rest();

 private:
  enum class Got { kBytes, kEnd, kNothing };
  Got ReadMore(Instant until);

  Fd fd_;
  std::string buffer_;
};

// 'R', 'S', 'T', 'Z' … of proc(5); '-' when there is no such process.
char ProcessState(pid_t pid);
// True when the process ended within `limit`.
bool DiesWithin(pid_t pid, absl::Duration limit = kPatience);
// Reaps children until none is left; gives those that live on after `limit`.
std::vector<pid_t> ReapAllChildren(absl::Duration limit = kPatience);

// A worker's end as the keeper reports it.
struct WorkerExit : launcher::WorkerEnd {
  uint32_t swept = 0;
};

// Starts a program in a session of its own, with stdin and stdout in pipes and, when valid, `extra`
// as its descriptor 3.
struct Program {
  pid_t pid = 0;
  Fd in;
  PipeReader out{Fd()};
};
Program StartProgram(const std::vector<std::string>& argv, int extra = -1);

// A keeper of this test, its client, and all that the client reported.
class KeeperUnderTest {
 public:
  using Key = std::pair<uint64_t, uint32_t>;  // generation, local rank

  explicit KeeperUnderTest(absl::Duration isolation_timeout = absl::Seconds(120),
                           const std::string& cgroup = "", int held_fd = -1,
                           bool kills_leftovers = true);

  // Starts a worker; its stdout goes to a pipe of its own, which stays open as long as we live.
  PipeReader& Spawn(uint64_t generation, uint32_t local_rank, std::vector<std::string> argv);
  absl::Status Spawn(launcher::SpawnRequest request);
  // Runs the loop until `done`; false after kPatience.
  bool RunUntil(const std::function<bool()>& done);

  pid_t RunUntilStarted(uint64_t generation, uint32_t local_rank);
  // A worker's end; `pid` is 0 when it didn't come.
  WorkerExit RunUntilExited(uint64_t generation, uint32_t local_rank);
  // Sweeps and gives how many were swept; none when Empty didn't come.
  std::optional<uint32_t> Sweep(uint64_t generation, const std::vector<uint32_t>& spared = {});

  pid_t keeper_pid = 0;
  absl::Duration leftovers_time;  // of Sweep()
  std::vector<launcher::LeftProcess> left;
  bool leftovers_gone = false;
  std::map<pid_t, std::string> leftovers_killed;  // why
  std::unique_ptr<EventLoop> loop;
  std::unique_ptr<launcher::KeeperClient> client;
  std::map<Key, pid_t> started;
  std::map<Key, Instant> started_at;
  std::map<Key, bool> parked;      // whether the one that started was the parked process
  std::vector<std::string> said;   // by the parked process
  std::vector<std::string> ended;  // how parked processes ended
  std::map<Key, absl::Status> start_failed;
  std::map<Key, WorkerExit> exited;
  std::map<Key, int> stopped;  // the signal
  std::map<uint64_t, uint32_t> empty;
  std::optional<absl::Status> keeper_lost;
  std::function<bool(pid_t)> is_own_child;

 private:
  void Changed();

  std::function<bool()> done_;
  std::deque<PipeReader> outputs_;  // a deque: references stay good
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_PROCESS_PROCESS_TESTING_H_
