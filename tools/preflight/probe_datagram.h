#ifndef DDPRUN_TOOLS_PREFLIGHT_PROBE_DATAGRAM_H_
#define DDPRUN_TOOLS_PREFLIGHT_PROBE_DATAGRAM_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// A datagram of a network check.
struct ProbeDatagram {
  enum class Kind : uint8_t {
    kData = 1,  // counted
    kPing = 2,  // counted, and answered
    kPong = 3,  // the answer, with the ping's time
    kHere = 4,  // to node 0, from a node that can't reach the store
  };
  Kind kind = Kind::kData;
  uint32_t from = 0;    // node
  uint32_t pass = 0;    // of the check
  uint64_t token = 0;   // of the check, to recognize strays; 0 in kHere
  int64_t sent_ns = 0;  // on the clock of the ping's sender

  friend bool operator==(const ProbeDatagram&, const ProbeDatagram&) = default;
};

inline constexpr size_t kProbeBytes = 32;

// kProbeBytes, little endian.
std::string EncodeProbe(const ProbeDatagram& probe);
// nullopt = not a datagram of a check.
std::optional<ProbeDatagram> DecodeProbe(absl::string_view bytes);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_PREFLIGHT_PROBE_DATAGRAM_H_
