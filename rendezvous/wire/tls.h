#ifndef DDPRUN_RENDEZVOUS_WIRE_TLS_H_
#define DDPRUN_RENDEZVOUS_WIRE_TLS_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "base/tls_files.h"

namespace ddprun::rendezvous {

// Mutual TLS (PROTOCOL.md, Security): each side shows a certificate that the other side's CA has
// signed and that has the name kTlsName. The files are read again within some seconds after they
// change; existing connections continue, new ones use the new certificates. gRPC has one thread for
// each set of files, for the life of the process. Threads: any.

// Credentials of a server. Without files: no TLS.
std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const TlsFiles& tls);

// Credentials of a channel to `target`; adds the arguments that they need to `arguments`. A unix
// socket has no TLS: its file mode says which users may use it.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const TlsFiles& tls,
                                                               absl::string_view target,
                                                               grpc::ChannelArguments* arguments);

// Credentials of a channel to a foreign server, which shows a certificate for its own name. Params:
// tls: ca "" = the authorities that this machine trusts; certificate and key "" = we show none.
// Files are read again as above.
std::shared_ptr<grpc::ChannelCredentials> ForeignCredentialsOf(const TlsFiles& tls);

// The answer of a server with TLS to the first bytes of a connection without TLS, which says why it
// is refused; "" = the bytes may be TLS. Requires: `first` has at least one byte.
std::string AnswerWithoutTls(absl::string_view first);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_TLS_H_
