# libweir_cuda.so, which `weir` loads where there is a device: the sources of this folder and
# plugin/, and a few pure ones of Weir's, of which the plugin has copies of its own (plugin.h).
# The target weir_cuda builds it with nvcc; tests/cuda builds the same over the emulation.
set(WEIR_CUDA_DIR ${CMAKE_CURRENT_LIST_DIR})
file(GLOB WEIR_CUDA_KERNELS CONFIGURE_DEPENDS ${WEIR_CUDA_DIR}/*.cu)
file(GLOB WEIR_CUDA_HOST CONFIGURE_DEPENDS ${WEIR_CUDA_DIR}/*.c)
file(GLOB WEIR_CUDA_PLUGIN CONFIGURE_DEPENDS ${WEIR_CUDA_DIR}/plugin/*.c)
set(WEIR_CUDA_COPIES
  ${CMAKE_SOURCE_DIR}/src/backend/cpu/threads.c
  ${CMAKE_SOURCE_DIR}/src/base/clock.c
  ${CMAKE_SOURCE_DIR}/src/base/machine.c
  ${CMAKE_SOURCE_DIR}/src/base/thread.c
  ${CMAKE_SOURCE_DIR}/src/backend/gpu_class.c
  ${CMAKE_SOURCE_DIR}/src/backend/kv_type.c
  ${CMAKE_SOURCE_DIR}/src/base/err.c
  ${CMAKE_SOURCE_DIR}/src/base/utf8.c
  ${CMAKE_SOURCE_DIR}/src/gguf/blocks.c
  ${CMAKE_SOURCE_DIR}/src/gguf/grids.c
  ${CMAKE_SOURCE_DIR}/src/model/state.c
  ${CMAKE_SOURCE_DIR}/src/model/uses.c)

# What a device may be, of what nvcc knows. Code of 8.0 runs on 8.6, 8.7 and 8.9 too, of 10.0 on 10.3;
# the first is also kept as PTX, which the driver compiles for any other, or later, device.
# A default in the cache would outlive its change, in each build folder that is there: so an empty one
# stands for the list here, and whoever wants another says -DWEIR_CUDA_ONLY=90a.
set(WEIR_CUDA_ONLY "" CACHE STRING "Architectures of the CUDA plugin; empty: all that it is made for")
unset(WEIR_CUDA_ARCHITECTURES CACHE)
if(WEIR_CUDA_ONLY)
  set(WEIR_CUDA_ARCHITECTURES ${WEIR_CUDA_ONLY})
  message(STATUS "CUDA: only for ${WEIR_CUDA_ONLY} (WEIR_CUDA_ONLY)")
else()
  set(WEIR_CUDA_ARCHITECTURES 80 90a 100 120)
endif()

find_program(WEIR_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(NOT WEIR_NVCC)
  add_custom_target(weir_cuda
    COMMAND ${CMAKE_COMMAND} -E echo
            "There is no nvcc here: the CUDA plugin cannot be built (CUDA_HOME says where it is)"
    COMMAND ${CMAKE_COMMAND} -E false)
  return()
endif()
get_filename_component(WEIR_CUDA_HOME ${WEIR_NVCC} REALPATH)
get_filename_component(WEIR_CUDA_HOME ${WEIR_CUDA_HOME} DIRECTORY)
get_filename_component(WEIR_CUDA_HOME ${WEIR_CUDA_HOME} DIRECTORY)

# Toolkits that the system's packages bring have it elsewhere.
find_library(WEIR_CUDART libcudart_static.a
             HINTS ${WEIR_CUDA_HOME} PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib)
set(WEIR_NVCC_FLAGS -std=c++17 -O3 -lineinfo --threads 0 -Xcompiler=-fPIC,-fvisibility=hidden
    -I${CMAKE_SOURCE_DIR}/src)
option(WEIR_CUDA_QUICK "See whether the CUDA plugin compiles, in a third of the time: what comes out is slow" OFF)
execute_process(COMMAND ${WEIR_NVCC} --version OUTPUT_VARIABLE nvcc_version)
# Instead of for devices: PTX alone, as text, which tests/cuda/ptx runs in the place of CUDA's library.
set(WEIR_CUDA_PTX "" CACHE STRING "What tests/cuda/ptx shall be, 80 or 90a; empty: code for devices")
if(WEIR_CUDA_PTX)
  set(WEIR_CUDA_ARCHITECTURES)
  set(WEIR_CUDART weir_ptx)
  list(APPEND WEIR_NVCC_FLAGS --compress-mode=none
       -gencode=arch=compute_${WEIR_CUDA_PTX},code=compute_${WEIR_CUDA_PTX})
elseif(nvcc_version MATCHES "release (1[3-9]|[2-9][0-9])") # whose drivers can all take it apart
  list(APPEND WEIR_NVCC_FLAGS --compress-mode=size)    # a quarter of the bytes
  if(WEIR_CUDA_QUICK)
    list(APPEND WEIR_NVCC_FLAGS --Ofast-compile=max)
  endif()
endif()
execute_process(COMMAND ${WEIR_NVCC} --list-gpu-arch OUTPUT_VARIABLE nvcc_knows)
set(architectures)
foreach(arch ${WEIR_CUDA_ARCHITECTURES}) # 100 and 120 are known from CUDA 12.8 on
  string(REGEX REPLACE "[a-z]$" "" number ${arch})
  if(nvcc_knows MATCHES "compute_${number}\n")
    list(APPEND architectures ${arch})
  else()
    message(STATUS "CUDA: this nvcc cannot compile for sm_${arch}; the plugin goes without")
  endif()
endforeach()
foreach(arch ${architectures})
  list(GET architectures 0 first)
  if(arch STREQUAL first)
    list(APPEND WEIR_NVCC_FLAGS -gencode=arch=compute_${arch},code=[sm_${arch},compute_${arch}])
  else()
    list(APPEND WEIR_NVCC_FLAGS -gencode=arch=compute_${arch},code=sm_${arch})
  endif()
endforeach()

# weir_nvcc(OUT source...): compiles each with nvcc and leaves the objects' paths in OUT.
function(weir_nvcc out)
  set(objects)
  foreach(source ${ARGN})
    get_filename_component(name ${source} NAME)
    set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/cuda
      COMMAND ${WEIR_NVCC} ${WEIR_NVCC_FLAGS} -x cu -c ${source} -o ${object}
              -MD -MF ${object}.d -MT ${object}
      DEPENDS ${source} DEPFILE ${object}.d COMMENT "nvcc ${name}" VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()

weir_nvcc(weir_cuda_objects ${WEIR_CUDA_KERNELS})
# kernels and the host's side by themselves, for tests on a device, which take what they need
add_library(weir_cuda_kernels STATIC EXCLUDE_FROM_ALL ${weir_cuda_objects})
set_target_properties(weir_cuda_kernels PROPERTIES LINKER_LANGUAGE C)
add_library(weir_cuda_host STATIC EXCLUDE_FROM_ALL ${WEIR_CUDA_HOST})
target_include_directories(weir_cuda_host PUBLIC src)
target_include_directories(weir_cuda_host SYSTEM PRIVATE ${WEIR_CUDA_HOME}/include)
add_library(weir_cuda SHARED EXCLUDE_FROM_ALL
  ${weir_cuda_objects} ${WEIR_CUDA_HOST} ${WEIR_CUDA_PLUGIN} ${WEIR_CUDA_COPIES})
set_target_properties(weir_cuda PROPERTIES LINKER_LANGUAGE C C_VISIBILITY_PRESET hidden
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
target_include_directories(weir_cuda PRIVATE src)
target_include_directories(weir_cuda SYSTEM PRIVATE ${WEIR_CUDA_HOME}/include)
target_link_options(weir_cuda PRIVATE -Wl,--no-undefined -Wl,--exclude-libs,ALL)
# nvcc's stubs want a little of C++'s library; the plugin brings it, hidden
target_link_libraries(weir_cuda PRIVATE ${WEIR_CUDART} -l:libstdc++.a
                      Threads::Threads ${CMAKE_DL_LIBS} rt m)
install(FILES ${CMAKE_BINARY_DIR}/libweir_cuda.so DESTINATION lib/weir OPTIONAL)
