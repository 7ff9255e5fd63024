#include "tools/certs/certificate_maker.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/tls_files.h"
#include "tools/certs/open_ssl.h"

namespace ddprun::launcher {
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
