#include "tools/certs/certs_command.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/argument.h"
#include "launcher/options/option_set.h"
#include "launcher/options/values.h"
#include "tools/certs/certificates.h"

namespace ddprun::launcher {
namespace {

constexpr char kIntroduction[] = R"(usage: ddprun certs [options] DIR

Makes what --tls_dir wants: a CA of your own and one certificate for all nodes.
With it everything between nodes, service and commands is encrypted, and whoever
has no certificate of this CA can't even ask.

  DIR/ca.crt    the CA's certificate: who is of the cluster   on every node
  DIR/node.crt  what nodes show each other                    on every node
  DIR/node.key  its key: secret, as who has it is a node      on every node
  DIR/ca.key    signs new certificates: secret                stays here

Before node.crt expires, renew it and copy node.crt and node.key again: running
jobs read the new ones within seconds, and connections go on.

Examples:
  ddprun certs cluster
  ddprun --tls_dir cluster --nnodes 2 --rdzv_endpoint host0:29400 train.py
  ddprun certs --renew cluster)";

constexpr mode_t kPublic = 0644;
constexpr mode_t kSecret = 0600;
constexpr uint32_t kDaysMax = 36500;

std::string CaKey(const CertsOptions& options) { return absl::StrCat(options.dir, "/ca.key"); }
std::string CaCrt(const CertsOptions& options) { return absl::StrCat(options.dir, "/ca.crt"); }
std::string NodeKey(const CertsOptions& options) { return absl::StrCat(options.dir, "/node.key"); }
std::string NodeCrt(const CertsOptions& options) { return absl::StrCat(options.dir, "/node.crt"); }

// Replaces the file atomically.
absl::Status Write(const std::string& path, mode_t mode, const std::string& text) {
  const std::string beside = absl::StrCat(path, ".new");
  unlink(beside.c_str());
  const Fd fd(open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", Quoted(beside)));
  DDPRUN_RETURN_IF_ERROR(WriteAll(fd.get(), text));
  if (fsync(fd.get()) != 0) return ErrnoStatus(errno, absl::StrCat("fsync ", Quoted(beside)));
  if (rename(beside.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename to ", Quoted(path)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Read(const std::string& path) {
  const std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (file.is_open()) return text.str();
  return PlanError(
      absl::StrCat("--renew: can't read ", path, "; without --renew ddprun certs makes a new CA"));
}

absl::Status CheckNothingIsThere(const CertsOptions& options) {
  for (const std::string& path :
       {CaKey(options), CaCrt(options), NodeKey(options), NodeCrt(options)}) {
    struct stat facts {};
    if (lstat(path.c_str(), &facts) != 0) continue;
    return PlanError(absl::StrCat(path,
                                  " is there already, and jobs may use it: --renew makes a "
                                  "new node.crt of that CA, another folder a new CA"));
  }
  return absl::OkStatus();
}

absl::StatusOr<KeyPair> NewCa(const CertsOptions& options) {
  DDPRUN_RETURN_IF_ERROR(CheckNothingIsThere(options));
  if (mkdir(options.dir.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("mkdir ", Quoted(options.dir)));
  }
  DDPRUN_ASSIGN_OR_RETURN(KeyPair ca, MakeCa(options.days));
  DDPRUN_RETURN_IF_ERROR(Write(CaKey(options), kSecret, ca.key));
  DDPRUN_RETURN_IF_ERROR(Write(CaCrt(options), kPublic, ca.certificate));
  return ca;
}

absl::StatusOr<KeyPair> OldCa(const CertsOptions& options) {
  KeyPair ca;
  DDPRUN_ASSIGN_OR_RETURN(ca.certificate, Read(CaCrt(options)));
  DDPRUN_ASSIGN_OR_RETURN(ca.key, Read(CaKey(options)));
  return ca;
}

}  // namespace

absl::StatusOr<OptionsOrHelp<CertsOptions>> ParseCertsOptions(
    const std::vector<std::string>& arguments) {
  OptionSet options(kIntroduction);
  OptionsOrHelp<CertsOptions> result;
  options.Group("Certificates");
  Argument days{.text = absl::StrCat(result.options.days)};
  options.AddValue(&days, {.names = "--days",
                           .placeholder = "N",
                           .help = "How long the nodes' certificate is valid; the CA's is for ten "
                                   "years.",
                           .environment = ""});
  options.AddFlag(&result.options.renew, {.names = "--renew",
                                          .help = "A new node.crt and node.key of the CA in DIR.",
                                          .environment = ""});
  DDPRUN_ASSIGN_OR_RETURN(ParsedArguments parsed, options.Parse(arguments, [](const std::string&) {
    return std::optional<std::string>();
  }));
  if (parsed.help) {
    result.help = options.Help();
    return result;
  }
  if (parsed.positionals.size() != 1 || parsed.positionals.front().empty()) {
    return UsageError("which folder? Give one, after the options: ddprun certs DIR (see --help)");
  }
  DDPRUN_ASSIGN_OR_RETURN(const int64_t number, ParseInteger(days, 1, kDaysMax));
  result.options.days = static_cast<uint32_t>(number);
  result.options.dir = std::string(absl::StripSuffix(parsed.positionals.front(), "/"));
  return result;
}

absl::StatusOr<std::string> MakeCerts(const CertsOptions& options) {
  DDPRUN_ASSIGN_OR_RETURN(const KeyPair ca, options.renew ? OldCa(options) : NewCa(options));
  const absl::StatusOr<KeyPair> node = MakeNode(ca, options.days);
  if (!node.ok()) {
    return PlanError(
        absl::StrCat(CaCrt(options), ", ", CaKey(options), ": ", node.status().message()));
  }
  DDPRUN_RETURN_IF_ERROR(Write(NodeKey(options), kSecret, node->key));
  DDPRUN_RETURN_IF_ERROR(Write(NodeCrt(options), kPublic, node->certificate));
  const std::string dir = Quoted(options.dir);
  const std::string renewed = absl::StrCat(
      "renewed node.crt and node.key in ", dir, ", valid until ", node->expires,
      ". Next: copy both to the same folder of every node; running jobs read them within seconds.");
  if (options.renew) return renewed;
  return absl::StrCat("made ca.crt, ca.key, node.crt and node.key in ", dir,
                      "; node.crt is valid until ", node->expires, ". Next:\n",
                      "  1. copy ca.crt, node.crt and node.key (not ca.key) to a folder of every "
                      "node, and of each machine that runs ddprun status\n",
                      "  2. start every node with --tls_dir FOLDER, or DDPRUN_TLS_DIR=FOLDER\n",
                      "  3. before it expires: ddprun certs --renew ", options.dir,
                      ", and copy node.crt and node.key again");
}

}  // namespace ddprun::launcher
