/* The driver's calls for OpenGL, EGL and VDPAU, which a driver exports with all the others: programs look all of them up and
 * take a driver without one for none at all, although they never call it (GStreamer's nvcodec, Dr.Jit).
 *
 * CUDA declares them in cudaGL.h, cudaEGL.h and cudaVDPAU.h, which need headers of libraries that a build of ours has not.
 * So here are names and versions from there, with plain numbers and pointers for those libraries' types. callgen.py reads
 * this behind cuda.h and cudaTypedefs.h, as if it were part of them; a type PFN_NAME_vVERSION tells since when there is a
 * NAME. None of these calls travels: cuda.calls calls them all unsupported. */
#pragma once

#include <cuda.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef unsigned int tnr_gl_number;    /* GLuint, GLenum, CUGLDeviceList */
typedef int tnr_egl_number;            /* EGLint */
typedef void* tnr_egl_handle;          /* EGLImageKHR, EGLStreamKHR, EGLSyncKHR, CUeglStreamConnection */
typedef void* tnr_egl_frame;           /* CUeglFrame */
typedef unsigned int tnr_vdpau_handle; /* VdpDevice, VdpVideoSurface, VdpOutputSurface */

CUresult CUDAAPI cuGraphicsGLRegisterBuffer(CUgraphicsResource* resource, tnr_gl_number buffer, unsigned int flags);
CUresult CUDAAPI cuGraphicsGLRegisterImage(CUgraphicsResource* resource, tnr_gl_number image, tnr_gl_number target,
                                           unsigned int flags);
CUresult CUDAAPI cuGLGetDevices(unsigned int* found, CUdevice* devices, unsigned int room, tnr_gl_number list);
CUresult CUDAAPI cuGLGetDevices_v2(unsigned int* found, CUdevice* devices, unsigned int room, tnr_gl_number list);
CUresult CUDAAPI cuGLInit(void);
CUresult CUDAAPI cuGLCtxCreate(CUcontext* context, unsigned int flags, CUdevice device);
CUresult CUDAAPI cuGLCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device);
CUresult CUDAAPI cuGLRegisterBufferObject(tnr_gl_number buffer);
CUresult CUDAAPI cuGLUnregisterBufferObject(tnr_gl_number buffer);
CUresult CUDAAPI cuGLSetBufferObjectMapFlags(tnr_gl_number buffer, unsigned int flags);
CUresult CUDAAPI cuGLMapBufferObject(CUdeviceptr_v1* address, unsigned int* size, tnr_gl_number buffer);
CUresult CUDAAPI cuGLMapBufferObject_v2(CUdeviceptr* address, size_t* size, tnr_gl_number buffer);
CUresult CUDAAPI cuGLMapBufferObject_v2_ptds(CUdeviceptr* address, size_t* size, tnr_gl_number buffer);
CUresult CUDAAPI cuGLMapBufferObjectAsync(CUdeviceptr_v1* address, unsigned int* size, tnr_gl_number buffer,
                                          CUstream stream);
CUresult CUDAAPI cuGLMapBufferObjectAsync_v2(CUdeviceptr* address, size_t* size, tnr_gl_number buffer, CUstream stream);
CUresult CUDAAPI cuGLMapBufferObjectAsync_v2_ptsz(CUdeviceptr* address, size_t* size, tnr_gl_number buffer,
                                                  CUstream stream);
CUresult CUDAAPI cuGLUnmapBufferObject(tnr_gl_number buffer);
CUresult CUDAAPI cuGLUnmapBufferObjectAsync(tnr_gl_number buffer, CUstream stream);

CUresult CUDAAPI cuGraphicsEGLRegisterImage(CUgraphicsResource* resource, tnr_egl_handle image, unsigned int flags);
CUresult CUDAAPI cuGraphicsResourceGetMappedEglFrame(tnr_egl_frame* frame, CUgraphicsResource resource,
                                                     unsigned int index, unsigned int level);
CUresult CUDAAPI cuEGLStreamConsumerConnect(tnr_egl_handle* connection, tnr_egl_handle stream);
CUresult CUDAAPI cuEGLStreamConsumerConnectWithFlags(tnr_egl_handle* connection, tnr_egl_handle stream,
                                                     unsigned int flags);
CUresult CUDAAPI cuEGLStreamConsumerDisconnect(tnr_egl_handle* connection);
CUresult CUDAAPI cuEGLStreamConsumerAcquireFrame(tnr_egl_handle* connection, CUgraphicsResource* resource,
                                                 CUstream* stream, unsigned int timeout);
CUresult CUDAAPI cuEGLStreamConsumerReleaseFrame(tnr_egl_handle* connection, CUgraphicsResource resource,
                                                 CUstream* stream);
CUresult CUDAAPI cuEGLStreamProducerConnect(tnr_egl_handle* connection, tnr_egl_handle stream, tnr_egl_number width,
                                            tnr_egl_number height);
CUresult CUDAAPI cuEGLStreamProducerDisconnect(tnr_egl_handle* connection);
CUresult CUDAAPI cuEGLStreamProducerPresentFrame(tnr_egl_handle* connection, tnr_egl_frame frame, CUstream* stream);
CUresult CUDAAPI cuEGLStreamProducerReturnFrame(tnr_egl_handle* connection, tnr_egl_frame* frame, CUstream* stream);
CUresult CUDAAPI cuEventCreateFromEGLSync(CUevent* event, tnr_egl_handle sync, unsigned int flags);

CUresult CUDAAPI cuVDPAUGetDevice(CUdevice* device, tnr_vdpau_handle vdpau, void* find);
CUresult CUDAAPI cuVDPAUCtxCreate(CUcontext* context, unsigned int flags, CUdevice device, tnr_vdpau_handle vdpau,
                                  void* find);
CUresult CUDAAPI cuVDPAUCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device, tnr_vdpau_handle vdpau,
                                     void* find);
CUresult CUDAAPI cuGraphicsVDPAURegisterVideoSurface(CUgraphicsResource* resource, tnr_vdpau_handle surface,
                                                     unsigned int flags);
CUresult CUDAAPI cuGraphicsVDPAURegisterOutputSurface(CUgraphicsResource* resource, tnr_vdpau_handle surface,
                                                      unsigned int flags);

/* Since when: of what they point to, only the name counts. */
typedef CUresult(CUDAAPI* PFN_cuGraphicsGLRegisterBuffer_v3000)(void);
typedef CUresult(CUDAAPI* PFN_cuGraphicsGLRegisterImage_v3000)(void);
typedef CUresult(CUDAAPI* PFN_cuGLGetDevices_v4010)(void);
typedef CUresult(CUDAAPI* PFN_cuGLGetDevices_v6050)(void);
typedef CUresult(CUDAAPI* PFN_cuGLInit_v2000)(void);
typedef CUresult(CUDAAPI* PFN_cuGLCtxCreate_v2000)(void);
typedef CUresult(CUDAAPI* PFN_cuGLCtxCreate_v3020)(void);
typedef CUresult(CUDAAPI* PFN_cuGLRegisterBufferObject_v2000)(void);
typedef CUresult(CUDAAPI* PFN_cuGLUnregisterBufferObject_v2000)(void);
typedef CUresult(CUDAAPI* PFN_cuGLSetBufferObjectMapFlags_v2030)(void);
typedef CUresult(CUDAAPI* PFN_cuGLMapBufferObject_v2000)(void);
typedef CUresult(CUDAAPI* PFN_cuGLMapBufferObject_v3020)(void);
typedef CUresult(CUDAAPI* PFN_cuGLMapBufferObject_v7000_ptds)(void);
typedef CUresult(CUDAAPI* PFN_cuGLMapBufferObjectAsync_v2030)(void);
typedef CUresult(CUDAAPI* PFN_cuGLMapBufferObjectAsync_v3020)(void);
typedef CUresult(CUDAAPI* PFN_cuGLMapBufferObjectAsync_v7000_ptsz)(void);
typedef CUresult(CUDAAPI* PFN_cuGLUnmapBufferObject_v2000)(void);
typedef CUresult(CUDAAPI* PFN_cuGLUnmapBufferObjectAsync_v2030)(void);
typedef CUresult(CUDAAPI* PFN_cuGraphicsEGLRegisterImage_v7000)(void);
typedef CUresult(CUDAAPI* PFN_cuGraphicsResourceGetMappedEglFrame_v7000)(void);
typedef CUresult(CUDAAPI* PFN_cuEGLStreamConsumerConnect_v7000)(void);
typedef CUresult(CUDAAPI* PFN_cuEGLStreamConsumerConnectWithFlags_v8000)(void);
typedef CUresult(CUDAAPI* PFN_cuEGLStreamConsumerDisconnect_v7000)(void);
typedef CUresult(CUDAAPI* PFN_cuEGLStreamConsumerAcquireFrame_v7000)(void);
typedef CUresult(CUDAAPI* PFN_cuEGLStreamConsumerReleaseFrame_v7000)(void);
typedef CUresult(CUDAAPI* PFN_cuEGLStreamProducerConnect_v7000)(void);
typedef CUresult(CUDAAPI* PFN_cuEGLStreamProducerDisconnect_v7000)(void);
typedef CUresult(CUDAAPI* PFN_cuEGLStreamProducerPresentFrame_v7000)(void);
typedef CUresult(CUDAAPI* PFN_cuEGLStreamProducerReturnFrame_v7000)(void);
typedef CUresult(CUDAAPI* PFN_cuEventCreateFromEGLSync_v9000)(void);
typedef CUresult(CUDAAPI* PFN_cuVDPAUGetDevice_v3010)(void);
typedef CUresult(CUDAAPI* PFN_cuVDPAUCtxCreate_v3010)(void);
typedef CUresult(CUDAAPI* PFN_cuVDPAUCtxCreate_v3020)(void);
typedef CUresult(CUDAAPI* PFN_cuGraphicsVDPAURegisterVideoSurface_v3010)(void);
typedef CUresult(CUDAAPI* PFN_cuGraphicsVDPAURegisterOutputSurface_v3010)(void);

#ifdef __cplusplus
}
#endif
