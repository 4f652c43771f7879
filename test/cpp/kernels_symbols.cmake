# Fails if an object of kernels defines a weak symbol: the linker may take any set's copy of such a function, and one with
# wide instructions would then run on a CPU that lacks them. Variables: NM, and OBJECTS separated by commas.
string(REPLACE "," ";" objects "${OBJECTS}")
foreach(object IN LISTS objects)
  execute_process(COMMAND ${NM} --demangle --defined-only ${object} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]* [WVu] [^\n]*" weak "${symbols}")
  if(weak)
    message(FATAL_ERROR "${object} defines symbols that the linker may share between instruction sets:\n${weak}")
  endif()
endforeach()
