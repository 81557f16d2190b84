# libcurl, OpenSSL and libssh2 for `tnr`, as static libraries: it is one file that runs on systems that have none of them.
# Targets tnr_curl and tnr_ssh2. packaging/third_party/libcurl says why the distribution's libcurl.a will not do.
execute_process(
    COMMAND ${CMAKE_COMMAND} -E env TNR_THIRD_PARTY=${TNR_THIRD_PARTY} CC=${CMAKE_C_COMPILER}
            ${CMAKE_SOURCE_DIR}/packaging/third_party/libcurl
    OUTPUT_VARIABLE curl_prefix OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)

set(OPENSSL_USE_STATIC_LIBS TRUE)
find_package(OpenSSL REQUIRED)
find_library(TNR_NGHTTP2 libnghttp2.a REQUIRED)
find_library(TNR_ZLIB libz.a REQUIRED)
find_library(TNR_SSH2 libssh2.a REQUIRED)
find_path(TNR_SSH2_INCLUDE libssh2.h REQUIRED)
mark_as_advanced(TNR_NGHTTP2 TNR_ZLIB TNR_SSH2 TNR_SSH2_INCLUDE)

add_library(tnr_curl INTERFACE)
target_include_directories(tnr_curl SYSTEM INTERFACE ${curl_prefix}/include)
target_link_libraries(tnr_curl INTERFACE ${curl_prefix}/lib/libcurl.a OpenSSL::SSL OpenSSL::Crypto ${TNR_NGHTTP2} ${TNR_ZLIB})

add_library(tnr_ssh2 INTERFACE)
target_include_directories(tnr_ssh2 SYSTEM INTERFACE ${TNR_SSH2_INCLUDE})
target_link_libraries(tnr_ssh2 INTERFACE ${TNR_SSH2} OpenSSL::Crypto ${TNR_ZLIB})
