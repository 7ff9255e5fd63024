#ifndef DDPRUN_TESTS_FUZZ_FRONT_DOOR_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_FRONT_DOOR_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace ddprun::rendezvous {

struct FrontDoorFuzzResult {
  std::string problem;  // "" = none
  uint64_t admitted = 0;
  uint64_t turned_away = 0;
  uint64_t evicted = 0;
  uint64_t peers = 0;  // names that were read
};

// Plays the bytes as connections that come, end, say who they are and find no descriptor, into the
// keeper of the service's door. A stranger who was let in stays until it is ripe; who comes when
// there is a place, or somebody ripe, gets in; bounds hold. Some bytes are read as gRPC's name of a
// peer, and as the first ones of a connection to a port with TLS.
FrontDoorFuzzResult FuzzFrontDoor(const uint8_t* data, size_t size);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_FUZZ_FRONT_DOOR_FUZZ_H_
