#ifndef DDPRUN_TOOLS_CERTS_CERTIFICATES_H_
#define DDPRUN_TOOLS_CERTS_CERTIFICATES_H_

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tls_files.h"

namespace ddprun::launcher {

// Owners of OpenSSL's objects.
template <typename T, void (*free_it)(T*)>
struct FreeWith {
  void operator()(T* object) const { free_it(object); }
};
inline void FreeBio(BIO* bio) { BIO_free(bio); }

using OwnedBio = std::unique_ptr<BIO, FreeWith<BIO, FreeBio>>;
using OwnedKey = std::unique_ptr<EVP_PKEY, FreeWith<EVP_PKEY, EVP_PKEY_free>>;
using OwnedCertificate = std::unique_ptr<X509, FreeWith<X509, X509_free>>;
using OwnedExtension =
    std::unique_ptr<X509_EXTENSION, FreeWith<X509_EXTENSION, X509_EXTENSION_free>>;
using OwnedStore = std::unique_ptr<X509_STORE, FreeWith<X509_STORE, X509_STORE_free>>;
using OwnedStoreContext =
    std::unique_ptr<X509_STORE_CTX, FreeWith<X509_STORE_CTX, X509_STORE_CTX_free>>;

// The first one of a text; null = there is none. Without a passphrase. Threads: any.
OwnedCertificate ParseCertificate(const std::string& pem);
OwnedKey ParseKey(const std::string& pem);

// "2027-11-24 10:00 UTC".
std::string TimeText(const ASN1_TIME* time);

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

#endif  // DDPRUN_TOOLS_CERTS_CERTIFICATES_H_
