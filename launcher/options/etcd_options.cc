#include "launcher/options/etcd_options.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/host_port.h"
#include "base/status_macros.h"
#include "launcher/options/errors.h"
#include "launcher/options/values.h"

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

}  // namespace ddprun::launcher
