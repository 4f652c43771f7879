# Target cann::torch: headers and libraries of the torch wheel installed for ${Python_EXECUTABLE}.
# torch's own TorchConfig.cmake is avoided on purpose: it looks for every optional dependency of the wheel's build.
# Backends are not loaded either: one of them may be the package being built.
execute_process(
  COMMAND ${CMAKE_COMMAND} -E env TORCH_DEVICE_BACKEND_AUTOLOAD=0 ${Python_EXECUTABLE} -c "import torch, pathlib; print(pathlib.Path(torch.__file__).parent, torch.__version__, int(torch.compiled_with_cxx11_abi()))"
  OUTPUT_VARIABLE torch_facts OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE torch_missing
  ERROR_QUIET)
if(torch_missing)
  message(FATAL_ERROR "torch is not installed for ${Python_EXECUTABLE}: run `pip install torch==2.13.0` first")
endif()
separate_arguments(torch_facts)
list(GET torch_facts 0 torch_dir)
list(GET torch_facts 1 torch_version)
list(GET torch_facts 2 torch_abi)
if(NOT torch_version MATCHES "^2\\.13\\.")
  message(FATAL_ERROR "torch ${torch_version} found in ${torch_dir}, torch_cann needs 2.13: protected members of TensorImpl are used by name")
endif()
message(STATUS "torch ${torch_version} in ${torch_dir}")

add_library(cann_torch INTERFACE)
add_library(cann::torch ALIAS cann_torch)
target_include_directories(cann_torch SYSTEM INTERFACE
  ${torch_dir}/include ${torch_dir}/include/torch/csrc/api/include)
target_compile_definitions(cann_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=${torch_abi})
target_link_directories(cann_torch INTERFACE ${torch_dir}/lib)
target_link_libraries(cann_torch INTERFACE torch_cpu c10)
set(CANN_TORCH_LIB_DIR ${torch_dir}/lib)
