#ifndef DDPRUN_TOOLS_CERTS_CERTIFICATE_CHECK_H_
#define DDPRUN_TOOLS_CERTS_CERTIFICATE_CHECK_H_

#include <string>

#include "absl/status/status.h"
#include "base/tls_files.h"

namespace ddprun::launcher {

// The contents of the files of a TlsFiles.
struct TlsTexts {
  std::string ca;
  std::string certificate;
  std::string key;
};

// Checks that a node can authenticate itself with these files: they are PEM, the key belongs to the
// certificate, and the certificate is valid now, signed by the CA, usable on both sides of a
// connection, and for kTlsName. Errors: FAILED_PRECONDITION — the text names the file, and what to
// do. Threads: any.
absl::Status CheckCertificates(const TlsFiles& names, const TlsTexts& texts);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CERTS_CERTIFICATE_CHECK_H_
