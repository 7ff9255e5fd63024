#ifndef DDPRUN_RENDEZVOUS_WIRE_INITIALIZE_GRPC_H_
#define DDPRUN_RENDEZVOUS_WIRE_INITIALIZE_GRPC_H_

namespace ddprun::rendezvous {

// Configures gRPC and protobuf for the whole process, once. Names are resolved by getaddrinfo(3)
// (nsswitch, mDNS, /etc/hosts), as the workers do it; a connection reads as many bytes at a
// time as its channel says; log messages go to our log. The environment variables
// GRPC_DNS_RESOLVER, GRPC_EXPERIMENTS, GRPC_VERBOSITY and GRPC_TRACE override this. The functions
// of grpc_settings.h and tls.h call it. Threads: any, but the first call changes the environment
// for a moment (setenv(3)), so no other thread may read it then.
void InitializeGrpc();

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_INITIALIZE_GRPC_H_
