#ifndef DDPRUN_LAUNCHER_CERTS_CERTIFICATE_CHECK_H_
#define DDPRUN_LAUNCHER_CERTS_CERTIFICATE_CHECK_H_

#include <string>

#include "absl/status/status.h"
#include "base/tls_files.h"

namespace ddprun::launcher {

// What is in the files of a TlsFiles.
struct TlsTexts {
  std::string ca;
  std::string certificate;
  std::string key;
};

// Whether a node can show itself with these: PEM, the key is the certificate's, which is valid at
// this time, signed by the CA, for both sides of a connection, and names kTlsName.
// Errors: FAILED_PRECONDITION — the text names the file, and what to do. Threads: any.
absl::Status CheckCertificates(const TlsFiles& names, const TlsTexts& texts);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CERTS_CERTIFICATE_CHECK_H_
