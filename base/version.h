#ifndef DDPRUN_BASE_VERSION_H_
#define DDPRUN_BASE_VERSION_H_

namespace ddprun {

// The release, as `ddprun --version` prints it: "0.1.0". In a source of its own, so that another
// version compiles one file.
extern const char* const kVersion;

// Major version of the wire protocol (docs/PROTOCOL.md). Client and service must agree on it.
inline constexpr int kProtocolMajor = 1;

}  // namespace ddprun

#endif  // DDPRUN_BASE_VERSION_H_
