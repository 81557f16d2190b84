# libcurl, OpenSSL and libssh2 for `tnr`, as static libraries: it is one file that runs on systems that have none of them.
# Targets tnr_curl and tnr_ssh2. packaging/third_party/libcurl and libssh2 say why the distribution's own will not do.
foreach(library curl ssh2)
    execute_process(
        COMMAND ${CMAKE_COMMAND} -E env TNR_THIRD_PARTY=${TNR_THIRD_PARTY} CC=${CMAKE_C_COMPILER}
                ${CMAKE_SOURCE_DIR}/packaging/third_party/lib${library}
        OUTPUT_VARIABLE ${library}_prefix OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
endforeach()

set(OPENSSL_USE_STATIC_LIBS TRUE)
find_package(OpenSSL REQUIRED)
find_library(TNR_NGHTTP2 libnghttp2.a REQUIRED)
find_library(TNR_ZLIB libz.a REQUIRED)
mark_as_advanced(TNR_NGHTTP2 TNR_ZLIB)

add_library(tnr_curl INTERFACE)
target_include_directories(tnr_curl SYSTEM INTERFACE ${curl_prefix}/include)
target_link_libraries(tnr_curl INTERFACE ${curl_prefix}/lib/libcurl.a OpenSSL::SSL OpenSSL::Crypto ${TNR_NGHTTP2} ${TNR_ZLIB})

add_library(tnr_ssh2 INTERFACE)
target_include_directories(tnr_ssh2 SYSTEM INTERFACE ${ssh2_prefix}/include)
target_link_libraries(tnr_ssh2 INTERFACE ${ssh2_prefix}/lib/libssh2.a OpenSSL::Crypto ${TNR_ZLIB})
