#ifndef DDPRUN_TESTS_SUPPORT_TRACE_DIGEST_H_
#define DDPRUN_TESTS_SUPPORT_TRACE_DIGEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/core/job/state_machine.h"

namespace ddprun::testing {

// One number for all events and effects of a state machine: a change of the core that isn't meant
// to change any behavior leaves the number unchanged. FNV-1a of the lines of trace_text.h and of
// what they leave out.
class TraceDigest {
 public:
  // Takes one step in: the event, its effects, and what the machine shows afterwards.
  void Add(Instant now, const rendezvous::Event& event,
           const std::vector<rendezvous::Effect>& effects, const rendezvous::StateMachine& machine);
  void Add(const std::string& line);

  uint64_t value() const { return value_; }
  uint64_t lines() const { return lines_; }

 private:
  uint64_t value_ = 14695981039346656037ULL;
  uint64_t lines_ = 0;
};

// Whether the environment asks for digests: DDPRUN_TRACE_DIGEST is set.
bool DigestWanted();

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_TRACE_DIGEST_H_
