# Sets SLUICE_HAS_CUDA, a CMake variable. The factories, which name every device of the build, see it as a
# definition; nothing else does, so that both kinds of build share what is compiled.

if(NOT SLUICE_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "SLUICE_CUDA is '${SLUICE_CUDA}'; it may be AUTO, ON or OFF")
endif()

# The GPUs in use: Ampere, Ada, Hopper and Blackwell, with PTX for the other Blackwell and for what comes after. A
# debug build takes the two that its developers have. One's own GPU alone: -DCMAKE_CUDA_ARCHITECTURES=native.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  if(CMAKE_BUILD_TYPE STREQUAL "Debug")
    set(CMAKE_CUDA_ARCHITECTURES 86-real 90)
  else()
    set(CMAKE_CUDA_ARCHITECTURES 86-real 89-real 90 120)
  endif()
endif()

set(SLUICE_HAS_CUDA FALSE)
if(SLUICE_CUDA STREQUAL "OFF")
  message(STATUS "CUDA: off, as asked (SLUICE_CUDA=OFF)")
elseif(SLUICE_CUDA STREQUAL "ON")
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  set(SLUICE_HAS_CUDA TRUE)
  message(STATUS "CUDA: on, as asked (SLUICE_CUDA=ON), toolkit ${CUDAToolkit_VERSION}")
else()
  include(CheckLanguage)
  check_language(CUDA)
  find_program(SLUICE_NVIDIA_SMI nvidia-smi)
  mark_as_advanced(SLUICE_NVIDIA_SMI)
  if(NOT CMAKE_CUDA_COMPILER)
    message(STATUS "CUDA: off, no CUDA compiler was found (SLUICE_CUDA=AUTO)")
  elseif(NOT SLUICE_NVIDIA_SMI AND NOT EXISTS "/proc/driver/nvidia")
    message(STATUS "CUDA: off, ${CMAKE_CUDA_COMPILER} is there but no NVIDIA driver; "
                   "SLUICE_CUDA=ON builds it all the same (SLUICE_CUDA=AUTO)")
  else()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(SLUICE_HAS_CUDA TRUE)
    message(STATUS "CUDA: on, toolkit ${CUDAToolkit_VERSION} and a driver are present (SLUICE_CUDA=AUTO)")
  endif()
endif()

if(SLUICE_HAS_CUDA)
  if(SLUICE_CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${SLUICE_CCACHE}")
  endif()
  message(STATUS "CUDA architectures: ${CMAKE_CUDA_ARCHITECTURES}")
  # CMake 3.25 does not know how to ask nvcc 13 for C++20. Relaxed constexpr: philox() is shared with the host.
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;--expt-relaxed-constexpr>")
endif()
