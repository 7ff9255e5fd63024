#ifndef DDPRUN_RENDEZVOUS_SERVER_CORE_FIRST_BYTE_H_
#define DDPRUN_RENDEZVOUS_SERVER_CORE_FIRST_BYTE_H_

namespace ddprun::rendezvous {

// Whether a connection whose first byte is this is one of a client of torch's TCPStore. The first
// byte of such a client is the number of a command: 0 to 18 as of torch 2.11. Of the clients of
// gRPC, those with TLS begin with 22, the type of a handshake record (RFC 8446, 5.1), and those
// without with the 'P' of HTTP/2's preface (RFC 9113, 3.4).
constexpr bool BeginsTcpStore(char first) { return static_cast<unsigned char>(first) < 22; }

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_CORE_FIRST_BYTE_H_
