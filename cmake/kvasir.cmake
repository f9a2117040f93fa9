# Compiler flags and the two functions every folder uses.

find_package(Threads REQUIRED)
if(KVASIR_CORE_ONLY)
  include(${CMAKE_CURRENT_LIST_DIR}/header_only.cmake)
else()
  find_package(fmt REQUIRED)
  find_package(spdlog REQUIRED)
  if(KVASIR_TESTS)
    find_package(GTest REQUIRED)
  endif()
endif()
if(KVASIR_TESTS)
  include(GoogleTest)
endif()

add_library(kvasir_flags INTERFACE)
# -ffp-contract=off: a fused multiply-add is always written, never inferred (docs/numerics.md).
target_compile_options(kvasir_flags INTERFACE
  -Wall -Wextra -Werror -Wshadow -Wnon-virtual-dtor -ffp-contract=off -fno-math-errno
  -fstack-protector-strong)
target_include_directories(kvasir_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(kvasir_flags INTERFACE Threads::Threads)
if(KVASIR_SANITIZE)
  target_compile_options(kvasir_flags INTERFACE
    -fsanitize=${KVASIR_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(kvasir_flags INTERFACE -fsanitize=${KVASIR_SANITIZE})
  target_compile_definitions(kvasir_flags INTERFACE KVASIR_DEBUG_CHECKS)
endif()

# kvasir_library(NAME DEPS ...): a static library of the folder's *.cc, except its *_test.cc.
# EXTRA adds sources of subfolders.
function(kvasir_library name)
  cmake_parse_arguments(ARG "" "" "DEPS;EXTRA" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc ${ARG_EXTRA})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  add_library(kvasir_${name} STATIC ${sources})
  target_link_libraries(kvasir_${name} PUBLIC kvasir_flags ${ARG_DEPS})
endfunction()

# kvasir_tests(NAME DEPS ...): one test program of the folder's *_test.cc, run through ctest.
function(kvasir_tests name)
  if(NOT KVASIR_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "DEPS;EXTRA" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cc ${ARG_EXTRA})
  if(NOT sources)
    return()
  endif()
  add_executable(kvasir_${name}_test ${sources})
  target_link_libraries(kvasir_${name}_test PRIVATE kvasir_flags ${ARG_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_definitions(kvasir_${name}_test PRIVATE KVASIR_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  gtest_discover_tests(kvasir_${name}_test DISCOVERY_MODE PRE_TEST PROPERTIES LABELS unit)
endfunction()

# Target `name` unpacks an archive of test data into build/NAME, whose path goes to `folder`.
function(kvasir_unpack name archive folder)
  set(into ${CMAKE_BINARY_DIR}/${name})
  file(MAKE_DIRECTORY ${into})
  add_custom_command(OUTPUT ${into}/unpacked
    COMMAND ${CMAKE_COMMAND} -E tar xf ${archive}
    COMMAND ${CMAKE_COMMAND} -E touch ${into}/unpacked
    DEPENDS ${archive} WORKING_DIRECTORY ${into} VERBATIM)
  add_custom_target(${name} DEPENDS ${into}/unpacked)
  set(${folder} ${into} PARENT_SCOPE)
endfunction()
