#ifndef DDPRUN_RENDEZVOUS_CORE_WORKER_PROGRESS_H_
#define DDPRUN_RENDEZVOUS_CORE_WORKER_PROGRESS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/progress_page.h"

namespace ddprun::rendezvous {

// What an agent has observed of a worker.
enum class Activity {
  kUnknown,  // not observed so far
  kActive,   // uses the processor, moves bytes, or waits for a disk
  kStill,    // none of these, with the same kernel stack, over two samples
  kStopped,  // by a signal or a tracer
};

// A process group of torch.distributed that a worker belongs to.
struct GroupProgress {
  std::string name;       // the same on all members
  uint64_t sequence = 0;  // collectives that the worker has begun in the group
  uint32_t size = 0;      // members

  friend bool operator==(const GroupProgress&, const GroupProgress&) = default;
};

// How far one worker is, as its agent sees it (proto WorkerProgress has the units).
struct WorkerProgress {
  uint32_t local_rank = 0;
  ProgressPhase phase = ProgressPhase::kNone;  // kNone: it never marked
  uint64_t step = 0;
  absl::Duration silent;  // since its last mark, or since it did anything (unmarked)
  bool suspect = false;   // silent for longer than the limit of its phase
  bool overdue = false;   // silent for so long that being busy is no excuse
  bool early = false;     // suspect before its steps are known: judged by its collectives only
  Activity activity = Activity::kUnknown;
  std::string where;  // what the worker waits for in the kernel; "" = unknown
  // Collectives of the default group that it has begun, plus one; 0 = not known.
  uint64_t collectives = 0;
  bool expired = false;     // silent for as long as a hang may last (--hang_timeout)
  bool idle = false;        // no output and no processor time for an explicit --hang_timeout
  bool deadlocked = false;  // proof: all its threads wait for something that only they can release
  bool left = false;        // ended with status 0; `groups` are final
  std::vector<GroupProgress> groups;  // those that are known
  // The collective that its only thread waits in: the name of its group in `groups`, and the
  // function of torch.distributed; "" = none, or not known.
  std::string inside_group;
  std::string inside_call;

  friend bool operator==(const WorkerProgress&, const WorkerProgress&) = default;
};

// How far the workers of one node are from a stop step (proto StopPrepared).
struct StopLook {
  bool heeds = false;        // all living workers ask for a stop step
  bool below = false;        // no worker has passed it, and none can without being held
  uint64_t highest = 0;      // step that any of them has reached
  absl::Duration step_time;  // zero = unknown

  friend bool operator==(const StopLook&, const StopLook&) = default;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_WORKER_PROGRESS_H_
