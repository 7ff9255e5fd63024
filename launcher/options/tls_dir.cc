#include "launcher/options/tls_dir.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "launcher/options/errors.h"

namespace ddprun::launcher {

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

}  // namespace ddprun::launcher
