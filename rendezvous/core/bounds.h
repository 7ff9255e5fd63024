#ifndef DDPRUN_RENDEZVOUS_CORE_BOUNDS_H_
#define DDPRUN_RENDEZVOUS_CORE_BOUNDS_H_

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace ddprun::rendezvous {

// Every bound of the rendezvous. Input beyond one is refused with RESOURCE_EXHAUSTED or
// INVALID_ARGUMENT that names it; own data beyond one is cut off.

inline constexpr uint32_t kNodesMax = 16384;          // nodes of one job, spares included
inline constexpr uint32_t kWorkersPerNodeMax = 4096;  // workers of one node
inline constexpr size_t kGpusMax = 256;               // GPUs that a node reports
inline constexpr uint32_t kPercentMax = 100;
inline constexpr size_t kJobsMax = 1024;               // jobs that one service holds
inline constexpr size_t kFailuresMax = 64;             // failures in one report
inline constexpr size_t kProbesOutstandingMax = 1024;  // probes whose sending time is remembered
inline constexpr size_t kNameBytesMax = 256;           // run id, node id, host name, address, role
inline constexpr size_t kTextBytesMax = 4096;          // descriptions, reasons, stderr tails
inline constexpr size_t kTracebackBytesMax = 16384;    // stack of a failure
inline constexpr uint32_t kBlameMax = 1000;            // failures remembered of one node
inline constexpr size_t kFactsMax = 8;                 // facts about one failure
inline constexpr size_t kGroupsMax = 64;               // process groups of a worker
inline constexpr size_t kGroupNameBytesMax = 64;       // name of a process group or collective
inline constexpr size_t kWhereBytesMax = 256;          // WorkerProgress.where
inline constexpr size_t kFactBytesMax = 512;           // one fact
inline constexpr size_t kGenerationsRecordedMax =
    256;  // generations in the answer to a status call
// Events of a node that no record covers: its agent keeps them (R10).
inline constexpr uint64_t kUnrecordedMax = 64;
inline constexpr size_t kDrainedMax = 1024;             // drained machines that are remembered
inline constexpr size_t kEventsMax = 4096;              // events of a job that are remembered
inline constexpr size_t kEventBytesMax = 1U << 20;      // size of these events
inline constexpr size_t kMessageBytesMax = 4U << 20;    // one message on the wire
inline constexpr size_t kVerdictsBytesMax = 32U << 20;  // a verdict, times the nodes that get it
inline constexpr size_t kVerdictBytesMin = 8U << 10;    // at least this much for each of them

// Longest time that a job may ask for.
inline constexpr absl::Duration kTimeoutMax = absl::Hours(7 * 24);
inline constexpr size_t kHoldUpsMax = 64;  // workers of a node that hold up the job
// Above every job's and generation's age: limits how far a wrong agent can move the job's times.
inline constexpr absl::Duration kAgeMax = absl::Hours(24 * 366);
// Time between two observations of a suspect worker, if no report says it (R13).
inline constexpr absl::Duration kHangSample = absl::Milliseconds(250);
// Shares of a preemption's deadline: a quarter to agree on a step, half of what is left to reach
// it, the rest to save (R14).
inline constexpr int kAgreeingShare = 4;
inline constexpr int kReachingShare = 2;
// Shortest lease: longer than the reconnect grace, and four probes of 50 ms. Below it, probes and
// the jitter of schedulers are of the same size.
inline constexpr absl::Duration kLeaseMin = absl::Milliseconds(200);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_BOUNDS_H_
