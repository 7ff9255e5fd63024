#ifndef DDPRUN_BASE_PROGRESS_PAGE_H_
#define DDPRUN_BASE_PROGRESS_PAGE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

// The page of shared memory in which a worker says how far it is; DDPRUN_PROGRESS is its path. A
// memory file of the agent, one for each worker, sealed in its size. Numbers are in the machine's
// byte order and stored whole. docs/PROGRESS.md has what programs without our code write.
//
// Stop steps: a worker stores its mark and then loads prepare; the agent stores prepare and then
// loads the mark. Both need a fence between the two, or they miss each other. Python has none, so
// the agent believes that a worker is below the step only if a second look 10 ms later shows the
// same: by then no store is left in a processor's buffer.
//
// Groups: a line with the collective in which the worker waits and its group, then a line for each
// process group: name, collectives begun, members; fields are separated by tabs.
//
// A worker that goes on in another generation keeps its page. Before the worker is given its next
// place, the agent stores the new generation, and 0 as word, time, prepare, commit and answer but
// for its lowest bit; until then the worker must not mark.
namespace ddprun {

inline constexpr size_t kProgressPageBytes = 4096;
inline constexpr char kProgressMagic[8] = {'D', 'D', 'P', 'R', 'U', 'N', 'P', 'G'};
inline constexpr uint64_t kProgressVersion = 1;

// Offsets of the 64-bit fields of a worker's progress page.
inline constexpr size_t kProgressVersionOffset = 8;
inline constexpr size_t kProgressGenerationOffset = 16;
inline constexpr size_t kProgressWordOffset = 64;  // worker → agent; a cache line of its own
// CLOCK_MONOTONIC's nanoseconds when the word was stored, or shortly before; 0 = not known.
inline constexpr size_t kProgressTimeOffset = 72;
// The stop step of a preemption, in two phases: the agent's question, the worker's answer, and the
// step that was agreed on. Each is 0 or a step, except for the answer: its lowest bit says that the
// worker asks for a stop step, the other bits at which step it stands (0 = none).
inline constexpr size_t kProgressPrepareOffset = 128;
inline constexpr size_t kProgressAnswerOffset = 192;
inline constexpr size_t kProgressCommitOffset = 256;
// Nanoseconds that the worker has waited for data since its start; only grows.
inline constexpr size_t kProgressDataWaitOffset = 320;

// What the watching thread of a worker whose steps are counted sees beside the training
// (launcher/marks), a few times a second while there is no step. All are 64-bit words but the text.
inline constexpr size_t kProgressCollectivesOffset = 384;  // begun in the default group, plus one
inline constexpr size_t kProgressLookedOffset = 392;       // latest look, as the time of a mark
inline constexpr size_t kProgressLooksOffset = 400;        // looks since the last mark
inline constexpr size_t kProgressPlacesOffset = 408;       // different places seen, and growths
inline constexpr size_t kProgressJumpsOffset = 416;        // looks in the jump of a loop
// The time-out of the default group in milliseconds; 0 = not known.
inline constexpr size_t kProgressTimeoutOffset = 424;
inline constexpr size_t kProgressFlagsOffset = 432;
inline constexpr uint64_t kProgressAtLocks = 1;  // each thread of Python's is acquiring a lock
inline constexpr uint64_t kProgressFinal = 2;    // the interpreter ends; nothing changes any more
inline constexpr size_t kProgressWatcherOffset = 440;  // the thread's own id (gettid(2))
// UTF-8 texts that end with a zero byte: the stack of the training, innermost first; the innermost
// place outside of libraries; the process groups, and the collective in which the worker waits.
inline constexpr size_t kProgressPlaceOffset = 512;
inline constexpr size_t kProgressPlaceBytes = 480;
inline constexpr size_t kProgressUserPlaceOffset = 1024;
inline constexpr size_t kProgressUserPlaceBytes = 512;
inline constexpr size_t kProgressGroupsOffset = 1536;
inline constexpr size_t kProgressGroupsBytes = 2560;

// What a worker is doing. Each timed phase has a limit of its own, which is learned.
enum class ProgressPhase : uint8_t {
  kNone = 0,        // never marked
  kStart = 1,       // before the first step; timed by the first-step timeout
  kTrain = 2,       // timed
  kCheckpoint = 3,  // timed
  kEvaluation = 4,  // timed
  kIdle = 5,        // waits on purpose; not timed
  kDone = 6,        // needs no more watching; not timed
  // A training step that ddprun counts itself, from 1 in each generation (launcher/marks). Such a
  // number doesn't say where in its training the program is.
  kCounted = 7,
};

// In the place of kTrain: a training step that a library marks for the program
// (python/ddprun/elastic). The program may evaluate or save after it, unmarked, so that its silence
// is judged as that of a program whose steps are counted.
inline constexpr uint64_t kProgressStepOnly = 8;

inline constexpr uint64_t kProgressStepMax = (uint64_t{1} << 56) - 1;

// The progress word: the phase in the upper 8 bits, the step in the lower 56.
constexpr uint64_t PackProgress(ProgressPhase phase, uint64_t step) {
  return static_cast<uint64_t>(phase) << 56 | (step & kProgressStepMax);
}
constexpr uint64_t ProgressStepOf(uint64_t word) { return word & kProgressStepMax; }
// Whether the word says which step is under way, but not what the program does between two steps.
constexpr bool ProgressIsStepOnly(uint64_t word) {
  return word >> 56 == static_cast<uint64_t>(ProgressPhase::kCounted) ||
         word >> 56 == kProgressStepOnly;
}
// Phases of later versions count as idle, which isn't timed.
constexpr ProgressPhase ProgressPhaseOf(uint64_t word) {
  const uint64_t phase = word >> 56;
  if (phase == kProgressStepOnly) return ProgressPhase::kTrain;
  return phase <= static_cast<uint64_t>(ProgressPhase::kCounted) ? static_cast<ProgressPhase>(phase)
                                                                 : ProgressPhase::kIdle;
}

// "train"; for people.
constexpr const char* ProgressPhaseName(ProgressPhase phase) {
  constexpr const char* kNames[] = {"unmarked",   "start", "train", "checkpoint",
                                    "evaluation", "idle",  "done",  "train"};
  return kNames[static_cast<size_t>(phase)];
}

// What workers report of their training, for people who watch: in the page of progress
// (docs/PROGRESS.md), and from there with the heartbeats.

// Offsets in the progress page, written by the worker. The figures are IEEE 754 doubles.
inline constexpr size_t kTrainingLossOffset = 448;
inline constexpr size_t kTrainingRateOffset = 456;  // samples a second
// Which figures are set: bits of a 64-bit word, each set after its figure is stored.
inline constexpr size_t kTrainingToldOffset = 464;
inline constexpr uint64_t kTrainingToldLoss = 1;
inline constexpr uint64_t kTrainingToldRate = 2;

// The figures of some workers together.
struct TrainingReport {
  std::optional<double> loss;                // mean of the reported ones; NaN if one of them is
  uint32_t loss_workers = 0;                 // workers that report one
  std::optional<double> samples_per_second;  // sum of the reported ones

  bool operator==(const TrainingReport&) const = default;
};

}  // namespace ddprun

#endif  // DDPRUN_BASE_PROGRESS_PAGE_H_
