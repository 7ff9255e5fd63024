#ifndef DDPRUN_BASE_TLS_FILES_H_
#define DDPRUN_BASE_TLS_FILES_H_

#include <compare>
#include <string>

namespace ddprun {

// The PEM files with which a process authenticates itself on TCP and recognizes members of its
// cluster; read again when they change. All three are paths, or all are empty: without TLS.
struct TlsFiles {
  std::string ca;           // certificates of the authorities that sign the cluster's members
  std::string certificate;  // ours, and the chain between it and the CA's
  std::string key;          // of `certificate`; without a passphrase

  bool used() const { return !ca.empty(); }
  friend auto operator<=>(const TlsFiles&, const TlsFiles&) = default;
};

// The name in each certificate of a cluster, which both sides check. No host name, because only the
// CA's signature counts (docs/decisions/0052).
inline constexpr char kTlsName[] = "ddprun";

}  // namespace ddprun

#endif  // DDPRUN_BASE_TLS_FILES_H_
