#ifndef DDPRUN_BASE_TLS_FILES_H_
#define DDPRUN_BASE_TLS_FILES_H_

#include <compare>
#include <string>

namespace ddprun {

// The files by which a process shows on TCP who it is, and knows its cluster: PEM, read again when
// they change. All three are paths, or all are empty: without TLS.
struct TlsFiles {
  std::string ca;           // certificates of who signs: whoever has one of them is the cluster's
  std::string certificate;  // ours, and what lies between it and the CA's
  std::string key;          // of `certificate`; without a passphrase

  bool used() const { return !ca.empty(); }
  friend auto operator<=>(const TlsFiles&, const TlsFiles&) = default;
};

// What each certificate of a cluster names, and both sides look for: not a host, because what
// counts is whether the cluster's CA signed it (docs/decisions/0052).
inline constexpr char kTlsName[] = "ddprun";

}  // namespace ddprun

#endif  // DDPRUN_BASE_TLS_FILES_H_
