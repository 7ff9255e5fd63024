#ifndef DDPRUN_LAUNCHER_PREFLIGHT_PROBE_DATAGRAM_H_
#define DDPRUN_LAUNCHER_PREFLIGHT_PROBE_DATAGRAM_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// What the nodes of a network check send each other over UDP.
struct ProbeDatagram {
  enum class Kind : uint8_t {
    kData = 1,  // is counted
    kPing = 2,  // is counted, and answered
    kPong = 3,  // the answer, with the ping's time
    kHere = 4,  // to node 0, from one that does not get through to the store
  };
  Kind kind = Kind::kData;
  uint32_t from = 0;    // node
  uint32_t pass = 0;    // of the check
  uint64_t token = 0;   // of the check: strays don't count; 0 in kHere
  int64_t sent_ns = 0;  // on the clock of who sent the ping

  friend bool operator==(const ProbeDatagram&, const ProbeDatagram&) = default;
};

inline constexpr size_t kProbeBytes = 32;

// kProbeBytes, little endian.
std::string EncodeProbe(const ProbeDatagram& probe);
// nullopt: it is none.
std::optional<ProbeDatagram> DecodeProbe(absl::string_view bytes);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PREFLIGHT_PROBE_DATAGRAM_H_
