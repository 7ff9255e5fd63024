#include "rendezvous/wire/tls.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "absl/strings/match.h"
#include "rendezvous/wire/grpc_settings.h"

namespace ddprun::rendezvous {
namespace {

using grpc::experimental::FileWatcherCertificateProvider;
using grpc::experimental::TlsCustomVerificationCheckRequest;

// How often gRPC looks whether a file has changed.
constexpr unsigned kLookEveryS = 1;
constexpr char kHandshakeRecord = 0x16;  // RFC 8446, 5.1

// One provider for each set of files, with a thread that checks them.
std::shared_ptr<FileWatcherCertificateProvider> ProviderOf(const TlsFiles& tls) {
  static std::mutex mutex;
  static auto* const kept =
      new std::map<TlsFiles, std::shared_ptr<FileWatcherCertificateProvider>>;  // as gRPC's threads
  const std::lock_guard lock(mutex);
  auto& provider = (*kept)[tls];
  if (provider == nullptr) {
    provider = std::make_shared<FileWatcherCertificateProvider>(tls.key, tls.certificate, tls.ca,
                                                                kLookEveryS);
  }
  return provider;
}

// gRPC checks names only for clients. Without this check every certificate of a company's CA would
// make its owner a member.
class NameVerifier final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  bool Verify(TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    const std::vector<grpc::string_ref> names = request->dns_names();
    if (std::find(names.begin(), names.end(), kTlsName) == names.end()) {
      *status = {grpc::StatusCode::UNAUTHENTICATED, "the certificate names no member"};
    }
    return true;  // at once
  }
  void Cancel(TlsCustomVerificationCheckRequest*) override {}
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const TlsFiles& tls) {
  InitializeGrpc();
  if (!tls.used()) return grpc::InsecureServerCredentials();
  grpc::experimental::TlsServerCredentialsOptions options(ProviderOf(tls));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.set_certificate_verifier(
      grpc::experimental::ExternalCertificateVerifier::Create<NameVerifier>());
  return grpc::experimental::TlsServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const TlsFiles& tls,
                                                               absl::string_view target,
                                                               grpc::ChannelArguments* arguments) {
  InitializeGrpc();
  if (!tls.used() || absl::StartsWith(target, "unix:")) return grpc::InsecureChannelCredentials();
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(ProviderOf(tls));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(true);
  arguments->SetSslTargetNameOverride(kTlsName);
  return grpc::experimental::TlsCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> ForeignCredentialsOf(const TlsFiles& tls) {
  InitializeGrpc();
  if (tls == TlsFiles()) return grpc::SslCredentials({});
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(ProviderOf(tls));
  if (!tls.ca.empty()) options.watch_root_certs();
  if (!tls.certificate.empty()) options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(true);
  return grpc::experimental::TlsCredentials(options);
}

// Always HTTP/1.1, because people read it, and gRPC's clients report its status.
std::string AnswerWithoutTls(absl::string_view first) {
  if (first.front() == kHandshakeRecord) return "";
  return "HTTP/1.1 426 Upgrade Required\r\nUpgrade: TLS/1.3\r\nConnection: close\r\n"
         "Content-Type: text/plain\r\n\r\nThis port speaks TLS only.\n";
}

}  // namespace ddprun::rendezvous
