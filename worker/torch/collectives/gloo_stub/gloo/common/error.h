#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_GLOO_STUB_GLOO_COMMON_ERROR_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_GLOO_STUB_GLOO_COMMON_ERROR_H_
// LibTorch carries its own Gloo inside libtorch_cpu.so but not its headers. ProcessGroupGloo.hpp
// needs only these declarations; nothing of ours calls into them.
#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_GLOO_STUB_GLOO_COMMON_ERROR_H_
