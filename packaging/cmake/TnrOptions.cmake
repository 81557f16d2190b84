# What every target of ours is compiled with (target tnr_options: link it PRIVATE), and how the parts that we put on
# other people's machines are linked (function tnr_self_contained).
option(TNR_TESTS "build the tests" ON)
option(TNR_CCACHE "compile through ccache where it is installed" ON)
set(TNR_SANITIZE "" CACHE STRING "sanitizers for the whole build: `address,undefined` or `thread`")
option(TNR_FUZZ "build the fuzz targets; needs clang" OFF)

find_program(TNR_CCACHE_PROGRAM ccache)
mark_as_advanced(TNR_CCACHE_PROGRAM)
if(TNR_CCACHE AND TNR_CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # Paths below the checkout count as relative: a second clone finds what the first one compiled. The last one is what
    # ccache wants to hear before it keeps what includes a precompiled header; we use no __TIME__.
    set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
        CCACHE_SLOPPINESS=pch_defines,time_macros ${TNR_CCACHE_PROGRAM})
    set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

find_package(Threads REQUIRED)
add_library(tnr_options INTERFACE)
target_include_directories(tnr_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(tnr_options INTERFACE -Wall -Wextra -Werror)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    target_compile_options(tnr_options INTERFACE -Wthread-safety)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(tnr_options INTERFACE -Wno-restrict)  # "x" + std::string warns falsely: gcc bug 105651
endif()
target_link_libraries(tnr_options INTERFACE Threads::Threads)
if(TNR_SANITIZE)
    # Line numbers are all that a report shows. With this, no optimisation, clang, which is twice as quick at that as gcc, and
    # several files to one compiler run (presets) such a build takes much less time. Assertions stay in.
    add_compile_options(-fsanitize=${TNR_SANITIZE} -fno-omit-frame-pointer -g1)
    if(TNR_SANITIZE STREQUAL thread)
        add_compile_definitions(TNR_THREAD_SANITIZER)
    endif()
    add_link_options(-fsanitize=${TNR_SANITIZE})
    # Linking 90 MB of such code takes lld 1 s of processor time, where GNU ld takes 4.
    find_program(TNR_LLD_PROGRAM ld.lld)
    mark_as_advanced(TNR_LLD_PROGRAM)
    if(TNR_LLD_PROGRAM AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
        add_link_options(-fuse-ld=lld)
    endif()
    if(TNR_SANITIZE MATCHES undefined)
        # A finding fails the test instead of passing by in its output. Enums of cuda.h take what callers pass, also numbers
        # that only newer versions of it name: answering those is our job.
        add_compile_options(-fno-sanitize-recover=undefined -fno-sanitize=enum)
        if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
            add_compile_options(-fsanitize-ignorelist=${CMAKE_SOURCE_DIR}/tests/packaging/ubsan.ignore)
        endif()
    endif()
endif()
if(TNR_FUZZ)
    # Coverage counters everywhere (tests/fuzz says where not), the fuzzer's own main() only where tnr_fuzz() links it.
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# tnr_unoptimised(file...): for files that include CLI11 or another giant and do nothing that takes time. They compile
# in half the time so. Sanitizers stay on: of an inline function that two files have, the linker keeps one, and it may
# be the one from here.
function(tnr_unoptimised)
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -O0 SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# What newer systems' toolchains take from a glibc newer than the oldest we run on: packaging/glibc says more.
add_library(tnr_old_glibc OBJECT ${CMAKE_SOURCE_DIR}/packaging/glibc/old_glibc.c)
target_link_libraries(tnr_old_glibc PRIVATE tnr_options)

# tnr_self_contained(target [EXPORTS version_script])
#
# For a shared library or program of ours that is copied to machines we do not choose and loaded into programs we do
# not know: it brings its own libstdc++ and libgcc, needs no more of the system than glibc 2.34, and shows no symbol
# but those the linker version script names (required for a shared library). tests/packaging checks the outcome.
# In a build with sanitizers only the exports are kept: their runtimes must stay shared.
function(tnr_self_contained target)
    cmake_parse_arguments(arg "" EXPORTS "" ${ARGN})
    get_target_property(type ${target} TYPE)
    if(arg_EXPORTS)
        get_filename_component(script ${arg_EXPORTS} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
        # Not to be unloaded: programs dlclose a libcuda that they have used, and threads of ours run in it.
        target_link_options(${target} PRIVATE -Wl,--version-script=${script} -Wl,-z,nodelete)
        set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${script})
    elseif(type STREQUAL SHARED_LIBRARY)
        message(FATAL_ERROR "tnr_self_contained(${target}): a shared library needs EXPORTS, else std:: symbols leak out of it")
    endif()
    if(NOT TNR_SANITIZE)
        target_link_libraries(${target} PRIVATE tnr_old_glibc)
        target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc
            -Wl,--exclude-libs,ALL -Wl,-z,defs -Wl,-z,now -Wl,-z,relro -Wl,--as-needed)
    endif()
endfunction()
