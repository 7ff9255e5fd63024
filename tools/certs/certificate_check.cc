#include "tools/certs/certificate_check.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tools/certs/open_ssl.h"

namespace ddprun::launcher {
namespace {

constexpr absl::string_view kRemedy = "; ddprun certs makes a set that fits";

template <typename... Parts>
absl::Status Wrong(const std::string& file, const Parts&... parts) {
  return absl::FailedPreconditionError(absl::StrCat(file, " ", parts...));
}

// All certificates of a file.
std::vector<OwnedCertificate> ParseAll(const std::string& pem) {
  std::vector<OwnedCertificate> all;
  const OwnedBio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  while (X509* one = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) all.emplace_back(one);
  ERR_clear_error();
  return all;
}

absl::Status CheckTimes(const std::string& file, const X509& certificate) {
  const ASN1_TIME* begin = X509_get0_notBefore(&certificate);
  const ASN1_TIME* end = X509_get0_notAfter(&certificate);
  if (X509_cmp_current_time(end) < 0) {
    return Wrong(file, "has expired: it was valid until ", TimeText(end),
                 "; ddprun certs --renew makes a new one");
  }
  if (X509_cmp_current_time(begin) > 0) {
    return Wrong(file, "is not valid yet: it begins at ", TimeText(begin),
                 "; is this machine's clock right?");
  }
  return absl::OkStatus();
}

// Whether `chain`, its first one in front, leads to one of `roots`.
absl::Status CheckSigned(const TlsFiles& names, const std::vector<OwnedCertificate>& roots,
                         const std::vector<OwnedCertificate>& chain) {
  const OwnedStore store(X509_STORE_new());
  for (const OwnedCertificate& root : roots) X509_STORE_add_cert(store.get(), root.get());
  STACK_OF(X509)* between = sk_X509_new_null();
  for (const OwnedCertificate& one : chain) sk_X509_push(between, one.get());
  const OwnedStoreContext context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), chain.front().get(), between);
  const bool is_signed = X509_verify_cert(context.get()) == 1;
  sk_X509_free(between);
  ERR_clear_error();
  if (is_signed) return absl::OkStatus();
  return Wrong(names.certificate, "is not signed by the CA of ", names.ca, " (",
               X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get())), ")",
               kRemedy);
}

absl::Status CheckUses(const std::string& file, X509* certificate) {
  if (X509_check_host(certificate, kTlsName, std::strlen(kTlsName), 0, nullptr) != 1) {
    return Wrong(file, "does not name ", kTlsName, " (subjectAltName DNS:", kTlsName,
                 "), which makes it a node's", kRemedy);
  }
  for (const int purpose : {X509_PURPOSE_SSL_SERVER, X509_PURPOSE_SSL_CLIENT}) {
    if (X509_check_purpose(certificate, purpose, /*ca=*/0) == 1) continue;
    return Wrong(file, "may not be used as a server and as a client (extendedKeyUsage)", kRemedy);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCertificates(const TlsFiles& names, const TlsTexts& texts) {
  const std::vector<OwnedCertificate> roots = ParseAll(texts.ca);
  if (roots.empty()) return Wrong(names.ca, "holds no certificate in PEM form", kRemedy);
  const std::vector<OwnedCertificate> chain = ParseAll(texts.certificate);
  if (chain.empty()) return Wrong(names.certificate, "holds no certificate in PEM form", kRemedy);
  const OwnedKey key = ParseKey(texts.key);
  if (key == nullptr) {
    return Wrong(names.key, "holds no private key in PEM form without a passphrase", kRemedy);
  }
  const bool fits = X509_check_private_key(chain.front().get(), key.get()) == 1;
  ERR_clear_error();
  if (!fits) return Wrong(names.key, "is not the key of ", names.certificate, kRemedy);
  DDPRUN_RETURN_IF_ERROR(CheckTimes(names.certificate, *chain.front()));
  for (const OwnedCertificate& root : roots) {
    if (roots.size() == 1) DDPRUN_RETURN_IF_ERROR(CheckTimes(names.ca, *root));
  }
  DDPRUN_RETURN_IF_ERROR(CheckSigned(names, roots, chain));
  return CheckUses(names.certificate, chain.front().get());
}

}  // namespace ddprun::launcher
