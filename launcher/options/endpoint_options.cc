#include "launcher/options/endpoint_options.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/address.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/argument.h"
#include "launcher/options/values.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {
namespace {

constexpr uint16_t kEtcdPort = 2379;
// Not on the command line, where everybody on the machine could read it.
constexpr char kEtcdPassword[] = "DDPRUN_ETCD_PASSWORD";

}  // namespace

bool IsEtcdBackend(const std::string& backend) { return backend == "etcd" || backend == "etcd-v2"; }

absl::StatusOr<bool> ReadEtcdKey(const std::string& key, const Argument& value,
                                 rendezvous::EtcdSettings* etcd) {
  std::string* text = nullptr;
  if (key == "cacert" || key == "ca_cert") text = &etcd->ca_file;
  if (key == "cert" || key == "ssl_cert") text = &etcd->cert_file;
  if (key == "key" || key == "ssl_cert_key") text = &etcd->key_file;
  if (key == "etcd_user") text = &etcd->user;
  if (text != nullptr) {
    *text = value.text;
    if (key != "etcd_user") etcd->tls = true;
    return true;
  }
  if (key == "etcd_prefix") {
    etcd->prefix = std::string(absl::StripSuffix(value.text, "/"));
    return true;
  }
  if (key != "protocol") return false;
  if (value.text != "http" && value.text != "https") return BadValue(value, "give http or https");
  etcd->tls = value.text == "https";
  return true;
}

absl::Status ReadEtcdMembers(const Argument& rdzv_endpoint, const Argument& rdzv_conf,
                             const EnvironmentLookup& environment, rendezvous::EtcdSettings* etcd) {
  const std::string list = rdzv_endpoint.filled() ? rdzv_endpoint.text : "localhost";
  for (const absl::string_view member : absl::StrSplit(list, ',')) {
    const Argument one{.text = std::string(absl::StripAsciiWhitespace(member)),
                       .source = rdzv_endpoint.source};
    DDPRUN_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(one));
    const uint16_t port = endpoint.port.value_or(kEtcdPort);
    if (port == 0) return BadValue(one, "port 0 is no port of etcd");
    etcd->endpoints.push_back(HostPort(endpoint.host, port));
  }
  if (const auto password = environment(kEtcdPassword)) etcd->password = *password;
  if (etcd->user.empty() != etcd->password.empty()) {
    return BadValue(rdzv_conf, absl::StrCat("etcd_user=NAME and the variable ", kEtcdPassword,
                                            " belong together; one of them is missing"));
  }
  if (etcd->cert_file.empty() != etcd->key_file.empty()) {
    return BadValue(rdzv_conf, "cert and key belong together; one of them is missing");
  }
  return absl::OkStatus();
}

void DefineTlsDir(Argument* target, OptionSet* options) {
  options->AddValue(
      target, {.names = "--tls-dir",
               .placeholder = "DIR",
               .help = "TLS for everything between nodes, service and commands: DIR holds ca.crt, "
                       "node.crt and node.key (or tls.crt and tls.key), and peers without a "
                       "certificate of that CA are refused. On all nodes or on none; ddprun certs "
                       "makes such a folder. Files that change are read again.",
               .environment = "DDPRUN_TLS_DIR"});
}

absl::StatusOr<TlsFiles> ReadTlsDir(const Argument& tls_dir, const Host& host) {
  if (!tls_dir.filled()) return TlsFiles();
  const std::string dir(absl::StripSuffix(tls_dir.text, "/"));
  const bool is_kubernetes =
      host.KindOf(absl::StrCat(dir, "/node.crt")) == Host::PathKind::kMissing &&
      host.KindOf(absl::StrCat(dir, "/tls.crt")) != Host::PathKind::kMissing;
  const std::string stem = absl::StrCat(dir, is_kubernetes ? "/tls" : "/node");
  const TlsFiles tls{.ca = absl::StrCat(dir, "/ca.crt"),
                     .certificate = absl::StrCat(stem, ".crt"),
                     .key = absl::StrCat(stem, ".key")};
  if (const absl::Status status = host.CheckTls(tls); !status.ok()) {
    return PlanError(absl::StrCat(tls_dir.source, ": ", status.message()));
  }
  return tls;
}

absl::StatusOr<std::string> ReadToken(const Argument& token, const Argument& token_file,
                                      const Host& host) {
  // A file on the command line wins over the variable.
  const bool use_file = token_file.filled() && (!token.filled() || token.source == "DDPRUN_TOKEN");
  std::string secret = token.text;
  if (use_file) {
    absl::StatusOr<std::string> content = host.ReadFile(token_file.text);
    if (!content.ok()) {
      return PlanError(absl::StrCat(token_file.source, ": ", content.status().message()));
    }
    if (const absl::Status status = host.CheckSecret(token_file.text); !status.ok()) {
      return PlanError(absl::StrCat(token_file.source, ": ", status.message()));
    }
    secret = std::string(absl::StripAsciiWhitespace(*content));
    if (secret.empty()) return BadValue(token_file, "the file holds no secret");
  }
  if (secret.size() > rendezvous::kNameBytesMax) {
    return PlanError(absl::StrCat(use_file ? token_file.source : token.source,
                                  ": the secret is longer than ", rendezvous::kNameBytesMax,
                                  " bytes"));
  }
  if (!IsUtf8(secret)) {
    return PlanError(absl::StrCat(use_file ? token_file.source : token.source,
                                  ": the secret is not UTF-8 text"));
  }
  return secret;
}

void DefineStatusPageToken(Argument* target, OptionSet* options) {
  options->AddValue(target,
                    {.names = "--status-page-token-file",
                     .placeholder = "FILE",
                     .help = "File with the password of the status page: browsers ask for it (the "
                             "user is any name), monitors send it as a bearer token. The variable "
                             "DDPRUN_STATUS_PAGE_TOKEN holds the password itself."});
}

absl::StatusOr<std::string> ReadStatusPageToken(const Argument& file,
                                                const EnvironmentLookup& environment,
                                                const Host& host) {
  const Argument token{.text = environment("DDPRUN_STATUS_PAGE_TOKEN").value_or(""),
                       .source = "DDPRUN_STATUS_PAGE_TOKEN"};
  return ReadToken(file.filled() ? Argument() : token, file, host);
}

}  // namespace ddprun::launcher
