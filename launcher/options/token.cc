#include "launcher/options/token.h"

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "launcher/options/errors.h"
#include "launcher/options/values.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {

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
