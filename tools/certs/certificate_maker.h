#ifndef DDPRUN_TOOLS_CERTS_CERTIFICATE_MAKER_H_
#define DDPRUN_TOOLS_CERTS_CERTIFICATE_MAKER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace ddprun::launcher {

// A private key and its certificate, as PEM: keys on the curve P-256.
struct KeyPair {
  std::string certificate;
  std::string key;
  std::string expires;  // for people
};

// Makes a self-signed CA, valid for ten years, or for `days` if that is longer.
// Errors: INTERNAL — OpenSSL can't; the text has its reason. Threads: any.
absl::StatusOr<KeyPair> MakeCa(uint32_t days);

// Makes the certificate of a cluster's nodes: for kTlsName, usable on both sides of a connection,
// valid from an hour ago on, because clocks differ. Errors: as above; INVALID_ARGUMENT — `ca` has
// no key of its own in PEM form.
absl::StatusOr<KeyPair> MakeNode(const KeyPair& ca, uint32_t days);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CERTS_CERTIFICATE_MAKER_H_
