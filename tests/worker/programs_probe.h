#ifndef DDPRUN_TESTS_WORKER_PROGRAMS_PROBE_H_
#define DDPRUN_TESTS_WORKER_PROGRAMS_PROBE_H_

#include <cstdint>
#include <map>
#include <sstream>
#include <string>

#include "ddprun/session.h"

namespace ddprun::testing {

// What a program came to, by name.
struct Outcome {
  uint32_t rank = 0;
  int64_t begun_at = 0;  // of "figures": the step before its first batch
  std::ostringstream text;

  template <typename Value>
  void Note(Session& session, const std::string& name, const Value& value) {
    rank = session.context().rank();
    text.precision(17);
    text << name << " " << value << "\n";
  }
};

// Kills this process if SESSION_PROBE_FAULT is the number of this call; if it is "wait " and that
// number, waits for the generation's end. session: null = no place where a survivor can wait.
void Tick(Session* session = nullptr);

using Programs = std::map<std::string, void (*)(const SessionOptions&, Outcome&)>;

// Programs as one ports them from LibTorch's tutorials (ported_programs.cc).
Programs PortedPrograms();
// Programs that switch something of their modules (switched_programs.cc).
Programs SwitchedPrograms();

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_PROGRAMS_PROBE_H_
