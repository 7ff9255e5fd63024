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

// Mutual TLS (PROTOCOL.md, Security): each side shows a certificate that the other one's CA has
// signed and that names kTlsName. The files are read again within some seconds after they change;
// connections that exist go on, new ones have the new certificates. One thread of gRPC's for each
// set of files, for the life of the process. Threads: any.

// Without files: no TLS.
std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const TlsFiles& tls);

// The same for a channel to `target`, whose arguments get what belongs to it. A unix socket has no
// TLS: its file says who may use it.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const TlsFiles& tls,
                                                               absl::string_view target,
                                                               grpc::ChannelArguments* arguments);

// For a channel to a server that is none of ours, and shows a certificate for its own name.
// Params: tls: ca "" = whom this machine trusts; certificate and key "" = we show none. Files are
// read again as above.
std::shared_ptr<grpc::ChannelCredentials> ForeignCredentialsOf(const TlsFiles& tls);

// What a server with TLS answers to the first bytes of a connection without it, so that its caller
// hears why; "" = they may be TLS. `first` has at least one byte.
std::string AnswerWithoutTls(absl::string_view first);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_TLS_H_
