#ifndef DDPRUN_TESTS_FUZZ_ETCD_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_ETCD_FUZZ_H_

#include "absl/strings/string_view.h"

namespace ddprun::rendezvous {

// Reads `bytes` as what etcd answers: what is after an 'r' as the value of a job's record, written
// in this boot, else as the reply to a look at the leader's key. What is taken comes back equal; a
// service goes on from such a record, and its invariants hold. Aborts if they don't. Returns
// whether it was taken.
bool ReadEtcdAnswer(absl::string_view bytes);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_FUZZ_ETCD_FUZZ_H_
