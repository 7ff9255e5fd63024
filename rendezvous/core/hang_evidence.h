#ifndef DDPRUN_RENDEZVOUS_CORE_HANG_EVIDENCE_H_
#define DDPRUN_RENDEZVOUS_CORE_HANG_EVIDENCE_H_

namespace ddprun::rendezvous {

// The evidence against several workers, when each of them may be the one that holds up the others
// (R13). Follows their number in WorkerFailure.message.
inline constexpr char kTiedEvidence[] = "workers can't be told apart";

// Prefix of the reason of a HungWorkers that accuses no worker: the nodes listed after it have
// ended well, and these workers still run. Agents of older releases find no suspect, and print
// nothing.
inline constexpr char kEndedEvidence[] = "others have ended: ";

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_HANG_EVIDENCE_H_
