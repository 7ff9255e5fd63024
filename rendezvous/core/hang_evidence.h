#ifndef DDPRUN_RENDEZVOUS_CORE_HANG_EVIDENCE_H_
#define DDPRUN_RENDEZVOUS_CORE_HANG_EVIDENCE_H_

namespace ddprun::rendezvous {

// The evidence against workers of which nobody can say which one holds up the others (R13): follows
// their number, and is a part of WorkerFailure.message.
inline constexpr char kTiedEvidence[] = "workers can't be told apart";

// How the reason of a HungWorkers begins that accuses nobody: the nodes named after it have ended
// well, and these workers run. Agents that don't know it find no suspect, and say nothing.
inline constexpr char kEndedEvidence[] = "others have ended: ";

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_HANG_EVIDENCE_H_
