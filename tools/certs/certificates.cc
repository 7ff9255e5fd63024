#include "tools/certs/certificates.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/tls_files.h"

namespace ddprun::launcher {
namespace {

// OpenSSL would ask on the terminal.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*unused*/) { return -1; }

}  // namespace

OwnedCertificate ParseCertificate(const std::string& pem) {
  const OwnedBio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  OwnedCertificate certificate(PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  return certificate;
}

OwnedKey ParseKey(const std::string& pem) {
  const OwnedBio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  OwnedKey key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  return key;
}

std::string TimeText(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return "an unknown time";
  return absl::StrFormat("%04d-%02d-%02d %02d:%02d UTC", parts.tm_year + 1900, parts.tm_mon + 1,
                         parts.tm_mday, parts.tm_hour, parts.tm_min);
}

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

namespace {

constexpr uint32_t kCaDays = 3650;
constexpr long kClockSlackS = 3600;
constexpr int kVersion3 = 2;  // X.509 counts from 0

absl::Status OpenSslError(absl::string_view what) {
  std::array<char, 256> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  ERR_clear_error();
  return absl::InternalError(absl::StrCat(what, ": ", text.data()));
}

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<size_t>(size)};
}

std::string PemOf(X509* certificate) {
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), certificate);
  return TextOf(bio.get());
}

std::string PemOf(EVP_PKEY* key) {
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  return TextOf(bio.get());
}

// Without an owner, days, extensions and signature yet.
OwnedCertificate Blank(const char* name, EVP_PKEY* key, uint32_t days) {
  OwnedCertificate certificate(X509_new());
  X509_set_version(certificate.get(), kVersion3);
  // RFC 5280, 4.1.2.2: positive, at most 20 bytes, and nobody else's.
  std::array<unsigned char, 16> serial{};
  RAND_bytes(serial.data(), serial.size());
  serial[0] &= 0x7f;
  BIGNUM* number = BN_bin2bn(serial.data(), serial.size(), nullptr);
  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate.get()));
  BN_free(number);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kClockSlackS);
  X509_time_adj_ex(X509_getm_notAfter(certificate.get()), static_cast<int>(days), 0, nullptr);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  X509_set_pubkey(certificate.get(), key);
  return certificate;
}

absl::Status Extend(X509* certificate, X509* issuer,
                    std::initializer_list<std::pair<int, const char*>> extensions) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  for (const auto& [kind, value] : extensions) {
    const OwnedExtension extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value));
    if (extension == nullptr || X509_add_ext(certificate, extension.get(), -1) != 1) {
      return OpenSslError(absl::StrCat("certificate: extension ", value));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<OwnedKey> NewKey() {
  OwnedKey key(EVP_EC_gen("P-256"));
  if (key == nullptr) return OpenSslError("a new key");
  return key;
}

absl::StatusOr<KeyPair> Sign(X509* certificate, X509* issuer, EVP_PKEY* issuer_key, EVP_PKEY* key) {
  X509_set_issuer_name(certificate, X509_get_subject_name(issuer));
  if (X509_sign(certificate, issuer_key, EVP_sha256()) == 0) return OpenSslError("signing");
  return KeyPair{.certificate = PemOf(certificate),
                 .key = PemOf(key),
                 .expires = TimeText(X509_get0_notAfter(certificate))};
}

}  // namespace

absl::StatusOr<KeyPair> MakeCa(uint32_t days) {
  DDPRUN_ASSIGN_OR_RETURN(const OwnedKey key, NewKey());
  const OwnedCertificate ca = Blank("ddprun cluster CA", key.get(), std::max(days, kCaDays));
  DDPRUN_RETURN_IF_ERROR(Extend(ca.get(), ca.get(),
                                {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                                 {NID_key_usage, "critical,keyCertSign,cRLSign"},
                                 {NID_subject_key_identifier, "hash"}}));
  return Sign(ca.get(), ca.get(), key.get(), key.get());
}

absl::StatusOr<KeyPair> MakeNode(const KeyPair& ca, uint32_t days) {
  const OwnedCertificate issuer = ParseCertificate(ca.certificate);
  const OwnedKey issuer_key = ParseKey(ca.key);
  if (issuer == nullptr || issuer_key == nullptr ||
      X509_check_private_key(issuer.get(), issuer_key.get()) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError("they are no certificate and its key in PEM form");
  }
  DDPRUN_ASSIGN_OR_RETURN(const OwnedKey key, NewKey());
  const OwnedCertificate node = Blank("ddprun node", key.get(), days);
  const std::string name = absl::StrCat("DNS:", kTlsName);
  DDPRUN_RETURN_IF_ERROR(Extend(node.get(), issuer.get(),
                                {{NID_basic_constraints, "critical,CA:FALSE"},
                                 {NID_key_usage, "critical,digitalSignature"},
                                 {NID_ext_key_usage, "serverAuth,clientAuth"},
                                 {NID_subject_alt_name, name.c_str()},
                                 {NID_subject_key_identifier, "hash"},
                                 {NID_authority_key_identifier, "keyid"}}));
  return Sign(node.get(), issuer.get(), issuer_key.get(), key.get());
}

}  // namespace ddprun::launcher
