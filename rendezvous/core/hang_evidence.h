#ifndef DDPRUN_RENDEZVOUS_CORE_HANG_EVIDENCE_H_
#define DDPRUN_RENDEZVOUS_CORE_HANG_EVIDENCE_H_

namespace ddprun::rendezvous {

// The evidence against workers of which nobody can say which one holds up the others (R13): follows
// their number, and is a part of WorkerFailure.message.
inline constexpr char kTiedEvidence[] = "workers can't be told apart";

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_HANG_EVIDENCE_H_
