#ifndef DDPRUN_TOOLS_CERTS_OPEN_SSL_H_
#define DDPRUN_TOOLS_CERTS_OPEN_SSL_H_

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

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

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CERTS_OPEN_SSL_H_
