"""The ASTRA toolbox: tomography from textures, in two and three dimensions. What it projects beside the CPU's projections, and
what comes out when a phantom is reconstructed."""
import astra
import numpy as np

SIDE = 48
phantom = np.zeros((SIDE, SIDE), np.float32)
phantom[15:33, 12:30] = 1
phantom[22:27, 16:22] = 3


def error(found, expected):
    return np.sqrt(((found - expected) ** 2).mean())


def reconstructed(kind, data, volume, projections, geometry, steps, start=0.0):
    result = data.create("-vol", volume, start)
    measured = data.create("-sino", geometry, projections)
    wanted = astra.astra_dict(kind)
    wanted["ReconstructionDataId"], wanted["ProjectionDataId"] = result, measured
    astra.algorithm.run(astra.algorithm.create(wanted), steps)
    return data.get(result)


volume = astra.create_vol_geom(SIDE, SIDE)
angles = np.linspace(0, np.pi, 40, False)
parallel = astra.create_proj_geom("parallel", 1.0, 72, angles)
projections = [astra.create_sino(phantom, astra.create_projector(kind, parallel, volume))[1] for kind in ("cuda", "linear")]
np.testing.assert_allclose(*projections, atol=0.02)  # the weights of a texture have 8 fractional bits
for kind, steps, start, limit in (("FBP_CUDA", 1, 0.0, 0.12), ("SIRT_CUDA", 30, 0.0, 0.15), ("CGLS_CUDA", 15, 0.0, 0.1),
                                  ("EM_CUDA", 20, 1.0, 0.1)):
    found = error(reconstructed(kind, astra.data2d, volume, projections[0], parallel, steps, start), phantom)
    assert found < limit, (kind, found)

SIDE = 24
cube = np.zeros((SIDE, SIDE, SIDE), np.float32)
cube[6:15, 8:17, 5:14] = 1
volume = astra.create_vol_geom(SIDE, SIDE, SIDE)
angles = np.linspace(0, np.pi, 18, False)
parallel = astra.create_proj_geom("parallel3d", 1.0, 1.0, 30, 36, angles)
cone = astra.create_proj_geom("cone", 1.0, 1.0, 36, 42, angles, 150, 30)
for geometry, kinds in ((parallel, ["CGLS3D_CUDA"]), (cone, ["CGLS3D_CUDA", "FDK_CUDA"])):
    _, projections = astra.create_sino3d_gpu(cube, geometry, volume)
    if geometry is parallel:
        np.testing.assert_allclose(projections.sum((0, 2)), cube.sum(), rtol=1e-2)  # every view has all of the mass
    for kind in kinds:
        found = error(reconstructed(kind, astra.data3d, volume, projections, geometry, 12), cube)
        assert found < 0.08, (kind, found)
print("ASTRA", astra.__version__)
